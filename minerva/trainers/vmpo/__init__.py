"""V-MPO, on-policy MPO (Song et al. 2019).

Explained from the idea to the line in `docs/algorithms/vmpo.md`. Where the paper's equations are:

- `formulas/returns.py`: returns and advantages, the value loss (section 4.1).
- `losses.py`: scores, the top-k selection, the weights psi and the temperature's dual (eq. 3 and 4); the weighted
  likelihood and the KLs of the trust region by mean and standard deviation (section 4.2 and its appendix).
- `formulas/trust_region.py`: the multipliers' loss and what the constraints cost the policy (eq. 5).
- `evaluate.py`: advantages and returns of a rollout, and what the old policy said of each row.
- `improve.py`: the E-step with its temperature; the M-step, multipliers first, then policy and value.
- `agent.py`: acts, checks a caller's batch, strings evaluation and improvement together; owns the state.
- `config.py`: every setting. `metrics.py`: every metric. `trainer.py`: the loop's constructor.
- `gaussian_mlp_policy.py`: the public import path of the network, which lives in `networks/policies.py`.
"""
