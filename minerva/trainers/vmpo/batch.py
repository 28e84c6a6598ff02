"""Batches: a caller's for `VMPOAgent.update`, checked and completed; a part of one for a step of the M-step."""

import torch
from torch import Tensor

from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import take
from minerva.errors import ConfigError
from minerva.trainers.vmpo.config import VMPOConfig, selection_size
from minerva.trainers.vmpo.gaussian_mlp_policy import SquashedGaussianPolicy

NEEDED = ("obs", "old_means", "old_log_stds", "returns", "advantages")
OPTIONAL = ("actions", "actions_raw", "restarting_weights", "importance_weights")
COLUMNS = ("returns", "advantages", "restarting_weights", "importance_weights")
"""One number per row: [n] and [n, 1] are both taken."""


def minibatch(
    batch: dict[str, Tensor], target: dict[str, Tensor], index: Tensor, ranks: Ranks = SINGLE
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The rows of `index` [b] and their share of the E-step's target.

    Over equal minibatches the likelihood's mean is that of the whole batch. The KLs are means over the selected
    rows of the minibatch, or over all of them if none was selected.
    """
    rows, size = batch["advantages"].shape[0], index.shape[0]
    # LaTeX: \psi'_t = \frac{n}{b} \psi_t
    weights = rows / size * target["weights"][index]
    selected = target["selected"][index]
    count = ranks.mean(selected.sum())
    part = {
        "weights": weights,
        "selected": torch.where(count > 0, selected, 1.0),
        "count": torch.where(count > 0, count, float(size)),
    }
    return take(batch, index), part


def indices(config: VMPOConfig, noise: dict[str, Tensor], updates: int) -> list[list[tuple[Tensor, ...]]]:
    """Each update's steps of the M-step, each with the index of its rows, or without one: then it takes them all."""
    if not noise:
        return [[()] * config.m_steps] * updates
    each = [orders.unbind(-2) for orders in noise["orders"].unbind(-3)]
    return [[(index,) for order in orders for index in order.split(config.minibatch_size, -1)] for orders in each]


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
