"""A replay that stores each frame once gives what one would that stores every observation whole."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva.data.fields import Field, transition_fields
from minerva.data.replay import Replay
from minerva.errors import TrainingError
from minerva.layout import rows
from minerva.spec import ObservationSpec

CPU = torch.device("cpu")
LAYOUT = {"camera": ["image", 255, 3, 2, 2], "pose": [2], "map": ["image", 255, 3, 3], "film": ["image", 255, 4, 1, 3]}
SPEC = ObservationSpec.of_layout(LAYOUT, frames=(3, 1, 2))
"""Three frames of one channel, an image alone, and two frames of two channels, beside two numbers."""
FIELDS = {**transition_fields(SPEC), "actions_executed": Field((1,))}
CONTENT = tuple(FIELDS)


class Episodes:
    """Random episodes of E environments, as an engine gives them, with the bytes of every observation at random."""

    def __init__(self, envs: int, seed: int, share: float) -> None:
        self.draw, self.share = np.random.default_rng(seed), share
        self.films = [self._first() for _ in range(envs)]
        self.obs = [self._shown(film) for film in self.films]

    def _frame(self) -> dict[str, np.ndarray]:
        shapes = {"camera": (1, 2, 2), "map": (1, 3, 3), "film": (2, 1, 3)}
        return {name: self.draw.integers(256, size=shape, dtype=np.uint8) for name, shape in shapes.items()}

    def _first(self) -> list[dict[str, np.ndarray]]:
        return [self._frame()] * 3

    def _shown(self, film: list[dict[str, np.ndarray]]) -> np.ndarray:
        shown = {
            "camera": np.concatenate([frame["camera"] for frame in film[-3:]]),
            "film": np.concatenate([frame["film"] for frame in film[-2:]]),
            "map": film[-1]["map"][0],
            "pose": self.draw.normal(size=2),
        }
        return rows(LAYOUT, shown)

    def restart(self) -> None:
        self.films = [self._first() for _ in self.films]
        self.obs = [self._shown(film) for film in self.films]

    def step(self) -> dict[str, torch.Tensor]:
        kinds = self.draw.choice(3, len(self.films), p=[1 - self.share, self.share / 2, self.share / 2])
        before, following = self.obs, []
        for n, film in enumerate(self.films):
            film = [*film, self._frame()]
            following.append(self._shown(film))
            self.films[n] = film if kinds[n] == 0 else self._first()
        self.obs = [seen if kinds[n] == 0 else self._shown(self.films[n]) for n, seen in enumerate(following)]
        size = len(self.films)
        step = {
            "obs": np.stack(before),
            "next_obs": np.stack(following),
            "actions_executed": self.draw.normal(size=(size, 1)),
            "rewards": self.draw.normal(size=size),
            "terminated": kinds == 1,
            "truncated": kinds == 2,
        }
        return {name: torch.from_numpy(values) for name, values in step.items()}


def both(capacity: int, envs: int, seed: int = 0) -> tuple[Replay, Replay]:
    """A replay of frames, and a naive one of whole observations, which draws from as many steps."""
    return tuple(Replay(capacity, envs, FIELDS, CPU, seed, observation=one) for one in (SPEC, None))  # type: ignore


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert set(found) == set(expected) == set(CONTENT)
    for name in CONTENT:
        assert torch.equal(found[name], expected[name]), name


def naive_places(frames: Replay, naive: Replay, places: torch.Tensor) -> torch.Tensor:
    """The rows of the naive replay that hold the same steps."""
    slots, envs = places // frames.num_envs, places % frames.num_envs
    back = (frames.written - 1 - slots) % frames.steps
    return (naive.written - 1 - back) % naive.steps * naive.num_envs + envs


@settings(max_examples=25, deadline=None)
@given(
    envs=st.integers(1, 3),
    capacity=st.integers(6, 60),
    steps=st.lists(st.integers(1, 25), min_size=1, max_size=4),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 10_000),
    resumed=st.booleans(),
)
def test_frames_give_what_whole_observations_would(
    envs: int, capacity: int, steps: list[int], share: float, seed: int, resumed: bool
) -> None:
    frames, naive = both(capacity, envs, seed)
    episodes, saved = Episodes(envs, seed, share), []
    for part in steps:
        for _ in range(part):
            step = episodes.step()
            for replay in (frames, naive):
                replay.add(**step)
            assert 0 < len(frames) <= len(naive)
            places = frames.starts(20)
            same(
                frames.transitions(frames.state, places),
                naive.transitions(naive.state, naive_places(frames, naive, places)),
            )
            long = frames.sequences(frames.state, places, 4)
            same(long, naive.sequences(naive.state, naive_places(frames, naive, places), 4))
        first = max(saved[-1][1] if saved else 0, frames.written - frames.steps)
        saved.append((first, frames.written, frames.since(first, frames.written)))
        if resumed:  # in a new process, which reads the rows segment by segment
            again, _ = both(capacity, envs, seed + 1)
            again.load_state_dict(frames.state_dict())
            again.frames.load_state_dict(frames.frames.state_dict())
            for start, end, rows_of in saved:
                if end > frames.written - frames.steps:
                    again.put(start, rows_of)
            assert len(again) == len(frames)
            frames = again
        else:  # the environments begin anew, after their rows were saved
            episodes.restart()
            for replay in (frames, naive):
                replay.cut()
    newest = frames.newest(3)
    same(newest, {name: values[-len(newest["rewards"]) :] for name, values in naive.newest(3).items()})


def test_a_cut_after_rows_were_saved_keeps_what_followed_them() -> None:
    frames, naive = both(20, 2)
    episodes = Episodes(2, 0, 0.0)
    for _ in range(2):
        for _ in range(5):
            step = episodes.step()
            for replay in (frames, naive):
                replay.add(**step)
        saved = frames.since(0)
        episodes.restart()
        for replay in (frames, naive):
            replay.cut()
    restored, _ = both(20, 2)
    restored.load_state_dict(frames.state_dict())
    restored.frames.load_state_dict(frames.frames.state_dict())
    restored.put(0, saved)
    places = torch.arange(20)
    same(restored.transitions(restored.state, places), naive.transitions(naive.state, places))


def test_a_million_atari_states_fit_eight_gigabytes() -> None:
    atari = ObservationSpec.of_layout(["image", 255, 4, 84, 84], frames=(4,))
    fields = {**transition_fields(atari), "actions_executed": Field((1,), torch.int64), "behaviour_logp": Field((1,))}
    replay = Replay(10_000, 4, fields, torch.device("meta"), observation=atari)
    held = [*replay.state["storage"].values(), replay.state["finals"], replay.state["final_of"]]
    assert 100 * sum(tensor.nbytes for tensor in held) < 8e9  # a hundredth of them
    whole = Replay(10_000, 4, fields, torch.device("meta"))
    assert sum(rows.nbytes for rows in whole.state["storage"].values()) > 7 * sum(tensor.nbytes for tensor in held)


def test_episodes_of_one_step_leave_fewer_rows_but_never_wrong_ones() -> None:
    frames, naive = both(160, 2)
    episodes = Episodes(2, 0, 1.0)
    for _ in range(80):
        step = episodes.step()
        for replay in (frames, naive):
            replay.add(**step)
    assert len(frames) == 160 // 10 + 2, "as many as the pool holds"
    places = frames.starts(60)
    expected = naive.transitions(naive.state, naive_places(frames, naive, places))
    same(frames.transitions(frames.state, places), expected)


def test_observations_that_are_no_stacks_are_refused() -> None:
    frames, _ = both(20, 2)
    step = Episodes(2, 0, 0.0).step()
    spoiled: dict[str, Any] = {**step, "next_obs": step["next_obs"] ^ 255}
    with pytest.raises(TrainingError, match="not stacks of an episode's newest frames, as their space says"):
        frames.add(**spoiled)
