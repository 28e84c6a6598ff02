"""Soft Actor-Critic with a learned temperature (Haarnoja et al. 2018b, arXiv:1812.05905).

`docs/algorithms/sac.md` explains it step by step. Where the paper's equations are:

- Soft value of the next state (eq. 3) with the smaller of two target critics: `losses.soft_values`; its target:
  `formulas/returns.py`, `bootstrapped`. Critic's loss (eq. 5): `losses.critic_loss`.
- Policy's loss with reparameterised actions (eq. 9): `losses.policy_loss`.
- Temperature's loss (eq. 18): `losses.temperature_loss`.
- Averaged target critics (algorithm 1): `losses.averaged`.

Files: `config.py` every setting; `losses.py` the formulas; `evaluate.py` the critics' targets and their step;
`improve.py` the steps of policy and temperature; `agent.py` acting, the whole update and the saved state; `trainer.py`
the training loop; `metrics.py` every metric and health rule.
"""
