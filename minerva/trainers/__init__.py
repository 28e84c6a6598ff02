"""The algorithms: `ppo`, `mpo` and `vmpo`, one folder each, and their `registry`.

Every folder has the same seven files, and its `__init__` says where each of the paper's equations is:

- `config.py`: every hyperparameter, with its default and range.
- `losses.py`: the formulas that only this algorithm has; shared ones are in `minerva/formulas`.
- `evaluate.py`: policy evaluation: advantages and returns, or the critic's targets and its update.
- `improve.py`: policy improvement: the gradient steps on the policy.
- `agent.py`: acting, the update as evaluation followed by improvement, and the state that is saved.
- `trainer.py`: the training loop, configured for this algorithm.
- `metrics.py`: every metric that an update reports, and the health rules that read them.
"""
