"""Maximum a posteriori Policy Optimisation (Abdolmaleki et al. 2018), with decoupled constraints.

Explained from the idea to the line in `docs/algorithms/mpo.md`. Where the paper's equations are:

- `formulas/returns.py`: n-step sums, temporal differences, Retrace (Munos et al. 2016, eq. 4).
- `losses.py`: the critic's loss; the E-step's weights and the temperature's dual; the M-step's weighted likelihood.
- `formulas/trust_region.py`: the multipliers' loss and what the KL constraints cost the policy.
- `evaluate.py`: policy evaluation: the critic's target, by n steps or Retrace, its coding, one step towards it.
- `improve.py`: policy improvement: E-step, step of the duals, M-step with mean and standard deviation decoupled.
- `agent.py`: acts, translates a caller's batch, strings evaluation and improvement together; owns the state.
- `config.py`: every setting. `metrics.py`: every metric. `trainer.py`: the loop's constructor.
"""
