"""The pace of on-policy learning: rollouts whose advantages are far smaller than usual move the policy less.

Once a task is solved, advantages are the noise of the value network. As large steps on them as on others would unlearn
what is rarely seen, such as the states in which episodes begin.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from minerva.compute.ranks import Ranks
from minerva.compute.tree import Tree
from minerva.formulas.returns import mean_square, pace, usual_square


def paced(state: Tree, advantages: Tensor, hyper: dict[str, Tensor], ranks: Ranks) -> tuple[Tree, dict[str, Tensor]]:
    """Return the state with the usual size of advantages, and the numbers with the policy's rate for this rollout."""
    square = ranks.mean(mean_square(advantages))
    usual = usual_square(square, state["advantages"], hyper["advantage_memory"])
    share = pace(square, usual)
    return {**state, "advantages": usual}, {**hyper, "pace": share, "policy_lr": share * hyper["policy_lr"]}


def pace_metric(config: Any, hyper: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the pace as a metric, if the config lets it vary."""
    return {"charts/pace": hyper["pace"]} if config.advantage_memory else {}
