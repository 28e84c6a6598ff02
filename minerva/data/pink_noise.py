"""Noise to explore with whose samples resemble those of the steps before."""

import torch
from torch import Tensor

from minerva.compute.tree import Tree, copy_
from minerva.formulas.pink_noise import DECAYS, next_components, pink_noise


class PinkNoise:
    """Pink noise for E environments (Eberhard et al. 2023): its power falls with the frequency, its variance is one.

    Each action tends to vary in the same direction for many steps, so that exploration moves a body instead of
    shaking it. The noise goes on from one episode to the next.
    """

    COMPONENTS = len(DECAYS)

    def __init__(self, num_envs: int, actions: int, device: torch.device, dtype: torch.dtype) -> None:
        shape = (self.COMPONENTS, num_envs, actions)
        self.state: Tree = {
            "components": torch.zeros(shape, dtype=dtype, device=device),
            "decays": torch.tensor(DECAYS, dtype=dtype, device=device).view(-1, 1, 1),
            "begun": torch.zeros((1, 1, 1), dtype=torch.bool, device=device),
        }

    @staticmethod
    def followed(state: Tree, white: Tensor) -> tuple[Tree, Tensor]:
        """Return what one more step changes in the state, and the noise, from white noise; or a stack of both.

        [..., K, E, D] -> [..., E, D]
        """
        decays = state["decays"] * state["begun"]  # the first components are white, so that their variance is one
        components = next_components(state["components"], white, decays)
        return {"components": components, "begun": torch.ones_like(state["begun"])}, pink_noise(components)

    def move(self, state: Tree) -> None:
        """Use these tensors, which hold equal values, as the storage of the state."""
        self.state = state

    def state_dict(self) -> Tree:
        """Return the components, and whether there are any yet."""
        return {name: self.state[name] for name in ("components", "begun")}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state made by `state_dict`."""
        copy_(self.state, state)
