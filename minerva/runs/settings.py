"""How a run is watched and kept, and how it ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minerva.compute.compiled import CompileMode, MatmulPrecision
from minerva.config import checked
from minerva.errors import ConfigError

Callback = Callable[[int, Mapping[str, float], Any], bool | None]
"""Called after each report with (step, metrics, trainer); returning True ends the run."""


@dataclass(frozen=True)
class RunSettings:
    """How a run is watched and kept; nothing here changes what is learned, but for `compile` in the last digits."""

    eval_every: int | None = None
    """Steps between evaluations; None: 20 evaluations a run."""
    eval_episodes: int = 15
    """Episodes per evaluation."""
    compile: CompileMode = "auto"
    """Compile the update where it pays, or never."""
    matmul: MatmulPrecision = "highest"
    """Products of float32 matrices on a GPU: "highest" in float32, "high" in TF32, faster and with 10-bit factors."""
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
        checked("matmul", self.matmul, MatmulPrecision)


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
