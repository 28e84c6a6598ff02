"""What the trainers share: making the parts, describing them, and running the loop inside a run."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.data.replay import Replay
from minerva.envs.ids import EnvLike, env_name
from minerva.envs.vector import EngineName, Episode, VectorEnv, make_vector
from minerva.errors import CheckpointError, ConfigError
from minerva.evaluation import Evaluator
from minerva.formulas.statistics import remaining_fraction
from minerva.loop.remote import RemoteCollector
from minerva.metrics import Health, Metric
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.distributed import FollowerRuns, RankZeroTrainer, follow, lead
from minerva.runs.folder import differences, find_checkpoint
from minerva.runs.run import Result, Run, RunSettings
from minerva.runs.run_group import RunGroup
from minerva.runs.status import RunStatus, gauge_values


class Trainer(ABC):
    """A loop around an agent and its environments."""

    algo: ClassVar[str]
    envs: VectorEnv
    agent: Any
    config: Any
    health: Health

    def __init__(
        self,
        env: EnvLike,
        seed: int,
        device: str,
        config: Any,
        engine: EngineName | VectorEnv,
        ranks: Ranks = SINGLE,
    ) -> None:
        """`engine` steps the environments; given as environments, they are shared with others of a population.

        `processes` learn as one: `config` is that of all, of which each has its share.
        """
        if seed < 0:
            raise ConfigError(f"seed is {seed}: it must be 0 or more.")
        self.env, self.seed, self.config = env, seed, config
        self.device = usable_device(device)
        self.ranks = ranks
        self.num_envs: int = self.share.num_envs
        self.envs = engine if isinstance(engine, VectorEnv) else make_vector(env, self.num_envs, engine)
        self.episodes: list[Episode] = []
        """Those that ended since the last report."""

    def train(self, total_steps: int, out_dir: str | Path, **settings: Any) -> Result:
        """Train until `total_steps` environment steps, writing into `out_dir`.

        `settings` are the fields of `RunSettings`. If `out_dir` holds an unfinished run of the same config, it goes
        on from its last checkpoint.
        """
        how = RunSettings(**settings)
        self.check(total_steps)
        if self.ranks.count > 1:
            return self._train_as_one(total_steps, Path(out_dir), how)
        actors = len(self.envs.workers) if isinstance(self.envs, RemoteCollector) else 0
        run = Run(self, total_steps, Path(out_dir), how, actors=actors)
        with run:
            if not run.already_finished:
                self.loop([self], self.envs, RunGroup([run]))
        return run.result()

    def _train_as_one(self, total_steps: int, out_dir: Path, settings: RunSettings) -> Result:
        """The same as one of several processes."""

        def loop(runs: RunGroup) -> None:
            self.loop([self], self.envs, runs)

        if self.ranks.rank > 0:
            return follow(FollowerRuns(self, total_steps, settings, self.ranks), self.ranks, loop)
        led: Any = RankZeroTrainer(self, self.ranks)
        return lead(Run(led, total_steps, out_dir, settings, processes=self.ranks.count), self.ranks, loop)

    @property
    def share(self) -> Any:
        """This process's part of the config."""
        return self.config.share(self.ranks.count)

    def remaining(self, part: int, parts: int) -> float:
        """What learning rates are multiplied with in a part of the run; the first is 1. One if nothing is annealed."""
        return remaining_fraction(part, parts) if self.config.anneal_lr else 1.0

    def start(self, step: int) -> None:
        """Begin new episodes everywhere: at the start of a run, or where the simulators could not be restored."""
        self.envs.reset(self.env_seeds(step))

    @property
    def rows(self) -> Replay | None:
        """A replay, whose rows are saved apart from the state."""
        return None

    @property
    def metrics(self) -> Sequence[Metric]:
        """What the algorithm's updates report."""
        declared: Sequence[Metric] = self.agent.METRICS
        return declared

    def status(
        self, train: float | None, evaluations: list[float], reports: Iterable[Mapping[str, float]]
    ) -> RunStatus:
        """How its run stands, by the gauges' means over some reports."""
        readings = gauge_values(self.metrics, reports)
        return RunStatus(f"seed {self.seed}", train, evaluations, readings, self.health.warned)

    @classmethod
    @abstractmethod
    def loop(cls, trainers: Sequence[Self], envs: VectorEnv, runs: RunGroup) -> None:
        """The algorithm's loop over `runs.steps`, for one trainer or for the seeds of a population.

        `envs` holds the environments of each trainer in turn.
        """

    @abstractmethod
    def check(self, total_steps: int) -> None:
        """Refuse a budget that the algorithm cannot use, before anything is written."""

    def state_dict(self) -> Tree:
        """Everything training needs to go on: of all algorithms agent, simulators and episodes under way."""
        episodes = [list(episode) for episode in self.episodes]
        return {"agent": self.agent.state_dict(), "envs": _tensors(self.envs.state_dict()), "episodes": episodes}

    def load_state_dict(self, state: Tree) -> str:
        """Take over a state made by `state_dict`; why the environments have to `start` anew, or nothing."""
        self.agent.load_state_dict(state["agent"])
        self.episodes = [Episode(*episode) for episode in state["episodes"]]
        return self.envs.load_state_dict(_arrays(state["envs"]))

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
        first = self.ranks.rank * self.num_envs
        numbers = range(first, first + self.num_envs)
        if step == 0:
            return [self.seed + i for i in numbers]
        entropy = ([self.seed, step, i] for i in numbers)
        return [int(np.random.SeedSequence(words).generate_state(1)[0]) for words in entropy]


def note(episodes: Sequence[Episode], trainers: Sequence[Trainer]) -> None:
    """Each trainer's episodes, numbered as if it had its environments alone."""
    each = trainers[0].num_envs
    for episode in episodes:
        trainers[episode.env // each].episodes.append(episode._replace(env=episode.env % each))


def taken_episodes(trainers: Sequence[Trainer]) -> list[list[Episode]]:
    """What each trainer has to report, which begins anew."""
    taken = [trainer.episodes for trainer in trainers]
    for trainer in trainers:
        trainer.episodes = []
    return taken


def _tensors(value: Any) -> Any:
    """The same tree with tensors for arrays, as checkpoints hold them."""
    if isinstance(value, dict):
        return {name: _tensors(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_tensors(part) for part in value]
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def _arrays(value: Any) -> Any:
    """The inverse of `_tensors`."""
    if isinstance(value, dict):
        return {name: _arrays(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_arrays(part) for part in value]
    return value.numpy() if isinstance(value, torch.Tensor) else value


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
