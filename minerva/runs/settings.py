"""Settings of a run (evaluation, compilation, logging) and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from signal import Signals
from typing import Any, Self

from minerva.compute.modes import CompileMode, MatmulPrecision
from minerva.config import checked, nearest, whole_number
from minerva.errors import ConfigError
from minerva.runs.callbacks import Callback, Function, check_callbacks
from minerva.runs.loggers import MakeLogger, check_loggers
from minerva.utils.mlflow_utils import refuse_missing_mlflow
from minerva.utils.wandb_utils import refuse_missing_wandb


@dataclass(frozen=True)
class RunSettings:
    """Settings of evaluation, compilation and logging.

    None of them changes what is learned, except for the last digits with `compile` and `threads`, and for what
    callbacks change.
    """

    eval_every: int | None = None
    """Environment steps between evaluations; None: 20 evaluations per run."""
    eval_episodes: int = 15
    """Episodes per evaluation."""
    compile: CompileMode = "auto"
    """Compile the update with torch.compile where that is faster ("auto"), or never ("off")."""
    matmul: MatmulPrecision = "highest"
    """Precision of float32 matrix products on a GPU: "highest" (float32) or "high" (TF32: faster, 10-bit mantissas)."""
    threads: int = 1
    """PyTorch CPU threads while the run trains; 1 is fastest for small networks. The number changes the last digits."""
    wandb: str | None = None
    """Weights & Biases project to log to."""
    mlflow: str | None = None
    """MLflow experiment to log to, where MLFLOW_TRACKING_URI says."""
    loggers: Sequence[MakeLogger] = field(default=(), repr=False)
    """Classes of further loggers (see `minerva.Logger`), or functions of a `LoggedRun` that make one."""
    resume: bool = False
    """Resume the run in the folder, whatever weights it began with. `total_steps`, evaluations and settings that an
    update takes as numbers may be others; what changed is written to its config.yaml, with the step."""
    quiet: bool = False
    """Print nothing."""
    info_keys: Sequence[str] = ("is_success",)
    """Entries of the environment's `info` whose mean over episodes is logged, read in each episode's last step."""
    callbacks: Sequence[Callback | Function] = field(default=(), repr=False)
    """Functions `(step, metrics, trainer)` that are called after every report, or objects with methods of `Callback`.
    They may stop the run, and change what is learned."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return the settings with these values; raise ConfigError, with the nearest names, for an unknown name."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise ConfigError(f"{name} is not a setting of a run. {nearest(name, known)}")
        return cls(**settings)

    def __post_init__(self) -> None:
        for name in ("eval_every", "eval_episodes", "threads"):
            value = getattr(self, name)
            if value is not None and whole_number(name, value) < 1:
                raise ConfigError(f"{name} is {value}: it must be at least 1.")
        if isinstance(self.info_keys, str):
            raise ConfigError(f"info_keys is {self.info_keys!r}: it must be a list, such as [{self.info_keys!r}].")
        check_callbacks(self.callbacks)
        if self.wandb is not None:
            refuse_missing_wandb()
        if self.mlflow is not None:
            refuse_missing_mlflow()
        check_loggers(self.loggers)
        checked("compile", self.compile, CompileMode)
        checked("matmul", self.matmul, MatmulPrecision)


@dataclass(frozen=True)
class Result:
    """Outcome of a run: its folder and last step, and the mean evaluation returns.

    `random` is that of a random policy, `before` and `after` of the first and last evaluation, `best` of the best.
    """

    folder: Path
    finished: bool
    step: int
    random: float
    before: float
    after: float
    best: float
    signal: Signals | None = None
    """SIGINT or SIGTERM, if one was received."""
