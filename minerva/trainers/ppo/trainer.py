"""PPO's trainer: the on-policy loop around a PPOAgent."""

from collections.abc import Iterable

from minerva.loop.on_policy import OnPolicyTrainer
from minerva.metrics import Rule
from minerva.networks.policies import ActorCritic
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.metrics import rules

Agent = ActorCritic
"""The actor-critic network, under the name that it has in CleanRL."""


class PPOTrainer(OnPolicyTrainer):
    """Trains PPO on an environment, given by its id, as a factory function, or as an instance.

    >>> trainer = PPOTrainer("Pendulum-v1", seed=0, device="cpu", num_envs=4, rollout_steps=256)
    >>> trainer.train(100_000, out_dir="runs/pendulum")
    """

    algo = "ppo"
    AGENT = PPOAgent
    POSITIONAL = ("policy_layer_sizes", "critic_layer_sizes", "rollout_steps")
    agent: PPOAgent
    config: PPOConfig

    def rules(self) -> Iterable[Rule]:
        """Return the health rules of PPO."""
        return rules()
