"""Recognise environments of the interface that gym had before gymnasium."""

import re
from traceback import FrameSummary

import gymnasium as gym

ADVICE = (
    "reset(seed=..., options=...) must return (observation, info), and step (observation, reward, terminated, "
    "truncated, info), as gymnasium's do. Change it, or wrap it: "
    "shimmy.GymV21CompatibilityV0(env=env) takes environments of gym."
)

REFUSED = re.compile(r"unexpected keyword argument '(seed|options)'|values to unpack \(expected [25]")
CALLERS = (__file__.rpartition("old_interface.py")[0], gym.__file__.rpartition("__init__.py")[0])


def of_old_interface(error: Exception, place: FrameSummary) -> bool:
    """Return whether an error at this place says that an environment takes or returns what gym's did."""
    return bool(REFUSED.search(str(error))) and place.filename.startswith(CALLERS)
