"""An environment of gym's old interface is recognised, and the sentence says what to do."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from probe_envs import UNIT_ACTIONS, vector_space

from minerva.envs.engines.gymnasium import GymnasiumEngine
from minerva.envs.ids import check_id, factory
from minerva.errors import EnvError, EnvStepError


class Modern(gym.Env[Any, Any]):
    """As gymnasium has it."""

    observation_space, action_space = vector_space(2), UNIT_ACTIONS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2), 0.0, False, False, {}


class FourValues(Modern):
    def step(self, action: Any) -> Any:
        return np.zeros(2), 0.0, False, {}


class WithoutSeed(Modern):
    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(2), {}


class ObservationAlone(Modern):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(2)


class WrongInside(Modern):
    def step(self, action: Any) -> Any:
        first, second = iter((1,))
        return first, second


def stepped(env: Any) -> None:
    """Reset an environment and step it once."""
    engine = GymnasiumEngine(env, 1)
    engine.reset([0])
    engine.send_arrays(np.zeros((1, UNIT_ACTIONS.shape[0])))
    engine.recv_arrays()


@pytest.mark.parametrize("old", [FourValues, WithoutSeed, ObservationAlone])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_old_interface_is_named_with_its_wrapper(old: Any, wrapped: bool) -> None:
    make = (lambda: gym.wrappers.TimeLimit(old(), 5)) if wrapped else old
    with pytest.raises(EnvStepError, match=r"old interface of gym.*shimmy\.GymV21CompatibilityV0"):
        stepped(make)


def test_an_error_of_the_environment_itself_is_not_taken_for_that() -> None:
    with pytest.raises(EnvStepError, match=r"raised ValueError in step .*test_old_interface\.py"):
        stepped(WrongInside)
    stepped(Modern)


def test_the_wrapper_exists() -> None:
    shimmy = pytest.importorskip("shimmy")
    assert issubclass(shimmy.GymV21CompatibilityV0, gym.Env)


class OfGym:
    """An environment of gym, which knows nothing of gymnasium's classes."""

    observation_space, action_space = vector_space(2), UNIT_ACTIONS

    def reset(self) -> Any:
        return np.zeros(2)

    def step(self, action: Any) -> Any:
        return np.zeros(2), 0.0, False, {}


def test_a_name_in_a_module_is_answered_with_what_it_is_there() -> None:
    with pytest.raises(EnvError, match=r"returned a OfGym: it must return a gymnasium\.Env; shimmy\.GymV21Compat"):
        factory(f"{__name__}:OfGym")()
    for check in (check_id, lambda env: factory(env)()):
        with pytest.raises(EnvError, match=f"'{__name__}' registers none of that id, and has no class or function 'No"):
            check(f"{__name__}:Nothing")
