"""Videos of a policy: episodes from the evaluation's seeds, with the return as an overlay."""

import contextlib
import logging
import math
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from minerva.envs.engines.registry import engine_class
from minerva.envs.ids import EnvLike
from minerva.envs.rendering import DrawnEnv
from minerva.envs.saved import made_again
from minerva.errors import CheckpointError, ConfigError, pip_install
from minerva.evaluation import FIRST_SEED
from minerva.lab.analysis.video_settings import FASTEST, LONGEST, VideoSettings
from minerva.networks.own import OwnNetworks
from minerva.policy import Policy, load_policy
from minerva.runs.folder import find_checkpoint, refuse_foreign

logger = logging.getLogger("minerva")

Array = np.ndarray[Any, np.dtype[Any]]
LAST_FRAME = 0.7
"""Seconds for which an episode's last frame is shown."""


@dataclass(frozen=True)
class Video:
    """A recorded video: its file, and the returns and lengths of its episodes."""

    path: Path
    returns: list[float]
    lengths: list[int]
    frames: int
    fps: float


Progress = Callable[[int, int, float], None]
"""Function called at every frame with the episode, its step and its return so far."""


def record(
    run: str | Path,
    which: str = "best",
    settings: VideoSettings | None = None,
    *,
    out: Path | None = None,
    env: EnvLike | None = None,
    seed: int | None = None,
    trust_env: bool = False,
    own_networks: OwnNetworks | None = None,
    progress: Progress = lambda episode, step, total: None,
) -> Video:
    """Record the policy of a run (or of a checkpoint) into its folder `videos`, or into the file `out`.

    `env`, `trust_env` and `own_networks` are those of `minerva.evaluate`. MuJoCo chooses its renderer when it is
    imported: in a process without a display that has already imported it, use the command `minerva video` instead.
    """
    how = (settings or VideoSettings()).checked()
    policy = load_policy(run, which, own_networks=own_networks)
    target = out or _default_file(Path(run), which, how.format)
    if target.suffix != f".{how.format}":
        raise ConfigError(f"{target} does not end in .{how.format}: give another name, or another --format.")
    trained = policy.about["engine"]
    if not engine_class(trained).episodes_of_gymnasium:
        logger.warning("Trained with %s and drawn with gymnasium, where the same seeds give other episodes.", trained)
    stage = DrawnEnv(made_again(policy.about, env, trust_env), *how.size)
    try:
        _check_same_spaces(stage, policy, run)
        first = (policy.about["seed"] if seed is None else seed) + FIRST_SEED
        return _Recorder(stage, policy, how, first, progress).write(target)
    finally:
        stage.close()


def _default_file(run: Path, which: str, form: str) -> Path:
    """Return `videos/<which>.<form>` in the run's folder."""
    checkpoint = find_checkpoint(run, which)
    folder = run if run.is_dir() else checkpoint.parent.parent
    if not (folder / "config.yaml").is_file():
        raise ConfigError(f"{run} is not in a run's folder: give the video file with --out.")
    if os.path.lexists(folder / "videos"):
        refuse_foreign(folder / "videos")
    name = which if run.is_dir() else checkpoint.stem
    return folder / "videos" / f"{name}.{form}"


def _check_same_spaces(stage: DrawnEnv, policy: Policy, run: str | Path) -> None:
    if stage.observation != policy.observation or not policy.action.fits(stage.action):
        raise CheckpointError(
            f"{run} was trained on {policy.about['env']}, and {stage.name} has other observations or actions: give an "
            "environment like the one it was trained on."
        )


class _Recorder:
    """Recorder that plays the episodes and keeps every n-th frame, so that the video runs in real time."""

    def __init__(
        self, stage: DrawnEnv, policy: Policy, how: VideoSettings, first_seed: int, progress: Progress
    ) -> None:
        self.stage, self.policy, self.how = stage, policy, how
        self.first_seed, self.progress = first_seed, progress
        wanted = how.fps or FASTEST[how.format]
        self.every = max(math.ceil(stage.steps_per_second / wanted - 1e-6), 1)
        self.fps = stage.steps_per_second / self.every
        self.longest = max(round(how.seconds * stage.steps_per_second), 1) if how.seconds else None
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.count = 0
        self._refuse_length()

    def write(self, target: Path) -> Video:
        """Record all episodes and write the file atomically."""
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        encode = _write_mp4 if self.how.format == "mp4" else _write_gif
        try:
            with contextlib.closing(self._pictures()) as pictures:
                encode(temporary, pictures, self.fps)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        return Video(target, self.returns, self.lengths, self.count, self.fps)

    def _refuse_length(self) -> None:
        """Raise ConfigError, before anything is drawn, if the video would become too long."""
        steps = [length for length in (self.longest, self.stage.longest) if length is not None]
        limit, form = LONGEST[self.how.format], self.how.format
        seconds = self.how.episodes * min(steps, default=0) / self.stage.steps_per_second
        if seconds > limit:
            raise ConfigError(
                f"{self.how.episodes} episodes of {self.stage.name} can take {seconds:,.0f} s, and a video in {form} "
                f"at most {limit:,.0f} s: ask for fewer --episodes, or set --seconds for each of them"
                f"{', or --format mp4' if form == 'gif' else ''}."
            )

    def _pictures(self) -> Generator[Array, None, None]:
        allowed = int(LONGEST[self.how.format] * self.fps)
        for episode in range(self.how.episodes):
            for picture in self._episode(episode):
                if self.count >= allowed:
                    logger.warning("The video is cut after %d s.", LONGEST[self.how.format])
                    return
                self.count += 1
                yield picture

    def _episode(self, episode: int) -> Iterator[Array]:
        obs, total, step, over = self.stage.reset(self.first_seed + episode), 0.0, 0, False
        self.returns.append(total)
        self.lengths.append(step)
        while not over:
            if step % self.every == 0:
                yield self._picture(episode, step, total)
            obs, reward, over = self.stage.step(self.policy.agent.policy_action(obs).cpu().numpy())
            total, step = total + reward, step + 1
            self.returns[-1], self.lengths[-1] = total, step
            over = over or step == self.longest
        last = self._picture(episode, step, total)
        yield from [last] * max(round(LAST_FRAME * self.fps), 1)

    def _picture(self, episode: int, step: int, total: float) -> Array:
        self.progress(episode, step, total)
        picture = self.stage.picture()
        picture = picture[: len(picture) // 2 * 2, : picture.shape[1] // 2 * 2]  # H.264 needs even sizes
        if not self.how.overlay:
            return np.ascontiguousarray(picture)
        counted = f"episode {episode + 1} of {self.how.episodes}   " if self.how.episodes > 1 else ""
        return labelled(picture, f"{counted}step {step:,}   return {total:,.1f}")


def labelled(picture: Array, text: str) -> Array:
    """Return the frame with a line of text in its upper left corner, on a dark band for contrast."""
    image = Image.fromarray(picture).convert("RGBA")
    size = max(round(image.height / 24), 11)
    font = ImageFont.load_default(size=size)
    band = Image.new("RGBA", image.size, (0, 0, 0, 0))
    draw = ImageDraw.Draw(band)
    left, top, margin = size // 2, size // 2, size // 3
    box = draw.textbbox((left + margin, top + margin), text, font=font)
    draw.rounded_rectangle((left, top, box[2] + margin, box[3] + margin), radius=margin, fill=(20, 24, 32, 215))
    draw.text((left + margin, top + margin), text, font=font, fill=(255, 255, 255, 255))
    return np.asarray(Image.alpha_composite(image, band).convert("RGB"))


def _write_mp4(path: Path, pictures: Iterator[Array], fps: float) -> None:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise ConfigError(
            f"An mp4 is written with imageio-ffmpeg, which is not installed: {pip_install('video')}, or ask for "
            "--format gif."
        ) from None
    first = next(pictures)
    size = (first.shape[1], first.shape[0])
    options = ["-f", "mp4", "-movflags", "+faststart"]  # browsers start playing before the whole file is loaded
    writer = imageio_ffmpeg.write_frames(
        str(path), size, fps=fps, quality=7, codec="libx264", macro_block_size=2, output_params=options
    )
    with contextlib.closing(writer):
        writer.send(None)
        writer.send(first)
        for picture in pictures:
            writer.send(picture)


def _write_gif(path: Path, pictures: Iterator[Array], fps: float) -> None:
    first = _quantized(next(pictures))
    rest = (_quantized(picture) for picture in pictures)
    duration = max(round(100 / fps), 2) * 10  # a GIF counts hundredths of a second, and browsers slow down below two
    with open(path, "wb") as file:
        first.save(file, format="GIF", save_all=True, append_images=rest, duration=duration, loop=0, optimize=False)


def _quantized(picture: Array) -> Image.Image:
    return Image.fromarray(picture).quantize(colors=128, dither=Image.Dither.NONE)
