"""Errors that a user can fix. Each message says what is wrong and how to fix it."""


class MinervaError(Exception):
    """Base of all errors that are caused by the input rather than by Minerva."""


class ConfigError(MinervaError, ValueError):
    """An invalid hyperparameter or option."""


class EnvError(MinervaError, ValueError):
    """An environment that does not exist or cannot be trained on."""


class CheckpointError(MinervaError, ValueError):
    """A checkpoint that is damaged, not Minerva's, or made for another config or environment."""


class RunError(MinervaError, RuntimeError):
    """A run folder that cannot be written to or resumed."""


class TrainingError(MinervaError, RuntimeError):
    """Training that started and cannot continue: a non-finite loss, a full disk."""


class EnvStepError(EnvError, TrainingError):
    """An environment that raised, or violated its spec, while it was stepped."""
