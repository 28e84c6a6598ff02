"""Small environments, each made so that one kind of mistake shows in what it observes or records."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Env = gym.Env[Any, Any]
StepResult = tuple[Any, float, bool, bool, dict[str, Any]]
Kind = TypeVar("Kind", bound=Env)

UNIT_ACTIONS = spaces.Box(-1.0, 1.0, (1,))


def vector_space(dim: int) -> spaces.Box:
    """Unbounded observations of `dim` numbers."""
    return spaces.Box(-np.inf, np.inf, (dim,), np.float64)


class Makes(Generic[Kind]):
    """A function that makes environments, numbered in the order they are made, and keeps them to be asked."""

    def __init__(self, make: Callable[[int], Kind]) -> None:
        self.make = make
        self.made: list[Kind] = []

    def __call__(self) -> Kind:
        self.made.append(self.make(len(self.made)))
        return self.made[-1]


class Ending(NamedTuple):
    """How long an episode is, and which flags its last step carries."""

    length: int
    terminated: bool
    truncated: bool


class Row(NamedTuple):
    """One environment step."""

    obs: tuple[float, ...]
    next_obs: tuple[float, ...]
    reward: float
    terminated: bool
    truncated: bool


class Reaching(Env):
    """Pays the action, four steps an episode, and says in `info` that every second episode of it is a success.

    Only the last step's info is right: those before say that nothing succeeds.
    """

    action_space = UNIT_ACTIONS
    observation_space = vector_space(2)

    def __init__(self) -> None:
        self.episode, self.taken = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.taken = self.episode + 1, 0
        return self.np_random.normal(size=2), {"is_success": True}

    def step(self, action: Any) -> StepResult:
        self.taken += 1
        last = self.taken == 4
        info = {"is_success": last and self.episode % 2 == 1, "distance": np.array([0.5 * last]), "word": "near"}
        reward = float(np.clip(action, -1.0, 1.0).sum())
        return self.np_random.normal(size=2), reward, False, last, {**info, "lost": np.nan, "picture": np.zeros((2, 2))}


class Counter(Env):
    """Observes [number of the environment, of the episode, of the step], so that every row names itself.

    Its episodes go through `endings` again and again, and `rows` writes down what they must look like. The reward,
    10 * episode + step + 1, tells rows apart as well. Stepping on after an end is an error, not an ignored row.
    """

    action_space = UNIT_ACTIONS
    observation_space = vector_space(3)

    def __init__(self, number: int, endings: Sequence[Ending]) -> None:
        self.number, self.endings = number, endings
        self.episode, self.step_index, self.steps_taken, self.over = -1, 0, 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.step_index, self.over = 0, False
        return self._observed(), {}

    def step(self, action: Any) -> StepResult:
        if self.over:
            raise RuntimeError("stepped after the episode's end")
        reward = 10.0 * self.episode + self.step_index + 1
        self.step_index += 1
        self.steps_taken += 1
        ending = self.endings[self.episode % len(self.endings)]
        last = self.step_index == ending.length
        terminated, truncated = last and ending.terminated, last and ending.truncated
        self.over = terminated or truncated
        return self._observed(), reward, terminated, truncated, {}

    def _observed(self) -> np.ndarray:
        return np.array([self.number, self.episode, self.step_index], np.float64)


def rows(number: int, endings: Sequence[Ending], steps: int) -> list[Row]:
    """The first `steps` rows of `Counter(number, endings)`, written down without running it."""
    written: list[Row] = []
    for episode, ending in enumerate(itertools.cycle(endings)):
        for step in range(ending.length):
            last = step == ending.length - 1
            flags = (last and ending.terminated, last and ending.truncated)
            obs, next_obs = (number, episode, step), (number, episode, step + 1)
            written.append(Row(obs, next_obs, 10.0 * episode + step + 1, *flags))
            if len(written) == steps:
                return written
    raise AssertionError("there is always another episode")


class Listener(Env):
    """Keeps the actions it was given, and ends every `length` steps."""

    observation_space = vector_space(1)

    def __init__(self, action_space: spaces.Box = UNIT_ACTIONS, length: int = 1_000) -> None:
        self.action_space = action_space
        self.length = length
        self.heard: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> StepResult:
        self.heard.append(np.array(action))
        return np.zeros(1), 0.0, False, len(self.heard) % self.length == 0, {}


class Lottery(Env):
    """Draws each episode's length (1 to 9) and reward per step at its reset, and keeps the seeds it was given.

    It observes the draw, so different seeds look different at once.
    """

    action_space = UNIT_ACTIONS
    observation_space = vector_space(2)

    def __init__(self) -> None:
        self.seeds: list[int | None] = []
        self.length, self.prize, self.steps = 0, 0.0, 0

    @staticmethod
    def draw(source: np.random.Generator) -> tuple[int, float]:
        """Length and reward per step of an episode."""
        return int(source.integers(1, 10)), float(source.normal())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.length, self.prize = self.draw(self.np_random)
        self.steps = 0
        return np.array([self.length, self.prize]), {}

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        return np.array([self.length, self.prize]), self.prize, self.steps == self.length, False, {}


class Endless(Env):
    """Gives reward 1 for ever; with `length`, until then."""

    action_space = UNIT_ACTIONS
    observation_space = vector_space(1)

    def __init__(self, length: int | None = None) -> None:
        self.length, self.steps = length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        return np.zeros(1), 1.0, self.steps == self.length, False, {}


class Broken(Env):
    """Gives `obs` or `reward` at step `at` of each episode (0: the reset) from episode `episode` on, else zeros."""

    action_space = UNIT_ACTIONS
    observation_space = vector_space(2)

    def __init__(self, at: int, obs: float = 0.0, reward: float = 0.0, episode: int = 0, length: int = 5) -> None:
        self.at, self.bad_obs, self.bad_reward = at, obs, reward
        self.first_bad, self.length = episode, length
        self.episode, self.steps = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.steps = 0
        return self._observed(), {}

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        reward = self.bad_reward if self._breaks() else 0.0
        return self._observed(), reward, False, self.steps == self.length, {}

    def _breaks(self) -> bool:
        return self.steps == self.at and self.episode >= self.first_bad

    def _observed(self) -> np.ndarray:
        return np.array([0.0, self.bad_obs if self._breaks() else 0.0])


class Answering(Env):
    """Answers every step with the values that it was made with."""

    action_space = UNIT_ACTIONS
    observation_space = vector_space(1)

    def __init__(
        self, observation: Any = (0.0,), reward: Any = 0.0, terminated: Any = False, truncated: Any = False
    ) -> None:
        self.answer = (observation, reward, terminated, truncated, {})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> StepResult:
        return self.answer


class Shaped(Env):
    """Has the spaces it is given, and shows the observations it is given one after another."""

    def __init__(
        self,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] = UNIT_ACTIONS,
        shown: Sequence[Any] = (),
    ) -> None:
        self.observation_space = vector_space(1) if observation_space is None else observation_space
        self.action_space = action_space
        self._shown = iter(shown)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return next(self._shown), {}

    def step(self, action: Any) -> StepResult:
        return next(self._shown), 0.0, False, False, {}


class Unstable(Env):
    """A MuJoCo body thrown so fast at every step that MuJoCo warns."""

    MODEL = "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    action_space = UNIT_ACTIONS
    observation_space = vector_space(1)

    def __init__(self) -> None:
        import mujoco

        self._step: Callable[..., None] = mujoco.mj_step
        self.model = mujoco.MjModel.from_xml_string(self.MODEL)
        self.simulation = mujoco.MjData(self.model)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> StepResult:
        self.simulation.qvel[:] = 1e30
        self._step(self.model, self.simulation)
        return np.zeros(1), 0.0, False, False, {}


def keep_what_is_learned(agent: Any, field: str) -> list[Any]:
    """A list that grows by `field` of every rollout the agent learns from, alone in its loop."""
    kept: list[Any] = []
    evaluated = agent.evaluated

    def evaluate_and_keep(state: Any, rollout: dict[str, Any], *others: Any) -> Any:
        kept.append(rollout[field].clone())
        return evaluated(state, rollout, *others)

    agent.evaluated = evaluate_and_keep
    return kept


class Reach(gym.Env[Any, Any]):
    """Go to the origin: observations, rewards and actions in units of one's choice."""

    def __init__(self, observed: float = 1.0, shift: float = 0.0, paid: float = 1.0, bound: float = 1.0) -> None:
        self.observation_space = vector_space(2)
        self.action_space = gym.spaces.Box(-bound, bound, (2,))
        self.observed, self.shift, self.paid, self.bound = observed, shift, paid, bound

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.steps = self.np_random.uniform(-1, 1, 2), 0
        return self._seen(), {}

    def step(self, action: Any) -> StepResult:
        self.position = np.clip(self.position + 0.1 * np.asarray(action, float) / self.bound, -1, 1)
        self.steps += 1
        return self._seen(), -self.paid * float(np.linalg.norm(self.position)), False, self.steps >= 25, {}

    def _seen(self) -> Any:
        return np.float32(np.float32(self.position) * self.observed + self.shift)
