"""Settings of a run (evaluation, compilation, logging) and its result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Any

from minerva.compute.compiled import CompileMode, MatmulPrecision
from minerva.config import checked
from minerva.errors import ConfigError

Callback = Callable[[int, Mapping[str, float], Any], bool | None]
"""Function called after each report with (step, metrics, trainer); returning True stops the run."""


@dataclass(frozen=True)
class RunSettings:
    """Settings of evaluation, compilation and logging.

    None of them changes what is learned, except for the last digits with `compile`.
    """

    eval_every: int | None = None
    """Environment steps between evaluations; None: 20 evaluations per run."""
    eval_episodes: int = 15
    """Episodes per evaluation."""
    compile: CompileMode = "auto"
    """Compile the update with torch.compile where that is faster ("auto"), or never ("off")."""
    matmul: MatmulPrecision = "highest"
    """Precision of float32 matrix products on a GPU: "highest" (float32) or "high" (TF32: faster, 10-bit mantissas)."""
    wandb: str | None = None
    """Weights & Biases project to log to."""
    resume: bool = False
    """Resume the run in the folder, whatever weights it began with: then `init_from` is not needed again."""
    quiet: bool = False
    """Print nothing."""
    callbacks: Sequence[Callback] = field(default=(), repr=False)
    """Functions called after every report."""

    def __post_init__(self) -> None:
        for name in ("eval_every", "eval_episodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}: it must be at least 1.")
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
