"""SAC's trainer: the off-policy loop around a SACAgent."""

from collections.abc import Iterable

from minerva.loop.off_policy import OffPolicyTrainer
from minerva.metrics import Rule
from minerva.trainers.sac.agent import SACAgent
from minerva.trainers.sac.config import SACConfig
from minerva.trainers.sac.metrics import rules


class SACTrainer(OffPolicyTrainer):
    """Trains SAC on an environment, given by its id, as a factory function, or as an instance."""

    algo = "sac"
    AGENT = SACAgent
    POSITIONAL = ("policy_layer_sizes", "critic_layer_sizes", "replay_size")
    agent: SACAgent
    config: SACConfig

    def rules(self) -> Iterable[Rule]:
        """Return the health rules of SAC."""
        return rules()
