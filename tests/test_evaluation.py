"""Evaluation: the same episodes every time, in the environment's own rewards, without a trace in training."""

import logging
import random
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.seeding import np_random
from gymnasium.wrappers import TimeLimit, TransformReward
from probe_envs import Counter, Ending, Endless, Listener, Lottery, Makes
from tiny_runs import same

from minerva import evaluation
from minerva.evaluation import Evaluation, Evaluator
from minerva.trainers.ppo.trainer import PPOTrainer

TINY = {"rollout_steps": 64, "num_envs": 2, "minibatch_size": 64, "update_epochs": 2}


def still(obs: torch.Tensor) -> torch.Tensor:
    return torch.zeros((len(obs), 1))


def episode_on_paper(seed: int) -> tuple[float, int]:
    """Return and length of a Lottery's first episode from `seed`."""
    length, prize = Lottery.draw(np_random(seed)[0])
    return length * prize, length


# --- which episodes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("episodes", [1, 15, 20, 21, 45])
@pytest.mark.parametrize("seed", [0, 3])
def test_episode_i_is_the_one_of_seed_ten_thousand_and_i(episodes: int, seed: int) -> None:
    result = Evaluator(Lottery, episodes, seed)(still)
    returns, lengths = zip(*(episode_on_paper(seed + 10_000 + i) for i in range(episodes)), strict=True)
    np.testing.assert_allclose(result.returns, returns, rtol=1e-12)
    assert result.lengths == list(lengths)


def test_many_episodes_run_in_waves_of_twenty_with_their_own_seeds() -> None:
    lotteries = Makes(lambda number: Lottery())
    Evaluator(lotteries, 45, seed=0)(still)
    given = [[seed for seed in lottery.seeds if seed is not None] for lottery in lotteries.made]
    assert len(given) == 20
    assert [seeds[:2] for seeds in given] == [[10_000 + i, 10_020 + i] for i in range(20)]
    assert [seeds[2] for seeds in given[:5]] == [10_040 + i for i in range(5)]


def test_every_call_gives_the_same_episodes_in_the_same_environments() -> None:
    lotteries = Makes(lambda number: Lottery())
    evaluate = Evaluator(lotteries, 25, seed=1)
    first = evaluate(still)
    assert [evaluate(still) for _ in range(3)] == [first] * 3
    assert len(lotteries.made) == 20, "made once and kept"


@pytest.mark.parametrize("env", ["Pendulum-v1", "Hopper-v5", "dm_control/cartpole/swingup"])
def test_a_policy_on_a_simulator_gets_the_same_returns_every_time(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 300)
    evaluate = Evaluator(env, 3, seed=0)
    weights = torch.randn(evaluate.envs.observation.size, evaluate.envs.action.size)
    first = evaluate(lambda obs: torch.tanh(obs @ weights))
    assert evaluate(lambda obs: torch.tanh(obs @ weights)) == first
    assert len(set(first.returns)) == 3, "different seeds are different episodes"
    evaluate.close()


def test_a_random_policy_is_the_same_one_from_the_same_seed() -> None:
    listeners = Makes(lambda number: Listener(length=50))
    evaluate = Evaluator(listeners, 2, seed=0)
    for seed in (5, 5, 6):
        evaluate.random(seed)
    heard = np.stack([listener.heard for listener in listeners.made])  # [environment, 3 x 50 steps, 1]
    first, again, other = np.split(heard, 3, axis=1)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.min() < -0.9
    assert first.max() > 0.9
    assert abs(first.mean()) < 0.2


def test_only_the_first_episode_of_an_environment_counts() -> None:
    """The second environment is five times slower; meanwhile the first starts new episodes."""
    lengths = [2, 10]
    evaluate = Evaluator(Makes(lambda number: Counter(number, [Ending(lengths[number], True, False)])), 2, seed=0)
    assert evaluate(still) == Evaluation([1.0 + 2.0, float(sum(range(1, 11)))], [2, 10])


def test_an_endless_episode_is_cut_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 50)
    evaluate = Evaluator(Makes(lambda number: Endless(length=7 if number == 1 else None)), 3, seed=0)
    with caplog.at_level(logging.WARNING, "minerva"):
        result = evaluate(still)
    assert result == Evaluation([50.0, 7.0, 50.0], [50, 7, 50])
    assert evaluate(still) == result
    (message,) = [record.message for record in caplog.records]  # once, however often it evaluates
    assert message.startswith("Makes: 2 of 3 evaluation episodes were cut after 50 steps")
    assert "max_episode_steps" in message


# --- what evaluation may cost -----------------------------------------------------------------------------------


@pytest.mark.parametrize("total_steps", [64, 1_500, 40_000, 10**6, 10**7, 10**9])
def test_without_a_time_limit_all_evaluations_take_a_tenth_of_the_run_or_an_episode_a_tenth(total_steps: int) -> None:
    eval_every, episodes = max(total_steps // 20, 1), 15
    longest = evaluation.longest_episode(total_steps, eval_every, episodes)
    all_steps = longest * episodes * (total_steps // eval_every + 2)
    assert all_steps <= total_steps / 10 or longest <= max(100, min(total_steps / 10, 1000))
    assert longest >= 100
    if total_steps >= 10_000:
        assert longest >= 1000  # the usual length of a task is never cut in a run of a usual length


def test_a_run_on_an_endless_environment_is_cut_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Makes(lambda number: Endless())
    trainer = PPOTrainer(made, engine="gymnasium", **TINY)
    result = trainer.train(1280, tmp_path, eval_every=128, eval_episodes=2, quiet=True)
    assert result.finished
    assert result.after == 128.0  # Endless pays 1 a step
    assert [record.message.split(": give")[0] for record in caplog.records if "cut" in record.message] == [
        "Makes: 2 of 2 evaluation episodes were cut after 128 steps"
    ]


@pytest.mark.parametrize(
    ("env", "limited"),
    [
        ("Pendulum-v1", True),
        ("dm_control/cartpole/swingup", True),
        (lambda: TimeLimit(Endless(), 300), True),
        (lambda: TransformReward(TimeLimit(Endless(), 300), lambda reward: reward), True),
        (Endless, False),
        (lambda: gym.make("Pendulum-v1").unwrapped, False),
    ],
)
@pytest.mark.parametrize("engine", ["gymnasium", "processes"])
def test_a_time_limit_is_found_wherever_it_is(env: Any, limited: bool, engine: Any) -> None:
    evaluate = Evaluator(env, 1, 0, engine, longest=5)
    action = torch.zeros((1, evaluate.envs.action.size))
    assert evaluate.envs.time_limited == limited
    if env is Endless or engine == "gymnasium":
        assert (evaluate(lambda obs: action).lengths == [5]) == (not limited)
    evaluate.close()


# --- what is told of them ---------------------------------------------------------------------------------------


def test_metrics_of_returns_one_to_four() -> None:
    metrics = Evaluation([4.0, 1.0, 3.0, 2.0], [10, 20, 30, 40]).metrics()
    assert metrics == {
        "eval/return_mean": 2.5,
        "eval/return_std": pytest.approx(1.25**0.5),
        "eval/return_min": 1.0,
        "eval/return_max": 4.0,
        "eval/return_median": 2.5,
        "eval/length_mean": 25.0,
    }


def test_returns_are_raw_while_training_is_normalised(tmp_path: Path) -> None:
    trainer = PPOTrainer(lambda: Endless(length=30), **TINY, normalize_rewards=True)
    result = trainer.train(256, tmp_path, eval_episodes=2, quiet=True)
    assert (result.random, result.before, result.after, result.best) == (30.0, 30.0, 30.0, 30.0)


# --- no trace in training ---------------------------------------------------------------------------------------


def global_random_states() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return random.getstate(), name, keys.tolist(), rest, torch.get_rng_state().tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("env", ["Pendulum-v1", "dm_control/cartpole/swingup"])
def test_global_random_generators_are_left_as_they_were(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 300)
    agent = PPOTrainer(env, rollout_steps=64).agent
    before = global_random_states()
    evaluate = Evaluator(env, 2, seed=0)
    evaluate(lambda obs: agent.policy_action(obs))
    evaluate.random(seed=0)
    assert global_random_states() == before


def trained(folder: Path, **settings: Any) -> dict[str, Any]:
    trainer = PPOTrainer("Pendulum-v1", seed=3, **TINY)
    trainer.train(1024, folder, quiet=True, **settings)
    return trainer.state_dict()


def test_training_with_and_without_evaluations_ends_with_the_same_weights(tmp_path: Path) -> None:
    often = trained(tmp_path / "often", eval_every=128, eval_episodes=3)
    rarely = trained(tmp_path / "rarely", eval_every=100_000, eval_episodes=1)
    assert same(often, rarely)
    assert "reward_norm" in often
    evaluations = [
        len((tmp_path / name / "metrics.jsonl").read_text().split("eval/return_mean")) - 1
        for name in ("often", "rarely")
    ]
    assert evaluations == [9, 2], "untrained and eight times, or untrained and at the end"


def test_training_environments_are_not_stepped_by_evaluations(tmp_path: Path) -> None:
    counters = Makes(lambda number: Counter(number, [Ending(9, True, False)]))
    PPOTrainer(counters, **TINY).train(256, tmp_path, eval_every=1, eval_episodes=4, quiet=True)
    training, evaluating = counters.made[:2], counters.made[2:]
    assert [counter.steps_taken for counter in training] == [128, 128]
    # random, untrained and after each of two updates: one episode each
    assert [counter.steps_taken for counter in evaluating] == [4 * 9] * 4
