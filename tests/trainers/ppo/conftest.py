"""What the tests of PPO share: agents, rollouts to learn from."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig

OBS, ACT = 4, 2


@pytest.fixture
def make_agent() -> Callable[..., PPOAgent]:
    """`make_agent(seed=0, **hyperparameters)`: a small agent for rollouts of 32 steps of 2 environments."""

    def make(seed: int = 0, **hyperparameters: Any) -> PPOAgent:
        sizes = {"policy_layer_sizes": (16, 16), "critic_layer_sizes": (16,)}
        shape = {"rollout_steps": 32, "num_envs": 2, "minibatch_size": 16, "update_epochs": 4}
        return PPOAgent(OBS, ACT, config=PPOConfig.from_dict({**sizes, **shape, **hyperparameters}), seed=seed)

    return make


@pytest.fixture
def make_rollout() -> Callable[..., dict[str, Tensor]]:
    """`make_rollout(agent, seed)`: what the agent did in a world of noise, with episodes ending now and then."""

    def make(agent: PPOAgent, seed: int = 0, steps: int = 32, envs: int = 2) -> dict[str, Tensor]:
        source = torch.Generator().manual_seed(seed)
        obs = 1 + 2 * torch.randn(steps + 1, envs, OBS, generator=source)
        mean = agent.network.get_deterministic_action(obs[:-1]).detach()
        noise = torch.randn(mean.shape, generator=source)
        terminated = torch.rand(steps, envs, generator=source) < 0.1
        truncated = torch.rand(steps, envs, generator=source) < 0.1
        return {
            "obs": obs[:-1].clone(),
            "actions_raw": mean + agent.network.actor_logstd.detach().exp() * noise,
            "next_obs": obs[1:].clone(),
            "rewards": obs[:-1, :, 0] + torch.randn(steps, envs, generator=source),
            "terminated": terminated.to(obs.dtype),
            "ended": (terminated | truncated).to(obs.dtype),
        }

    return make
