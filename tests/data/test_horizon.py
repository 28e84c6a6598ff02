"""The horizon: how far ahead rewards count, from the lengths of a task's episodes."""

import functools
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import minerva
from minerva.data.horizon import Horizon, settings_before_episodes, settings_of
from minerva.formulas.horizon import LONGEST, LONGEST_WITH_ENDS, SHORTEST

QUIET = {"quiet": True, "eval_episodes": 1}


def rollout(steps: int, envs: int, ends: tuple[tuple[int, int], ...] = ()) -> Tensor:
    flags = torch.zeros(steps, envs)
    for step, env in ends:
        flags[step, env] = 1
    return flags


def gammas(parts: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The discount after each rollout, given as (terminated, ended)."""
    horizon, found = Horizon(), []
    for terminated, ended in parts:
        state, settings = Horizon.measured(horizon.state, terminated, ended)
        horizon.load_state_dict(state)
        found.append(settings["gamma"].item())
    return found


def test_discounts_sum_to_the_horizon_and_traces_reach_less_far() -> None:
    for steps in (100.0, 250.0, 1000.0):
        settings = settings_of(torch.tensor(steps, dtype=torch.float64))
        gamma, trace = settings["gamma"].item(), settings["gae_lambda"].item()
        assert sum(gamma**n for n in range(100_000)) == pytest.approx(steps, rel=1e-6)
        assert sum((gamma * trace) ** n for n in range(100_000)) < 2 * steps**0.5
    assert settings_before_episodes({"gamma": None, "gae_lambda": None}) == pytest.approx(
        {"gamma": 0.99, "gae_lambda": 0.95}
    )
    assert settings_before_episodes({"gamma": 0.9, "gae_lambda": None}) == pytest.approx(
        {"gamma": 0.9, "gae_lambda": 0.95}
    )


def test_the_horizon_is_the_length_of_episodes_and_reaches_less_far_once_one_has_terminated() -> None:
    nothing, cut = rollout(300, 2), rollout(300, 2, ((299, 0), (299, 1)))
    fell = rollout(300, 2, ((3, 1),))
    assert gammas([(nothing, cut)] * 3) == pytest.approx([1 - 1 / 300] * 3)
    assert gammas([(nothing, nothing), (nothing, cut)]) == pytest.approx([1 - 1 / min(600, LONGEST), 1 - 1 / 600])
    assert gammas([(nothing, cut), (fell, fell), (nothing, cut)]) == pytest.approx(
        [1 - 1 / 300, 1 - 1 / LONGEST_WITH_ENDS, 1 - 1 / LONGEST_WITH_ENDS]
    )


def test_falls_count_as_episodes() -> None:
    """Four falls in 600 steps are a mean length of 150, twelve one of 50."""
    four, eight = (rollout(300, 2, tuple((n, 0) for n in range(9, 9 + falls))) for falls in (4, 8))
    assert gammas([(four, four), (eight, eight)]) == pytest.approx([1 - 1 / 150, 1 - 1 / SHORTEST])


def test_short_and_endless_episodes_stay_within_the_limits() -> None:
    short = rollout(200, 2, tuple((n, env) for n in range(9, 200, 10) for env in (0, 1)))
    assert gammas([(torch.zeros_like(short), short)]) == pytest.approx([1 - 1 / SHORTEST])
    assert gammas([(rollout(500, 8), rollout(500, 8))] * 2) == pytest.approx([1 - 1 / LONGEST] * 2)


@pytest.mark.parametrize("algo", ["ppo", "vmpo"])
def test_training_uses_the_discount_of_its_task(algo: str, tmp_path: Path) -> None:
    def discounts(env: str, **settings: Any) -> list[float]:
        small = {"num_envs": 2, "rollout_steps": 128, "policy_layer_sizes": (8,), "minibatch_size": 64}
        run = minerva.train(algo, env, total_steps=1024, out_dir=tmp_path, settings=QUIET, **small, **settings)
        rows = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
        return [row["charts/discount"] for row in rows if "charts/discount" in row]

    # both environments of Pendulum-v1 end their episodes after 200 and 400 of 512 steps
    steps, ended = [256, 512, 768, 1024], [0, 2, 2, 4]
    lengths = [min(max(n / max(k, 1), SHORTEST), LONGEST) for n, k in zip(steps, ended, strict=True)]
    assert discounts("Pendulum-v1") == pytest.approx([1 - 1 / length for length in lengths], abs=1e-6)
    assert discounts("CartPole-v1") == pytest.approx([0.99] * 4, abs=1e-6)
    assert discounts("Pendulum-v1", gamma=0.9) == []


class Steady(gym.Env[Any, Any]):
    """Pays 1 for every step, and never ends."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 1.0, False, False, {}


def test_rewards_are_scaled_with_the_discount_of_the_task(tmp_path: Path) -> None:
    small = {"num_envs": 2, "rollout_steps": 128, "policy_layer_sizes": (8,), "minibatch_size": 64}
    finite = functools.partial(gym.wrappers.TimeLimit, max_episode_steps=5)
    trainer = minerva.PPOTrainer(Steady, eval_env=lambda: finite(Steady()), **small)
    trainer.train(256, out_dir=tmp_path, **QUIET)
    gamma = 1 - 1 / 256  # no episode has ended after 2 x 128 steps
    assert trainer.reward_norm is not None
    assert trainer.reward_norm.state["running"].tolist() == pytest.approx([(1 - gamma**128) / (1 - gamma)] * 2)


@pytest.mark.parametrize("kind", [minerva.PPOAgent, minerva.VMPOAgent])
def test_an_update_takes_the_settings_that_come_with_its_rollout(kind: Any) -> None:
    source = torch.Generator().manual_seed(0)
    rows = {name: torch.randn(16, 2, 3, generator=source) for name in ("obs", "next_obs")}
    rows |= {"actions_raw": torch.randn(16, 2, 1, generator=source), "rewards": torch.randn(16, 2, generator=source)}
    rows |= {"terminated": torch.zeros(16, 2), "ended": torch.zeros(16, 2)}

    def learned(data: dict[str, Tensor], **settings: float) -> Tensor:
        agent = kind(3, 1, seed=0, advantage_estimator="gae", **settings)
        agent.learn(data)
        return agent.flat.vector.clone()

    brought = {"gamma": torch.tensor(0.9), "gae_lambda": torch.tensor(0.5)}
    given = learned(rows, gamma=0.9, gae_lambda=0.5)
    assert torch.equal(learned({**rows, **brought}, gamma=0.99, gae_lambda=0.95), given)
    assert not torch.equal(learned(rows, gamma=0.99, gae_lambda=0.95), given)
