"""The E-step: select the best rows of a batch, move the temperature, weigh the rows. No network takes part in it."""

import torch
from torch import Tensor

from minerva.compute.optim import Optimizer
from minerva.compute.ranks import SINGLE, Ranks
from minerva.compute.tree import Tree
from minerva.formulas.lagrange import positive
from minerva.trainers.vmpo.config import VMPOConfig, selection_size
from minerva.trainers.vmpo.duals import temperature_solved, temperature_step
from minerva.trainers.vmpo.losses import centered, effective_sample_size, log_partition, scores, top_rows

Rows = dict[str, Tensor]


WEIGHED = ("advantages", "restarting_weights", "importance_weights")
"""What the E-step sees of a batch."""


def e_step(
    temperature: Tree,
    batch: Rows,
    hyper: Rows,
    config: VMPOConfig,
    optimizer: Optimizer,
    ranks: Ranks = SINGLE,
) -> tuple[Tree, Rows, Rows]:
    """The temperature after it; the target of the M-step, `weights`, `selected` [n] and their `count`; metrics.

    Each process weighs the rows of all, and keeps its own for the M-step.
    A temperature moved by gradient weighs the rows with its value before the step; a solved one is the one that
    these very rows ask for, and weighs them.
    """
    before = positive(temperature["parameter"])
    batch = {name: ranks.all_gathered(batch[name]) for name in WEIGHED}
    rows = _selected(batch, before, config.topk_fraction)
    if config.temperature == "solved":
        moved, dual_loss = temperature_solved(temperature, rows, hyper)
    else:
        moved, dual_loss = temperature_step(temperature, rows, hyper, optimizer)
    after = positive(moved["parameter"])
    used = after if config.temperature == "solved" else before
    score = scores(rows["advantages"], rows["restarting"], used)
    weights, _ = log_partition(score, rows["counted"], rows["importance"])
    # LaTeX: \tau = \min_{t \in S} s_t
    threshold = torch.where(rows["selected"] > 0, score, torch.inf).min()
    metrics = {
        "vmpo/dual_loss": dual_loss,
        "vmpo/epsilon_eta": hyper["epsilon_eta"],
        "vmpo/temperature_raw": after,
        "vmpo/adv_std_over_temperature": rows["advantages"].std(correction=0) / after,
        "vmpo/selected_frac": rows["selected"].mean(),
        "vmpo/threshold": threshold,
        "vmpo/ess": effective_sample_size(weights),
        "vmpo/restarting_frac": 1 - batch["restarting_weights"].mean(),
        "vmpo/importance_mean": rows["importance"].mean(),
    }
    if config.centered_weights:
        weights = centered(weights, rows["restarting"], rows["importance"])
    selected = ranks.local_shard(rows["selected"])
    target = {"weights": ranks.scaled_local_shard(weights), "selected": selected, "count": ranks.mean(selected.sum())}
    return moved, target, metrics


def _selected(batch: Rows, temperature: Tensor, topk_fraction: float) -> Rows:
    """What the E-step sees of a batch: if every row restarts an episode, every row counts with weight one."""
    restarting = batch["restarting_weights"]
    restarting = torch.where((restarting > 0).any(), restarting, torch.ones_like(restarting))
    k = selection_size(topk_fraction, restarting.shape[0])
    selected = top_rows(scores(batch["advantages"], restarting, temperature), restarting, k)
    # LaTeX: \bar{w}_t = w_t^{restart} \mathbf{1}[t \in S]
    counted = restarting * selected
    return {
        "advantages": batch["advantages"],
        "restarting": restarting,
        "importance": batch["importance_weights"],
        "selected": selected,
        "counted": counted,
    }
