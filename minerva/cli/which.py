"""Options that choose one of a run's checkpoints."""

from dataclasses import dataclass

from minerva.errors import ConfigError


@dataclass(frozen=True)
class Which:
    """Choice between a run's best and last checkpoint."""

    best: bool = False
    """Use the best checkpoint, which is the default."""
    last: bool = False
    """Use the last checkpoint instead."""

    @property
    def name(self) -> str:
        """Return "best" or "last"; raise ConfigError if both are asked for."""
        if self.best and self.last:
            raise ConfigError("--best and --last exclude each other: give one of them.")
        return "last" if self.last else "best"
