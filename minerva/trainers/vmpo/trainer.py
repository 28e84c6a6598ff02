"""V-MPO's trainer: the on-policy loop around a VMPOAgent."""

from collections.abc import Iterable

from minerva.loop.on_policy import OnPolicyTrainer
from minerva.metrics import Rule
from minerva.trainers.vmpo.agent import VMPOAgent
from minerva.trainers.vmpo.config import VMPOConfig
from minerva.trainers.vmpo.metrics import rules


class VMPOTrainer(OnPolicyTrainer):
    """Trains V-MPO on an environment, given by its id, as a factory function, or as an instance.

    >>> trainer = VMPOTrainer("Pendulum-v1", seed=0, device="cpu", num_envs=8, rollout_steps=128)
    >>> trainer.train(100_000, out_dir="runs/pendulum")
    """

    algo = "vmpo"
    AGENT = VMPOAgent
    POSITIONAL = ("policy_layer_sizes", "value_layer_sizes", "rollout_steps", "num_envs")
    agent: VMPOAgent
    config: VMPOConfig

    def rules(self) -> Iterable[Rule]:
        """Return the health rules of V-MPO."""
        return rules(self.config, len(self.envs.action.low), tuple(self.agent.distribution.trust_regions))
