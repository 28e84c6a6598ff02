"""Videos: what is filmed is what is evaluated, in its own time, and a file is whole or not there."""

import contextlib
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image
from probe_envs import UNIT_ACTIONS, StepResult, vector_space
from tiny_runs import PPO, SETTINGS, FinishedRun

import minerva
from minerva.envs.ids import Task
from minerva.errors import ConfigError, EnvError
from minerva.lab.analysis import video
from minerva.lab.analysis.video import labelled, record
from minerva.lab.analysis.video_settings import VideoSettings


class Counting(gym.Env[Any, Any]):
    """Ends after 7 steps, pays 1 for each, and draws how many it has taken as the picture's brightness."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  gymnasium's own form
    action_space = UNIT_ACTIONS
    observation_space = vector_space(2)

    def __init__(self, render_mode: str | None = "rgb_array", shape: tuple[int, ...] = (65, 81, 3)) -> None:
        self.render_mode, self.shape, self.steps = render_mode, shape, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2), {}

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        return np.zeros(2), 1.0, self.steps == 7, False, {}

    def render(self) -> Any:
        return np.full(self.shape, 20 * self.steps, np.uint8)


@pytest.fixture(scope="module")
def counting_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "counting"
    minerva.PPOTrainer(Counting, seed=0, **PPO).train(128, folder, **SETTINGS)
    return folder


@pytest.fixture(autouse=True)
def without_mujoco(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minerva.envs.rendering.select_gl_backend", lambda: "none")


def pictures(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    width, height = about["size"]
    return about, [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]


def test_an_mp4_shows_every_step_and_holds_the_last(counting_run: Path, tmp_path: Path) -> None:
    film = record(counting_run, "best", VideoSettings(overlay=False), env=Counting, out=tmp_path / "a.mp4")
    assert (film.returns, film.lengths, film.fps) == ([7.0], [7], 10.0)
    about, frames = pictures(film.path)
    assert (about["size"], about["fps"], about["codec"]) == ((80, 64), 10.0, "h264")  # even sizes
    held = round(video.LAST_FRAME * 10)
    expected = [*range(0, 140, 20), *[140] * held]
    assert len(frames) == film.frames == len(expected)
    np.testing.assert_allclose([frame.mean() for frame in frames], expected, atol=4)


def test_an_environment_of_a_module_is_filmed_by_its_name(counting_run: Path, tmp_path: Path) -> None:
    for env in (f"{__name__}:Counting", Task(f"{__name__}:Counting", {"shape": [65, 81, 3]})):
        film = record(counting_run, "best", env=env, out=tmp_path / "a.mp4")
        assert film.returns == [7.0]


@pytest.mark.parametrize(("fps", "every", "shown"), [(10.0, 1, 7), (5.0, 2, 4), (4.0, 3, 3)])
def test_fewer_pictures_a_second_leave_the_time_as_it_is(
    fps: float, every: int, shown: int, counting_run: Path, tmp_path: Path
) -> None:
    film = record(counting_run, "best", VideoSettings(fps=fps), env=Counting, out=tmp_path / "a.mp4")
    held = max(round(video.LAST_FRAME * 10 / every), 1)
    assert film.fps == pytest.approx(10 / every)
    assert film.frames == shown + held
    about, frames = pictures(film.path)
    assert len(frames) == film.frames
    assert about["fps"] == pytest.approx(10 / every, abs=0.01)


def test_a_gif_shows_the_same_and_repeats(counting_run: Path, tmp_path: Path) -> None:
    how = VideoSettings(format="gif", overlay=False, episodes=2)
    film = record(counting_run, "best", how, env=Counting, out=tmp_path / "a.gif")
    with Image.open(film.path) as gif:
        assert gif.info["loop"] == 0
        shown, seconds = [], 0
        for n in range(gif.n_frames):
            gif.seek(n)
            seconds += gif.info["duration"]
            shown.append(int(np.asarray(gif.convert("RGB")).mean()))
    assert seconds == film.frames * 100  # pictures that stay are one, for longer
    assert shown == [*range(0, 160, 20), *range(0, 160, 20)]


def test_episodes_are_those_of_an_evaluation(finished_run: FinishedRun, tmp_path: Path) -> None:
    how = VideoSettings(episodes=2, fps=1, overlay=False)
    film = record(finished_run.folder, "last", how, out=tmp_path / "a.mp4")
    evaluated = minerva.evaluate(finished_run.folder, episodes=2, which="last", engine="gymnasium")
    assert film.lengths == evaluated.lengths
    assert film.returns == evaluated.returns


def test_only_so_many_seconds_are_filmed(counting_run: Path, tmp_path: Path) -> None:
    film = record(counting_run, "best", VideoSettings(seconds=0.3), env=Counting, out=tmp_path / "a.mp4")
    assert (film.lengths, film.returns) == ([3], [3.0])


def test_the_text_is_in_the_upper_left_corner_and_readable_on_any_ground() -> None:
    for ground in (0, 127, 255):
        picture = np.full((480, 640, 3), ground, np.uint8)
        drawn = labelled(picture, "return 1,234.5")
        changed = np.argwhere((drawn != picture).any(-1))
        (top, left), (bottom, right) = changed.min(0), changed.max(0)
        assert 0 < top < bottom < 60
        assert 0 < left < right < 320
        band = drawn[top : bottom + 1, left : right + 1]
        assert int(band.max()) - int(np.median(band)) > 150  # white on dark


# --- whole or not there, and refusals -------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["mp4", "gif"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, EnvError("broken")])
def test_what_is_broken_off_leaves_no_file_and_the_old_one_as_it_was(
    form: Any, error: Any, counting_run: Path, tmp_path: Path
) -> None:
    target = tmp_path / f"a.{form}"
    target.write_bytes(b"as it was")

    def stop(episode: int, step: int, total: float) -> None:
        if step == 4:
            raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        record(counting_run, "best", VideoSettings(format=form), env=Counting, out=target, progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    assert target.read_bytes() == b"as it was"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"episodes": 0}, "episodes is 0"),
        ({"width": 63}, "width is 63: it must be between 64 and 1920"),
        ({"height": 4000}, "height is 4000"),
        ({"fps": 0.5}, "fps is 0.5: it must be between 1 and 120"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"seconds": 0.0}, "seconds is 0"),
        ({"format": "avi"}, "format is avi: it must be mp4 or gif"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        VideoSettings(**settings).checked()


def test_a_video_that_would_be_too_long_is_refused_before_anything_is_drawn(
    finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video.DrawnEnv, "picture", lambda self: pytest.fail("drawn"))
    with pytest.raises(ConfigError, match=r"100 episodes of Pendulum-v1 can take 667 s.*fewer --episodes"):
        record(finished_run.folder, "best", VideoSettings(episodes=100), out=tmp_path / "a.mp4")
    with pytest.raises(ConfigError, match=r"at most 120 s.*or --format mp4"):
        record(finished_run.folder, "best", VideoSettings(episodes=20, format="gif"), out=tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []


def test_an_episode_without_an_end_is_cut(
    counting_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(video.LONGEST, "mp4", 0.5)
    film = record(counting_run, "best", env=Counting, out=tmp_path / "a.mp4")
    assert film.frames == 5
    assert "The video is cut after" in caplog.text


def test_what_draws_nothing_or_something_else_is_refused(counting_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.mp4"
    with pytest.raises(EnvError, match="Counting has no render mode rgb_array: give it one"):
        record(counting_run, env=Counting(render_mode=None), out=out)
    with pytest.raises(EnvError, match=r"draws uint8 pictures of shape \(8, 8\)"):
        record(counting_run, env=Counting(shape=(8, 8)), out=out)
    with pytest.raises(minerva.errors.CheckpointError, match="Pendulum-v1 has other observations or actions"):
        record(counting_run, env="Pendulum-v1", out=out)
    assert not out.exists()


class Plain(Counting):
    """Knows no render mode; with `broken` it cannot be made at all."""

    def __init__(self, broken: bool = False) -> None:
        if broken:
            raise ValueError("a wheel is missing\nand more")
        super().__init__()


def test_what_cannot_be_made_says_why(counting_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kwargs in (("Plain-v0", {}), ("Broken-v0", {"broken": True})):
        monkeypatch.setitem(gym.registry, name, gym.envs.registration.EnvSpec(name, entry_point=Plain, kwargs=kwargs))
    for env, reason in (
        ("Plain-v0", r"Plain-v0 has no render mode rgb_array \(TypeError: .*render_mode.*: give it one"),
        (Task("Plain-v0", {"broken": False}), r"Plain-v0 has no render mode rgb_array \(EnvError: .*: give it one"),
        ("Broken-v0", r"Broken-v0 could not be made \(ValueError: a wheel is missing\)"),
        (Task("Plain-v0", {"broken": True}), r"Plain-v0 \(broken=True\) could not be made: a wheel is missing"),
        (lambda: Plain(True), r"could not be made \(ValueError: a wheel is missing\)"),
        ("Nowhere-v0", "Nowhere-v0 is not a known environment"),
    ):
        with pytest.raises(EnvError, match=reason):
            record(counting_run, env=env, out=tmp_path / "a.mp4")


class Broken(Counting):
    def render(self) -> Any:
        raise RuntimeError("no light\nat all")


def test_a_renderer_that_raises_is_named(counting_run: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"Broken cannot be drawn \(RuntimeError: no light\)"):
        record(counting_run, env=Broken, out=tmp_path / "a.mp4")


def no_way() -> str:
    raise EnvError("MuJoCo cannot draw here")


def test_where_mujoco_cannot_draw_only_what_it_draws_is_refused(
    counting_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minerva.envs.rendering.select_gl_backend", no_way)
    record(counting_run, "best", VideoSettings(seconds=0.1), env=Counting, out=tmp_path / "a.mp4")
    for env in ("HalfCheetah-v5", "dm_control/cheetah/run"):
        with pytest.raises(EnvError, match="MuJoCo cannot draw here"):
            record(counting_run, env=env, out=tmp_path / "b.mp4")


def test_without_pygame_the_extra_is_named(
    finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pygame", None)
    with pytest.raises(EnvError, match=r"Pendulum-v1 is drawn with pygame: pip install "):
        record(finished_run.folder, out=tmp_path / "a.mp4")


def test_without_ffmpeg_the_extra_is_named_and_gif_offered(
    counting_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(ConfigError, match=r"pip install .*pygame.*, or ask for --format gif"):
        record(counting_run, env=Counting, out=tmp_path / "a.mp4")


def test_a_policy_of_envpool_is_drawn_with_gymnasium_and_says_so(
    finished_run: FinishedRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from minerva.policy import load_policy

    policy = load_policy(finished_run.folder)
    policy.about["engine"] = "envpool"
    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(ConfigError):
        patched.setattr(video, "load_policy", lambda run, which, own_networks: policy)
        record(finished_run.folder, "best", VideoSettings(seconds=0.1), out=tmp_path / "a.mp4")
    assert "Trained with envpool and drawn with gymnasium" in caplog.text
