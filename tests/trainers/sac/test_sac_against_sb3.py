"""SAC against Stable-Baselines3: same weights, same batches, same noise, same weights afterwards."""

from typing import Any

import pytest
import torch
from stable_baselines import ACT, OBS, DoubleExtractor, Spaces, sb3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import Tensor

from minerva.trainers.sac.agent import SACAgent

ROWS, UPDATES = 32, 3
SIZES = (8, 6)
RATE = 0.003

pytestmark = pytest.mark.usefixtures("double_precision")


def make_agent() -> SACAgent:
    rates = {"policy_lr": RATE, "q_lr": RATE, "temperature_lr": RATE}
    return SACAgent(OBS, ACT, None, None, "cpu", SIZES, SIZES, seed=3, gamma=0.9, tau=0.1, **rates)


def make_sb3(agent: SACAgent) -> Any:
    options = {"net_arch": list(SIZES), "features_extractor_class": DoubleExtractor, "optimizer_kwargs": {"eps": 1e-5}}
    settings = {"learning_rate": RATE, "gamma": 0.9, "tau": 0.1, "buffer_size": 10, "target_entropy": -float(ACT)}
    model = sb3.SAC("MlpPolicy", Spaces(), device="cpu", policy_kwargs=options, **settings)
    model.set_logger(Logger(None, []))
    model.actor.action_dist.epsilon = 0.0  # which keeps its log-density finite at the bounds
    model.ent_coef_optimizer = torch.optim.Adam([model.log_ent_coef], lr=RATE, eps=1e-5)
    for mine, theirs in pairs(agent, model):
        theirs.data.copy_(mine)
    return model


def pairs(agent: SACAgent, model: Any) -> list[tuple[Tensor, Tensor]]:
    """Every parameter beside the one of Stable-Baselines3 that has its place."""
    actor = [*model.actor.latent_pi.parameters(), *model.actor.mu.parameters(), *model.actor.log_std.parameters()]
    found = list(zip(agent.policy.parameters(), actor, strict=True))
    for mine, theirs in ((agent.q, model.critic), (agent.q_target, model.critic_target)):
        found += zip(mine[0].parameters(), theirs.q_networks[0].parameters(), strict=True)
        found += zip(mine[1].parameters(), theirs.q_networks[1].parameters(), strict=True)
    return found


def random_batch(draw: torch.Generator) -> dict[str, Tensor]:
    sizes = {"obs": OBS, "actions": ACT, "rewards": 1, "next_obs": OBS}
    batch = {name: torch.randn(ROWS, size, generator=draw) for name, size in sizes.items()}
    # numbers that float32 holds, to which Stable-Baselines3 rounds what it reads
    batch = {name: values.float().double() for name, values in batch.items()}
    return {**batch, "actions": batch["actions"].clamp(-0.9, 0.9), "dones": (batch["rewards"] > 1).double()}


def test_updates_arrive_where_stable_baselines_does(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, draw = make_agent(), torch.Generator().manual_seed(0)
    model = make_sb3(agent)
    for _ in range(UPDATES):
        batch = random_batch(draw)
        noise = {name: torch.randn(ROWS, ACT, generator=draw) for name in ("actions", "next_actions")}
        order = ("obs", "actions", "next_obs", "dones", "rewards")
        sample = ReplayBufferSamples(*(batch[name] for name in order))
        monkeypatch.setattr(model.replay_buffer, "sample", lambda *_, sample=sample, **__: sample)
        drawn = iter((noise["actions"], noise["next_actions"]))  # in the order in which Stable-Baselines3 samples
        monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda *_, drawn=drawn, **__: next(drawn))
        model.train(1, ROWS)
        agent.learn(agent.prepared(batch), noise=noise)
    for mine, theirs in pairs(agent, model):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=0, atol=1e-5)
    # theirs moves along the gradient of log alpha instead of alpha, which Adam's first step cannot tell apart
    torch.testing.assert_close(agent.state["log_temperature"], model.log_ent_coef.detach()[0], rtol=0, atol=2e-5)


def test_a_wrong_entropy_target_would_be_seen() -> None:
    agent = make_agent()
    other = SACAgent(OBS, ACT, None, None, "cpu", SIZES, SIZES, seed=3, gamma=0.9, tau=0.1, target_entropy=9.0)
    batch = random_batch(torch.Generator().manual_seed(0))
    noise = {name: torch.zeros(ROWS, ACT) for name in ("actions", "next_actions")}
    for each in (agent, other):
        each.learn(each.prepared(batch), noise=noise)
    assert agent.state["log_temperature"].sign() != other.state["log_temperature"].sign()
