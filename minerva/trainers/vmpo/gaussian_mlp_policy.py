"""V-MPO's network under its public import path; it lives with the other policies."""

from minerva.networks.policies import SquashedGaussianPolicy

__all__ = ["SquashedGaussianPolicy"]
