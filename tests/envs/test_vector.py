"""Stepping: what a step returns, what the environment hears, how it is seeded, and what stops it."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from collecting import drawn
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_envs import UNIT_ACTIONS, Answering, Broken, Counter, Ending, Endless, Listener, Lottery, Makes, rows

from minerva.envs.engine import Engine, Episode
from minerva.envs.engines.registry import make_engine
from minerva.envs.engines.subprocesses import SubprocessEngine
from minerva.errors import EnvError, EnvStepError, TrainingError
from minerva.trainers.ppo.trainer import PPOTrainer

ENDINGS = [Ending(3, True, False), Ending(1, False, True), Ending(2, True, True), Ending(4, False, True)]


def stepped(envs: Engine) -> list[Episode]:
    """The episodes that one step ended."""
    envs.step(torch.zeros((envs.num_envs, envs.action.size)))
    return envs.take_episodes()


# --- episodes ---------------------------------------------------------------------------------------------------


def test_a_step_shows_the_true_end_and_obs_the_next_beginning() -> None:
    envs = make_engine(lambda: Counter(0, [Ending(2, False, True)]), 1)
    envs.reset([0])
    envs.step(torch.zeros((1, 1)))
    step = envs.step(torch.zeros((1, 1)))
    np.testing.assert_array_equal(step.next_obs, [[0, 0, 2]])
    np.testing.assert_array_equal(envs.obs, [[0, 1, 0]])
    assert envs.take_episodes() == [Episode(env=0, episode_return=1.0 + 2.0, length=2)]


def test_every_step_is_one_row_of_each_environment() -> None:
    scripts = [ENDINGS, ENDINGS[::-1], [Ending(7, True, False)]]
    counters = Makes(lambda number: Counter(number, scripts[number]))
    envs = make_engine(counters, 3)
    envs.reset([0, 1, 2])
    for t, expected in enumerate(zip(*(rows(i, script, 40) for i, script in enumerate(scripts)), strict=True)):
        np.testing.assert_array_equal(envs.obs, [row.obs for row in expected])
        step = envs.step(torch.zeros((3, 1)))
        np.testing.assert_array_equal(step.next_obs, [row.next_obs for row in expected])
        np.testing.assert_array_equal(step.rewards, [row.reward for row in expected])
        np.testing.assert_array_equal(step.terminated, [row.terminated for row in expected])
        np.testing.assert_array_equal(step.truncated, [row.truncated for row in expected])
        assert [counter.steps_taken for counter in counters.made] == [t + 1] * 3


@pytest.mark.parametrize(
    "env", ["Pendulum-v1", lambda: Counter(0, [Ending(2, False, True)])], ids=["float32", "float64"]
)
def test_rows_that_were_handed_out_do_not_change_later(env: Any) -> None:
    envs = make_engine(env, 1)
    first = envs.reset([0])
    step = envs.step(torch.zeros((1, 1)))
    kept = [array.clone() for array in (first, *step)]
    for _ in range(3):
        envs.step(torch.ones((1, 1)))
    for array, before in zip((first, *step), kept, strict=True):
        np.testing.assert_array_equal(array, before)


def test_returns_and_lengths_begin_anew_with_every_episode() -> None:
    envs = make_engine(lambda: Counter(0, ENDINGS), 1)
    envs.reset([0])
    episodes = [episode for _ in range(20) for episode in stepped(envs)]
    lengths = [ENDINGS[i % 4].length for i in range(len(episodes))]
    # rewards 10 i + 1, ..., 10 i + n add up to 10 i n + n (n + 1) / 2
    returns = [10.0 * i * n + n * (n + 1) / 2 for i, n in enumerate(lengths)]
    assert episodes == [Episode(0, total, n) for total, n in zip(returns, lengths, strict=True)]
    assert len(episodes) == 8


def test_a_step_is_send_and_then_recv() -> None:
    listeners = Makes(lambda number: Listener())
    envs = make_engine(listeners, 1)
    envs.reset([0])
    envs.send(torch.ones((1, 1)))
    with pytest.raises(EnvError, match="sent actions twice: call recv"):
        envs.send(torch.zeros((1, 1)))
    assert envs.recv().terminated.shape == (1,)
    with pytest.raises(EnvError, match="no step under way: call send"):
        envs.recv()
    np.testing.assert_array_equal(listeners.made[0].heard, [[1.0]])


def test_a_reset_forgets_the_step_under_way() -> None:
    listeners = Makes(lambda number: Listener())
    envs = make_engine(listeners, 1)
    envs.reset([0])
    envs.send(torch.ones((1, 1)))
    envs.reset([0])
    envs.step(torch.zeros((1, 1)))
    np.testing.assert_array_equal(listeners.made[0].heard, [[0.0]])


def test_a_reset_forgets_the_episodes_under_way() -> None:
    envs = make_engine(Endless, 2)
    envs.reset([0, 1])
    envs.step(torch.zeros((2, 1)))
    assert envs.under_way() == [(1.0, 1), (1.0, 1)]
    envs.reset([0, 1])
    assert envs.under_way() == [(0.0, 0), (0.0, 0)]


@pytest.mark.parametrize(("env_id", "flag"), [("Pendulum-v1", "truncated"), ("Hopper-v5", "terminated")])
def test_a_vector_is_its_environments_stepped_by_hand(env_id: str, flag: str) -> None:
    singles = [gym.make(env_id) for _ in range(2)]
    envs = make_engine(env_id, 2, "gymnasium")
    envs.reset([4, 5])
    now = [single.reset(seed=4 + i)[0] for i, single in enumerate(singles)]
    high = singles[0].action_space.high  # type: ignore[attr-defined]
    draw, ends = np.random.default_rng(1), 0
    for _ in range(450):
        np.testing.assert_array_equal(envs.obs, np.float32(now))
        actions = draw.uniform(-1, 1, (2, len(high)))
        step = envs.step(torch.from_numpy(actions))
        for i, single in enumerate(singles):
            obs, reward, terminated, truncated, _ = single.step((actions[i] * high).astype(np.float32))
            np.testing.assert_array_equal(step.next_obs[i], np.float32(obs))
            assert (step.rewards[i], step.terminated[i], step.truncated[i]) == (reward, terminated, truncated)
            now[i] = single.reset()[0] if terminated or truncated else obs
        ends += int(getattr(step, flag).sum())
    assert ends >= 4, "the comparison has to pass some ends"


def test_a_dm_control_episode_is_cut_by_time_not_terminated() -> None:
    envs = make_engine("dm_control/pendulum/swingup", 1)
    envs.reset([0])
    flags = [
        (bool(step.terminated[0]), bool(step.truncated[0]))
        for step in (envs.step(torch.zeros((1, 1))) for _ in range(1000))
    ]
    assert flags == [(False, False)] * 999 + [(False, True)]
    envs.close()


# --- actions ----------------------------------------------------------------------------------------------------


def heard(space: spaces.Box, *actions: list[float]) -> np.ndarray:
    listeners = Makes(lambda number: Listener(space))
    envs = make_engine(listeners, 1)
    envs.reset([0])
    for action in actions:
        envs.step(torch.tensor([action], dtype=torch.float32))
    assert all(space.contains(action) for action in listeners.made[0].heard)
    return np.stack(listeners.made[0].heard)


def test_actions_are_stretched_to_asymmetric_bounds() -> None:
    space = spaces.Box(np.array([-3.0, 0.0], np.float32), np.array([1.0, 10.0], np.float32))
    given_actions = ([-1, -1], [1, 1], [0, 0], [0.5, -0.5])
    np.testing.assert_array_equal(heard(space, *given_actions), [[-3, 0], [1, 10], [-1, 5], [0, 2.5]])


def test_actions_outside_are_clipped_in_each_dimension() -> None:
    space = spaces.Box(np.array([-3.0, 0.0], np.float32), np.array([1.0, 10.0], np.float32))
    np.testing.assert_array_equal(heard(space, [7, -7], [1.0001, 0], [-1e30, 1e30]), [[1, 0], [1, 5], [-3, 10]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_action_that_is_not_finite_does_not_reach_the_environment(value: float) -> None:
    with pytest.raises(TrainingError, match="The policy gave an action that is not finite"):
        heard(UNIT_ACTIONS, [value])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_come_in_the_spaces_own_type(dtype: Any) -> None:
    assert heard(spaces.Box(-0.1, 0.3, (2,), dtype), [1, -1]).dtype == dtype


BOUND = st.floats(-1e6, 1e6, allow_subnormal=False)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    st.tuples(BOUND, BOUND).filter(lambda ends: ends[0] < ends[1]),
    st.floats(-3, 3),
    st.sampled_from([np.float32, np.float64]),
)
def test_no_rounding_carries_an_action_out_of_its_bounds(ends: tuple[float, float], action: float, dtype: Any) -> None:
    low, high = np.array([ends[0]], dtype), np.array([ends[1]], dtype)
    if low < high:  # float32 may have joined them
        ends_heard = heard(spaces.Box(low, high, dtype=dtype), [-1], [1], [action])[:2]
        rounding = 2 * np.finfo(dtype).eps * np.abs([low, high]).max()
        np.testing.assert_allclose(ends_heard, [low, high], rtol=0, atol=rounding)


# --- seeds ------------------------------------------------------------------------------------------------------


def test_environment_i_gets_seed_i_once_and_is_not_seeded_again() -> None:
    lotteries = Makes(lambda number: Lottery())
    envs = make_engine(lotteries, 3)
    envs.reset([40, 50, 60])
    for _ in range(30):
        envs.step(torch.zeros((3, 1)))
    for lottery, seed in zip(lotteries.made, (40, 50, 60), strict=True):
        assert lottery.seeds[0] == seed
        assert len(lottery.seeds) > 2
        assert set(lottery.seeds[1:]) == {None}


def test_training_environments_are_seeded_from_seed_and_evaluations_from_ten_thousand_on(tmp_path: Any) -> None:
    lotteries = Makes(lambda number: Lottery())
    trainer = PPOTrainer(lotteries, seed=7, rollout_steps=16, num_envs=3, minibatch_size=16, update_epochs=1)
    trainer.train(96, tmp_path, eval_every=48, eval_episodes=2, quiet=True)
    training, evaluation = lotteries.made[:3], lotteries.made[3:]
    assert [lottery.seeds[0] for lottery in training] == [7, 8, 9]
    assert all(set(lottery.seeds[1:]) == {None} for lottery in training)
    given_seeds = [[seed for seed in lottery.seeds if seed is not None] for lottery in evaluation]
    # a random policy, the untrained one, and two evaluations on the way
    assert given_seeds == [[10_007] * 4, [10_008] * 4]


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Hopper-v5", "dm_control/cheetah/run"])
def test_the_same_seed_is_the_same_trajectory_and_another_is_not(env_id: str) -> None:
    def trajectory(seed: int) -> np.ndarray:
        envs = make_engine(env_id, 2)
        seen = [envs.reset([seed, seed + 1])]
        draw = np.random.default_rng(0)
        seen += [envs.step(drawn(draw, envs)).next_obs for _ in range(40)]
        envs.close()
        return torch.stack(seen).numpy()

    first = trajectory(3)
    np.testing.assert_array_equal(first, trajectory(3))
    assert not np.array_equal(first[0], trajectory(8)[0])
    assert not np.array_equal(first[0, 0], first[0, 1]), "two environments of one run differ"


# --- what stops a run -------------------------------------------------------------------------------------------


def step_until_broken(make: Callable[[int], Broken], steps: int = 20) -> None:
    envs = make_engine(Makes(make), 3)
    envs.reset([0, 1, 2])
    for _ in range(steps):
        envs.step(torch.zeros((3, 1)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["observation", "reward"])
@pytest.mark.parametrize(("env", "step"), [(0, 1), (2, 4)])
def test_a_non_finite_value_is_named_with_environment_and_step(value: float, what: str, env: int, step: int) -> None:
    bad = {"obs" if what == "observation" else "reward": value}
    message = f"Makes gave a non-finite {what} in environment {env} at step {step} of its episode"
    with pytest.raises(EnvError, match=message):
        step_until_broken(lambda number: Broken(step if number == env else -1, **bad))


def test_a_first_observation_is_step_0() -> None:
    with pytest.raises(EnvError, match="observation in environment 1 at step 0 of its episode"):
        step_until_broken(lambda number: Broken(0 if number == 1 else -1, obs=np.nan))


def test_the_first_observation_of_a_later_episode_is_looked_at_too() -> None:
    with pytest.raises(EnvError, match="observation in environment 2 at step 0 of its episode"):
        step_until_broken(lambda number: Broken(0 if number == 2 else -1, obs=np.nan, episode=1))


def test_the_step_is_counted_from_the_episodes_start() -> None:
    with pytest.raises(EnvError, match="reward in environment 0 at step 2 of its episode"):
        step_until_broken(lambda number: Broken(2, reward=np.nan, episode=2))


def test_what_float32_cannot_hold_is_non_finite() -> None:
    with np.errstate(over="ignore"), pytest.raises(EnvError, match="non-finite observation"):
        step_until_broken(lambda number: Broken(1, obs=1e39))


def answered(**answer: Any) -> tuple[float, bool, bool]:
    """Reward and flags of a step of the second environment, which answers with these values."""
    envs = make_engine(Makes(lambda number: Answering(**answer if number else {})), 2)
    envs.reset([0, 1])
    step = envs.step(torch.zeros((2, 1)))
    return float(step.rewards[1]), bool(step.terminated[1]), bool(step.truncated[1])


NO_FLAGS = (None, "False", "", np.nan, 0, 1.0, [], [True, False], np.array([True, False]), np.float64(0), {}, object())
NO_REWARDS = (None, "1.5", b"1", 1j, [], [1.0, 2.0], [[1.0], [2.0, 3.0]], {}, 10**400, np.datetime64(1, "s"), object())
NO_OBSERVATIONS = (["0.5"], [None], [1j], [object()], "0.5", [[0.5], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("what", "value", "expected"),
    [(what, value, "a bool") for what in ("terminated", "truncated") for value in NO_FLAGS]
    + [("reward", value, "a float") for value in NO_REWARDS]
    + [("observation", value, "an array of floats") for value in NO_OBSERVATIONS],
)
def test_a_value_of_another_type_is_refused_with_the_type_that_was_expected(
    what: str, value: Any, expected: str
) -> None:
    kind = type(value).__name__
    message = rf"(?s)Makes gave the {what} .*\(a {kind}\) in environment 1, where {expected} is expected"
    with pytest.raises(EnvStepError, match=message):
        answered(**{what: value})


@pytest.mark.parametrize("one", [1.5, np.float32(1.5), np.array(1.5), np.array([1.5], np.float16), torch.tensor(1.5)])
@pytest.mark.parametrize("yes", [True, np.True_, np.array(True), np.array([True]), torch.tensor(True)])
def test_a_number_and_a_flag_may_come_in_an_array_of_one(one: Any, yes: Any) -> None:
    assert answered(reward=one, terminated=yes) == (1.5, True, False)
    assert answered(reward=np.int64(3), truncated=yes) == (3.0, False, True)


def test_a_process_of_its_own_refuses_it_too() -> None:
    envs = SubprocessEngine(lambda: Answering(terminated="False"), 1)
    try:
        envs.reset([0])
        with pytest.raises(EnvStepError, match=r"gave the terminated 'False' \(a str\) in environment 0, where a bool"):
            envs.step(torch.zeros((1, 1)))
    finally:
        envs.close()


@pytest.mark.parametrize("reward", [3.5e38, -1e39, 1e307, np.float64(1.7e308)])
def test_a_reward_that_float32_cannot_hold_is_non_finite(reward: float) -> None:
    with pytest.raises(EnvError, match=r"non-finite reward in environment 1 at step 2 .* \(float32 ends at 3.4e\+38\)"):
        step_until_broken(lambda number: Broken(2 if number == 1 else -1, reward=reward))


def test_the_widest_bounds_are_reached_from_end_to_end() -> None:
    widest = float(np.finfo(np.float32).max)
    space = spaces.Box(-widest, widest, (1,), np.float64)
    np.testing.assert_array_equal(heard(space, [-1], [-0.5], [0], [0.5], [1]).T / widest, [[-1, -0.5, 0, 0.5, 1]])
