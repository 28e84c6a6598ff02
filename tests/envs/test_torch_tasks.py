"""Tasks written in PyTorch: gymnasium's numbers, a closed form, and the rules that hold for every engine."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from collecting import drawn
from scipy.linalg import solve_discrete_are

from minerva.envs.engine import Episode
from minerva.envs.engines.registry import make_engine
from minerva.envs.engines.torch_tasks import LinearSystem, Pendulum
from minerva.errors import EnvError, EnvStepError
from minerva.loop.population import Population
from minerva.trainers.mpo.trainer import MPOTrainer
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.vmpo.trainer import VMPOTrainer

CPU = torch.device("cpu")
QUIET: dict[str, Any] = {"quiet": True, "eval_every": 10**9, "eval_episodes": 1}


def pendulum(num_envs: int = 50, seed: int = 0) -> Pendulum:
    envs = Pendulum("Pendulum-v1", num_envs, CPU)
    envs.reset(range(seed, seed + num_envs))
    return envs


# --- the same numbers as gymnasium --------------------------------------------------------------------------------


def test_pendulum_follows_gymnasium_from_the_same_states() -> None:
    envs, source = pendulum(), np.random.default_rng(0)
    singles = [gym.make("Pendulum-v1") for _ in range(envs.num_envs)]
    for i, single in enumerate(singles):
        single.reset(seed=0)
        single.unwrapped.state = [float(envs.state["simulation"][name][i]) for name in ("angle", "speed")]
    for _ in range(60):
        actions = drawn(source, envs) * 1.3  # some outside the bounds, where both clip
        step = envs.step(actions)
        for i, single in enumerate(singles):
            obs, reward, terminated, truncated, _ = single.step(2 * actions[i].numpy())
            np.testing.assert_allclose(step.next_obs[i], obs, rtol=0, atol=1e-5)
            np.testing.assert_allclose(step.rewards[i], reward, rtol=1e-6, atol=1e-5)
            assert (bool(step.terminated[i]), bool(step.truncated[i])) == (terminated, truncated)


def test_pendulums_starts_are_distributed_as_gymnasiums() -> None:
    starts = pendulum(4000).state["simulation"]
    assert np.pi * 0.99 < starts["angle"].abs().max() <= np.pi
    assert 0.99 < starts["speed"].abs().max() <= 1
    for values, half in ((starts["angle"], np.pi), (starts["speed"], 1.0)):
        assert abs(float(values.mean())) < 4 * half / np.sqrt(3 * 4000)  # of a uniform distribution, 4 standard errors
        assert float(values.var()) == pytest.approx(half**2 / 3, rel=0.06)


def test_the_time_limit_is_gymnasiums() -> None:
    assert Pendulum.time_limit == gym.spec("Pendulum-v1").max_episode_steps


def test_the_best_linear_controller_costs_what_the_riccati_equation_says() -> None:
    envs = LinearSystem("LinearSystem-v0", 20, CPU)
    a, b, q, r = (np.array(matrix) for matrix in (envs.A, envs.B, envs.Q, envs.R))
    cost = solve_discrete_are(a, b, q, r)
    gain = np.linalg.solve(r + b.T @ cost @ b, b.T @ cost @ a)
    x = envs.reset(range(20)).double().numpy()
    expected = np.einsum("ei,ij,ej->e", x, cost, x)
    paid = np.zeros(20)
    for _ in range(envs.time_limit):
        actions = torch.from_numpy(-envs.obs.double().numpy() @ gain.T) / 4  # in units of the bounds
        assert actions.abs().max() <= 1, "the bounds are wide enough for the best controller"
        paid -= envs.step(actions).rewards.double().numpy()
    later = envs.step(torch.zeros(20, 1))  # new episodes: what is left of the old ones is not paid for
    assert later.rewards.isfinite().all()
    np.testing.assert_allclose(paid, expected, rtol=2e-2)  # the equation is of an episode without end


# --- the rules of every engine ------------------------------------------------------------------------------------


def test_an_episode_ends_by_its_time_limit_and_the_next_begins_at_once() -> None:
    envs = pendulum(3)
    paid = torch.zeros(3, dtype=torch.float64)
    for t in range(1, 201):
        step = envs.step(torch.zeros(3, 1))
        paid += step.rewards
        assert step.truncated.tolist() == [t == 200] * 3
        assert not step.terminated.any()
        same = torch.equal(step.next_obs, envs.obs)
        assert same == (t < 200), "obs is the next episode's first, next_obs the true last"
    expected = [Episode(env, pytest.approx(float(paid[env])), 200) for env in range(3)]
    assert envs.take_episodes() == expected
    assert envs.take_episodes() == []
    assert envs.under_way() == [(0.0, 0)] * 3


def test_the_same_seeds_are_the_same_trajectory_wherever_they_stand() -> None:
    def trajectory(seeds: list[int]) -> torch.Tensor:
        envs, source = pendulum(2), np.random.default_rng(0)
        seen = [envs.reset(seeds)]
        return torch.stack(seen + [envs.step(drawn(source, envs)).next_obs for _ in range(250)])

    assert torch.equal(trajectory([3, 4]), trajectory([3, 4]))
    assert torch.equal(trajectory([3, 4])[0, 1], trajectory([4, 9])[0, 0])
    assert not torch.equal(trajectory([3, 4])[0, 0], trajectory([3, 4])[0, 1])


def test_rows_that_were_handed_out_do_not_change_later() -> None:
    envs = pendulum(4)
    shown, step = envs.obs, envs.step(torch.ones(4, 1))
    kept = [tensor.clone() for tensor in (shown, *step)]
    envs.step(torch.ones(4, 1))
    assert all(torch.equal(before, now) for before, now in zip(kept, (shown, *step), strict=True))


def test_a_non_finite_value_is_found_when_episodes_are_taken_and_not_before() -> None:
    envs = pendulum(3)
    envs.step(torch.tensor([[0.0], [torch.nan], [0.0]]))
    envs.step(torch.zeros(3, 1))
    with pytest.raises(EnvStepError, match="not finite, first in environment 1"):
        envs.take_episodes()


def test_a_reward_that_float32_cannot_hold_is_non_finite() -> None:
    class Costly(Pendulum):
        def simulate(self, *inputs: Any) -> Any:
            simulation, rewards, terminated = super().simulate(*inputs)
            return simulation, rewards.double() * 1e100, terminated

    envs = Costly("Pendulum-v1", 1, torch.device("cpu"))
    envs.reset([0])
    envs.step(torch.zeros(1, 1))
    with pytest.raises(EnvStepError, match="not finite, first in environment 0"):
        envs.take_episodes()


def test_a_step_is_send_and_then_recv() -> None:
    envs = pendulum(1)
    with pytest.raises(EnvError, match="no step under way"):
        envs.recv()
    envs.send(torch.zeros(1, 1))
    with pytest.raises(EnvError, match="sent actions twice"):
        envs.send(torch.zeros(1, 1))


def test_its_state_goes_on_bit_for_bit() -> None:
    first, source = pendulum(3), np.random.default_rng(0)
    for _ in range(130):
        first.step(drawn(source, first))
    second = pendulum(3, seed=9)
    assert second.load_state_dict(first.state_dict()) == ""
    for _ in range(150):  # past the ends of episodes, and their new starts
        actions = drawn(source, first)
        one, other = first.step(actions), second.step(actions)
        assert all(torch.equal(a, b) for a, b in zip((first.obs, *one), (second.obs, *other), strict=True))
    assert [e.length for e in first.take_episodes()] == [e.length for e in second.take_episodes()] == [200] * 3


def test_engines_joined_are_each_what_they_are_alone() -> None:
    parts, alone = [pendulum(2, 0), pendulum(2, 7)], [pendulum(2, 0), pendulum(2, 7)]
    joined, source = Pendulum.joined(parts), np.random.default_rng(1)
    for _ in range(205):
        actions = drawn(source, joined)
        step = joined.step(actions)
        each = [one.step(part) for one, part in zip(alone, actions.chunk(2), strict=True)]
        assert torch.equal(step.next_obs, torch.cat([one.next_obs for one in each]))
        assert torch.equal(joined.obs, torch.cat([one.obs for one in alone]))
    assert [episode.env for episode in joined.take_episodes()] == [0, 1, 2, 3]


def test_engines_that_were_joined_go_on_alone_and_with_others() -> None:
    """Joined, saved, stepped alone, joined in another order: always what an engine of its own would be."""
    parts, alone = [pendulum(2, 0), pendulum(2, 7)], [pendulum(2, 0), pendulum(2, 7)]
    source = np.random.default_rng(1)

    def stepped(engines: list[Any]) -> None:
        for _ in range(120):
            actions = [drawn(source, one) for one in engines]
            (engines[0] if len(engines) == 1 else Pendulum.joined(engines)).step(torch.cat(actions))
            for engine, own in zip(engines, actions, strict=True):
                alone[parts.index(engine)].step(own)

    for together in ([0, 1], [1], [1, 0]):
        stepped([parts[n] for n in together])
        for part, one in zip(parts, alone, strict=True):
            saved, expected = part.state_dict(), one.state_dict()
            assert torch.equal(saved["obs"], expected["obs"])
            (mine,), (theirs,) = saved["simulators"], expected["simulators"]
            assert torch.equal(mine["generator"], theirs["generator"])
            assert torch.equal(mine["simulation"]["angle"], theirs["simulation"]["angle"])
            assert part.under_way() == one.under_way()


def test_a_task_that_is_not_written_in_pytorch_is_refused() -> None:
    with pytest.raises(EnvError, match=r"Ant-v5 is not among its tasks. Known: LinearSystem-v0, Pendulum-v1"):
        make_engine("Ant-v5", 1, "torch")


# --- training -----------------------------------------------------------------------------------------------------

SMALL: dict[Any, dict[str, Any]] = {
    PPOTrainer: {"rollout_steps": 32, "num_envs": 2, "minibatch_size": 64, "update_epochs": 2},
    VMPOTrainer: {"rollout_steps": 32, "num_envs": 2},
    MPOTrainer: {
        "num_envs": 2,
        "update_after": 64,
        "batch_size": 16,
        "action_samples": 5,
        "critic_layer_sizes": (16,),
        "updates_per_step": 0.1,
    },
}
"""Two environments, so that episodes of 200 steps end after a run of 512 was stopped halfway."""


@pytest.mark.parametrize("trainer", SMALL, ids=lambda kind: kind.algo)
def test_every_algorithm_trains_resumes_and_evaluates_on_it(trainer: Any, tmp_path: Path) -> None:
    def train(folder: str, *callbacks: Any) -> Any:
        made = trainer("Pendulum-v1", engine="torch", policy_layer_sizes=(16,), **SMALL[trainer])
        settings = {**QUIET, "eval_every": 256, "compile": "off", "callbacks": callbacks}
        return made.train(512, out_dir=tmp_path / folder, **settings)

    whole = train("whole")
    assert whole.step == 512
    assert train("parts", lambda step, metrics, trainer: step >= 256).step == 256
    parts = train("parts")
    assert (parts.before, parts.after, parts.best) == (whole.before, whole.after, whole.best), "resumed bit for bit"


def test_seeds_trained_together_resume_bit_for_bit_each_from_its_run(tmp_path: Path) -> None:
    """They share an engine, and each is saved and restored with its own part of it."""

    def train(folder: str, steps: int) -> list[Any]:
        seeds = [PPOTrainer("Pendulum-v1", seed, engine="torch", **SMALL[PPOTrainer]) for seed in (0, 5)]
        stop = [lambda step, metrics, trainer: step >= steps]
        settings = {**QUIET, "callbacks": stop, "compile": "off"}
        return Population(seeds).train(512, [tmp_path / f"{folder}{n}" for n in range(2)], **settings)

    whole = train("whole", 512)
    train("parts", 256)
    for mine, theirs in zip(train("parts", 512), whole, strict=True):
        assert (mine.step, mine.before, mine.after) == (512, theirs.before, theirs.after)
    assert whole[0].after != whole[1].after


@pytest.mark.slow
def test_ppo_learns_the_linear_system(tmp_path: Path) -> None:
    """An untrained policy does nothing; the least cost is known, and most of the way to it is learned in a minute."""
    settings = {"rollout_steps": 50, "num_envs": 64, "minibatch_size": 800, "policy_lr": 3e-3, "gamma": 0.95}
    trainer = PPOTrainer("LinearSystem-v0", engine="torch", policy_layer_sizes=(16,), **settings)
    before = trainer.make_evaluator(20)(trainer.greedy).mean
    trainer.train(64 * 50 * 25, out_dir=tmp_path, **QUIET)
    after = trainer.make_evaluator(20)(trainer.greedy).mean
    a, b, q, r = (np.array(matrix) for matrix in (LinearSystem.A, LinearSystem.B, LinearSystem.Q, LinearSystem.R))
    starts = trainer.make_evaluator(20).envs.reset(range(10_000, 10_020)).double().numpy()
    least = np.einsum("ei,ij,ej->e", starts, solve_discrete_are(a, b, q, r), starts).mean()
    assert (-after - least) < 0.2 * (-before - least)
