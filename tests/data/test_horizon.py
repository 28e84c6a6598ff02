"""The horizon: how far ahead rewards count, from the lengths of a task's episodes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import minerva
from minerva.data.horizon import Horizon, settings_before_episodes, settings_of
from minerva.formulas.horizon import LONGEST, SHORTEST

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


def test_the_horizon_is_the_length_of_episodes_until_one_terminates() -> None:
    nothing, cut = rollout(200, 2), rollout(200, 2, ((199, 0), (199, 1)))
    fell = rollout(200, 2, ((3, 1),))
    assert gammas([(nothing, cut)] * 3) == pytest.approx([1 - 1 / 200] * 3)
    assert gammas([(nothing, nothing), (nothing, cut)]) == pytest.approx([1 - 1 / min(400, LONGEST), 1 - 1 / 400])
    assert gammas([(nothing, cut), (fell, fell), (nothing, cut)]) == pytest.approx(
        [1 - 1 / 200, 1 - 1 / SHORTEST, 1 - 1 / SHORTEST]
    )


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
