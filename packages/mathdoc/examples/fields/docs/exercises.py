"""Run every line that carries a formula on small data whose sizes all differ, for `mathdoc check`."""

import jax.numpy as jnp
import numpy as np
import torch
from fields.adam import Moments, adam_step, squared_error, train_step
from fields.attention import attend, distillation_loss
from fields.kalman import KalmanFilter


def run(dtype: str, seed: int) -> None:
    """Call everything once, in one precision. Numbers change with the seed, so that none can stand for another."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(dtype)

    belief = KalmanFilter(draw(5), draw(5) ** 2 + 0.1, drift=0.3 + 0.1 * seed, noise=0.7 + 0.2 * seed)
    belief.predict()
    belief.update(draw(5))

    features = 3 + 2 * seed
    shapes = ((4, features), (6, features), (6, 2), (4, 2))
    queries, keys, values, teacher = (torch.from_numpy(draw(*shape)) for shape in shapes)
    distillation_loss(attend(queries, keys, values), teacher)

    inputs, targets, weights = (jnp.asarray(draw(*shape)) for shape in ((7, 3), (7,), (3,)))
    moments = Moments(jnp.asarray(draw(3)), jnp.asarray(draw(3) ** 2), 1)
    squared_error(weights, inputs, targets)
    rate = 0.1 + 0.05 * seed
    for _ in range(2):
        weights, moments = train_step(weights, moments, inputs, targets, rate)
    small = jnp.asarray(1e-4 * draw(3))  # beside which 1e-8 matters
    adam_step(weights, small, Moments(small, small**2, 1), rate)
