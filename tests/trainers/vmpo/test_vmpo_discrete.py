"""V-MPO's trust region on discrete actions: one categorical KL, one multiplier; and a caller's batch with logits."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from minerva.errors import ConfigError
from minerva.spec import ActionSpec
from minerva.trainers.vmpo.agent import VMPOAgent
from minerva.trainers.vmpo.config import VMPOConfig
from minerva.trainers.vmpo.metrics import rules

OBS, CHOICES, ROWS = 4, 5, 40

pytestmark = pytest.mark.usefixtures("double_precision")


def make_agent(**settings: Any) -> VMPOAgent:
    sizes = {"policy_layer_sizes": (8,), "value_layer_sizes": (6,), "minibatch_size": 0, "m_steps": 1}
    config = VMPOConfig.from_dict({**sizes, "normalize_observations": False, **settings})
    return VMPOAgent(OBS, ActionSpec.discrete(CHOICES), config=config, seed=2)


def make_batch(seed: int = 0, moved: float = 1.0) -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source)

    choices = torch.randint(CHOICES, (ROWS, 1), generator=source)
    old = {"obs": normal(ROWS, OBS), "actions": choices, "old_logits": moved * normal(ROWS, CHOICES)}
    return {**old, "returns": normal(ROWS), "advantages": normal(ROWS)}


@pytest.mark.parametrize("form", ["centered", "likelihood", "control_variate"])
def test_an_m_steps_loss_and_gradient_are_those_of_torchs_categorical(form: str) -> None:
    agent, batch = make_agent(m_step_loss=form), make_batch()
    rows = agent.validated_batch({name: agent._tensor(values) for name, values in batch.items()})
    source = torch.Generator().manual_seed(7)
    target = {
        "weights": torch.randn(ROWS, generator=source),
        "even": torch.full((ROWS,), 0.2),
        "selected": torch.ones(ROWS),
        "count": torch.tensor(float(ROWS)),
    }
    alphas = torch.tensor([0.7])
    vector = agent.flat.vector.clone().requires_grad_()
    outputs, _ = agent.improved.outputs(vector, agent.state["normalizer"], rows, target)
    loss, metrics = agent.improved.loss(outputs, alphas, rows, target)
    (grads,) = torch.autograd.grad(loss, vector)

    (logits,), values = agent.policy(batch["obs"]), agent.policy.get_value(batch["obs"]).squeeze(-1)
    policy, old = Categorical(logits=logits), Categorical(logits=batch["old_logits"])
    kl = kl_divergence(old, policy).mean()
    taken, centered = batch["actions"], target["weights"] - 0.2
    ratio, log_prob = (policy.probs / old.probs).gather(-1, taken).squeeze(-1), policy.log_prob(taken.squeeze(-1))
    nll = {
        "likelihood": -(target["weights"] * log_prob).sum(),
        "centered": -(centered * torch.where(centered < 0, ratio, log_prob)).sum(),
        "control_variate": (0.2 * (ratio - 1) - target["weights"] * log_prob).sum(),
    }[form]
    expected = nll + 0.7 * kl + 0.5 * ((values - batch["returns"]) ** 2).mean()
    torch.testing.assert_close(loss, expected)
    wanted = torch.autograd.grad(expected, list(agent.policy.parameters()))
    for part, other in zip(agent.flat.by_name(grads).values(), wanted, strict=True):
        torch.testing.assert_close(part, other)
    torch.testing.assert_close(metrics["train/entropy"], policy.entropy().mean())
    assert outputs["kls"].shape == (1,)


@pytest.mark.parametrize(
    ("action", "loss", "bound"),
    [
        (ActionSpec.discrete(3), "centered", 1e-4),
        (ActionSpec.of(2), "control_variate", 0.1),
        (ActionSpec.compound([ActionSpec.of(1), ActionSpec.discrete(3)]), "control_variate", 0.1),
    ],
    ids=["choices", "numbers", "both"],
)
def test_the_m_steps_loss_and_the_e_steps_bound_follow_from_the_actions(
    action: ActionSpec, loss: str, bound: float
) -> None:
    agent = VMPOAgent.from_config(OBS, action, VMPOConfig())
    assert agent.improved.loss_name == loss
    assert agent.hyper()["epsilon_eta"].item() == pytest.approx(bound)
    assert agent.config.derived(len(action.low))["m_step_loss"].startswith(f"{loss}, because")
    given = VMPOAgent.from_config(OBS, action, VMPOConfig(m_step_loss="likelihood", epsilon_eta=0.3))
    assert given.improved.loss_name == "likelihood"
    assert given.hyper()["epsilon_eta"].item() == pytest.approx(0.3)


@pytest.mark.parametrize(("moved", "direction"), [(2.0, 1), (0.0, -1)])
def test_the_only_multiplier_rises_with_a_kl_above_its_bound_and_falls_below(moved: float, direction: int) -> None:
    agent = make_agent(epsilon_alpha=0.3)
    assert agent.state["multipliers"]["parameter"].shape == (1,)
    metrics = agent.update(make_batch(moved=moved))
    assert np.sign(metrics["kl/choice_sel"] - 0.3) == direction
    assert np.sign(metrics["vmpo/alpha"] - 1) == direction
    assert not {"vmpo/alpha_mu", "kl/mean", "train/mean_abs_action"} & metrics.keys()


def test_the_multiplier_of_choices_may_fall_further_than_those_of_a_gaussian() -> None:
    agent = make_agent(alpha_lr=50.0, policy_lr=1e-12, epsilon_alpha=0.03, epsilon_eta=1e-4)
    batch = {**make_batch(), "old_logits": agent.policy(make_batch()["obs"])[0].detach()}
    agent.update(batch)
    assert agent.update(batch)["vmpo/alpha"] == pytest.approx(0.02 * (1e-4 / 0.03) ** 0.5)


def test_acting_returns_the_choice_the_value_and_the_logits() -> None:
    agent, obs = make_agent(), torch.randn(7, OBS)
    action, value, logits = agent.act(obs, deterministic=True)
    assert torch.equal(action, logits.argmax(-1, keepdim=True))
    assert (value.shape, logits.shape) == ((7, 1), (7, CHOICES))


def test_a_batch_of_a_gaussian_policy_is_refused_with_what_is_missing() -> None:
    batch = make_batch()
    batch["old_means"] = batch.pop("old_logits")
    with pytest.raises(ConfigError, match="lacks old_logits"):
        make_agent().update(batch)


def test_health_rules_read_the_only_trust_region() -> None:
    well = {"kl/choice_sel": 0.01, "health/kl_choice": 0.8, "vmpo/alpha": 4.0, "vmpo/ess": 800.0, "train/entropy": 0.01}
    well |= {"vmpo/selected_frac": 1.0, "vmpo/temperature_raw": 1.0}

    def broken(**changed: float) -> list[str]:
        found = rules(VMPOConfig(), 0, ("choice",))
        return [rule.name for rule in found if rule.broken({**well, **changed})]

    assert broken() == []
    assert broken(**{"health/kl_choice": 15.0}) == ["choice over its bound"]
    assert broken(**{"kl/choice_sel": 0.0}) == ["idle trust region"]
