"""Proximal Policy Optimisation (Schulman et al. 2017), with the details that make it work on continuous control.

`docs/algorithms/ppo.md` explains it step by step. Where the paper's equations are:

- Probability ratio r_t (section 3): `losses.log_ratio`. Clipped surrogate (eq. 7): `losses.clipped_surrogate`.
- Combined loss with value loss and entropy bonus (eq. 9): `improve.PolicyImprovement.loss`.
- Value loss: `formulas/returns.py`, `value_loss`; its clipped form, not in the paper: `losses.clipped_value_loss`.
- GAE (eq. 11) and its temporal differences (eq. 12): `formulas/returns.py`, `gae` and `td_errors`.
- Algorithm 1, epochs of minibatch steps: `improve.PolicyImprovement`; early stop by `losses.approximate_kl`.

Files: `config.py` every setting; `losses.py` the formulas; `evaluate.py` advantages, returns and old log-probabilities
of a rollout; `improve.py` the gradient steps; `agent.py` acting, the whole update and the saved state; `trainer.py`
the training loop; `metrics.py` every metric and health rule.
"""
