"""Base of all trainers: make agent and environments, describe them, and run the loop inside a run."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from minerva.compute.compiled import torch_threads
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.config import TENSOR, whole_number
from minerva.data.replay import Replay
from minerva.envs.engine import Engine, Episode
from minerva.envs.engines.registry import MANY_ENVS, EngineName, evaluating_engine, make_engine
from minerva.envs.engines.vector import single_env
from minerva.envs.ids import EnvLike, VectorEnv, env_name
from minerva.envs.saved import saved
from minerva.errors import CheckpointError, ConfigError, with_short_traceback
from minerva.evaluation import Evaluator
from minerva.formulas.statistics import remaining_fraction
from minerva.loop.collector import Collector, LocalCollector
from minerva.metrics import Health, Metric, Rule
from minerva.networks.own import OwnNetworks
from minerva.runs.checkpoint import digest, load_checkpoint
from minerva.runs.distributed import FollowerRuns, RankZeroTrainer, follow, lead
from minerva.runs.folder import differences, find_checkpoint
from minerva.runs.origin import AGENT, POLICY, TRAINER, USED, Origin
from minerva.runs.own_networks import saved_networks
from minerva.runs.run import Run
from minerva.runs.run_group import RunGroup
from minerva.runs.settings import Result, RunSettings
from minerva.runs.signals import raise_received
from minerva.runs.status import RunStatus, gauge_values


class Trainer(ABC):
    """An agent, its environments and the loop that trains it."""

    algo: ClassVar[str]
    AGENT: ClassVar[type[Any]]
    """Class of the agent, whose `CONFIG` is the class of the config."""
    POSITIONAL: ClassVar[tuple[str, ...]] = ()
    """Fields of the config that the constructor takes as positional arguments after the device, in this order."""
    envs: Any
    """The environments: an `Engine`, or the `RemoteEnvs` of remote workers."""
    agent: Any
    config: Any
    health: Health
    _parent: Origin | None
    """What `init_from` took or an earlier run left, but for the digest of the weights."""

    @with_short_traceback
    def __init__(
        self,
        env_id: EnvLike,
        seed: int = 0,
        device: str = "cpu",
        *positional: Any,
        engine: EngineName | Engine | Collector = "auto",
        ranks: Ranks = SINGLE,
        config: Any = None,
        eval_env: EnvLike | None = None,
        own_networks: OwnNetworks | None = None,
        **hyperparameters: Any,
    ) -> None:
        """Make a trainer from a `config`, or from `hyperparameters`, which are fields of the config.

        `positional` are the fields named in `POSITIONAL`. `engine` steps the environments: the name of an engine, an
        engine, or a collector. A vector environment is stepped as it is. Evaluations step copies of the environment, or
        `eval_env`. `own_networks` are those of the agent. `ranks` are
        data-parallel: the config holds the values of all ranks together, of which each takes its share.
        """
        seed = whole_number("seed", seed)
        if seed < 0:
            raise ConfigError(f"seed is {seed}: it must be 0 or more.")
        if config is not None and (positional or hyperparameters):
            raise ConfigError(f"{type(config).__name__} is given as config: give no other hyperparameters beside it.")
        self.saved_networks = saved_networks(own_networks)
        self.env, self.seed, self.ranks = env_id, seed, ranks
        self.saved_env = saved(env_id)
        """What runs save of the environment."""
        self.eval_env = eval_env
        self.config = self._config_from(engine, positional, hyperparameters) if config is None else config
        self.device = usable_device(device)
        self.num_envs: int = self.share.num_envs
        self.collector = self._collector(engine)
        self.envs = self.collector.envs
        self.agent = self._made_agent(own_networks)
        self._drawn, self._parent = digest(self.agent.policy_state()), None
        self.health = Health(self.rules())
        self.episodes: list[Episode] = []
        """Episodes that ended since the last report."""
        self.changed: dict[str, float] = {}
        """Settings that were changed during the run, with their present values."""
        self._logged: dict[str, list[float]] = {}

    def _config_from(self, engine: Any, positional: Sequence[Any], hyperparameters: Mapping[str, Any]) -> Any:
        if len(positional) > len(self.POSITIONAL):
            raise ConfigError(
                f"{type(self).__name__} takes {', '.join(self.POSITIONAL)} after the device: name the others."
            )
        if isinstance(self.env, VectorEnv):
            hyperparameters = {"num_envs": self.env.num_envs, **hyperparameters}
        named = dict(zip(self.POSITIONAL, positional, strict=False))
        for name in named.keys() & hyperparameters.keys():
            raise ConfigError(f"{name} is given twice: by its place and by its name.")
        given, kind = {**named, **hyperparameters}, self.AGENT.CONFIG
        if not isinstance(engine, str) or engine not in MANY_ENVS:
            return kind.from_dict(given)
        envs = given.get("num_envs")
        known = envs if type(envs) is int and envs > 0 else kind.MANY_ENVS  # another is refused by its range
        return kind.from_dict({**kind.at_scale(known), **given})

    def _made_agent(self, own_networks: OwnNetworks | None) -> Any:
        specs = self.envs.observation, self.envs.action
        how: dict[str, Any] = {"seed": self.seed, "device": self.device, "ranks": self.ranks}
        return self.AGENT.from_config(*specs, self.share, **how, own_networks=own_networks)

    # --- what the user's code calls -----------------------------------------------------------------------

    def log(self, name: str, value: float) -> None:
        """Log a number of your own: the mean of those since the last report is written beside the metrics."""
        if not isinstance(name, str) or name in ("", "step"):
            raise ConfigError(f"The name of a logged number is {name!r}: give a text such as 'own/distance'.")
        try:
            self._logged.setdefault(name, []).append(float(value))
        except (TypeError, ValueError):
            raise ConfigError(f"{name} is logged as {value!r}: give a single number.") from None

    def take_logged(self) -> dict[str, float]:
        """Return the means of the numbers logged since the last call."""
        logged, self._logged = self._logged, {}
        return {name: math.fsum(values) / len(values) for name, values in logged.items()}

    @property
    def changeable(self) -> Sequence[str]:
        """Names of the settings that an update takes as numbers."""
        names: Sequence[str] = self.config.fields_with(TENSOR)
        return names

    def change(self, **settings: float) -> None:
        """Change settings of the coming updates, such as `policy_lr`; they are logged, and saved with the run."""
        before = self.agent.config
        self.learn_with(before.changed(settings))
        for name in settings:
            value = getattr(self.agent.config, name)
            if value != getattr(before, name):
                self.changed[name] = value
                self._logged[f"settings/{name}"] = [value]

    def learn_with(self, config: Any) -> None:
        """Take the numbers of the coming updates from `config`."""
        self.agent.config = config

    @abstractmethod
    def rules(self) -> Iterable[Rule]:
        """Return the health checks of a run."""

    @with_short_traceback
    def train(self, total_steps: int, out_dir: str | Path, **settings: Any) -> Result:
        """Train for `total_steps` environment steps and write the run into `out_dir`.

        `settings` are the fields of `RunSettings`. An unfinished run of the same config in `out_dir` is resumed from
        its last checkpoint. After Ctrl-C a checkpoint is written and KeyboardInterrupt raised; after SIGTERM,
        TerminatedError.
        """
        result = self.run(total_steps, out_dir, **settings)
        raise_received(result)
        return result

    def run(self, total_steps: int, out_dir: str | Path, **settings: Any) -> Result:
        """Train as `train` does, but return the result also if a signal stopped the run."""
        how, total_steps = RunSettings.of(settings), whole_number("total_steps", total_steps)
        self.check(total_steps)
        with torch_threads(how.threads):
            if self.ranks.count > 1:
                return self._train_data_parallel(total_steps, Path(out_dir), how)
            run = Run(self, total_steps, Path(out_dir), how, actors=self.collector.workers_count)
            with run:
                if not run.already_finished:
                    self.loop([self], self.collector, RunGroup([run]))
            return run.result()

    def _train_data_parallel(self, total_steps: int, out_dir: Path, settings: RunSettings) -> Result:
        """Train as one of several data-parallel ranks; rank 0 writes the run."""

        def loop(runs: RunGroup) -> None:
            self.loop([self], self.collector, runs)

        if self.ranks.rank > 0:
            return follow(FollowerRuns(self, total_steps, settings, self.ranks), self.ranks, loop)
        trainer: Any = RankZeroTrainer(self, self.ranks)
        return lead(Run(trainer, total_steps, out_dir, settings, processes=self.ranks.count), self.ranks, loop)

    def _collector(self, engine: EngineName | Engine | Collector) -> Collector:
        """Return the given collector, or a local one around the given or named engine."""
        if isinstance(engine, Collector):
            return engine
        if not isinstance(engine, Engine):
            engine = make_engine(self.env, self.num_envs, engine, device=self.device)
        return LocalCollector(engine)

    @property
    def share(self) -> Any:
        """The config of this rank, with its share of the divided fields."""
        return self.config.share(self.ranks.count)

    def remaining(self, part: int, parts: int) -> float:
        """Return the factor of the learning rates in part `part` of `parts`, 1 in the first and without annealing."""
        return remaining_fraction(part, parts) if self.config.anneal_lr else 1.0

    def start(self, step: int) -> None:
        """Reset all environments: at the start of a run, or if the simulators could not be restored."""
        self.envs.reset(self.env_seeds(step))

    @property
    def rows(self) -> Replay | None:
        """The replay, whose rows are saved separately from the state; None if there is none."""
        return None

    @property
    def metrics(self) -> Sequence[Metric]:
        """Declarations of the metrics of the algorithm's updates."""
        declared: Sequence[Metric] = self.agent.METRICS
        return declared

    def status(
        self, train: float | None, evaluations: list[float], reports: Iterable[Mapping[str, float]]
    ) -> RunStatus:
        """Return the status of the trainer's run, with its gauges averaged over these reports."""
        readings = gauge_values(self.metrics, reports)
        return RunStatus(f"seed {self.seed}", train, evaluations, readings, self.health.warned)

    @classmethod
    @abstractmethod
    def loop(cls, trainers: Sequence[Self], collector: Collector, runs: RunGroup) -> None:
        """Run the algorithm's loop over `runs.steps`, for one trainer or for the seeds of a population.

        `collector` acts in the environments of all trainers, trainer by trainer.
        """

    @abstractmethod
    def check(self, total_steps: int) -> None:
        """Raise ConfigError if `total_steps` is too small for the algorithm, before anything is written."""

    def state_dict(self) -> Tree:
        """Return everything that training needs to continue: agent, simulators and unreported episodes."""
        episodes = [[*episode[:-1], dict(episode.info)] for episode in self.episodes]
        parts = {"agent": self.agent.state_dict(), "envs": self.envs.state_dict()}
        return {**parts, "episodes": episodes, "changed": dict(self.changed)}

    def load_state_dict(self, state: Tree) -> str:
        """Load a state made by `state_dict`; return "", or why the environments have to be reset."""
        self.agent.load_state_dict(state["agent"])
        self.episodes = [Episode(*episode) for episode in state["episodes"]]
        self.changed = dict(state.get("changed", {}))
        self.learn_with(self.share.changed(self.changed))
        return self.envs.load_state_dict(state["envs"])

    def init_from(self, path: str | Path, optimizer: bool = False) -> None:
        """Load the policy of a checkpoint of the same algorithm and spaces, to start training from it.

        With `optimizer`, load all that the agent has learned: the critic, moments, temperature and multipliers too.
        """
        file = find_checkpoint(Path(path))
        checkpoint = load_checkpoint(file)
        mine = {"algo": self.algo, **self.specs()}
        theirs = {name: checkpoint.about[name] for name in mine}
        for name in mine:
            if _without_layout(mine[name]) != _without_layout(theirs[name]):
                raise CheckpointError(
                    f"{path} was made with {name} {theirs[name]} (env {checkpoint.about['env']}), and this run has "
                    f"{mine[name]} (env {env_name(self.env)}): give a checkpoint of the same algorithm, and of an "
                    "environment with the same spaces."
                )
        saved = checkpoint.state["trainer"]["agent"]
        step = checkpoint.about.get("step")
        if type(step) is not int:
            raise CheckpointError(f"{path} does not say after how many steps it was made: give a run's checkpoint.")
        try:
            if optimizer:
                self.agent.load_state_dict({**saved, "generator": self.agent.generator.get_state()})
            else:
                self.agent.load_policy(saved)
        except (RuntimeError, KeyError):
            changed = differences(checkpoint.about["hyperparameters"], self.config.to_dict())
            changed.sort(key=lambda change: "layer_sizes" not in change)  # the most likely reason first
            raise CheckpointError(
                f"{path} holds networks of another shape than this run's ({'; '.join(changed[:3])}): "
                "give the settings that it was made with."
            ) from None
        fresh = self._parent is None or self._parent.taken == POLICY
        taken = USED if not fresh else AGENT if optimizer else POLICY
        self._parent = Origin(str(file), self.algo, step, "", taken)

    def trained(self, checkpoint: Path, step: int) -> None:
        """Note that the weights are from now on those of the run whose last checkpoint this is."""
        self._parent = Origin(str(checkpoint), self.algo, step, "", TRAINER)

    @property
    def origin(self) -> Origin | None:
        """Where the weights come from: `init_from`, an earlier run or a program; None if the seed drew them."""
        weights = digest(self.agent.policy_state())
        if self._parent is None and weights == self._drawn:
            return None
        return replace(self._parent or Origin("", self.algo, 0, "", TRAINER), weights=weights)

    def greedy(self, obs: Tensor) -> Tensor:
        """Return the deterministic policy's actions in [-1, 1], on the device of the observations."""
        actions: Tensor = self.agent.policy_action(obs).to(obs.device)
        return actions

    def make_evaluator(self, episodes: int, longest: int | None = None) -> Evaluator:
        """Return an evaluator with separate environments and seeds."""
        if self.eval_env is not None:
            return Evaluator(self.eval_env, episodes, self.seed, "auto", longest)
        if isinstance(self.env, VectorEnv):
            return Evaluator(single_env(self.env), episodes, self.seed, "auto", longest)
        return Evaluator(self.env, episodes, self.seed, evaluating_engine(self.envs.name), longest)

    def describe(self) -> dict[str, Any]:
        """Return algorithm, environment, seed, device, engine, hyperparameters and what is derived from the task."""
        return {
            "algo": self.algo,
            **self.saved_env,
            "seed": self.seed,
            "device": str(self.device),
            "engine": self.envs.name,
            **self.saved_networks,
            "derived": self.config.derived(len(self.envs.action.low)),
            "hyperparameters": self.config.to_dict(),
        }

    @property
    def resumes_exactly(self) -> bool:
        """Whether the simulators can be saved in mid-episode."""
        exact: bool = self.envs.resumes_exactly
        return exact

    @property
    def inexact_reason(self) -> str:
        """Why a resumed run differs in bits although its simulators are restored; empty: it does not."""
        return self.envs.inexact_reason(self.device) if isinstance(self.envs, Engine) else ""  # remote ones use CPUs

    def specs(self) -> dict[str, Any]:
        """Return both specs as plain values, so that the policy can be rebuilt without the environment."""
        return {"observation": self.envs.observation.to_dict(), "action": self.envs.action.to_dict()}

    def env_seeds(self, step: int) -> list[int]:
        """Return the environments' seeds: `seed + i` in a new run; in a resumed one, seeds of unseen episodes."""
        first = self.ranks.rank * self.num_envs
        numbers = range(first, first + self.num_envs)
        if step == 0:
            return [self.seed + i for i in numbers]
        entropy = ([self.seed, step, i] for i in numbers)
        return [int(np.random.SeedSequence(words).generate_state(1)[0]) for words in entropy]


def _without_layout(described: Any) -> Any:
    """Return a described spec without how an environment gives numbers: agents see them flattened, but not images."""
    if not isinstance(described, dict) or described.get("dtype") == "uint8":
        return described
    return {name: value for name, value in described.items() if name != "layout"}


def assign_episodes(episodes: Sequence[Episode], trainers: Sequence[Trainer]) -> None:
    """Append each episode to its trainer's list, with the environment numbered within that trainer."""
    each = trainers[0].num_envs
    for episode in episodes:
        trainers[episode.env // each].episodes.append(episode._replace(env=episode.env % each))


def take_episodes(trainers: Sequence[Trainer]) -> list[list[Episode]]:
    """Return each trainer's episodes since the last report, and clear them."""
    episodes = [trainer.episodes for trainer in trainers]
    for trainer in trainers:
        trainer.episodes = []
    return episodes


def usable_device(device: str) -> torch.device:
    """Return the torch device of this name; raise ConfigError if it is not available."""
    try:
        wanted = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"device is {device!r}: use cpu, cuda or cuda:0.") from None
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is {device}, and no CUDA GPU is usable here: use --device cpu.")
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device is {device}, and this machine has {torch.cuda.device_count()} GPU(s), from cuda:0.")
    if wanted.type not in ("cpu", "cuda"):
        why = " Apple's mps has no float64, in which statistics and rewards are summed." if wanted.type == "mps" else ""
        raise ConfigError(f"device is {device!r}: Minerva runs on cpu and cuda.{why}")
    return wanted
