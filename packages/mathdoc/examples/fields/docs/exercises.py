"""Run every line that carries a formula on small data whose sizes all differ, for `mathdoc check`."""

import jax.numpy as jnp
import numpy as np
import torch
from fields.adam import Moments, adam_step, squared_error, train_step
from fields.attention import attend, distillation_loss
from fields.kalman import KalmanFilter


def run(dtype: str, seed: int) -> None:
    """Call everything once, in one precision. Numbers and sizes change with the seed: none can stand for another."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(dtype)

    signals = 5 + seed
    belief = KalmanFilter(draw(signals), draw(signals) ** 2 + 0.1, drift=0.3 + 0.1 * seed, noise=0.7 + 0.2 * seed)
    belief.predict()
    belief.update(draw(signals))

    reading, keyed, features, width = (size + seed for size in (4, 8, 12, 16))
    shapes = ((reading, features), (keyed, features), (keyed, width), (reading, width))
    queries, keys, values, teacher = (torch.from_numpy(draw(*shape)) for shape in shapes)
    distillation_loss(attend(queries, keys, values), teacher)

    examples, size = 7 + seed, 3 + seed
    inputs, targets, weights = (jnp.asarray(draw(*shape)) for shape in ((examples, size), (examples,), (size,)))
    moments = Moments(jnp.asarray(draw(size)), jnp.asarray(draw(size) ** 2), 1)
    squared_error(weights, inputs, targets)
    rate = 0.1 + 0.05 * seed
    for _ in range(2):
        weights, moments = train_step(weights, moments, inputs, targets, rate)
    small = jnp.asarray(1e-4 * draw(size))  # beside which 1e-8 matters
    adam_step(weights, small, Moments(small, small**2, 1), rate)
