"""Adam and SGD as pure functions of tensors, chosen by a config."""

from typing import Self

import torch
from torch import Tensor

from minerva.config import OptimizerConfig, OptimizerType
from minerva.formulas.optimizers import adam, sgd

Moments = dict[str, Tensor]


class Optimizer:
    """Adam or SGD whose `step` is pure: (parameters, grads, moments, rate) -> (parameters, moments)."""

    @classmethod
    def of(cls, config: OptimizerConfig) -> Self:
        """Return the optimiser that a config selects."""
        return cls(config.optimizer_type, config.sgd_momentum)

    def __init__(self, optimizer_type: OptimizerType, sgd_momentum: float) -> None:
        self.type = optimizer_type
        self.momentum = sgd_momentum

    def initial_moments(self, parameters: Tensor) -> Moments:
        """Return the moments before the first step."""
        # an integer, because float32 stops counting at 2**24 and torch.compile (2.13) loses writes to a float64 scalar
        step = torch.zeros((), dtype=torch.int64, device=parameters.device)
        moments = {"step": step, "first": torch.zeros_like(parameters)}
        if self.type == "adam":
            moments["second"] = torch.zeros_like(parameters)
        return moments

    def step(
        self, parameters: Tensor, grads: Tensor, moments: Moments, learning_rate: Tensor
    ) -> tuple[Tensor, Moments]:
        """Return parameters and moments after one step."""
        if self.type == "adam":
            return adam(parameters, grads, moments, learning_rate)
        return sgd(parameters, grads, moments, learning_rate, self.momentum)
