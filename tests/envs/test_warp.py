"""The engine warp: the same steps as gymnasium and dm_control, and the rules that hold for every engine."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from collecting import drawn
from warp_parity import compared

from minerva.api import evaluate
from minerva.cli.main import main
from minerva.cli.train import parsed_train
from minerva.envs.engine import Episode
from minerva.envs.engines.registry import make_engine
from minerva.envs.engines.warp import WarpEngine
from minerva.envs.ids import factory
from minerva.envs.warp.registry import task_names
from minerva.errors import ConfigError, EnvError, EnvStepError
from minerva.runs.folder import read_config
from minerva.trainers.mpo.trainer import MPOTrainer
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.registry import trainer_class
from minerva.trainers.vmpo.trainer import VMPOTrainer

CPU = torch.device("cpu")
CHEETAH, REACHER = "HalfCheetah-v5", "Reacher-v5"
"""The models that are compiled by default: one that observes its state, one that has to be refreshed at starts."""

FRAMES = "the friction pyramid of a steep capsule on the ground is turned about the normal"
DIFFERENT: dict[str, tuple[float, float, str]] = {
    "Ant-v5": (0.5, 0.5, FRAMES),
    "dm_control/humanoid": (0.1, 1e-2, FRAMES),
    "dm_control/quadruped": (0.1, 1e-2, FRAMES),
}
"""Largest errors of observation and reward where the simulators differ by more than rounding, and why."""


def worlds(env: str = CHEETAH, num_envs: int = 4, seed: int = 0) -> WarpEngine:
    engine = WarpEngine(env, num_envs, CPU)
    engine.reset(range(seed, seed + num_envs))
    return engine


# --- the same numbers as gymnasium and dm_control -----------------------------------------------------------------


@pytest.mark.parametrize(
    "env", [CHEETAH, REACHER, *(pytest.param(env, marks=pytest.mark.slow) for env in task_names())]
)
def test_a_step_is_the_tasks_own(env: str) -> None:
    """From 50 states: errors below 1e-4, relative to a world's largest number if that is above 1."""
    result = compared(env)
    found = next((bounds for name, bounds in DIFFERENT.items() if env.startswith(name)), (1e-4, 1e-4, ""))
    assert result.obs.max() < found[0]
    assert result.rewards.max() < found[1]
    assert np.median(result.obs) < 1e-4
    assert np.median(result.rewards) < 1e-4
    np.testing.assert_array_equal(result.terminated, result.expected)


@pytest.mark.parametrize("env", [CHEETAH, REACHER])
def test_starts_are_distributed_as_gymnasiums(env: str) -> None:
    """Mean and spread of each number of 2000 first observations, within 5 standard errors."""
    engine = worlds(env, 2_000)
    gymnasium = make_engine(env, 200, "gymnasium")
    theirs = torch.cat([gymnasium.reset(range(n, n + 200)) for n in range(0, 2_000, 200)])
    error = theirs.std(0) * (2 / 2_000) ** 0.5
    assert ((engine.obs.mean(0) - theirs.mean(0)).abs() <= 5 * error + 1e-6).all()
    assert ((engine.obs.std(0) - theirs.std(0)).abs() <= 0.15 * theirs.std(0) + 1e-6).all()
    gymnasium.close()


# --- the rules of every engine ------------------------------------------------------------------------------------


def test_first_episodes_end_at_different_times_and_later_ones_at_the_limit() -> None:
    engine = worlds(REACHER, 40)
    limit, ends = engine.time_limit, []
    for _ in range(2 * limit):
        step = engine.step(torch.zeros(40, 2))
        ends.append(step.truncated.clone())
        same = (step.next_obs == engine.obs).all(1)
        assert torch.equal(same, ~step.truncated), "obs is the next episode's first, next_obs the true last"
    first = torch.stack(ends).float().argmax(0)
    assert len(set(first.tolist())) > 20
    assert {episode.length for episode in engine.take_episodes()} == {limit}


def test_a_world_that_begins_an_episode_does_not_touch_the_others() -> None:
    one, other, source = worlds(REACHER), worlds(REACHER), np.random.default_rng(0)
    one.state["limits"][:] = torch.tensor([3, 50, 50, 50])
    other.state["limits"][:] = 50
    for _ in range(10):
        actions = drawn(source, one)
        steps = one.step(actions), other.step(actions)
        assert torch.equal(steps[0].next_obs[1:], steps[1].next_obs[1:])
        assert torch.equal(steps[0].rewards[1:], steps[1].rewards[1:])
    assert not torch.equal(one.obs[0], other.obs[0])


@pytest.mark.parametrize("env", [CHEETAH, REACHER])
def test_its_state_goes_on_bit_for_bit_also_from_another_world_and_without_graphs(
    env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, source = worlds(env), np.random.default_rng(0)
    for _ in range(20):
        first.step(drawn(source, first))
    monkeypatch.setattr(WarpEngine, "captures", False)
    second = worlds(env, seed=9)
    second.step(drawn(source, second))
    assert second.load_state_dict(first.state_dict()) == ""
    for _ in range(15):
        actions = drawn(source, first)
        one, other = first.step(actions), second.step(actions)
        assert all(torch.equal(a, b) for a, b in zip((first.obs, *one), (second.obs, *other), strict=True))


def test_seeds_joined_are_one_simulator_and_each_is_what_it_is_alone() -> None:
    parts, alone = [worlds(REACHER, 3, seed) for seed in (0, 7)], [worlds(REACHER, 3, seed) for seed in (0, 7)]
    joined, source = WarpEngine.joined(parts), np.random.default_rng(0)
    assert joined.simulator.worlds == 6
    for _ in range(60):  # past the ends of episodes, and their new starts
        actions = drawn(source, joined)
        step = joined.step(actions)
        each = [one.step(part) for one, part in zip(alone, actions.chunk(2), strict=True)]
        assert all(torch.equal(a, torch.cat(b)) for a, b in zip(step, zip(*each, strict=True), strict=True))
        assert torch.equal(joined.obs, torch.cat([one.obs for one in alone]))
    loaded = worlds(REACHER, 3, 99)
    assert loaded.load_state_dict(parts[1].state_dict()) == ""
    for _ in range(10):
        actions = drawn(source, loaded)
        steps = loaded.step(actions), alone[1].step(actions)
        assert torch.equal(steps[0].next_obs, steps[1].next_obs)


def test_a_task_is_made_once_for_all_seeds() -> None:
    assert worlds(CHEETAH, 2).task is worlds(CHEETAH, 3, seed=1).task
    assert worlds(REACHER, 2).task is not worlds(CHEETAH, 2).task


def test_a_world_that_diverges_is_reset_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    engine = worlds(num_envs=64)
    for _ in range(30):
        engine.step(torch.zeros(64, 6))
    engine.state["simulation"]["data"]["qvel"][5] = torch.nan
    step = engine.step(torch.zeros(64, 6))
    assert step.terminated.nonzero().tolist() == [[5]]
    assert float(step.rewards[5]) == 0
    assert step.next_obs.isfinite().all()
    assert engine.obs.isfinite().all()
    assert engine.under_way()[5] == (0.0, 0)
    engine.take_episodes()
    assert "1 worlds of HalfCheetah-v5 diverged" in caplog.text
    engine.state["simulation"]["data"]["qvel"][:] = torch.nan
    engine.step(torch.zeros(64, 6))
    with pytest.raises(EnvStepError, match="64 worlds of HalfCheetah-v5 diverged"):
        engine.take_episodes()


def test_contacts_that_find_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from minerva.envs.warp.gymnasium_tasks import HalfCheetah

    monkeypatch.setattr(HalfCheetah, "constraints", 4)
    engine = worlds()
    for _ in range(30):
        engine.step(torch.zeros(4, 6))
    with pytest.raises(EnvStepError, match="more rows of constraints than 4"):
        engine.take_episodes()


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ("HalfCheetah-v4", r"HalfCheetah-v4 is not among its tasks. Did you mean HalfCheetah-v5"),
        ("dm_control/dog/run", "dm_control/dog/run is not among its tasks"),
    ],
)
def test_a_task_that_is_not_there_is_refused(env: str, sentence: str) -> None:
    with pytest.raises(EnvError, match=sentence):
        make_engine(env, 1, "warp")


def test_worlds_that_do_not_fit_the_memory_are_refused() -> None:
    with pytest.raises(EnvError, match=r"1,000,000,000 worlds need .* GiB, and .* free on cpu: set num_envs to"):
        WarpEngine(CHEETAH, 10**9, CPU)


def test_without_the_extra_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvError, match=r"MuJoCo Warp is not installed: pip install"):
        make_engine(CHEETAH, 1, "warp")


# --- a user's own task --------------------------------------------------------------------------------------------


@pytest.fixture
def beam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The guide's example, as a module in the working directory."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "many-worlds.md").read_text()
    (script,) = re.findall(r"^```python\n(.*?)^```$", guide, re.M | re.S)
    (tmp_path / "beam.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield "beam:Beam"
    sys.modules.pop("beam", None)


def test_an_own_task_is_the_same_in_both_simulators(beam: str) -> None:
    engine, single = worlds(beam, 3), factory(beam)()
    engine.state["limits"][:] = engine.time_limit
    single.reset(seed=0)
    data = engine.state["simulation"]["data"]
    for name in ("qpos", "qvel"):
        data[name][1] = torch.from_numpy(getattr(single.unwrapped.data, name).astype(np.float32))
    engine.observed_starts()
    source = np.random.default_rng(1)
    lived = 0
    for _ in range(engine.time_limit):
        lived += 1
        actions = drawn(source, engine)
        step = engine.step(actions)
        obs, reward, terminated, truncated, _ = single.step(actions[1].numpy())
        np.testing.assert_allclose(step.next_obs[1], obs, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(step.rewards[1], reward, rtol=1e-3, atol=1e-3)
        assert (bool(step.terminated[1]), bool(step.truncated[1])) == (terminated, truncated)
        if terminated or truncated:
            break
    assert lived > 20


def test_an_own_task_is_trained_by_its_name_and_evaluated(beam: str, tmp_path: Path) -> None:
    small = "--num-envs 4 --rollout-steps 16 --minibatch-size 32 --total-steps 128 --eval-episodes 1 --run-dir run"
    assert main(["train", "ppo", "--env", beam, "--engine", "warp", "--compile", "off", *small.split()]) == 0
    assert read_config(tmp_path / "run" / "config.yaml")["engine"] == "warp"


# --- training -----------------------------------------------------------------------------------------------------


NETWORKS = {"policy_layer_sizes": (16,), "critic_layer_sizes": (16,)}
SMALL: dict[Any, tuple[int, dict[str, Any]]] = {
    PPOTrainer: (256, {**NETWORKS, "rollout_steps": 8, "num_envs": 8, "minibatch_size": 32, "update_epochs": 2}),
    VMPOTrainer: (256, {"policy_layer_sizes": (16,), "rollout_steps": 8, "num_envs": 8, "minibatch_size": 32}),
    MPOTrainer: (2_048, {**NETWORKS, "num_envs": 32, "updates_per_step": 1 / 64}),
}
"""Steps to a report at which runs are stopped, and settings."""


@pytest.mark.parametrize("kind", SMALL, ids=["ppo", "vmpo", "mpo"])
def test_a_run_resumes_bit_for_bit_on_the_cpu_and_is_evaluated_with_mujoco(kind: Any, tmp_path: Path) -> None:
    steps, small = SMALL[kind]

    def make() -> Any:
        return kind(REACHER, engine="warp", **small)

    settings: dict[str, Any] = {"quiet": True, "eval_every": steps, "eval_episodes": 2}
    whole = make().train(2 * steps, out_dir=tmp_path / "whole", **settings)
    stop = [lambda step, metrics, trainer: step >= steps]
    make().train(2 * steps, out_dir=tmp_path / "parts", callbacks=stop, **settings)
    parts = make().train(2 * steps, out_dir=tmp_path / "parts", **settings)
    assert (parts.before, parts.after) == (whole.before, whole.after)
    assert whole.before != whole.after
    assert make().make_evaluator(1).envs.name in ("envpool", "gymnasium")
    assert evaluate(tmp_path / "whole", episodes=2).returns


@pytest.mark.parametrize(("envs", "steps"), [(2_048, 32), (16_384, 16)])
@pytest.mark.parametrize("algo", ["ppo", "vmpo"])
def test_defaults_follow_from_the_number_of_worlds(algo: str, envs: int, steps: int) -> None:
    given = [] if envs == 2_048 else [f"--num_envs={envs}"]
    config = parsed_train(algo, ["--env", CHEETAH, "--engine", "warp", *given, "--gamma", "0.9"]).hyperparameters
    assert (config.num_envs, config.rollout_steps, config.minibatch_size) == (envs, steps, envs * steps // 16)
    assert config.gamma == 0.9
    with_preset = parsed_train(algo, ["--env", CHEETAH, "--engine", "warp", "--preset", "auto"]).hyperparameters
    without = parsed_train(algo, ["--env", CHEETAH, "--preset", "auto"]).hyperparameters
    assert with_preset == without


@pytest.mark.parametrize(("algo", "updates", "rows"), [("mpo", 8, 2), ("sac", 4, 4)])
@pytest.mark.parametrize("given", [[], ["--num-envs", "4096"]], ids=["default", "4096"])
def test_defaults_of_a_replay_follow_from_the_number_of_worlds(
    algo: str, updates: int, rows: int, given: list[str]
) -> None:
    """As many updates after each step of all worlds, the first of them after the first report."""
    config = parsed_train(algo, ["--env", CHEETAH, "--engine", "warp", *given]).hyperparameters
    envs = int(given[1]) if given else 1_024
    assert (config.num_envs, config.batch_size, config.replay_size) == (envs, rows * envs, 2_048 * envs)
    trainer = trainer_class(algo)("Pendulum-v1", engine="torch", config=config)
    assert trainer.updates(trainer.report_every) == 0
    assert trainer.updates(trainer.report_every + 10 * envs) == 10 * updates


def test_a_number_of_worlds_that_is_none_is_refused_in_a_sentence() -> None:
    for kind, given in ((MPOTrainer, 0), (PPOTrainer, "many")):
        with pytest.raises(ConfigError, match=f"num_envs is '?{given}"):
            kind(CHEETAH, engine="warp", num_envs=given)


def test_a_run_on_a_gpu_says_that_it_is_not_repeated_bit_for_bit() -> None:
    assert "no fixed order" in WarpEngine.inexact_reason(torch.device("cuda"))
    assert WarpEngine.inexact_reason(CPU) == ""


def test_episodes_are_whole() -> None:
    engine = worlds(REACHER, 3)
    engine.state["limits"][:] = engine.time_limit
    paid = torch.zeros(3)
    for _ in range(engine.time_limit):
        paid += engine.step(torch.ones(3, 2)).rewards
    expected = [Episode(env, pytest.approx(float(paid[env]), rel=1e-5), engine.time_limit) for env in range(3)]
    assert engine.take_episodes() == expected
