"""Public import path of V-MPO's network, which is defined in `minerva.networks.policies`."""

from minerva.networks.policies import SquashedGaussianPolicy

__all__ = ["SquashedGaussianPolicy"]
