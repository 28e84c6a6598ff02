"""What the trainers share: making the parts, describing them, and running the loop inside a run."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from minerva.config import Config
from minerva.envs.ids import EnvLike, env_name
from minerva.envs.vector import EngineName, Episode, VectorEnv, make_vector
from minerva.errors import CheckpointError, ConfigError
from minerva.evaluation import Evaluator
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import differences, find_checkpoint
from minerva.runs.run import Result, Run, RunSettings
from minerva.runs.together import Together
from minerva.utils.tree import Tree


class Trainer(ABC):
    """A loop around an agent and its environments."""

    algo: ClassVar[str]
    envs: VectorEnv
    agent: Any
    config: Any

    def __init__(
        self,
        env: EnvLike,
        seed: int,
        device: str,
        config: Config,
        num_envs: int,
        engine: EngineName | VectorEnv,
    ) -> None:
        """`engine` steps the environments; given as environments, they are shared with others of a population."""
        if seed < 0:
            raise ConfigError(f"seed is {seed}: it must be 0 or more.")
        self.env, self.seed, self.config = env, seed, config
        self.device = usable_device(device)
        self.num_envs = num_envs
        self.envs = engine if isinstance(engine, VectorEnv) else make_vector(env, num_envs, engine)

    def train(self, total_steps: int, out_dir: str | Path, **settings: Any) -> Result:
        """Train until `total_steps` environment steps, writing into `out_dir`.

        `settings` are the fields of `RunSettings`. If `out_dir` holds an unfinished run of the same config, it goes
        on from its last checkpoint.
        """
        run = Run(self, total_steps, Path(out_dir), RunSettings(**settings))
        self.check(total_steps)
        with run:
            if not run.already_finished:
                self.envs.reset(self.env_seeds(run.step))
                self.loop([self], self.envs, Together([run]))
        return run.result()

    @classmethod
    @abstractmethod
    def loop(cls, trainers: Sequence[Self], envs: VectorEnv, runs: Together) -> None:
        """The algorithm's loop over `runs.steps`, for one trainer or for the seeds of a population.

        `envs` holds the environments of each trainer in turn.
        """

    @abstractmethod
    def check(self, total_steps: int) -> None:
        """Refuse a budget that the algorithm cannot use, before anything is written."""

    @abstractmethod
    def state_dict(self) -> Tree:
        """Everything training needs to go on."""

    @abstractmethod
    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""

    def init_from(self, path: str | Path) -> None:
        """Start from the policy of a checkpoint of the same algorithm and environment."""
        checkpoint = load_checkpoint(find_checkpoint(Path(path)))
        mine = {"algo": self.algo, "env": env_name(self.env), **self.policy_shape()}
        for name in ("algo", "env", "obs_dim", "act_dim"):
            if checkpoint.about[name] != mine[name]:
                raise CheckpointError(
                    f"{path} was made with {name} {checkpoint.about[name]}, and this run has {mine[name]}: "
                    "give a checkpoint of the same algorithm and environment."
                )
        try:
            self.agent.load_policy(checkpoint.state["trainer"]["agent"])
        except (RuntimeError, KeyError):
            changed = differences(checkpoint.about["hyperparameters"], self.config.to_dict())
            changed.sort(key=lambda change: "layer_sizes" not in change)  # the likeliest reason first
            raise CheckpointError(
                f"{path} holds networks of another shape than this run's ({'; '.join(changed[:3])}): "
                "give the settings that it was made with."
            ) from None

    def greedy(self, obs: np.ndarray) -> np.ndarray:
        """The deterministic policy, in [-1, 1]."""
        actions: np.ndarray = self.agent.policy_action(obs).cpu().numpy()
        return actions

    def make_evaluator(self, episodes: int) -> Evaluator:
        """Environments of their own, seeded apart from training's."""
        return Evaluator(self.env, episodes, self.seed, self.envs.engine)

    def describe(self) -> dict[str, Any]:
        """Algorithm, environment, seed, device and hyperparameters, as plain values."""
        return {
            "algo": self.algo,
            "env": env_name(self.env),
            "seed": self.seed,
            "device": str(self.device),
            "engine": self.envs.engine,
            "hyperparameters": self.config.to_dict(),
        }

    def policy_shape(self) -> dict[str, Any]:
        """Dimensions and action bounds, so that the policy can be rebuilt without the environment."""
        low, high = self.envs.action_low.tolist(), self.envs.action_high.tolist()
        return {
            "obs_dim": self.envs.obs_dim,
            "act_dim": self.envs.act_dim,
            "action_low": low,
            "action_high": high,
        }

    def env_seeds(self, step: int) -> list[int]:
        """`seed + i` for a new run; other episodes than those already seen for one that goes on."""
        if step == 0:
            return [self.seed + i for i in range(self.num_envs)]
        entropy = ([self.seed, step, i] for i in range(self.num_envs))
        return [int(np.random.SeedSequence(numbers).generate_state(1)[0]) for numbers in entropy]


def by_trainer(episodes: Sequence[Episode], trainers: Sequence[Trainer]) -> list[list[Episode]]:
    """The episodes of each trainer's environments, numbered as if it had them alone."""
    each = trainers[0].num_envs
    found: list[list[Episode]] = [[] for _ in trainers]
    for episode in episodes:
        found[episode.env // each].append(episode._replace(env=episode.env % each))
    return found


def usable_device(device: str) -> torch.device:
    """The device that was asked for, or a ConfigError if it is not there."""
    try:
        wanted = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"device is {device!r}: use cpu, cuda or cuda:0.") from None
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is {device}, and no CUDA GPU is usable here: use --device cpu.")
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device is {device}, and this machine has {torch.cuda.device_count()} GPU(s), from cuda:0.")
    if wanted.type not in ("cpu", "cuda"):
        raise ConfigError(f"device is {device!r}: Minerva runs on cpu and cuda.")
    return wanted
