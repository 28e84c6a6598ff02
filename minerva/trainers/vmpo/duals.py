"""V-MPO's dual variables: the temperature of the E-step and the multipliers of the two KL constraints.

Each is a tree, its unconstrained `parameter` and the optimiser's `moments`; its step is a function of tensors.
The E-step's `rows` are `advantages`, `restarting` and `importance` weights, and the rows `counted`, all [n].
"""

from torch import Tensor

from minerva.compute.gradient import gradient
from minerva.compute.optim import Optimizer
from minerva.compute.tree import Tree
from minerva.formulas.lagrange import floored, inverse_positive, positive, scaled_multipliers, solved_temperature
from minerva.trainers.vmpo.config import VMPOConfig
from minerva.trainers.vmpo.losses import constraint_loss, log_partition, scores, temperature_loss, weights_kl

Rows = dict[str, Tensor]


def dual(parameter: Tensor, optimizer: Optimizer) -> Tree:
    """A dual variable before its first step."""
    return {"parameter": parameter, "moments": optimizer.initial_moments(parameter)}


def dual_loss(parameter: Tensor, rows: Rows, bound: Tensor) -> tuple[Tensor, Rows]:
    """The temperature's loss as a function of its unconstrained parameter."""
    temperature = positive(parameter)
    score = scores(rows["advantages"], rows["restarting"], temperature)
    _, log_total = log_partition(score, rows["counted"], rows["importance"])
    loss = temperature_loss(temperature, log_total, rows["counted"], bound)
    return loss, {"loss": loss}


def e_step_kl(temperature: Tensor, rows: Rows) -> Tensor:
    """KL of the weights that this temperature gives."""
    score = scores(rows["advantages"], rows["restarting"], temperature)
    weights, log_total = log_partition(score, rows["counted"], rows["importance"])
    return weights_kl(weights, score, log_total, rows["counted"])


def temperature_step(temperature: Tree, rows: Rows, hyper: Rows, optimizer: Optimizer) -> tuple[Tree, Tensor]:
    """The temperature one gradient step on, and its loss before."""
    slope, before = gradient(dual_loss, temperature["parameter"], rows, hyper["epsilon_eta"])
    return _stepped(temperature, slope, hyper["temperature_lr"], optimizer), before["loss"]


def temperature_solved(temperature: Tree, rows: Rows, hyper: Rows) -> tuple[Tree, Tensor]:
    """The temperature at which the weights' KL meets its bound, the loss's minimum; and the loss before."""
    before, _ = dual_loss(temperature["parameter"], rows, hyper["epsilon_eta"])
    solution = solved_temperature(lambda value: e_step_kl(value, rows), hyper["epsilon_eta"])
    return {**temperature, "parameter": inverse_positive(solution)}, before


def multipliers_loss(parameter: Tensor, kls: Tensor, bounds: Tensor) -> tuple[Tensor, Rows]:
    """The multipliers' loss as a function of their unconstrained parameters [2]."""
    loss = constraint_loss(positive(parameter), kls, bounds)
    return loss, {"loss": loss}


def multipliers_moved(
    multipliers: Tree, kls: Tensor, hyper: Rows, config: VMPOConfig, optimizer: Optimizer
) -> tuple[Tree, Tensor]:
    """Both multipliers after their step, by gradient or by a factor, and their loss before it."""
    if config.alpha_update == "multiplicative":
        return multipliers_scaled(multipliers, kls, hyper)
    return multipliers_step(multipliers, kls, hyper, optimizer)


def multipliers_step(multipliers: Tree, kls: Tensor, hyper: Rows, optimizer: Optimizer) -> tuple[Tree, Tensor]:
    """Both multipliers one gradient step on, and their loss before. `kls` [2] are constants."""
    slope, before = gradient(multipliers_loss, multipliers["parameter"], kls, hyper["bounds"])
    return _stepped(multipliers, slope, hyper["alpha_lr"], optimizer), before["loss"]


def multipliers_scaled(multipliers: Tree, kls: Tensor, hyper: Rows) -> tuple[Tree, Tensor]:
    """Both multipliers changed by a factor, and their loss before."""
    before, _ = multipliers_loss(multipliers["parameter"], kls, hyper["bounds"])
    scaled = scaled_multipliers(positive(multipliers["parameter"]), kls, hyper["bounds"], hyper["alpha_lr"])
    return {**multipliers, "parameter": inverse_positive(scaled)}, before


def _stepped(variable: Tree, slope: Tensor, rate: Tensor, optimizer: Optimizer) -> Tree:
    """Never clipped, and kept where softplus still has a slope."""
    parameter, moments = optimizer.step(variable["parameter"], slope, variable["moments"], rate)
    return {"parameter": floored(parameter), "moments": moments}
