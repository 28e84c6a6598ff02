"""The optimiser a config names, as a function of tensors."""

from typing import Literal

import torch
from torch import Tensor

from minerva.formulas.optimizers import adam, sgd

OptimizerType = Literal["adam", "sgd"]
Moments = dict[str, Tensor]


class Optimizer:
    """`step` is pure: (parameters, gradient, moments, rate) -> (parameters, moments)."""

    def __init__(self, optimizer_type: OptimizerType, sgd_momentum: float) -> None:
        self.type = optimizer_type
        self.momentum = sgd_momentum

    def initial_moments(self, parameters: Tensor) -> Moments:
        """The moments before the first step."""
        # an integer, because float32 stops counting at 2**24 and torch.compile (2.13) loses writes to a float64 scalar
        step = torch.zeros((), dtype=torch.int64, device=parameters.device)
        moments = {"step": step, "first": torch.zeros_like(parameters)}
        if self.type == "adam":
            moments["second"] = torch.zeros_like(parameters)
        return moments

    def step(
        self, parameters: Tensor, gradient: Tensor, moments: Moments, learning_rate: Tensor
    ) -> tuple[Tensor, Moments]:
        """Parameters and moments one step on."""
        if self.type == "adam":
            return adam(parameters, gradient, moments, learning_rate)
        return sgd(parameters, gradient, moments, learning_rate, self.momentum)
