"""The options that choose one of a run's checkpoints."""

from dataclasses import dataclass

from minerva.errors import ConfigError


@dataclass(frozen=True)
class Which:
    """Which of the run's policies."""

    best: bool = False
    """The best checkpoint, which is the default."""
    last: bool = False
    """The last checkpoint instead."""

    @property
    def name(self) -> str:
        """best or last."""
        if self.best and self.last:
            raise ConfigError("--best and --last name two checkpoints: give one of them.")
        return "last" if self.last else "best"
