"""One training run: opens or resumes its folder, logs, evaluates, saves checkpoints, and stops on signals."""

import dataclasses
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from minerva.compute.compiled import matmul_precision
from minerva.compute.seeding import global_generators, set_global_generators
from minerva.compute.tree import Tree
from minerva.envs.engine import Episode
from minerva.errors import CheckpointError, RunError, TrainingError, pip_install, printable
from minerva.evaluation import EvaluationInterruptedError, info_means, longest_episode, mean_metrics
from minerva.runs import files
from minerva.runs.callbacks import tell
from minerva.runs.checkpoint import Checkpoint, check_structure
from minerva.runs.extension import changed_hyperparameters, check_extension, check_same_run, recorded
from minerva.runs.folder import RunFolder, differences, provenance
from minerva.runs.loggers import LoggedRun, asked_for, opened
from minerva.runs.metrics import Lengths, MetricsWriter, evaluation_means, refuse_non_finite
from minerva.runs.origin import INIT_FROM, known_origin
from minerva.runs.output import make_console
from minerva.runs.settings import Result, RunSettings
from minerva.runs.signals import STOPS, StopSignals
from minerva.runs.status import RunStatus
from minerva.runs.store import CheckpointStore, LoadedCheckpoint
from minerva.runs.terminal import ProgressView
from minerva.runs.trainable import Trainable

EVALUATIONS = 20
SAVE_EVERY = 60.0
"""Seconds between checkpoints if no evaluation is due earlier."""
SAVE_TIME_SHARE = 0.005
"""Largest share of the run time spent on writing those checkpoints."""
REPORTS_SHOWN = 20
"""Reports whose mean the terminal shows."""


class Run:
    """A training run in a folder that is new or holds an unfinished run of the same config, which is resumed."""

    _evaluation: Mapping[str, float] = {}
    """Metrics of the last evaluation."""
    _own: Mapping[str, float] = {}
    """Last values of what the user's code logs, for the terminal."""

    def __init__(
        self,
        trainer: Trainable,
        total_steps: int,
        out_dir: Path,
        settings: RunSettings,
        signals: StopSignals | None = None,
        number: int = 0,
        together: int = 1,
        processes: int = 1,
        actors: int = 0,
    ) -> None:
        """Prepare a run; entering its `with` block opens the folder.

        In a population, `signals` are the population's and this is run `number` of `together`; None: a single run.
        `processes` is the number of data-parallel ranks, `actors` that of remote workers.
        """
        self.trainer, self.total_steps, self.settings = trainer, total_steps, settings
        self.folder = RunFolder(out_dir, trainer.algo)
        self.store = CheckpointStore(self.folder)
        self.eval_every = settings.eval_every or max(math.ceil(total_steps / EVALUATIONS), 1)
        self.console = make_console(settings.quiet)
        self.step, self.returns = 0, dict[str, float]()
        self._evaluated: int | None = None
        self._pending = False  # an evaluation is due and not finished yet
        self._logs, self._evaluations = Lengths(), list[float]()
        self._reports: deque[Mapping[str, float]] = deque(maxlen=REPORTS_SHOWN)
        self._stopped = self._told_start = False
        self._saved: int | None = None
        self._saved_at = self.save_seconds = 0.0
        self._best = False  # the last evaluation is the best and not saved yet
        self.number, self.together = number, together
        self.workers = {"processes": processes, "actors": actors}
        self.origin = trainer.origin
        self.begin_at: int | None = None
        """Step of the checkpoint to resume from; None: the newest."""
        self.group: str | None = None
        """Loggers' group of the runs trained together with this one; None: a single run."""
        self.already_finished = self._finished = False
        self._given_signals = signals
        self._exit = ExitStack()

    @property
    def config(self) -> dict[str, Any]:
        """Return the config that identifies a run: two runs with the same config are the same experiment."""
        options: dict[str, Any] = {
            "total_steps": self.total_steps,
            "eval_every": self.eval_every,
            "eval_episodes": self.settings.eval_episodes,
            "compile": self.settings.compile,
            "matmul": self.settings.matmul,
        }
        if self.origin is not None:
            options[INIT_FROM] = self.origin.to_dict()
        described = self.trainer.describe()
        hyperparameters = described.pop("hyperparameters")  # last: they are the longest part of config.yaml
        return {**described, **options, "hyperparameters": hyperparameters}

    # --- opening and closing --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # closes what was opened if a later part fails
            self._signals = self._given_signals or stack.enter_context(StopSignals())
            stack.enter_context(matmul_precision(self.settings.matmul))
            self._open(stack)
            if not self.already_finished:
                self._start(stack)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Close the run. Suppress the error of a signal that came before the step was finished."""
        aborted = isinstance(error, STOPS) and self._signals.received and self._saved is not None
        if aborted:
            self.stop_at_last_checkpoint()
        if self._saved is not None:
            self.trainer.trained(self.folder.last, self.step)
        self._exit.close()
        return aborted

    def stop_at_last_checkpoint(self) -> None:
        """Stop the run and set its step back to that of the last checkpoint."""
        self._stopped, self.step = True, self._saved or 0

    @property
    def ended(self) -> bool:
        """Return whether the run is stopped or finished."""
        return self._stopped or self._finished or self.already_finished

    def result(self) -> Result:
        """Return the outcome: folder, last step, the returns before and after training, and the signal received."""
        returns = {name: self.returns.get(name, math.nan) for name in ("random", "before", "after", "best")}
        return Result(self.folder.path, not self._stopped, self.step, **returns, signal=self._signals.number)

    def _open(self, stack: ExitStack) -> None:
        """Create the folder, or resume the run in it."""
        existing = self.folder.existing_config()
        if existing is None:
            self.folder.make()
        stack.enter_context(files.locked(self.folder.path))
        existing = self.folder.existing_config()  # another process may have written it before the lock
        self._require_same_engine(existing)
        if existing and self.settings.resume and self.settings.eval_every is None:
            self.eval_every = existing.get("eval_every", self.eval_every)
        begun = existing if self.store.exists() else None
        self.origin = known_origin(self.origin, begun, self.folder.config, self.settings.resume)
        changed = differences(existing, self.config) if existing else []
        check_same_run(self.folder.path, changed, self.trainer.changeable if begun and self.settings.resume else None)
        if self.origin is not None:
            self._say(f"{self.folder.path} is {self.origin}.")
        if existing is None or not self.store.exists():
            self.folder.create(self.config)
            if not self.trainer.resumes_exactly and self.number == 0:  # once per population
                name = self.config.get("engine")
                self._say(
                    f"{name} cannot be saved in mid-episode: if this run is resumed, it begins new episodes. "
                    "(--exact takes an engine that is slower and resumes exactly.)"
                )
            self.trainer.start(0)
        else:
            self._resume(changed)
            if changed:  # what is given now wins over what a callback had set
                given = self.config["hyperparameters"]
                self.trainer.change(**{name: given[name] for name in changed_hyperparameters(changed)})
                self.folder.rewrite(recorded(existing, self.config, self.step, changed))

    def _resume(self, changed: Sequence[str] = ()) -> None:
        """Load the newest checkpoint and print whether the run continues bit for bit."""
        loaded = self.store.newest(self.begin_at)
        path, checkpoint = loaded.path, loaded.checkpoint
        check_extension(self.folder.path, checkpoint, self.total_steps, changed)
        try:
            unavailable_reason = self._load(checkpoint.state, loaded)
            finished, versions = checkpoint.about["finished"] is True, checkpoint.about["versions"]
            deviations = differences(versions, self._versions_and_workers())
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError, OverflowError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise CheckpointError(
                f"{path} does not fit this run ({reason}): give the folder that the run wrote, unchanged."
            ) from error
        self._saved = self.step
        self.already_finished = finished and not changed
        if self.already_finished:
            self._say(f"{self.folder.path} is a finished run: nothing to do.")
            return
        if unavailable_reason:
            self.trainer.start(self.step)
            unavailable_reason = f"the environments start new episodes ({unavailable_reason})"
        deviations += [*changed, *filter(None, [self.trainer.inexact_reason])]
        if loaded.rows_lost:
            deviations.append("rows of the replay are lost")
        reasons = "; ".join([unavailable_reason] * bool(unavailable_reason) + deviations)
        how = f", but not bit for bit as the uninterrupted run: {reasons}" if reasons else ", bit for bit"
        self._say(f"resuming {self.folder.path} from step {self.step:,}{how}.")

    def _load(self, state: Tree, loaded: LoadedCheckpoint) -> str:
        """Load a checkpoint's state; return why the environments could not be restored, or an empty string."""
        agents = [tree.get("agent", {}) for tree in (self.trainer.state_dict(), state["trainer"])]
        expected, saved = ({name: agent[name] for name in agent.keys() - {"metrics", "generator"}} for agent in agents)
        check_structure(expected, saved, "agent")
        unavailable_reason = self.trainer.load_state_dict(state["trainer"])
        rows = self.trainer.rows
        if rows is not None:
            loaded.rows.put_into(rows, renumbered=loaded.rows_lost)
        set_global_generators(state["generators"])
        self.step, self._evaluated, self._pending = state["step"], state["evaluated"], state["pending"] is True
        self.returns = {str(name): float(value) for name, value in state["returns"].items()}
        self._evaluation = {str(name): float(value) for name, value in state.get("evaluation", {}).items()}
        self._logs = {str(name): int(length) for name, length in state["logs"].items()}
        if type(self.step) is not int or not 0 <= self.step <= self.total_steps:
            raise ValueError(f"step is {self.step!r}, of {self.total_steps}")
        return unavailable_reason

    def _require_same_engine(self, existing: dict[str, Any] | None) -> None:
        """Raise RunError if the run in the folder was started with another engine."""
        before, now = existing and existing.get("engine"), self.config.get("engine")
        if before not in (None, now):
            raise RunError(
                f"{self.folder.path} contains a run on the engine {before}, and this one would use {now}: resume it "
                f"with --engine {before} ({pip_install('envpool')} installs envpool), or give another folder."
            )

    def _versions_and_workers(self) -> dict[str, Any]:
        """Return what, besides the config, the last bits of the results depend on."""
        return {**provenance()["versions"], "seeds trained together": self.together, **self.workers}

    def _say(self, sentence: str) -> None:
        self.console.print(printable(sentence), markup=False, soft_wrap=True)  # print paths verbatim

    def _start(self, stack: ExitStack) -> None:
        """Open the evaluator, the logs and the progress view; `stack` closes them."""
        settings = self.settings
        self._versions = self._versions_and_workers()
        longest = longest_episode(self.total_steps, self.eval_every, settings.eval_episodes)
        self._evaluator = self.trainer.make_evaluator(settings.eval_episodes, longest)
        stack.callback(self._evaluator.close)
        about = LoggedRun(self.folder.path, self.config, self.step, self.group)
        loggers = stack.enter_context(opened(asked_for(settings.loggers, settings.wandb, settings.mlflow), about))
        try:
            self._writer = stack.enter_context(MetricsWriter(self.folder, self._logs, loggers, self.trainer.metrics))
        except OSError as error:
            raise self.folder.unwritable(error) from None
        self._evaluations = evaluation_means(self.folder.evaluations)
        quiet = settings.quiet or self._given_signals is not None  # a population has its own view
        self._view = stack.enter_context(ProgressView(self.console, self.total_steps, self.step, quiet))

    # --- what the training loop calls -----------------------------------------------------------------------

    def steps(self, by: int) -> Iterator[int]:
        """Yield the number of environment steps that each coming iteration ends at, `by` apart."""
        if not self._told_start:
            self._told_start = True
            self._tell("start", self._evaluation)
        if self._saved is None:
            self._pending = True
            self._save()  # from here on the run can be resumed
        if self._pending and self._evaluate():
            self._save()
        while self.step + by <= self.total_steps and not self._stopped:
            yield self.step + by
        if self._evaluated != self.step and not self._stopped:
            self._evaluate()
        self._tell("end", self._evaluation)
        self._write_logged()
        self._save(finished=not self._stopped)
        self._finished = not self._stopped

    @property
    def interrupted(self) -> bool:
        """Return whether a signal was received, so that the loop should `pause` or report soon."""
        return self._signals.received

    def pause(self, step: int) -> None:
        """Stop at `step`, between two reports; the trainer's state holds the partial iteration."""
        self.step, self._stopped = step, True

    @property
    def unsaved(self) -> float:
        """Return the seconds since the last checkpoint."""
        return time.monotonic() - self._saved_at

    def report(
        self, step: int, metrics: Mapping[str, float], episodes: Sequence[Episode], save: bool | None = None
    ) -> None:
        """Log the metrics and episodes up to `step`; evaluate, save and stop if due.

        `save` forces or forbids a checkpoint where no evaluation is due; None: decide by the time since the last one.
        """
        refuse_non_finite(step, metrics, self.folder)
        self._pending = step // self.eval_every > self.step // self.eval_every
        self.step = step
        row = {**metrics, "charts/SPS": self._view.steps_per_second(step), "charts/time": time.time()}
        if episodes:
            means = info_means("train", [episode.info for episode in episodes], self.settings.info_keys)
            row |= {**mean_metrics(episodes), **means}
            self.returns["train"] = row["train/episode_return"]
            self._own = {**self._own, **means}
        self._writer.write(step, row)
        self._reports.append(row)
        for episode in episodes:
            infos = info_means("train", [episode.info], episode.info)
            self._tell("episode", {**mean_metrics([episode]), **infos})
        overdue = save_is_due([self]) if save is None else save
        due = self._evaluate() if self._pending else overdue
        self._tell("update", {**self._evaluation, **row})
        self._write_logged()
        if due:
            self._save()  # after the callbacks: a resumed run does not call them again for this step
        self._view.show(step, lambda: [self.status()])
        self._stopped = self._stopped or self._signals.received

    def status(self) -> RunStatus:
        """Return the run's status for the terminal."""
        status = self.trainer.status(self.returns.get("train"), self._evaluations, self._reports)
        return dataclasses.replace(status, own=self._own)

    # --- the user's code ------------------------------------------------------------------------------------

    def _tell(self, event: str, metrics: Mapping[str, float]) -> None:
        """Tell the callbacks of an event, and stop if one of them says so."""
        stop = tell(self.settings.callbacks, event, self.step, metrics, self.trainer)
        self._stopped = self._stopped or stop

    def _write_logged(self) -> None:
        """Write a row with the numbers that the user's code has logged, if there are any."""
        logged = self.trainer.take_logged()
        if logged:
            self._writer.write(self.step, logged)
            self._own = {**self._own, **logged}

    # --- evaluation and checkpoints -------------------------------------------------------------------------

    def _evaluate(self) -> bool:
        """Evaluate, and mark a new best. Return False and stop if a signal came: the resumed run evaluates then."""
        generators = global_generators()
        try:
            if "random" not in self.returns:  # the baseline for all returns
                self.returns["random"] = self._evaluator.random(seed=0, interrupted=self._interruption).mean
            evaluation = self._evaluator(self.trainer.greedy, self._interruption)
        except EvaluationInterruptedError:
            self._stopped = self._pending = True
            return False
        finally:
            set_global_generators(generators)
        self._evaluated, self._pending = self.step, False
        self._evaluation = evaluation.metrics(self.settings.info_keys)
        self._own = {**self._own, **info_means("eval", evaluation.infos, self.settings.info_keys)}
        self._writer.write(self.step, self._evaluation)
        self._writer.write_evaluation(self.step, evaluation.returns, evaluation.lengths)
        self._evaluations.append(evaluation.mean)
        self.returns["after"] = evaluation.mean
        self.returns.setdefault("before", evaluation.mean)
        if evaluation.mean > self.returns.get("best", -math.inf):
            self.returns["best"] = evaluation.mean
            self._best = True
        self._tell("evaluation", self._evaluation)
        return True

    def _interruption(self) -> bool:
        return self._signals.received

    def _save(self, finished: bool = False) -> None:
        began = time.monotonic()
        try:
            self.store.save(self._checkpoint(finished), self.trainer.rows, self._best)
        except OSError as error:
            raise TrainingError(
                f"{self.folder.path} could not be written to ({error.strerror}): its last checkpoint is unchanged. "
                "Once the disk can be written to, continue with --resume."
            ) from None
        self._saved, self._saved_at, self._best = self.step, time.monotonic(), False
        self.save_seconds = self._saved_at - began
        self._tell("checkpoint", self._evaluation)

    def _checkpoint(self, finished: bool) -> Checkpoint:
        about = {**self.config, **self.trainer.specs(), "step": self.step, "finished": finished}
        about |= {"return": self.returns.get("after"), "versions": self._versions}
        progress = {"step": self.step, "evaluated": self._evaluated, "pending": self._pending}
        records = {"returns": dict(self.returns), "evaluation": dict(self._evaluation), "logs": self._writer.lengths()}
        records["generators"] = global_generators()
        return Checkpoint(about, {"trainer": self.trainer.state_dict(), **progress, **records})


def save_is_due(runs: Sequence[Run]) -> bool:
    """Return whether to save these runs now. All are saved at once, so that they can be resumed together."""
    save_seconds = sum(run.save_seconds for run in runs)
    return max(run.unsaved for run in runs) > max(SAVE_EVERY, save_seconds / SAVE_TIME_SHARE)
