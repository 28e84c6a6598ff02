"""Policy evaluation: advantages, returns, and the old policy's log-probabilities and values of a rollout."""

from torch import Tensor

from minerva.compute.tree import Tree
from minerva.data.normalizers import blind
from minerva.formulas.returns import advantages_and_returns
from minerva.networks.policies import FunctionalPolicy
from minerva.trainers.ppo.config import PPOConfig


class PolicyEvaluation:
    """`(state, rollout, hyper, acting) -> batch`. Old log-probabilities are recomputed, so the first ratio is 1.

    `acting` are the normaliser's statistics when the rollout began, if they may not be the state's.
    """

    def __init__(self, policy: FunctionalPolicy, config: PPOConfig) -> None:
        self.policy = policy
        self.estimator = config.advantage_estimator

    def __call__(
        self,
        state: Tree,
        rollout: dict[str, Tensor],
        hyper: dict[str, Tensor],
        acting: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Return `obs, actions_raw, old_log_prob, old_values, advantages, returns`.  [T, E, ...] -> [T * E, ...]"""
        parameters, normalizer = state["parameters"], state["normalizer"]
        old, values = self.policy.params_and_values(parameters, rollout["obs"], normalizer)
        if acting is not None:
            old = self.policy.params(parameters, rollout["obs"], blind(acting))
        _, next_values = self.policy.params_and_values(parameters, rollout["next_obs"], normalizer)
        advantages, returns = advantages_and_returns(
            self.estimator, rollout, values, next_values, hyper["gamma"], hyper["gae_lambda"]
        )
        batch = {
            "obs": rollout["obs"],
            "actions_raw": rollout["actions_raw"],
            "old_log_prob": self.policy.distribution.log_prob(old, rollout["actions_raw"]),
            "old_values": values,
            "advantages": advantages,
            "returns": returns,
        }
        return {name: rows.flatten(0, 1) for name, rows in batch.items()}
