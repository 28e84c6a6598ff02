"""Neural networks, independent of the algorithms that train them.

- `encoders.py`: MLPs from observations to features, and the layers they are built from.
- `observations.py`: from the rows in which observations are stored to what the hidden layers receive; users' encoders.
- `images.py`: encoders of images.
- `policies.py`: policy and actor-critic networks, from observations to the parameters of an action distribution (and
  a value), and `FunctionalPolicy`, which evaluates one as a function of a flat parameter vector.
- `critics.py`: the action-value network Q(s, a).
- `bounds.py`: action bounds, and the limits of the log standard deviation.
"""
