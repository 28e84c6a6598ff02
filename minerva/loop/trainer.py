"""What the trainers share: making the parts, describing them, and running the loop inside a run."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.data.replay import Replay
from minerva.envs.engine import Engine, Episode
from minerva.envs.engines.registry import EngineName, make_engine
from minerva.envs.ids import EnvLike, env_name
from minerva.errors import CheckpointError, ConfigError
from minerva.evaluation import Evaluator
from minerva.formulas.statistics import remaining_fraction
from minerva.loop.collector import Collector, LocalCollector
from minerva.metrics import Health, Metric, Rule
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.distributed import FollowerRuns, RankZeroTrainer, follow, lead
from minerva.runs.folder import differences, find_checkpoint
from minerva.runs.run import Run
from minerva.runs.run_group import RunGroup
from minerva.runs.settings import Result, RunSettings
from minerva.runs.status import RunStatus, gauge_values


class Trainer(ABC):
    """A loop around an agent and its environments."""

    algo: ClassVar[str]
    AGENT: ClassVar[type[Any]]
    """The class of its agent, which names the class of its config."""
    POSITIONAL: ClassVar[tuple[str, ...]] = ()
    """Fields of the config that may be given in this order after the device."""
    envs: Any
    """What is acted in: an `Engine`, or what stands for the environments of remote workers."""
    agent: Any
    config: Any
    health: Health

    def __init__(
        self,
        env_id: EnvLike,
        seed: int = 0,
        device: str = "cpu",
        *positional: Any,
        engine: EngineName | Engine | Collector = "auto",
        ranks: Ranks = SINGLE,
        config: Any = None,
        **hyperparameters: Any,
    ) -> None:
        """Make a trainer from a `config`, which is used as it is, or from `hyperparameters`, its fields.

        `positional` are the fields named in `POSITIONAL`. `engine` steps the environments: its name, an engine, or a
        collector. `ranks` learn as one: the config holds what all of them have, and each takes its share.
        """
        if seed < 0:
            raise ConfigError(f"seed is {seed}: it must be 0 or more.")
        if config is not None and (positional or hyperparameters):
            raise ConfigError(f"{type(config).__name__} is given as config: give no other hyperparameters beside it.")
        self.env, self.seed, self.ranks = env_id, seed, ranks
        self.config = self._config_from(positional, hyperparameters) if config is None else config
        self.device = usable_device(device)
        self.num_envs: int = self.share.num_envs
        self.collector = self._collector(engine)
        self.envs = self.collector.envs
        specs = self.envs.observation, self.envs.action
        self.agent = self.AGENT.from_config(*specs, self.share, seed=seed, device=self.device, ranks=ranks)
        self.health = Health(self.rules())
        self.episodes: list[Episode] = []
        """Those that ended since the last report."""

    @classmethod
    def _config_from(cls, positional: Sequence[Any], hyperparameters: Mapping[str, Any]) -> Any:
        if len(positional) > len(cls.POSITIONAL):
            raise ConfigError(f"{cls.__name__} takes {', '.join(cls.POSITIONAL)} after the device: name the others.")
        named = dict(zip(cls.POSITIONAL, positional, strict=False))
        for name in named.keys() & hyperparameters.keys():
            raise ConfigError(f"{name} is given twice: by its place and by its name.")
        return cls.AGENT.CONFIG.from_dict({**named, **hyperparameters})

    @abstractmethod
    def rules(self) -> Iterable[Rule]:
        """Return the signs of ill health that are watched for while it trains."""

    def train(self, total_steps: int, out_dir: str | Path, **settings: Any) -> Result:
        """Train until `total_steps` environment steps, writing into `out_dir`.

        `settings` are the fields of `RunSettings`. If `out_dir` holds an unfinished run of the same config, it goes
        on from its last checkpoint.
        """
        how = RunSettings(**settings)
        self.check(total_steps)
        if self.ranks.count > 1:
            return self._train_as_one(total_steps, Path(out_dir), how)
        run = Run(self, total_steps, Path(out_dir), how, actors=self.collector.workers_count)
        with run:
            if not run.already_finished:
                self.loop([self], self.collector, RunGroup([run]))
        return run.result()

    def _train_as_one(self, total_steps: int, out_dir: Path, settings: RunSettings) -> Result:
        """The same as one of several processes."""

        def loop(runs: RunGroup) -> None:
            self.loop([self], self.collector, runs)

        if self.ranks.rank > 0:
            return follow(FollowerRuns(self, total_steps, settings, self.ranks), self.ranks, loop)
        led: Any = RankZeroTrainer(self, self.ranks)
        return lead(Run(led, total_steps, out_dir, settings, processes=self.ranks.count), self.ranks, loop)

    def _collector(self, engine: EngineName | Engine | Collector) -> Collector:
        """Return what was given as a collector, or one around the engine of that name or object."""
        if isinstance(engine, Collector):
            return engine
        if not isinstance(engine, Engine):
            engine = make_engine(self.env, self.num_envs, engine, device=self.device)
        return LocalCollector(engine)

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
    def loop(cls, trainers: Sequence[Self], collector: Collector, runs: RunGroup) -> None:
        """The algorithm's loop over `runs.steps`, for one trainer or for the seeds of a population.

        `collector` acts in the environments of each trainer in turn.
        """

    @abstractmethod
    def check(self, total_steps: int) -> None:
        """Refuse a budget that the algorithm cannot use, before anything is written."""

    def state_dict(self) -> Tree:
        """Everything training needs to go on: of all algorithms agent, simulators and episodes under way."""
        episodes = [list(episode) for episode in self.episodes]
        return {"agent": self.agent.state_dict(), "envs": self.envs.state_dict(), "episodes": episodes}

    def load_state_dict(self, state: Tree) -> str:
        """Take over a state made by `state_dict`; why the environments have to `start` anew, or nothing."""
        self.agent.load_state_dict(state["agent"])
        self.episodes = [Episode(*episode) for episode in state["episodes"]]
        return self.envs.load_state_dict(state["envs"])

    def init_from(self, path: str | Path) -> None:
        """Start from the policy of a checkpoint of the same algorithm and environment."""
        checkpoint = load_checkpoint(find_checkpoint(Path(path)))
        mine = {"algo": self.algo, "env": env_name(self.env), **self.specs()}
        for name, value in mine.items():
            if checkpoint.about[name] != value:
                raise CheckpointError(
                    f"{path} was made with {name} {checkpoint.about[name]}, and this run has {value}: "
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

    def greedy(self, obs: Tensor) -> Tensor:
        """Return the deterministic policy's actions in [-1, 1], on the device of the observations."""
        actions: Tensor = self.agent.policy_action(obs).to(obs.device)
        return actions

    def make_evaluator(self, episodes: int) -> Evaluator:
        """Environments of their own, seeded apart from training's."""
        return Evaluator(self.env, episodes, self.seed, self.envs.name)

    def describe(self) -> dict[str, Any]:
        """Algorithm, environment, seed, device and hyperparameters, as plain values."""
        return {
            "algo": self.algo,
            "env": env_name(self.env),
            "seed": self.seed,
            "device": str(self.device),
            "engine": self.envs.name,
            "hyperparameters": self.config.to_dict(),
        }

    @property
    def resumes_exactly(self) -> bool:
        """Whether its simulators can be saved in mid-episode."""
        exact: bool = self.envs.resumes_exactly
        return exact

    def specs(self) -> dict[str, Any]:
        """Return what is observed and how it is acted on, so that the policy can be rebuilt without the environment."""
        return {"observation": self.envs.observation.to_dict(), "action": self.envs.action.to_dict()}

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
