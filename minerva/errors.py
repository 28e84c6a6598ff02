"""The errors a user can mend. Each message says what is wrong and how to put it right."""


class MinervaError(Exception):
    """Base of every error that is the input's fault rather than Minerva's."""


class ConfigError(MinervaError, ValueError):
    """A hyperparameter or option that cannot be used."""


class EnvError(MinervaError, ValueError):
    """An environment that does not exist or cannot be trained on."""


class CheckpointError(MinervaError, ValueError):
    """A checkpoint that is damaged, foreign, or made for something else."""


class RunError(MinervaError, RuntimeError):
    """A run folder that cannot be written to or continued."""


class TrainingError(MinervaError, RuntimeError):
    """Training that began well and cannot go on: a loss that is no number any more, a full disk."""


class EnvStepError(EnvError, TrainingError):
    """An environment that raised, or broke a rule, while it was stepped."""
