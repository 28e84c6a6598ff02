"""PPO in an environment: what was recorded while acting is what learning starts from, and rates anneal."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from collecting import collect, make_rollout
from probe_envs import keep_what_is_learned
from torch import Tensor

from minerva.compute.tree import Tree
from minerva.envs.engines.registry import make_engine
from minerva.loop.stacking import Stack
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.trainer import PPOTrainer

STEPS, ENVS = 64, 3


class Recording(PPOAgent):
    """Notes the log-probability and value of each action at the moment it is taken."""

    log_probs: list[Tensor]
    values: list[Tensor]

    def acted(self, state: Tree, obs: Tensor, noise: Tensor) -> dict[str, Tensor]:
        done = super().acted(state, obs, noise)
        _, log_prob, _, value = self.network.get_action_and_value(obs, done["actions_raw"])
        self.log_probs.append(log_prob)
        self.values.append(value)
        return done


def test_log_probabilities_do_not_drift_between_acting_and_learning() -> None:
    config = PPOConfig(rollout_steps=STEPS, num_envs=ENVS, minibatch_size=32, policy_lr=3e-3)
    envs = make_engine("Pendulum-v1", ENVS)
    envs.reset(range(ENVS))
    agent = Recording(envs.observation.size, envs.action.size, config=config, seed=1)
    stack = Stack([agent], "off", 0)
    rollout = make_rollout(STEPS, ENVS, envs.observation.size, envs.action.size)
    for n in range(6):
        agent.log_probs, agent.values = [], []
        collect(envs, stack, [rollout])
        statistics = agent.network.obs_normalizer.mean.clone()
        batch = agent.evaluated(agent.state, rollout.tensors(), agent.hyper(1.0))
        torch.testing.assert_close(batch["old_log_prob"], torch.cat(agent.log_probs), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(batch["old_values"], torch.cat(agent.values), rtol=1e-5, atol=1e-5)
        agent.update(rollout.tensors())
        assert agent.network.obs_normalizer.count.item() == (n + 1) * STEPS * ENVS, "each row counts once"
        assert not torch.equal(agent.network.obs_normalizer.mean, statistics)
    envs.close()


def test_the_normaliser_has_seen_each_observation_once() -> None:
    config = PPOConfig(rollout_steps=STEPS, num_envs=ENVS, minibatch_size=32, update_epochs=10)
    envs = make_engine("Pendulum-v1", ENVS)
    envs.reset(range(ENVS))
    agent = PPOAgent(envs.observation.size, envs.action.size, config=config)
    stack = Stack([agent], "off", 0)
    rollout = make_rollout(STEPS, ENVS, envs.observation.size, envs.action.size)
    seen = []
    for _ in range(3):
        collect(envs, stack, [rollout])
        seen.append(rollout.tensors()["obs"].clone().reshape(-1, envs.observation.size).double().numpy())
        agent.update(rollout.tensors())
    envs.close()
    norm = agent.network.obs_normalizer
    np.testing.assert_allclose(norm.mean, np.concatenate(seen).mean(0), rtol=1e-12)
    np.testing.assert_allclose(norm.var, np.concatenate(seen).var(0), rtol=1e-12)


def test_actions_are_stored_as_sampled_and_executed_clipped() -> None:
    agent = PPOAgent(3, 2, config=PPOConfig(initial_log_std=2.0), seed=0)
    observations = np.random.default_rng(0).standard_normal((500, 3)).astype(np.float32)
    sampled = agent.sample(observations)
    assert sampled.abs().max() > 1
    assert torch.equal(agent.execute(sampled), sampled.clamp(-1, 1))
    assert agent.act(observations).abs().max() <= 1
    again = agent.act(observations, deterministic=True)
    assert torch.equal(again, agent.act(observations, deterministic=True))


@pytest.mark.parametrize(
    ("anneal", "expected"),
    [(True, [1e-3, 8e-4, 6e-4, 4e-4, 2e-4]), (False, [1e-3] * 5)],
    ids=["annealed", "constant"],
)
def test_learning_rates_of_a_run(tmp_path: Path, anneal: bool, expected: list[float]) -> None:
    """Five whole rollouts fit; the eleven steps that remain are not run."""
    rates: list[float] = []
    steps: list[int] = []

    def note(step: int, metrics: Any, trainer: PPOTrainer) -> None:
        rates.append(metrics["charts/learning_rate"])
        steps.append(step)

    trainer = PPOTrainer(
        "Pendulum-v1",
        num_envs=2,
        rollout_steps=16,
        minibatch_size=16,
        update_epochs=1,
        policy_lr=1e-3,
        anneal_lr=anneal,
    )
    trainer.train(5 * 32 + 11, tmp_path / "run", quiet=True, eval_episodes=1, eval_every=10**6, callbacks=[note])
    assert rates == pytest.approx(expected, rel=1e-6)
    assert steps == [32, 64, 96, 128, 160]


@pytest.mark.parametrize("normalized", [True, False])
def test_rewards_are_normalised_before_learning_and_episodes_are_not(tmp_path: Path, normalized: bool) -> None:
    """The agent sees rewards scaled to the spread of the discounted return; the log shows the environment's own."""
    logged: list[float] = []
    trainer = PPOTrainer("Pendulum-v1", num_envs=2, rollout_steps=256, update_epochs=1, normalize_rewards=normalized)
    seen = keep_what_is_learned(trainer.agent, "rewards")
    trainer.train(
        1024,
        tmp_path / "run",
        quiet=True,
        eval_episodes=1,
        eval_every=10**6,
        callbacks=[lambda step, metrics, _: logged.append(metrics["train/episode_return"])],
    )
    assert len(seen) == 2
    assert (torch.stack(seen).abs().max() < 1) == normalized
    assert max(logged) < -500
