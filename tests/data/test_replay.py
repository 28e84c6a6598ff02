"""The replay gives back what was put in, evenly, and never past an episode's end."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva.compute.tree import mapped
from minerva.data.fields import Field, transition_fields
from minerva.data.replay import Replay
from minerva.errors import CheckpointError, ConfigError
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from minerva.spec import ObservationSpec

CPU = torch.device("cpu")
FIELDS = {**transition_fields(ObservationSpec((3,))), "actions_executed": Field((1,))}


def storage(replay: Replay) -> torch.Tensor:
    """All rows: obs and next_obs come first, flags last.  [steps, E, width]"""
    return replay.state["storage"]["float32"]


def fill(replay: Replay, ends: np.ndarray, first: int = 0) -> None:
    """Rows whose obs is [environment, episode, step]. `ends` [T, E]: 0 goes on, 1 terminated, 2 truncated."""
    envs = ends.shape[1]
    episode, step = np.full(envs, first), np.zeros(envs)
    for row in ends:
        obs = np.stack([np.arange(envs), episode, step], 1)
        replay.add(
            obs=torch.from_numpy(obs),
            next_obs=torch.from_numpy(obs + np.array([0, 0, 1])),
            actions_executed=torch.from_numpy(100 * episode + step),
            rewards=torch.from_numpy(step + 1),
            terminated=torch.from_numpy(row == 1),
            truncated=torch.from_numpy(row == 2),
        )
        step = np.where(row > 0, 0, step + 1)
        episode = episode + (row > 0)


def make(steps: int, envs: int, capacity: int, seed: int = 0, share: float = 0.2) -> Replay:
    replay = Replay(capacity, envs, FIELDS, CPU, seed)
    source = np.random.default_rng(seed)
    fill(replay, source.choice(3, (steps, envs), p=[1 - share, share / 2, share / 2]))
    return replay


def test_a_transition_comes_back_whole() -> None:
    batch = make(40, 3, 1000).sample(500)
    env, episode, step = batch["obs"].T
    torch.testing.assert_close(batch["next_obs"], torch.stack((env, episode, step + 1), 1))
    torch.testing.assert_close(batch["actions_executed"].squeeze(1), 100 * episode + step)
    torch.testing.assert_close(batch["rewards"], step + 1)
    assert {name: tuple(value.shape) for name, value in batch.items()} == {
        "obs": (500, 3),
        "next_obs": (500, 3),
        "actions_executed": (500, 1),
        **dict.fromkeys(("rewards", "terminated", "truncated"), (500,)),
    }


@pytest.mark.parametrize("length", [0, 4])
def test_every_kept_row_is_equally_likely_and_none_other_comes(length: int) -> None:
    replay = make(25, 2, 20, share=0.5)  # the ring has been overwritten: the newest ten steps are left
    draw = replay.sample if not length else lambda size: _firsts(replay.sample_sequences(size, length))
    counts = Counter(map(tuple, draw(20_000)["obs"].tolist()))
    kept = {tuple(row) for row in storage(replay)[..., :3].reshape(-1, 3).tolist()}
    assert len(replay) == 20
    assert set(counts) == kept
    assert min(counts.values()) > 1000 - 5 * 31  # five standard deviations of a fair draw
    assert max(counts.values()) < 1000 + 5 * 31


def _firsts(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value[:, 0] for name, value in batch.items()}


@settings(max_examples=60, deadline=None)
@given(
    steps=st.integers(1, 40),
    envs=st.integers(1, 4),
    capacity=st.integers(4, 60),
    length=st.integers(2, 7),
    seed=st.integers(0, 10_000),
    cut=st.booleans(),
)
def test_sequences_run_to_their_episodes_end_and_no_further(
    steps: int, envs: int, capacity: int, length: int, seed: int, cut: bool
) -> None:
    replay = make(steps, envs, capacity, seed)
    if cut:  # the environments start anew, as after a resume: their next rows follow nothing
        replay.cut()
        fill(replay, np.zeros((2, envs)), first=1000)
    newest = {tuple(row) for row in storage(replay)[(replay.written - 1) % replay.steps, :, :3].tolist()}
    for obs, terminated, truncated in _sequences(replay.sample_sequences(30, length)):
        ended = False
        for before, after, done, cut_off in zip(obs, obs[1:], terminated, truncated, strict=False):
            ended = ended or bool(done or cut_off)
            assert after == (before if ended else (before[0], before[1], before[2] + 1))
        if ended and not terminated[-1] and obs[-1] in newest:
            assert truncated[-1] == 1


def _sequences(batch: dict[str, torch.Tensor]) -> zip:
    obs = [[tuple(row) for row in rows] for rows in batch["obs"].tolist()]
    return zip(obs, batch["terminated"].tolist(), batch["truncated"].tolist(), strict=True)


def test_ends_keep_their_kind() -> None:
    replay = Replay(100, 1, FIELDS, CPU)
    fill(replay, np.array([[0], [1], [0], [2], [0], [0]]))
    marks = {
        tuple(obs[-1]): (terminated[-1], cut[-1])
        for obs, terminated, cut in _sequences(replay.sample_sequences(200, 3))
    }
    assert marks == {(0, 0, 1): (1, 0), (0, 1, 1): (0, 1), (0, 2, 1): (0, 1)}  # the last is the newest row


def test_the_same_seed_draws_the_same_batches() -> None:
    one, same, other = make(30, 2, 100, 1), make(30, 2, 100, 1), make(30, 2, 100, 1)
    other.generator.manual_seed(2)
    torch.manual_seed(5)
    first = one.sample(50)["obs"]
    torch.manual_seed(6)
    assert torch.equal(first, same.sample(50)["obs"])
    assert not torch.equal(first, other.sample(50)["obs"])


@pytest.mark.parametrize("steps", [0, 7, 33])
def test_a_checkpoint_brings_everything_back(steps: int, tmp_path) -> None:
    replay = make(steps, 2, 20)
    oldest = max(steps - 10, 0)
    rows = {
        "early": mapped(lambda part: part[:3], replay.since(oldest)),
        "late": replay.since(oldest + 3) if steps > 3 else replay.since(steps),
    }
    save_checkpoint(tmp_path / "x.pt", Checkpoint({}, {**replay.state_dict(), **rows}))
    restored = Replay(20, 2, FIELDS, CPU, seed=99)
    state = load_checkpoint(tmp_path / "x.pt").state
    restored.load_state_dict(state)
    restored.put(oldest, state["early"])
    restored.put(min(oldest + 3, steps), state["late"])
    for one in (replay, restored):
        fill(one, np.zeros((4, 2)), first=50)
    for draw in (lambda one: one.sample(40), lambda one: one.sample_sequences(40, 3)):
        expected, found = draw(replay), draw(restored)
        assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_replay_of_another_shape_is_refused() -> None:
    with pytest.raises(CheckpointError, match="settings that it was made with"):
        Replay(20, 2, FIELDS, CPU).put(0, make(5, 1, 20).since(0))


def test_rows_older_than_the_window_are_left_out_of_it() -> None:
    replay, restored = make(33, 2, 20), Replay(20, 2, FIELDS, CPU)
    restored.load_state_dict(replay.state_dict())
    restored.put(20, mapped(lambda a, b: torch.cat((torch.full_like(a, 7.0), b)), replay.since(30), replay.since(23)))
    assert torch.equal(storage(restored), storage(replay))


def test_a_cut_is_remembered_though_its_row_was_saved_before() -> None:
    replay = Replay(20, 1, FIELDS, CPU)
    fill(replay, np.zeros((3, 1)))
    saved = replay.since(0)
    replay.cut()
    restored = Replay(20, 1, FIELDS, CPU)
    restored.load_state_dict(replay.state_dict())
    restored.put(0, saved)
    assert torch.equal(storage(restored), storage(replay))
    assert storage(restored)[2, 0, -1] == 1


def test_capacity_counts_transitions() -> None:
    assert len(make(100, 3, 20)) == 18  # six steps of three environments


def test_each_field_keeps_its_own_dtype_and_shape() -> None:
    """Pictures stay bytes: a float32 copy would take four times the memory."""
    picture = ObservationSpec((4, 5, 3), "uint8")
    replay = Replay(10, 2, {**transition_fields(picture), "actions_executed": Field((2,))}, CPU)
    source = torch.Generator().manual_seed(0)
    kept = []
    for step in range(5):
        seen = [torch.randint(256, (2, 4, 5, 3), dtype=torch.uint8, generator=source) for _ in range(2)]
        flags = {"terminated": torch.tensor([step == 3, False]), "truncated": torch.tensor([False, step == 2])}
        kept.append({"obs": seen[0], "next_obs": seen[1], "rewards": torch.full((2,), float(step)), **flags})
        replay.add(**kept[-1], actions_executed=torch.rand(2, 2, generator=source))
    assert replay.state["storage"]["uint8"].nbytes == 5 * 2 * 2 * 60
    batch = replay.transitions(replay.state, torch.arange(10))
    for name in ("obs", "next_obs", "rewards", "terminated", "truncated"):
        expected = torch.cat([row[name] for row in kept])
        assert torch.equal(batch[name], expected.to(batch[name].dtype)), name
    assert batch["obs"].dtype == torch.uint8
    sequence = replay.sequences(replay.state, torch.tensor([4]), 3)  # environment 0 from step 2: ends at step 3
    assert torch.equal(sequence["obs"][0], torch.stack([kept[n]["obs"][0] for n in (2, 3, 3)]))
    restored = Replay(10, 2, replay.fields, CPU)
    restored.load_state_dict(replay.state_dict())
    restored.put(0, replay.since(0))
    assert all(torch.equal(restored.state["storage"][name], rows) for name, rows in replay.state["storage"].items())


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [10**14, 10**18, 10**30])
def test_a_replay_that_does_not_fit_is_refused_with_its_bytes_and_the_setting(capacity: int) -> None:
    rows = {"obs": Field((3,)), "picture": Field((4, 4), torch.uint8)}
    needed = capacity * (3 * 4 + 2 * 4 + 16)  # observation and two flags as float32, and the picture
    with pytest.raises(ConfigError, match=rf"replay_size is {capacity:,}: the replay needs {needed:,} bytes"):
        Replay(capacity, 2, rows, CPU)


def test_rows_are_held_as_the_only_ones_in_several_parts() -> None:
    replay, restored = make(33, 2, 20), make(12, 2, 20, seed=1)
    restored.hold(8)
    restored.put(0, replay.since(25, 28))
    restored.put(3, replay.since(28, 33))
    assert len(restored) == 16
    expected = replay.newest(8)
    assert all(torch.equal(values, expected[name]) for name, values in restored.newest(20).items())
