"""Maximum a posteriori Policy Optimisation (Abdolmaleki et al. 2018), with decoupled constraints.

`docs/algorithms/mpo.md` explains it step by step. Where the paper's equations are:

- E-step, weights q ~ pi exp(Q / eta) (eq. 8): `losses.weights`. Dual g(eta) of the temperature (eq. 9):
  `losses.temperature_loss`.
- M-step, weighted likelihood under a KL constraint (eq. 12): `losses.weighted_nll`, one term each for mean and
  standard deviation; `formulas/trust_region.py`, `penalties` and `multiplier_loss`; `formulas/gaussian.py`,
  `gaussian_kl_mean` and `gaussian_kl_std`. All together: `improve.PolicyImprovement.policy_loss`
  and `improve.PolicyImprovement.dual_loss`.
- Policy evaluation (eq. 13): `losses.critic_loss`; Retrace (Munos et al. 2016, eq. 4): `formulas/returns.py`,
  `retrace`; targets: `evaluate.PolicyEvaluation.targets`.
- Pink noise to collect experience with (Eberhard et al. 2023): `formulas/pink_noise.py`, `data/pink_noise.py`.
- Penalty on actions out of bounds (Abdolmaleki et al. 2020): `losses.out_of_bounds_scores`.

Files: `config.py` every setting; `losses.py` the formulas; `evaluate.py` the critic's targets and its update;
`improve.py` E-step, duals and M-step; `agent.py` acting, the whole update, the translation of a caller's batch and the
saved state; `trainer.py` the training loop; `metrics.py` every metric and health rule.
"""
