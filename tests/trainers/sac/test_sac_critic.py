"""SAC on MPO's critic: histograms, targets over several rewards, normalised observations, decaying weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import minerva
from minerva.presets import preset_for
from minerva.runs.settings import Result
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.sac.agent import SACAgent
from minerva.trainers.sac.config import SACConfig

OBS, ACT, ROWS = 4, 2, 6
SIZES: dict[str, Any] = {"policy_layer_sizes": (8, 8), "critic_layer_sizes": (8, 8)}


def make_agent(**settings: Any) -> SACAgent:
    return SACAgent(OBS, ACT, None, None, "cpu", seed=0, **{**SIZES, **settings})


def sequences() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    sizes = {"obs": OBS, "actions": ACT, "rewards": 1, "next_obs": OBS}
    batch = {name: torch.randn(ROWS, 3, size, generator=draw) for name, size in sizes.items()}
    ends = {name: torch.zeros(ROWS, 3, 1) for name in ("dones", "truncated")}
    ends["dones"][0, 1] = ends["truncated"][1, 0] = ends["dones"][2, 2] = 1.0
    return {**batch, **ends, "actions": batch["actions"].tanh()}


def test_a_target_over_three_rewards_ends_with_its_episode() -> None:
    """Row by row: add rewards until an episode ends, then the value of the state reached unless it terminated."""
    made = make_agent(n_step=3, gamma=0.9)
    batch = sequences()
    data = made.prepared(batch)
    noise = made.draw_update(data)["next_actions"]
    found = made.evaluated.targets(made.state, data, noise, made.hyper())
    for row in range(ROWS):
        ended = torch.maximum(batch["dones"], batch["truncated"])[row, :, 0]
        last = next((t for t in range(3) if ended[t]), 2)
        total = sum(0.9**t * batch["rewards"][row, t, 0] for t in range(last + 1))
        params = made.policy_function.params(made.state["policy"], batch["next_obs"][row, last])
        raw = made.distribution.sample(params, noise[row])
        value = made.q_target(batch["next_obs"][row, last], made.distribution.executed(raw)).min()
        value = value - made.distribution.log_prob(params, raw)  # the temperature is 1
        expected = total + 0.9 ** (last + 1) * (1 - batch["dones"][row, last, 0]) * value
        torch.testing.assert_close(found[row], expected)


def test_a_critic_that_predicts_the_targets_histogram_is_left_as_it_is() -> None:
    made = make_agent(critic="hl_gauss", critic_atoms=21)
    targets = torch.linspace(-4.0, 4.0, 9)
    atoms = made.evaluated.atoms
    assert atoms is not None
    width = atoms[1] - atoms[0]
    edges = torch.cat((atoms - width / 2, atoms[-1:] + width / 2))
    masses = torch.distributions.Normal(targets.unsqueeze(-1), 0.75 * width).cdf(edges).diff(dim=-1)
    outputs = torch.log(masses / masses.sum(-1, keepdim=True) + 1e-12).expand(2, -1, -1).clone().requires_grad_()
    (grads,) = torch.autograd.grad(made.evaluated.histogram_loss(outputs, targets), outputs)
    assert grads.abs().max() < 1e-6
    torch.testing.assert_close(made.evaluated.decoded(outputs.detach())[0], targets, atol=0.02, rtol=0)


def test_decay_shrinks_the_weights_of_the_critics_by_its_share_and_no_bias() -> None:
    untrained, plain, decaying = make_agent(), make_agent(q_lr=1e-3), make_agent(q_lr=1e-3, weight_decay=0.5)
    batch = {name: values[:, 0] for name, values in sequences().items()}
    for made in (plain, decaying):
        made.update(batch)
    for before, without, found in zip(*(made.q.parameters() for made in (untrained, plain, decaying)), strict=True):
        share = 1e-3 * 0.5 if before.ndim > 1 else 0.0
        torch.testing.assert_close(found, without - share * before, rtol=1e-5, atol=1e-7)


@pytest.fixture
def trained(tmp_path: Path) -> Result:
    small = {**SIZES, "critic_layer_sizes": (8, 8), "batch_size": 16, "update_after": 100, "replay_size": 2_000}
    small["updates_per_step"] = 0.1
    settings = {"quiet": True, "eval_episodes": 1, "eval_every": 1_200, "compile": "off"}
    return minerva.train(
        "sac",
        "Pendulum-v1",
        total_steps=1_200,
        run_dir=tmp_path / "run",
        preset="mpo-critic",
        settings=settings,
        **small,
    )


def test_the_policy_of_a_run_on_that_critic_is_loaded_with_its_normaliser(trained: Result) -> None:
    policy = minerva.load_policy(trained.folder)
    obs = np.array([[1.0, 0.0, 8.0], [-1.0, 0.0, -8.0]], np.float32)
    again = minerva.evaluate(trained.folder, episodes=1)
    assert np.isfinite(policy.act(obs)).all()
    assert again.mean == pytest.approx(trained.after)


def test_the_preset_is_the_critic_of_mpos_default() -> None:
    mine = SACConfig.from_dict(preset_for("sac", "", "mpo-critic").values)
    theirs = MPOConfig()
    shared = set(SACConfig.annotations()) & set(MPOConfig.annotations())
    other = {name for name in shared if getattr(mine, name) != getattr(theirs, name)}
    assert other == {"updates_per_step", "max_grad_norm", "temperature_init", "temperature_lr"}
