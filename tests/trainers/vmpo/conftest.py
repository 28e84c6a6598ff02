"""What the tests of V-MPO share: agents, batches and rollouts to learn from."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from minerva.trainers.vmpo.agent import VMPOAgent

OBS, ACT = 4, 2


@pytest.fixture
def make_agent() -> Callable[..., VMPOAgent]:
    """`make_agent(seed=0, **hyperparameters)`: a small agent with bounds that are not symmetric."""

    def make(seed: int = 0, **hyperparameters: Any) -> VMPOAgent:
        sizes = {"policy_layer_sizes": (16, 12), "value_layer_sizes": (14,)}
        return VMPOAgent(OBS, ACT, [-0.5, -1.5], [0.7, 2.0], "cpu", seed=seed, **{**sizes, **hyperparameters})

    return make


@pytest.fixture
def make_batch() -> Callable[..., dict[str, Tensor]]:
    """`make_batch(agent, seed)`: rows sampled by the agent; `shift` moves the old policy's mean away from it."""

    def make(agent: VMPOAgent, seed: int = 0, rows: int = 30, shift: float = 0.0) -> dict[str, Tensor]:
        source = torch.Generator().manual_seed(seed)
        obs = torch.randn(rows, OBS, generator=source)
        mean, log_std = (part.detach() for part in agent.policy(obs))
        raw = mean + log_std.exp() * torch.randn(rows, ACT, generator=source)
        return {
            "obs": obs,
            "actions": agent.policy.execute(raw),
            "actions_raw": raw,
            "old_means": mean + shift,
            "old_log_stds": log_std,
            "returns": torch.randn(rows, 1, generator=source),
            "advantages": 3 + 2 * torch.randn(rows, 1, generator=source),
        }

    return make


@pytest.fixture
def make_rollout() -> Callable[..., dict[str, Tensor]]:
    """`make_rollout(agent, seed)`: what the agent did in a world of noise, with episodes ending now and then."""

    def make(agent: VMPOAgent, seed: int = 0, steps: int = 16, envs: int = 3) -> dict[str, Tensor]:
        source = torch.Generator().manual_seed(seed)
        obs = 1 + 2 * torch.randn(steps + 1, envs, OBS, generator=source)
        terminated = torch.rand(steps, envs, generator=source) < 0.15
        truncated = torch.rand(steps, envs, generator=source) < 0.15
        return {
            "obs": obs[:-1].clone(),
            "actions_raw": agent.sample(obs[:-1]),
            "next_obs": obs[1:].clone(),
            "rewards": obs[:-1, :, 0] + torch.randn(steps, envs, generator=source),
            "terminated": terminated.to(obs.dtype),
            "ended": (terminated | truncated).to(obs.dtype),
        }

    return make
