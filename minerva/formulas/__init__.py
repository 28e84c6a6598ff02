"""The formulas that several algorithms share, each written once.

Pure functions of tensors and numbers; they import nothing else of Minerva. What only one algorithm has is in the
`losses.py` of its folder under `trainers/`.

- `returns.py`: temporal differences, GAE, discounted and n-step returns, Retrace, advantage normalisation, value loss.
- `exploration.py`: how widely actions vary before training.
- `gaussian.py`: diagonal Gaussian policies: sampling, log-density, entropy, decoupled KLs, tanh squashing.
- `categorical.py`: categorical policies; critics that predict a distribution over atoms (C51, HL-Gauss).
- `trust_region.py`: KL penalty and multiplier loss of MPO and V-MPO.
- `lagrange.py`: how temperatures and multipliers are kept positive, and the solver of the temperature's dual.
- `statistics.py`: running mean and variance, effective sample size, linear schedule.
- `optimizers.py`: Adam, SGD with momentum, gradient clipping.
"""
