"""Proximal Policy Optimisation (Schulman et al. 2017), with the details that make it work on continuous control.

Explained from the idea to the line in `docs/algorithms/ppo.md`. Where the paper's equations are:

- `formulas/returns.py`: temporal differences and GAE (eq. 11 and 12), the value loss.
- `losses.py`: the probability ratio, the clipped surrogate (eq. 7), the clipped value loss, the KL estimate.
- `evaluate.py`: advantages and returns of a rollout, old log-probabilities and values.
- `improve.py`: the whole loss (eq. 9), and the epochs of minibatch steps on it (algorithm 1) until the KL stop.
- `agent.py`: acts, and strings evaluation and improvement together; owns the state.
- `config.py`: every setting. `metrics.py`: every metric. `trainer.py`: the loop's constructor.
"""
