"""A vector environment that the user has made is stepped as it is, and its resets never become data."""

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from probe_envs import Counter, Ending, Reaching
from tiny_runs import PPO, SETTINGS, training_steps

import minerva
from minerva.envs.engines.gymnasium import GymnasiumEngine
from minerva.envs.engines.registry import make_engine
from minerva.errors import ConfigError, EnvError
from minerva.runs.metrics import read_rows
from minerva.trainers.ppo.trainer import PPOTrainer

ENDINGS = [Ending(2, True, False), Ending(3, False, True), Ending(1, True, True)]


def makes(count: int) -> list[Any]:
    return [lambda n=n: Counter(n, ENDINGS) for n in range(count)]


def history(envs: Any, steps: int = 12) -> list[Any]:
    envs.reset(range(envs.num_envs))
    rows: list[Any] = [envs.obs.tolist()]
    for _ in range(steps):
        transition = envs.step(torch.zeros(envs.num_envs, 1))
        rows.append([part.tolist() for part in transition] + [envs.obs.tolist()])
    return [*rows, envs.take_episodes()]


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_every_mode_of_resetting_gives_the_rows_of_single_environments(mode: AutoresetMode) -> None:
    vector = make_engine(SyncVectorEnv(makes(3), autoreset_mode=mode), 3)
    numbers = iter(range(100))
    single = GymnasiumEngine(lambda: Counter(next(numbers), ENDINGS), 3)
    assert vector.name == "vector"
    assert history(vector) == history(single)


def test_choices_reach_a_vector_environment_as_the_numbers_that_it_takes(tmp_path: Path) -> None:
    """CartPole-v1 raises for anything but 0 or 1; the training is that of the same environments by their id."""
    vector = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    for name, env in (("vector", vector), ("id", "CartPole-v1")):
        trainer = PPOTrainer(env, engine="vector" if name == "vector" else "gymnasium", **{**PPO, "num_envs": 2})
        trainer.train(128, tmp_path / name, **SETTINGS)
    rows = (read_rows(tmp_path / name / "metrics.jsonl") for name in ("vector", "id"))
    first, second = ([row["train/episode_return"] for row in each if "train/episode_return" in row] for each in rows)
    assert first
    assert first == second


def test_mappings_in_wrappers_and_infos_are_taken(tmp_path: Path) -> None:
    space = gym.spaces.Dict({"b": gym.spaces.Box(-1, 1, (2,)), "a": gym.spaces.Box(-1, 1, (1, 2))})

    class Named(Reaching):
        observation_space = space

        def reset(self, **options: Any) -> Any:
            obs, info = super().reset(**options)
            return {"b": obs.astype(np.float32), "a": np.ones((1, 2), np.float32)}, info

        def step(self, action: Any) -> Any:
            obs, *rest = super().step(action)
            return {"b": obs.astype(np.float32), "a": np.ones((1, 2), np.float32)}, *rest

    envs = gym.wrappers.vector.RecordEpisodeStatistics(SyncVectorEnv([Named, Named]))
    sizes = {name: value for name, value in PPO.items() if name != "num_envs"}
    result = minerva.train("ppo", envs, total_steps=256, run_dir=tmp_path, settings=SETTINGS, eval_env=Named, **sizes)
    assert result.finished
    assert training_steps(tmp_path) == [128, 256]
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["train/is_success"] for row in rows if "train/is_success" in row] == [0.5, 0.5]
    assert minerva.load_policy(tmp_path).act({"b": np.zeros(2), "a": np.ones((1, 2))}).shape == (1,)
    assert envs.num_envs == 2, "still open"


@pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")
def test_a_pool_of_envpool_is_a_vector_environment(tmp_path: Path) -> None:
    import envpool

    pool = envpool.make_gymnasium("Pendulum-v1", num_envs=2, seed=0)
    with pytest.raises(EnvError, match="give eval_env"):
        PPOTrainer(pool, **{**PPO, "num_envs": 2}).train(128, tmp_path / "refused", **SETTINGS)
    result = PPOTrainer(pool, eval_env="Pendulum-v1", **PPO).train(512, tmp_path / "run", **SETTINGS)
    assert result.finished


def test_sizes_that_contradict_the_object_are_refused() -> None:
    envs = SyncVectorEnv([Reaching, Reaching])
    with pytest.raises(EnvError, match="has 2 environments: set num_envs to 2"):
        PPOTrainer(envs, **{**PPO, "num_envs": 4})
    with pytest.raises(ConfigError, match="seeds need one each"):
        minerva.train_seeds("ppo", envs, [0, 1], **PPO)
    with pytest.raises(EnvError, match="and Reaching is none"):
        make_engine(Reaching, 2, "vector")


class Batch(gym.vector.VectorEnv[Any, Any, Any]):
    """Two counters in one array, with one generator; `heeds_mask`: whether a reset leaves the others as they are."""

    num_envs = 2
    single_observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    single_action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, heeds_mask: bool) -> None:
        self.heeds_mask, self.counts = heeds_mask, np.zeros((2, 1))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)  # takes one number, and no list
        mask = (options or {}).get("reset_mask", np.ones(2, np.bool_)) if self.heeds_mask else np.ones(2, np.bool_)
        self.counts[mask] = 0
        return self.counts.copy(), {}

    def step(self, actions: Any) -> Any:
        self.counts += 1
        return self.counts.copy(), np.ones(2), self.counts[:, 0] >= [2, 5], np.zeros(2, np.bool_), {}


def test_a_reset_that_breaks_off_other_episodes_is_refused() -> None:
    """gymnasium's own CartPoleVectorEnv is one: it takes one seed, and resets all wherever one has ended."""
    heeding = make_engine(Batch(True), 2)
    assert [row[-1] for row in history(heeding, 4)[1:-1]] == [[[1], [1]], [[0], [2]], [[1], [3]], [[0], [4]]]
    for vector in (Batch(False), gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")):
        with pytest.raises(EnvError, match="begins every episode anew"):
            history(make_engine(vector, 2), 40)
