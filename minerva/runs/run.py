"""One training run: its folder, its schedule of evaluations and checkpoints, and how it ends."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from rich.console import Console

from minerva.compute.compiled import CompileMode
from minerva.config import checked
from minerva.envs.vector import Episode
from minerva.errors import CheckpointError, ConfigError, RunError, TrainingError
from minerva.evaluation import Evaluation, Evaluator
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from minerva.runs.folder import RunFolder, differences
from minerva.runs.metrics import MetricsWriter
from minerva.runs.progress import ProgressLine
from minerva.runs.signals import StopSignals
from minerva.utils.tree import Tree
from minerva.utils.wandb_utils import start_wandb

logger = logging.getLogger("minerva")

EVALUATIONS = 20

Callback = Callable[[int, Mapping[str, float], Any], bool | None]
"""Called after each report with (step, metrics, trainer); returning True ends the run."""


class Trainable(Protocol):
    """What a run needs of a trainer."""

    @property
    def algo(self) -> str:
        """The algorithm's name."""

    def describe(self) -> dict[str, Any]:
        """Algorithm, environment, seed, device and hyperparameters, as plain values."""

    def policy_shape(self) -> dict[str, Any]:
        """Dimensions and action bounds, so that the policy can be rebuilt without the environment."""

    def make_evaluator(self, episodes: int) -> Evaluator:
        """Environments for evaluation."""

    def greedy(self, obs: np.ndarray) -> np.ndarray:
        """The deterministic policy."""

    def state_dict(self) -> Tree:
        """Everything training needs to go on."""

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state made by `state_dict`."""


@dataclass(frozen=True)
class RunSettings:
    """How a run is watched and kept; nothing here changes what is learned, but for `compile` in the last digits."""

    eval_every: int | None = None
    """Steps between evaluations; None: 20 evaluations a run."""
    eval_episodes: int = 15
    """Episodes per evaluation."""
    compile: CompileMode = "auto"
    """Compile the update where it pays, or never."""
    wandb: str | None = None
    """Weights & Biases project to log to."""
    quiet: bool = False
    """Print nothing."""
    callbacks: Sequence[Callback] = field(default=(), repr=False)
    """Called after every report."""

    def __post_init__(self) -> None:
        for name in ("eval_every", "eval_episodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}: it must be at least 1.")
        checked("compile", self.compile, CompileMode)


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    folder: Path
    finished: bool
    step: int
    random: float
    before: float
    after: float
    best: float


class Run:
    """Opens the folder (new, or one that holds an unfinished run of the same config) and keeps it until the end."""

    def __init__(self, trainer: Trainable, total_steps: int, out_dir: Path, settings: RunSettings) -> None:
        self.trainer = trainer
        self.total_steps = total_steps
        self.settings = settings
        self.folder = RunFolder(out_dir, trainer.algo)
        self.eval_every = settings.eval_every or max(math.ceil(total_steps / EVALUATIONS), 1)
        self.console = Console(quiet=settings.quiet, highlight=False)
        self.step = 0
        self.returns: dict[str, float] = {}
        self._evaluated: int | None = None
        self._stopped = False
        self.already_finished = False
        self._exit = ExitStack()

    @property
    def config(self) -> dict[str, Any]:
        """What makes two runs the same."""
        watched = {"eval_every": self.eval_every, "eval_episodes": self.settings.eval_episodes}
        how = {"total_steps": self.total_steps, **watched, "compile": self.settings.compile}
        described = self.trainer.describe()
        hyperparameters = described.pop("hyperparameters")  # last, for they are the longest part of config.yaml
        return {**described, **how, "hyperparameters": hyperparameters}

    # --- opening and closing --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._open()
        if not self.already_finished:
            with ExitStack() as stack:  # closes what was opened if a later part cannot be
                self._start(stack)
                self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def result(self) -> Result:
        """How it ended."""
        returns = {name: self.returns[name] for name in ("random", "before", "after", "best")}
        return Result(self.folder.path, not self._stopped, self.step, **returns)

    def _open(self) -> None:
        """Make the folder, or take over the run in it."""
        existing = self.folder.existing_config()
        self._keep_engine(existing)
        changed = differences(existing, self.config) if existing else []
        if changed:
            raise RunError(
                f"{self.folder.path} holds a run of another config ({'; '.join(changed[:3])}): give another folder, "
                "or the same config to go on with it."
            )
        if existing is None or not self.folder.last.exists():
            self.folder.create(self.config)
            if self.config.get("engine") == "envpool":
                self._say("EnvPool cannot be stopped in mid-episode: if this run is resumed, it begins new episodes.")
            return
        checkpoint = self._newest_checkpoint()
        self.trainer.load_state_dict(checkpoint.state["trainer"])
        self.step, self._evaluated = checkpoint.state["step"], checkpoint.state["evaluated"]
        self.returns = dict(checkpoint.state["returns"])
        self.already_finished = checkpoint.about["finished"]
        if self.already_finished:
            self._say(f"{self.folder.path} is a finished run: nothing to do.")
        else:
            self._say(
                f"going on with {self.folder.path} from step {self.step:,}: weights, optimiser, normalisers and random "
                "generators as they were; the environments start new episodes, so this is not bit for bit the "
                "uninterrupted run."
            )

    def _keep_engine(self, existing: dict[str, Any] | None) -> None:
        """A run goes on with the engine that it was begun with, or not at all."""
        before, now = existing and existing.get("engine"), self.config.get("engine")
        if before not in (None, now):
            raise RunError(
                f"{self.folder.path} holds a run on the engine {before}, and this would be {now}: go on with --engine "
                f"{before} (envpool comes with pip install 'minerva[envpool]'), or give another folder."
            )

    def _say(self, sentence: str) -> None:
        self.console.print(sentence, markup=False, soft_wrap=True)  # a path is shown as it is written

    def _newest_checkpoint(self) -> Checkpoint:
        """The last one, or if that is damaged the best one: it is older, and as complete."""
        try:
            return load_checkpoint(self.folder.last)
        except CheckpointError as error:
            if not self.folder.best.exists():
                raise
            logger.warning("%s Going on from %s instead.", error, self.folder.best)
            return load_checkpoint(self.folder.best)

    def _start(self, stack: ExitStack) -> None:
        """Everything a running run holds open, closed again by `stack`."""
        settings = self.settings
        self._evaluator = self.trainer.make_evaluator(settings.eval_episodes)
        stack.callback(self._evaluator.close)
        self._signals = stack.enter_context(StopSignals())
        wandb = settings.wandb is not None and start_wandb(settings.wandb, self.folder.path.name, self.config)
        known = self.step if self.returns else -1  # an attempt that ended before its first checkpoint left rows
        self._writer = stack.enter_context(MetricsWriter(self.folder, known, wandb))
        self._line = stack.enter_context(ProgressLine(self.console, self.total_steps, self.step, settings.quiet))
        if not self.returns:
            self._begin()

    def _begin(self) -> None:
        """What the numbers are to be compared with: a random policy, and this one untrained."""
        self.returns["random"] = self._evaluator.random(seed=0).mean
        self._evaluate()
        self._save(finished=False)

    # --- the loop's two calls -------------------------------------------------------------------------------

    def steps(self, by: int) -> Iterator[int]:
        """The number of environment steps after each of the iterations to come, `by` apart."""
        while self.step + by <= self.total_steps and not self._stopped:
            yield self.step + by
        if self._evaluated != self.step and not self._stopped:
            self._evaluate()
        self._save(finished=not self._stopped)

    @property
    def interrupted(self) -> bool:
        """Whether a signal asks to report soon and be stopped: for loops that report seldom."""
        return self._signals.received

    def report(self, step: int, metrics: Mapping[str, float], episodes: Sequence[Episode]) -> None:
        """Write what happened up to `step`; evaluate, save and stop when it is time to."""
        _refuse_non_finite(step, metrics, self.folder)
        due = step // self.eval_every > self.step // self.eval_every
        self.step = step
        row = {**metrics, "charts/SPS": self._line.steps_per_second(step), "charts/time": time.time()}
        if episodes:
            self.returns["train"] = float(np.mean([episode.episode_return for episode in episodes]))
            row["train/episode_return"] = self.returns["train"]
            row["train/episode_length"] = float(np.mean([episode.length for episode in episodes]))
        self._writer.write(step, row)
        if due:
            self._evaluate()
            self._save(finished=False)
        self._line.show(step, self.returns.get("train"), self.returns.get("after"))
        answers = [callback(step, row, self.trainer) for callback in self.settings.callbacks]
        self._stopped = self._stopped or any(answers) or self._signals.received

    # --- evaluation and checkpoints -------------------------------------------------------------------------

    def _evaluate(self) -> None:
        evaluation: Evaluation = self._evaluator(self.trainer.greedy)
        self._evaluated = self.step
        self._writer.write(self.step, evaluation.metrics())
        self._writer.write_evaluation(self.step, evaluation.returns, evaluation.lengths)
        self.returns["after"] = evaluation.mean
        self.returns.setdefault("before", evaluation.mean)
        if evaluation.mean > self.returns.get("best", -math.inf):
            self.returns["best"] = evaluation.mean
            save_checkpoint(self.folder.best, self._checkpoint(finished=False))

    def _save(self, finished: bool) -> None:
        save_checkpoint(self.folder.last, self._checkpoint(finished))

    def _checkpoint(self, finished: bool) -> Checkpoint:
        about = {**self.config, **self.trainer.policy_shape(), "step": self.step, "finished": finished}
        about["return"] = self.returns["after"]
        progress = {"step": self.step, "evaluated": self._evaluated, "returns": dict(self.returns)}
        return Checkpoint(about, {"trainer": self.trainer.state_dict(), **progress})


def _refuse_non_finite(step: int, metrics: Mapping[str, float], folder: RunFolder) -> None:
    for name, value in metrics.items():
        if name.startswith("loss") and not math.isfinite(value):
            raise TrainingError(
                f"{name} became {value} at step {step}: the run is stopped, and {folder.last} keeps its last good "
                "state. A lower learning rate or a tighter max_grad_norm usually helps."
            )
