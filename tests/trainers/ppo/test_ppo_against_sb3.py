"""PPO against Stable-Baselines3: same weights, same data, same loss, gradient and step."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines import ACT, OBS, DoubleExtractor, Spaces, sb3
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from torch import Tensor

from minerva.spec import ActionSpec
from minerva.trainers.ppo.agent import PPOAgent
from minerva.trainers.ppo.config import PPOConfig

ROWS = 128
CLIP, RATE = 0.2, 0.01

ACTIONS = {
    "continuous": ActionSpec.of(ACT),
    "discrete": ActionSpec.discrete(5),
    "multi_discrete": ActionSpec.multi_discrete([3, 4, 2]),
}
SPACES = {
    "continuous": Spaces.action_space,
    "discrete": gym.spaces.Discrete(5),
    "multi_discrete": gym.spaces.MultiDiscrete([3, 4, 2]),
}
KINDS = pytest.mark.parametrize("kind", list(ACTIONS))

NAMES = {
    "actor_mean.0": "mlp_extractor.policy_net.0",
    "actor_mean.2": "mlp_extractor.policy_net.2",
    "actor_mean.4": "action_net",
    "actor_logits.0": "mlp_extractor.policy_net.0",
    "actor_logits.2": "mlp_extractor.policy_net.2",
    "actor_logits.4": "action_net",
    "critic.0": "mlp_extractor.value_net.0",
    "critic.2": "mlp_extractor.value_net.2",
    "critic.4": "value_net",
    "actor_logstd": "log_std",
}

PER_MINIBATCH = {"norm_adv_per_minibatch": True}

pytestmark = pytest.mark.usefixtures("double_precision")


def make_agent(kind: str = "continuous", **hyperparameters: Any) -> PPOAgent:
    """An agent whose normaliser is the identity: variance 1 together with the constant 1e-12."""
    config = {"rollout_steps": ROWS, "minibatch_size": ROWS, "update_epochs": 1, "target_kl": None, "policy_lr": RATE}
    agent = PPOAgent(
        OBS, ACTIONS[kind], config=PPOConfig.from_dict({**config, **PER_MINIBATCH, **hyperparameters}), seed=3
    )
    agent.network.obs_normalizer.var.fill_(1 - 1e-12)
    if kind == "continuous":
        agent.network.actor_logstd.data.copy_(torch.tensor([-0.4, 0.3]))
    else:
        agent.network.actor_logits[-1].weight.data.mul_(100)  # probabilities that differ
    return agent


def make_sb3(agent: PPOAgent, kind: str = "continuous", **options: Any) -> Any:
    """Stable-Baselines3's PPO with the agent's weights and settings; its value loss lacks the factor 1/2."""
    config = agent.config
    model = sb3.PPO(
        "MlpPolicy",
        Spaces(SPACES[kind]),
        n_steps=ROWS,
        batch_size=ROWS,
        n_epochs=config.update_epochs,
        learning_rate=config.policy_lr,
        clip_range=config.clip_ratio,
        clip_range_vf=config.clip_ratio if config.clip_vloss else None,
        normalize_advantage=config.norm_adv,
        ent_coef=config.ent_coef,
        vf_coef=config.vf_coef / 2,
        max_grad_norm=config.max_grad_norm,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        device="cpu",
        policy_kwargs={"features_extractor_class": DoubleExtractor, **options},
    )
    model.set_logger(Logger(None, []))
    with torch.no_grad():
        for name, parameter in agent.network.named_parameters():
            model.policy.get_parameter(sb3_name(name)).copy_(parameter)
    return model


def sb3_name(name: str) -> str:
    layer, dot, kind = name.rpartition(".")
    return NAMES[layer] + dot + kind if dot else NAMES[name]


def make_rows(agent: PPOAgent) -> dict[str, Tensor]:
    """A minibatch in the middle of an update: ratios on both sides of the clip range, values that have moved.

    Where a value left the clip range, the return lies further on: there "the worse of the two" is the clipped value,
    which Stable-Baselines3 always takes.
    """
    source = torch.Generator().manual_seed(5)
    obs = torch.randn(ROWS, OBS, generator=source).float().double()
    actions = torch.randn(ROWS, ACT, generator=source).float().double()
    if agent.network.counts:
        drawn = [torch.randint(n, (ROWS,), generator=source) for n in agent.network.counts]
        actions = torch.stack(drawn, -1)
    _, log_prob, _, values = (part.detach() for part in agent.network.get_action_and_value(obs, actions))
    moved = 0.3 * torch.randn(ROWS, generator=source)
    return {
        "obs": obs,
        "actions_raw": actions,
        "old_log_prob": log_prob - 0.25 * torch.randn(ROWS, generator=source),
        "old_values": values - moved,
        "advantages": 2 + 3 * torch.randn(ROWS, generator=source),
        "returns": values + moved.sign() * torch.rand(ROWS, generator=source),
    }


def fill_buffer(buffer: RolloutBuffer, rows: dict[str, Tensor]) -> None:
    buffer.reset()
    buffer.observations, buffer.actions = rows["obs"].numpy()[:, None], rows["actions_raw"].double().numpy()[:, None]
    buffer.values, buffer.log_probs = rows["old_values"].numpy()[:, None], rows["old_log_prob"].numpy()[:, None]
    buffer.advantages, buffer.returns = rows["advantages"].numpy()[:, None], rows["returns"].numpy()[:, None]
    buffer.full = True


SETTINGS = pytest.mark.parametrize(
    "settings",
    [
        {"norm_adv": True, "clip_vloss": True},
        {"norm_adv": False, "clip_vloss": True},
        {"norm_adv": True, "clip_vloss": False},
        {"norm_adv": False, "clip_vloss": False},
        {"norm_adv": True, "clip_vloss": True, "ent_coef": 0.05, "vf_coef": 1.3},
    ],
    ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()),
)


@KINDS
@SETTINGS
def test_a_minibatchs_loss_terms_and_gradient_are_those_of_sb3(settings: dict[str, Any], kind: str) -> None:
    agent = make_agent(kind, max_grad_norm=float("inf"), **settings)
    rows, model = make_rows(agent), make_sb3(agent, kind)
    fill_buffer(model.rollout_buffer, rows)
    leaf = agent.flat.vector.clone().requires_grad_()
    loss, metrics = agent.improved.loss(leaf, agent.state["normalizer"], rows, agent.hyper(1.0))
    loss.backward()
    model.train()

    theirs = {name.removeprefix("train/"): value for name, value in model.logger.name_to_value.items()}
    assert loss.item() == pytest.approx(theirs["loss"], rel=1e-10)
    assert metrics["losses/policy_loss"].item() == pytest.approx(theirs["policy_gradient_loss"], rel=1e-10)
    assert metrics["losses/value_loss"].item() == pytest.approx(theirs["value_loss"] / 2, rel=1e-10)
    assert metrics["losses/entropy"].item() == pytest.approx(-theirs["entropy_loss"], rel=1e-10)
    assert metrics["losses/approx_kl"].item() == pytest.approx(theirs["approx_kl"], rel=1e-10)
    assert metrics["losses/clipfrac"].item() == pytest.approx(theirs["clip_fraction"], rel=1e-6)
    assert 0.2 < theirs["clip_fraction"] < 0.8, "the data should reach both sides of the clip range"
    for name, grads in agent.flat.by_name(leaf.grad).items():
        torch.testing.assert_close(grads, model.policy.get_parameter(sb3_name(name)).grad, rtol=1e-9, atol=1e-12)


@KINDS
@SETTINGS
def test_one_clipped_optimiser_step_is_that_of_sb3(settings: dict[str, Any], kind: str) -> None:
    agent = make_agent(kind, max_grad_norm=0.1, **settings)
    rows, model = make_rows(agent), make_sb3(agent, kind)
    fill_buffer(model.rollout_buffer, rows)
    state, _ = agent.improved.minibatch_step(agent.state, rows, torch.arange(ROWS), agent.hyper(1.0))
    model.train()
    for name, parameter in agent.flat.by_name(state["parameters"]).items():
        moved = model.policy.get_parameter(sb3_name(name)).detach()
        torch.testing.assert_close(parameter, moved, rtol=0, atol=1e-9)
        assert not torch.equal(moved, agent.network.get_parameter(name)), name


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("adam", {}),
        ("sgd", {"optimizer_class": torch.optim.SGD, "optimizer_kwargs": {"momentum": 0.9}}),
    ],
)
def test_epochs_on_one_whole_minibatch_are_those_of_sb3(kind: str, options: dict[str, Any]) -> None:
    """With the whole rollout in one minibatch its order does not matter, so several epochs can be compared."""
    agent = make_agent(update_epochs=8, clip_vloss=False, ent_coef=0.01, optimizer_type=kind)
    rows, model = make_rows(agent), make_sb3(agent, **options)
    fill_buffer(model.rollout_buffer, rows)
    orders = agent.draw_update({"rewards": rows["returns"]})
    state, metrics = agent.improved(agent.state, rows, orders, agent.hyper(1.0))
    model.train()
    for name, parameter in agent.flat.by_name(state["parameters"]).items():
        torch.testing.assert_close(parameter, model.policy.get_parameter(sb3_name(name)).detach(), rtol=0, atol=1e-8)
    assert metrics["losses/clipfrac"].item() == pytest.approx(
        model.logger.name_to_value["train/clip_fraction"], rel=1e-6
    )


def test_advantages_and_returns_are_those_of_sb3(make_rollout: Callable[..., dict[str, Tensor]]) -> None:
    """Stable-Baselines3 has no next values: a time limit's bootstrap is added to the reward, as its collector does."""
    envs = 2
    agent = make_agent(num_envs=envs)
    rollout = make_rollout(agent, steps=ROWS, envs=envs)
    batch = agent.evaluated(agent.state, rollout, agent.hyper(1.0))
    values, next_values = (agent.network.get_value(rollout[name]).detach().numpy() for name in ("obs", "next_obs"))
    ended, terminated = rollout["ended"].numpy(), rollout["terminated"].numpy()
    buffer = RolloutBuffer(ROWS, Spaces.observation_space, Spaces.action_space, "cpu", 0.95, 0.99, n_envs=envs)
    buffer.values = values
    buffer.rewards = rollout["rewards"].numpy() + 0.99 * (ended - terminated) * next_values
    buffer.episode_starts = np.concatenate([np.zeros((1, envs)), ended[:-1]])
    buffer.advantages = np.zeros((ROWS, envs))
    # inside an episode their next value is the next row's: it must be that of the true next observation
    assert np.array_equal(rollout["next_obs"][:-1], rollout["obs"][1:])
    buffer.compute_returns_and_advantage(torch.tensor(next_values[-1]), ended[-1])
    np.testing.assert_allclose(batch["advantages"].numpy(), buffer.advantages.reshape(-1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(batch["returns"].numpy(), buffer.returns.reshape(-1), rtol=0, atol=1e-12)
