"""Policy evaluation: advantages, returns, and the old policy's distribution parameters of a rollout."""

import torch
from torch import Tensor

from minerva.compute.tree import Tree, mapped
from minerva.data.normalizers import blind
from minerva.formulas.returns import advantages_and_returns
from minerva.networks.policies import FunctionalPolicy
from minerva.trainers.vmpo.config import VMPOConfig


class PolicyEvaluation:
    """`(state, rollout, hyper, acting) -> batch`. The value network is fitted to the returns in the M-step.

    `acting` are the normaliser's statistics when the rollout began, if they may not be the state's.
    """

    def __init__(self, policy: FunctionalPolicy, config: VMPOConfig) -> None:
        self.policy = policy
        self.estimator = config.advantage_estimator

    def __call__(
        self,
        state: Tree,
        rollout: dict[str, Tensor],
        hyper: dict[str, Tensor],
        acting: dict[str, Tensor] | None = None,
    ) -> Tree:
        """Return `obs, actions_raw, old, returns, advantages` and weights of one.  [T, E, ...] -> [T * E, ...]

        `old` are the distribution parameters of the old policy, on which the trust region is centered.
        """
        parameters, normalizer = state["parameters"], state["normalizer"]
        old, values = self.policy.params_and_values(parameters, rollout["obs"], normalizer)
        _, next_values = self.policy.params_and_values(parameters, rollout["next_obs"], normalizer)
        if "old" in state or acting is not None:
            center = state["old"]["parameters"] if "old" in state else parameters
            old = self.policy.params(center, rollout["obs"], normalizer if acting is None else blind(acting))
        advantages, returns = advantages_and_returns(
            self.estimator, rollout, values, next_values, hyper["gamma"], hyper["gae_lambda"]
        )
        batch = {
            "obs": rollout["obs"],
            "actions_raw": rollout["actions_raw"],
            "old": old,
            "returns": returns,
            "advantages": advantages,
            "restarting_weights": torch.ones_like(returns),
            "importance_weights": torch.ones_like(returns),
        }
        flattened: Tree = mapped(lambda rows: rows.flatten(0, 1), batch)
        return flattened
