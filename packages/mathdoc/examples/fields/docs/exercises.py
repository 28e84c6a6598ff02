"""Run every line that carries a formula on small data whose sizes all differ, for `mathdoc check`."""

import jax.numpy as jnp
import numpy as np
import torch
from fields.adam import Moments, adam_step, squared_error, train_step
from fields.attention import attend, distillation_loss
from fields.kalman import KalmanFilter


def run(dtype: str, seed: int) -> None:
    """Call everything once, in one precision."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(dtype)

    belief = KalmanFilter(draw(5), draw(5) ** 2 + 0.1, drift=0.3, noise=0.7)
    belief.predict()
    belief.update(draw(5))

    queries, keys, values, teacher = (torch.from_numpy(draw(*s)) for s in ((4, 3), (6, 3), (6, 2), (4, 2)))
    distillation_loss(attend(queries, keys, values), teacher)

    inputs, targets, weights = (jnp.asarray(draw(*shape)) for shape in ((7, 3), (7,), (3,)))
    moments = Moments(jnp.asarray(draw(3)), jnp.asarray(draw(3) ** 2), 1)
    squared_error(weights, inputs, targets)
    for _ in range(2):
        weights, moments = train_step(weights, moments, inputs, targets, 0.1)
    small = jnp.asarray(1e-4 * draw(3))  # beside which 1e-8 matters
    adam_step(weights, small, Moments(small, small**2, 1), 0.1)
