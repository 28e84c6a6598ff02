"""The dual variables of MPO: temperatures and multipliers, kept unconstrained."""

import math

import torch
from torch import nn

from minerva.formulas.lagrange import FLOOR, unconstrained
from minerva.trainers.mpo.config import MPOConfig

TEMPERATURES = ("raw_temperature", "raw_penalty_temperature")


class Duals(nn.Module):
    """Unconstrained parameters as a module. A temperature that is solved in each update is none of them."""

    def __init__(self, act_dim: int, config: MPOConfig) -> None:
        super().__init__()
        if config.temperature == "gradient":
            start = torch.tensor(max(config.temperature_init, FLOOR))
            self.raw_temperature = nn.Parameter(start)
            if config.epsilon_penalty > 0:
                self.raw_penalty_temperature = nn.Parameter(start.clone())
        self.raw_alpha_mean = _multipliers(act_dim, config.init_log_alpha_mean, config.lambda_init)
        self.raw_alpha_stddev = _multipliers(act_dim, config.init_log_alpha_stddev, config.lambda_init)


def _multipliers(act_dim: int, initial: float, factor: float) -> nn.Parameter:
    """One unconstrained multiplier per dimension, starting at `factor` times the positive value of `initial`."""
    start = max(initial, FLOOR)
    value = max(start, 0.0) + math.log1p(math.exp(-abs(start)))  # softplus without overflow
    return nn.Parameter(torch.full((act_dim,), max(unconstrained(factor * value), FLOOR)))
