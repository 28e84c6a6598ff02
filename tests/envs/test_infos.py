"""What an environment says in `info` at an episode's end reaches the run, whichever engine steps it."""

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from probe_envs import Reaching
from tiny_runs import PPO, SETTINGS
from torch import Tensor

from minerva.envs.engine import Engine, numbers_in
from minerva.envs.engines.gymnasium import GymnasiumEngine
from minerva.envs.engines.registry import EngineName, make_engine
from minerva.envs.engines.torch_tasks import LinearSystem
from minerva.lab.cluster.actors import local_collector
from minerva.runs.metrics import read_rows
from minerva.trainers.ppo.config import PPOConfig
from minerva.trainers.ppo.trainer import PPOTrainer

EXPECTED = [{"is_success": float(n % 2), "distance": 0.5} for n in range(3) for _ in range(3)]
"""Three episodes of each of three environments."""


def infos_after(envs: Engine, steps: int) -> list[Any]:
    envs.reset(range(envs.num_envs))
    for _ in range(steps):
        envs.step(torch.zeros(envs.num_envs, envs.action.size))
    infos = [dict(episode.info) for episode in envs.take_episodes()]
    envs.close()
    return infos


@pytest.mark.parametrize("engine", ["gymnasium", "processes"])
def test_the_numbers_in_the_info_of_the_last_step_are_kept(engine: EngineName) -> None:
    assert infos_after(make_engine(Reaching, 3, engine), 12) == EXPECTED


def test_joined_engines_keep_them_apart() -> None:
    envs = GymnasiumEngine.joined([GymnasiumEngine(Reaching, 1) for _ in range(3)])
    assert infos_after(envs, 12) == EXPECTED


@pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="EnvPool is not installed")
def test_envpool_gives_what_gymnasium_gives() -> None:
    episode = gym.make("InvertedPendulum-v5").spec.max_episode_steps or 0
    named = [infos_after(make_engine("Reacher-v5", 1, name), min(episode, 50)) for name in ("gymnasium", "envpool")]
    assert [len(infos) for infos in named] == [1, 1]
    assert set(named[0][0]) <= set(named[1][0])
    assert named[0][0]["reward_dist"] < 0 > named[1][0]["reward_dist"]


class Informed(LinearSystem):
    """Says how far the mass is from the origin before the episode is restarted."""

    def inform(self, simulation: Any) -> dict[str, Tensor]:
        return {"distance": simulation["x"][:, 0].abs()}


@pytest.mark.parametrize("count", [1, 2])
def test_a_simulation_on_the_device_may_say_more_than_a_reward(count: int) -> None:
    engines = [Informed("LinearSystem-v0", 2, torch.device("cpu")) for _ in range(count)]
    envs: Any = engines[0] if count == 1 else Informed.joined(engines)
    envs.reset(range(envs.num_envs))
    for _ in range(50):
        last = envs.step(torch.zeros(envs.num_envs, 1))
    said = [episode.info["distance"] for episode in envs.take_episodes()]
    assert said == pytest.approx(last.next_obs[:, 0].abs().tolist())


def test_flags_and_single_numbers_are_taken_and_nothing_else() -> None:
    info = {"flag": True, "number": 2, "array": torch.ones(1).numpy(), "inf": float("inf"), "text": "x", "none": None}
    assert numbers_in(info) == {"flag": 1.0, "number": 2.0, "array": 1.0}
    assert numbers_in(None) == {}


@pytest.mark.parametrize("remote", [False, True], ids=["local", "workers"])
def test_the_success_rate_of_training_and_evaluation_is_logged(remote: bool, tmp_path: Path) -> None:
    config = PPOConfig.from_dict(PPO)
    engine: Any = local_collector("ppo", config, Reaching, 2) if remote else "auto"
    trainer = PPOTrainer(Reaching, engine=engine, config=config)
    trainer.train(256, tmp_path, **SETTINGS, info_keys=["is_success", "distance", "absent"])
    rows = read_rows(tmp_path / "metrics.jsonl")
    # 64 steps of each environment are 16 episodes: every second one is a success
    assert [row["train/is_success"] for row in rows if "train/is_success" in row] == [0.5, 0.5]
    assert [row["train/distance"] for row in rows if "train/distance" in row] == [0.5, 0.5]
    assert all(0.0 <= row["eval/is_success"] <= 1.0 for row in rows if "eval/return_mean" in row)
    assert not any("absent" in name or "word" in name for row in rows for name in row)
