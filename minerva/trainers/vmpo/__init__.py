"""V-MPO, on-policy MPO (Song et al. 2019).

`docs/algorithms/vmpo.md` explains it step by step. Where the paper's equations are:

- Policy loss and weights psi (eq. 3): `losses.weighted_nll`, `losses.log_partition`; top half: `losses.top_rows`.
- Not in the paper: losses with less noise, `losses.controlled_nll` and `losses.centered_nll`.
- Temperature loss (eq. 4): `losses.temperature_loss`.
- KL constraint (eq. 5): `formulas/trust_region.py`, `multiplier_loss` and `penalties`.
- KLs decoupled into mean and standard deviation (section 4.2 and its appendix): `formulas/gaussian.py`,
  `gaussian_kl_mean` and `gaussian_kl_std`, averaged by `losses.trust_region_kls`.
- Value loss (section 4.1) and returns: `formulas/returns.py`, `value_loss` and `discounted_returns`.
- E-step: `improve.e_step`. M-step, multipliers first, then policy and value: `improve.PolicyImprovement.m_step`.

Files: `config.py` every setting; `losses.py` the formulas; `evaluate.py` advantages, returns and the old policy of a
rollout; `improve.py` E-step and M-step; `agent.py` acting, the whole update, the check of a caller's batch and the
saved state; `trainer.py` the training loop; `metrics.py` every metric and health rule; `gaussian_mlp_policy.py` the
public import path of the network in `networks/policies.py`.
"""
