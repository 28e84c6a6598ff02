"""Units change nothing: observations, rewards and actions of another scale give PPO, V-MPO and SAC the same weights.

The same of MPO is tested in mpo/test_mpo_default.py. SAC has units only with the preset `mpo-critic`: its published
recipe learns from observations and rewards as they are.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_envs import Reach, StepResult

from minerva.compute.tree import leaves
from minerva.distributions import Gaussian
from minerva.loop.stacking import Stack
from minerva.presets import preset_for
from minerva.trainers.registry import trainer_class

SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"policy_layer_sizes": (8, 8), "critic_layer_sizes": (8, 8), "update_epochs": 2, "minibatch_size": 64},
    "vmpo": {"policy_layer_sizes": (8, 8), "value_layer_sizes": (8, 8), "minibatch_size": 64},
}
BOTH = pytest.mark.parametrize("algo", SMALL)
ENVS, STEPS, ROLLOUTS = 4, 64, 5
OFF_POLICY: dict[str, dict[str, Any]] = {
    "mpo": {"action_samples": 4},
    "sac": preset_for("sac", "", "mpo-critic").values,
}
FEW = {"batch_size": 16, "update_after": 1_000, "replay_size": 5_000, "updates_per_step": 0.2, "num_envs": ENVS}
"""Updates begin when the normaliser has seen its first thousand observations."""


def trained(algo: str, make_env: Any, folder: Path, **settings: Any) -> Any:
    layers = {"policy_layer_sizes": (8, 8), "critic_layer_sizes": (8, 8)}
    if algo in SMALL:
        sizes = {"num_envs": ENVS, "rollout_steps": STEPS, **SMALL[algo]}
    else:
        sizes = {**OFF_POLICY[algo], **FEW, **layers}
    trainer = trainer_class(algo)(make_env, 0, "cpu", **{**sizes, **settings})
    quiet = {"quiet": True, "eval_episodes": 1, "eval_every": 10**6, "compile": "off"}
    trainer.train(ENVS * STEPS * ROLLOUTS, folder, **quiet)
    return trainer


class Usual(dict[str, Any]):
    """Trainers of each algorithm on the task in its own units, trained when first asked for."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self.folders = folders

    def __missing__(self, algo: str) -> Any:
        self[algo] = trained(algo, Reach, self.folders.mktemp(algo))
        return self[algo]


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Usual:
    return Usual(tmp_path_factory)


def test_a_change_of_all_units_changes_nothing_for_sac_on_mpos_critic(usual: dict[str, Any], tmp_path: Path) -> None:
    other = trained("sac", lambda: Reach(observed=1 / 64, shift=0.5, paid=1024.0, bound=4.0), tmp_path)
    torch.testing.assert_close(other.agent.state["policy"], usual["sac"].agent.state["policy"], rtol=1e-3, atol=1e-4)


@BOTH
@pytest.mark.parametrize(
    "units",
    [{"observed": 128.0}, {"observed": 1 / 64, "shift": 0.5}, {"paid": 1024.0}, {"paid": 1 / 1024}, {"bound": 4.0}],
    ids=str,
)
def test_a_change_of_units_changes_nothing(
    algo: str, units: dict[str, float], usual: dict[str, Any], tmp_path: Path
) -> None:
    """Factors are powers of two, so that the only difference is rounding: the weights stay together."""
    other = trained(algo, lambda: Reach(**units), tmp_path)
    mine, theirs = (trainer.agent.state["parameters"] for trainer in (usual[algo], other))
    torch.testing.assert_close(theirs, mine, rtol=1e-3, atol=1e-4)


@BOTH
def test_the_first_rollout_acts_blindly_and_is_learned_from_with_what_acted(algo: str, tmp_path: Path) -> None:
    """Its actions are the first policy's at zero; its normaliser is that of its own rows, counted once."""
    sizes = {"num_envs": ENVS, "rollout_steps": STEPS, **SMALL[algo]}
    agent = trainer_class(algo)(Reach, 0, "cpu", **sizes).agent
    obs, noise = 1e3 * torch.randn(STEPS, ENVS, 2), agent.draw_actions((STEPS, ENVS))
    acted = agent.acted(agent.state, obs, noise)
    still = agent.acted(agent.state, torch.zeros_like(obs), noise)
    assert torch.equal(acted["actions_raw"], still["actions_raw"])
    rows = {"obs": obs, "next_obs": obs, "actions_raw": acted["actions_raw"], "rewards": torch.randn(STEPS, ENVS)}
    rows |= {"terminated": torch.zeros(STEPS, ENVS), "ended": torch.zeros(STEPS, ENVS)}
    scaled = agent.scaled(agent.state, rows)
    batch = agent.evaluated(scaled, rows, agent.hyper(), agent.state["normalizer"])
    zero = agent.policy_function.params(agent.flat.vector, torch.zeros(STEPS * ENVS, 2), agent.state["normalizer"])
    if algo == "ppo":
        expected = Gaussian(-torch.ones(2), torch.ones(2)).log_prob(zero, batch["actions_raw"])
        torch.testing.assert_close(batch["old_log_prob"], expected)
    else:
        torch.testing.assert_close(batch["old"], zero)
    agent.learn(rows)
    statistics = agent.state["normalizer"]
    assert int(statistics["count"]) == STEPS * ENVS
    torch.testing.assert_close(statistics["mean"], obs.double().flatten(0, 1).mean(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(statistics["var"], obs.double().flatten(0, 1).var(0, correction=0), rtol=1e-9, atol=0)
    seen = agent.acted(agent.state, obs, noise)
    assert not torch.equal(seen["actions_raw"], agent.acted(agent.state, -obs, noise)["actions_raw"])


@BOTH
def test_a_source_agent_sees_its_first_observations_as_they_are(algo: str) -> None:
    sizes = {"num_envs": ENVS, "rollout_steps": STEPS, **SMALL[algo]}
    agent = trainer_class(algo)(Reach, 0, "cpu", **sizes, blind_first_rollout=False).agent
    obs, noise = torch.randn(9, 2), agent.draw_actions((9,))
    params = agent.policy_function.params(agent.flat.vector, obs, {})
    assert torch.equal(agent.acted(agent.state, obs, noise)["actions_raw"], agent.distribution.sample(params, noise))
    assert trainer_class(algo).AGENT.BY_HAND["blind_first_rollout"] is False


@BOTH
def test_stacked_agents_begin_and_go_on_as_each_does_alone(algo: str) -> None:
    """One agent has a normaliser already, the other has not."""
    sizes = {"num_envs": ENVS, "rollout_steps": STEPS, **SMALL[algo]}

    def agents() -> list[Any]:
        made = [trainer_class(algo)(Reach, seed, "cpu", **sizes).agent for seed in (1, 2)]
        made[1].state["normalizer"]["count"].fill_(10.0)
        return made

    source = torch.Generator().manual_seed(0)
    obs = 20 * torch.randn(2, STEPS + 1, ENVS, 2, generator=source)
    data = {"obs": obs[:, :-1].clone(), "next_obs": obs[:, 1:].clone(), "rewards": obs[:, 1:, :, 0] / 20}
    data["actions_raw"] = torch.randn(2, STEPS, ENVS, 2, generator=source)
    data |= dict.fromkeys(("terminated", "ended"), torch.zeros(2, STEPS, ENVS))
    alone, together = agents(), agents()
    for n, agent in enumerate(alone):
        agent.learn({name: rows[n] for name, rows in data.items()})
    stack = Stack(together, "off", 1)
    stack.learn(data, stack.hyper())
    for agent, other in zip(alone, together, strict=True):
        for mine, others in zip(leaves(agent.state), leaves(other.state), strict=True):
            torch.testing.assert_close(mine, others, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algo", [*SMALL, *OFF_POLICY])
def test_absurd_observations_and_rewards_do_not_ruin_a_run(algo: str, usual: dict[str, Any], tmp_path: Path) -> None:
    """Scales of observations and rewards, and the size of the weights, stay about what they are without the four."""

    class Absurd(Reach):
        count = 0

        def step(self, action: Any) -> StepResult:
            obs, reward, *others = super().step(action)
            Absurd.count += 1
            seen = {700: 1e6, 900: 1e12}.get(Absurd.count, obs[0])
            paid = {750: 1e6, 950: 1e12}.get(Absurd.count, reward)
            return np.float32([seen, obs[1]]), paid, *others  # type: ignore[return-value]

    hit = trained(algo, Absurd, tmp_path)
    normal, odd = (trainer.agent.state["normalizer"]["var"] for trainer in (usual[algo], hit))
    assert float(odd[0]) < 5 * float(normal[0])
    normal_scale, odd_scale = (reward_scale(trainer) for trainer in (usual[algo], hit))
    assert odd_scale < 5 * normal_scale
    weights = [parameters(trainer) for trainer in (usual[algo], hit)]
    assert float(weights[1].norm()) < 2 * float(weights[0].norm())


def reward_scale(trainer: Any) -> float:
    """What rewards are divided by, up to a constant factor."""
    if hasattr(trainer, "reward_norm"):
        return float(trainer.reward_norm.state["var"] ** 0.5)
    return float(trainer.reward_scale.state["largest"].max())


def parameters(trainer: Any) -> torch.Tensor:
    state = trainer.agent.state
    return torch.cat([state[name].flatten() for name in ("parameters", "policy", "q") if name in state])
