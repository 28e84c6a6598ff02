"""The pace of a policy: rollouts whose advantages are far smaller than usual move it less."""

from torch import Tensor

from minerva.compute.ranks import Ranks
from minerva.compute.tree import Tree
from minerva.formulas.returns import mean_square, pace, usual_square


def with_pace(state: Tree, batch: Tree, hyper: dict[str, Tensor], ranks: Ranks) -> tuple[Tree, dict[str, Tensor]]:
    """Return the state with the usual size of advantages, and the numbers with the policy's rate for this rollout.

    Once a task is solved, advantages are the noise of the value network. As large steps on them as on others would
    unlearn what is rarely seen, such as the states in which episodes begin.
    """
    square = ranks.mean(mean_square(batch["advantages"]))
    usual = usual_square(square, state["advantages"], hyper["advantage_memory"])
    share = pace(square, usual)
    return {**state, "advantages": usual}, {**hyper, "pace": share, "policy_lr": share * hyper["policy_lr"]}
