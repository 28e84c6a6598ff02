"""A caller's batch for `VMPOAgent.update`, checked and completed."""

from torch import Tensor

from minerva.errors import ConfigError
from minerva.trainers.vmpo.config import selection_size
from minerva.trainers.vmpo.gaussian_mlp_policy import SquashedGaussianPolicy

NEEDED = ("obs", "old_means", "old_log_stds", "returns", "advantages")
OPTIONAL = ("actions", "actions_raw", "restarting_weights", "importance_weights")
COLUMNS = ("returns", "advantages", "restarting_weights", "importance_weights")
"""One number per row: [n] and [n, 1] are both taken."""


def completed(batch: dict[str, Tensor], policy: SquashedGaussianPolicy, topk_fraction: float) -> dict[str, Tensor]:
    """The batch with pre-squash actions, with weights of one where none are given, and its columns as [n]."""
    _check(batch, topk_fraction)
    rows = batch["obs"].shape[0]
    ones = batch["obs"].new_ones(rows)
    raw = batch["actions_raw"] if "actions_raw" in batch else policy.recover(batch["actions"])
    whole = {"restarting_weights": ones, "importance_weights": ones, **batch, "actions_raw": raw}
    whole.pop("actions", None)
    return {name: values.reshape(rows) if name in COLUMNS else values for name, values in whole.items()}


def _check(batch: dict[str, Tensor], topk_fraction: float) -> None:
    missing = [name for name in NEEDED if name not in batch]
    missing += [] if {"actions", "actions_raw"} & batch.keys() else ["actions"]
    if missing:
        raise ConfigError(f"The batch lacks {', '.join(missing)}: V-MPO needs {', '.join(NEEDED)} and actions.")
    unknown = sorted(batch.keys() - {*NEEDED, *OPTIONAL})
    if unknown:
        raise ConfigError(f"The batch holds {', '.join(unknown)}: V-MPO knows {', '.join((*NEEDED, *OPTIONAL))}.")
    rows = batch["obs"].shape[0]
    for name, values in batch.items():
        if values.shape[:1] != (rows,):
            raise ConfigError(f"{name} has shape {tuple(values.shape)}, and obs has {rows} rows: give one entry a row.")
    if selection_size(topk_fraction, rows) < 1:
        raise ConfigError(f"topk_fraction {topk_fraction} of {rows} rows selects nothing: raise it, or give more rows.")
