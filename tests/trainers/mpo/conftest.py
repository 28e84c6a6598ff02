"""What the tests of MPO share: small agents, batches of noise."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from minerva.trainers.mpo.agent import MPOAgent

OBS, ACT = 4, 2
LOW, HIGH = [-0.5, -1.0], [0.6, 1.2]


@pytest.fixture
def make_agent() -> Callable[..., MPOAgent]:
    """`make_agent(**hyperparameters)`: a small agent with bounds of its own."""

    def make(**hyperparameters: Any) -> MPOAgent:
        small = {"policy_layer_sizes": (16, 12), "critic_layer_sizes": (14, 10), "action_samples": 6}
        return MPOAgent(OBS, ACT, LOW, HIGH, "cpu", **{**small, **hyperparameters})

    return make


@pytest.fixture
def make_batch() -> Callable[..., dict[str, Tensor]]:
    """`make_batch(size, steps=None, seed=0)`: transitions, or with `steps` sequences in which episodes end."""

    def make(size: int = 9, steps: int | None = None, seed: int = 0) -> dict[str, Tensor]:
        source = torch.Generator().manual_seed(seed)
        shape = (size,) if steps is None else (size, steps)
        terminated = torch.rand(*shape, 1, generator=source) < 0.2
        truncated = (torch.rand(*shape, 1, generator=source) < 0.2) & ~terminated
        raw = torch.randn(*shape, ACT, generator=source)
        batch = {
            "obs": torch.randn(*shape, OBS, generator=source),
            "actions_exec": torch.clamp(raw, torch.tensor(LOW), torch.tensor(HIGH)),
            "rewards": torch.randn(*shape, 1, generator=source),
            "next_obs": torch.randn(*shape, OBS, generator=source),
            "dones": terminated,
        }
        if steps is not None:
            batch |= {"actions_raw": raw, "truncated": truncated}
            batch["behaviour_logp"] = -2 + 0.3 * torch.randn(*shape, 1, generator=source)
        return {name: value.to(torch.get_default_dtype()) for name, value in batch.items()}

    return make
