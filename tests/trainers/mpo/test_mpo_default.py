"""The parts of MPO's default: two critics, several critic steps, residual layers, units that do not matter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from probe_envs import Reach, StepResult
from source_settings import source
from torch import Tensor

import minerva
from minerva.errors import ConfigError
from minerva.networks.encoders import ResidualBlock, residual_layers
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from minerva.runs.folder import find_checkpoint
from minerva.trainers.mpo.agent import MPOAgent
from minerva.trainers.mpo.config import MPOConfig
from minerva.trainers.mpo.trainer import MPOTrainer

OBS, ACT = 4, 2
SMALL: dict[str, Any] = {
    "policy_layer_sizes": (16, 16),
    "critic_layer_sizes": (16, 16),
    "action_samples": 4,
    "batch_size": 16,
    "update_after": 1_000,
    "replay_size": 5_000,
}
QUIET: dict[str, Any] = {"quiet": True, "eval_episodes": 2, "compile": "off"}


def agent(**settings: Any) -> MPOAgent:
    return MPOAgent.from_config(OBS, ACT, MPOConfig.from_dict({**SMALL, **settings}))


def batch(rows: int, terminated: float = 0.0, steps: int = 3) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(rows)
    numbers = {"obs": OBS, "actions": ACT, "rewards": 1, "next_obs": OBS}
    drawn = {name: torch.randn(rows, steps, size, generator=source) for name, size in numbers.items()}
    return {**drawn, "actions": drawn["actions"].clamp(-1, 1), "dones": torch.full((rows, steps, 1), terminated)}


# --- exploration ------------------------------------------------------------------------------------------------


def test_the_first_spread_falls_with_the_number_of_actions() -> None:
    spreads = {actions: agent_of(actions).policy(torch.zeros(OBS))[1].exp() for actions in (1, 3, 6, 8, 17, 38)}
    for actions, std in spreads.items():
        expected = 0.3 if actions < 6 else 0.7 * actions**-0.5
        torch.testing.assert_close(std, torch.full((actions,), expected))


def agent_of(actions: int) -> MPOAgent:
    return MPOAgent.from_config(OBS, actions, MPOConfig.from_dict(SMALL))


def test_a_spread_that_is_set_is_used_for_any_number_of_actions() -> None:
    made = MPOAgent.from_config(OBS, 17, MPOConfig.from_dict({**SMALL, "initial_std": 0.5}))
    torch.testing.assert_close(made.policy(torch.zeros(OBS))[1].exp(), torch.full((17,), 0.5))
    with pytest.raises(ConfigError, match="initial_std is 'wide': it must be a number"):
        MPOConfig.from_dict({"initial_std": "wide"})


def test_mirrored_samples_lie_opposite_each_other_around_the_mean() -> None:
    made = agent(action_samples=6)
    data = made.prepared(batch(32))
    _, samples = made.evaluated.targets(made.state, data, made.draw_update(data), made.hyper())
    assert samples["actions"].shape == (6, 16, ACT)
    distances = samples["actions"] - samples["old"]["mean"]
    torch.testing.assert_close(distances[3:], -distances[:3])
    assert distances.abs().min() > 0


@pytest.mark.parametrize("samples", [2, 5, 6])
def test_mirrored_samples_are_one_standard_deviation_away_in_the_mean_square(samples: int) -> None:
    made = agent(action_samples=samples)
    data = made.prepared(batch(32))
    _, found = made.evaluated.targets(made.state, data, made.draw_update(data), made.hyper())
    distances = (found["actions"] - found["old"]["mean"]) / found["old"]["log_std"].exp()
    torch.testing.assert_close(distances.square().mean(0), torch.ones(16, ACT), atol=1e-4, rtol=0)


def test_out_of_bounds_counts_dimensions() -> None:
    """Means of 5 and 0 in two dimensions, whose bounds are -1 and 1, with a standard deviation of 0.01."""
    made = agent(initial_std=0.01, policy_lr=1e-30)
    with torch.no_grad():
        for policy in (made.policy, made.policy_target):
            policy.policy_mean.weight.zero_()
            policy.policy_mean.bias.copy_(torch.tensor([5.0] + [0.0] * (ACT - 1)))
    metrics = made.update(batch(32))
    assert metrics is not None
    assert metrics["health/out_of_bounds"] == pytest.approx(1 / ACT)


@pytest.mark.parametrize("layer", ["policy_mean", "policy_logstd"])
def test_a_critic_without_preference_moves_the_policy_only_if_samples_are_not_mirrored(layer: str) -> None:
    """Mirrored, the samples' pulls on the mean cancel, and those on the standard deviation, but for rounding."""

    def moved(mirrored: bool) -> float:
        made = agent(mirrored_samples=mirrored, epsilon_penalty=0.0, optimizer_type="sgd")
        with torch.no_grad():
            made.state["q"].zero_()
        before = made.state["policy"].clone()
        made.update(batch(32))
        weight = getattr(made.policy, layer).weight
        return (weight - made.flats["policy"].by_name(before)[f"{layer}.weight"]).abs().max().item()

    assert moved(True) < moved(False) / 100


def test_of_an_odd_number_of_samples_one_has_no_counterpart() -> None:
    made = agent(action_samples=5)
    data = made.prepared(batch(32))
    _, samples = made.evaluated.targets(made.state, data, made.draw_update(data), made.hyper())
    distances = samples["actions"] - samples["old"]["mean"]
    assert len(distances) == 5
    torch.testing.assert_close(distances[3:], -distances[:2])


# --- critics ----------------------------------------------------------------------------------------------------


def test_critics_in_one_batched_call_equal_critics_one_by_one() -> None:
    made = agent()
    critics, obs, actions = made.evaluated.critics, torch.randn(7, 5, OBS), torch.rand(7, 5, ACT)

    def result() -> tuple[Tensor, Tensor, Tensor]:
        leaf = made.state["q"].clone().requires_grad_()
        outputs = critics(leaf, obs, actions)
        low = critics(leaf, obs, actions, bfloat16=True).detach()
        return outputs.detach(), low, torch.autograd.grad(outputs.square().sum(), leaf)[0]

    assert not critics.batched  # on a CPU
    outputs, low, grads = result()
    torch.testing.assert_close(outputs, made.q(obs, actions))
    torch.testing.assert_close(low, outputs, rtol=0.02, atol=2e-3)  # bfloat16 has 8 bits
    critics.batched = True
    batched = result()
    torch.testing.assert_close((batched[0], batched[2]), (outputs, grads))
    torch.testing.assert_close(batched[1], low, rtol=0.02, atol=2e-3)


def test_targets_evaluated_in_one_call_equal_those_of_separate_calls() -> None:
    made = agent()
    pairs = [(torch.randn(8, OBS), torch.rand(6, 8, ACT)), (torch.randn(3, OBS), torch.rand(3, ACT))]
    together = made.evaluated.target_outputs(made.state["q_target"], *pairs)
    for (obs, actions), found in zip(pairs, together, strict=True):
        assert found.shape == (2, *actions.shape[:-1], 101)
        torch.testing.assert_close(found, made.q_target(obs.expand(*actions.shape[:-1], OBS), actions))


@pytest.mark.parametrize(
    ("rule", "terminated", "expected"),
    [("auto", 0.0, 2.0), ("auto", 1.0, 1.0), ("min", 0.0, 1.0), ("mean", 1.0, 2.0)],
)
def test_the_value_is_the_mean_until_an_episode_has_terminated_then_the_smaller(
    rule: str, terminated: float, expected: float
) -> None:
    """Two critics that know nothing but their bias, 1 and 3."""
    made = agent(critic="scalar", critic_reduction=rule, q_lr=1e-30, weight_decay=0.0)
    made.update(batch(32, terminated))
    with torch.no_grad():
        for critic, bias in zip(made.q_target, (1.0, 3.0), strict=True):
            critic.head.weight.zero_()
            critic.head.bias.fill_(bias)
    values = made.evaluated.target_values(made.state, torch.randn(5, OBS), torch.zeros(7, 5, ACT))
    assert values.shape == (7, 5)
    torch.testing.assert_close(values, torch.full((7, 5), expected))


def test_both_critics_learn_the_same_target_from_different_weights() -> None:
    made = agent(q_lr=0.01, max_grad_norm=100.0)
    data = {**batch(32, 1.0), "rewards": torch.full((32, 3, 1), 0.7)}
    for _ in range(150):
        made.update(data)
    obs, actions = made.normalized(made.state, data["obs"][:, 0]), data["actions"][:, 0]
    values = made.evaluated.head.decoded(made.q(obs, actions))
    torch.testing.assert_close(values, torch.full((2, 32), 0.7), rtol=0, atol=0.05)
    assert not torch.equal(*values)


def test_two_critic_steps_are_one_step_on_each_half() -> None:
    two, one = agent(critic_steps=2), agent(critic_steps=1)
    data, hyper = two.prepared(batch(32)), two.hyper()
    target, _ = two.evaluated.targets(two.state, data, two.draw_update(data), hyper)
    together, _ = two.evaluated(two.state, data, target, hyper)
    alone = one.state
    for half in range(2):
        rows = {name: values.chunk(2, 1)[half] for name, values in data.items()}
        alone, _ = one.evaluated(alone, rows, target.chunk(2)[half], hyper)
    torch.testing.assert_close(together["q"], alone["q"])
    assert torch.equal(two.evaluated.improved_states(data), data["obs"][0, 16:])


def test_weights_decay_and_biases_do_not() -> None:
    """Without a gradient, decay alone is left."""
    made = agent(weight_decay=0.5, q_lr=0.1, max_grad_norm=1e-30)
    before = {name: value.clone() for name, value in made.q.named_parameters()}
    made.update(batch(32))
    for name, value in made.q.named_parameters():
        factor = 0.95**2 if value.ndim > 1 else 1.0
        torch.testing.assert_close(value, factor * before[name], rtol=1e-5, atol=1e-7)


def test_a_distribution_has_no_smaller_one() -> None:
    with pytest.raises(ConfigError, match="set critics to 1"):
        MPOConfig.from_dict({"critic": "categorical"})


# --- layers -----------------------------------------------------------------------------------------------------


def test_a_residual_block_adds_to_its_input() -> None:
    block, features = ResidualBlock(6), torch.randn(5, 6)
    assert not torch.equal(block(features), features)
    torch.nn.init.zeros_(block.layers[-1].weight)
    assert torch.equal(block(features), features)


def test_residual_layers_have_one_width() -> None:
    assert residual_layers(3, (8, 8, 8))(torch.randn(2, 3)).shape == (2, 8)
    with pytest.raises(ConfigError, match="equal widths"):
        residual_layers(3, (8, 9))


# --- units ------------------------------------------------------------------------------------------------------


def trained(make_env: Callable[[], gym.Env[Any, Any]], folder: Path) -> MPOTrainer:
    trainer = MPOTrainer(make_env, 0, "cpu", **SMALL, updates_per_step=0.1)
    trainer.train(2_400, out_dir=folder, eval_every=1_200, **QUIET)
    return trainer


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> MPOTrainer:
    """The trainer after a run in units of one, with which the others are compared."""
    return trained(Reach, tmp_path_factory.mktemp("usual"))


@pytest.mark.parametrize(
    "units",
    [{"observed": 128.0, "paid": 1 / 1024}, {"observed": 1 / 64, "shift": 0.5, "paid": 1024.0, "bound": 4.0}],
    ids=str,
)
def test_a_change_of_units_changes_nothing(units: dict[str, float], usual: MPOTrainer, tmp_path: Path) -> None:
    """Factors are powers of two, so that the only difference is rounding: the weights stay together."""
    other = trained(lambda: Reach(**units), tmp_path)
    assert int(usual.agent.state["counters"]["updates"]) == 140
    torch.testing.assert_close(other.agent.state["policy"], usual.agent.state["policy"], rtol=1e-3, atol=1e-4)

    places = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32)
    obs = units["observed"] * places + np.float32(units.get("shift", 0.0))
    loaded = minerva.load_policy(tmp_path, which="last")  # with its normaliser
    np.testing.assert_allclose(loaded.act(obs) / units.get("bound", 1.0), other.greedy(obs), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loaded.agent.normalizer.mean, other.agent.state["normalizer"]["mean"])


def test_one_absurd_reward_does_not_ruin_a_run(usual: MPOTrainer, tmp_path: Path) -> None:
    class Absurd(Reach):
        count = 0

        def step(self, action: Any) -> StepResult:
            obs, reward, *others = super().step(action)
            Absurd.count += 1
            return obs, 1e12 if Absurd.count == 1_500 else reward, *others  # type: ignore[return-value]

    hit = trained(Absurd, tmp_path)
    scales = [float(trainer.reward_scale.state["largest"].max()) for trainer in (usual, hit)]  # type: ignore[union-attr]
    assert scales[1] <= 2.1 * scales[0]
    assert hit.agent.skipped == 0
    assert all(bool(torch.isfinite(value).all()) for value in hit.agent.state["moments"]["q"].values())


# --- runs -------------------------------------------------------------------------------------------------------


def test_a_stopped_run_goes_on_with_its_normaliser_and_scale(usual: MPOTrainer, tmp_path: Path) -> None:
    settings = {**SMALL, "updates_per_step": 0.1}
    first = MPOTrainer(Reach, 0, "cpu", **settings)
    stop = lambda step, metrics, trainer: step >= 1_600  # noqa: E731
    first.train(2_400, out_dir=tmp_path, eval_every=400, callbacks=[stop], **QUIET)
    second = MPOTrainer(Reach, 0, "cpu", **settings)
    second.train(2_400, out_dir=tmp_path, eval_every=400, **QUIET)
    for name in ("policy", "q"):
        assert torch.equal(second.agent.state[name], usual.agent.state[name])
    for name, value in usual.agent.state["normalizer"].items():
        assert torch.equal(second.agent.state["normalizer"][name], value)
    assert torch.equal(second.reward_scale.state["largest"], usual.reward_scale.state["largest"])  # type: ignore[union-attr]


def test_the_normaliser_has_seen_every_step_once_a_thousand(usual: MPOTrainer) -> None:
    seen = usual.replay.newest(600)["obs"].double()  # all 2,400 steps of four environments
    first = seen[:2_000]
    assert int(usual.agent.state["normalizer"]["count"]) == 2_000
    torch.testing.assert_close(usual.agent.state["normalizer"]["mean"], first.mean(0), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(usual.agent.state["normalizer"]["var"], first.var(0, correction=0), rtol=1e-9, atol=0)


def test_a_policy_from_before_these_settings_acts_as_it_did(tmp_path: Path) -> None:
    old = {**source("mpo"), **SMALL, "update_after": 20}
    trainer = MPOTrainer(Reach, 0, "cpu", **old)
    trainer.train(100, out_dir=tmp_path, eval_every=100, **QUIET)
    file = find_checkpoint(tmp_path, "last")
    about, state = load_checkpoint(file)
    for name in ("encoder", "critics", "normalize_observations", "critic_steps", "weight_decay", "scale_rewards"):
        del about["hyperparameters"][name]
    del state["trainer"]["agent"]["normalizer"]
    save_checkpoint(file, Checkpoint(about, state))
    obs = np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32)
    np.testing.assert_allclose(minerva.load_policy(file).act(obs), trainer.greedy(obs), rtol=1e-5, atol=1e-6)


def test_what_the_task_decides_is_said_and_nothing_else() -> None:
    rules = MPOConfig().derived(3)
    precision = "bfloat16_targets"
    assert set(rules) == {"initial_std", "scale_rewards", "normalize_observations", precision}
    assert all(name in MPOConfig().to_dict() and "because" in rule for name, rule in rules.items())
    assert "critic_reduction" in MPOConfig(critic_reduction="auto").derived(3)
    set_by_hand = {"initial_std": 0.5, "scale_rewards": False, "critic_range": 100.0}
    assert set(MPOConfig.from_dict(set_by_hand).derived(3)) == {"normalize_observations", precision}
    assert MPOConfig.from_dict(source("mpo")).derived(3) == {}
