"""Evaluate a policy: deterministic episodes from fixed seeds, in separate environments."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from minerva.envs.engine import Engine, Episode
from minerva.envs.engines.registry import EngineName, make_engine
from minerva.envs.ids import EnvLike, as_evaluated

logger = logging.getLogger("minerva")

Act = Callable[[Tensor], Tensor]
"""Observations [E, O] -> actions [E, D], in [-1, 1] or choices, on the same device."""

Interrupted = Callable[[], bool]
"""Whether the evaluation should stop."""

FIRST_SEED = 10_000
AT_ONCE = 20
LONGEST_EPISODE = 20_000
SHARE = 10
"""Part of a run's steps that its evaluations may take in an environment without a time limit: a tenth."""
USUAL_LENGTHS = 100, 1_000
"""Steps between which evaluation episodes may take a larger share: an episode is not cut before a tenth of the run."""


def longest_episode(total_steps: int, eval_every: int, episodes: int) -> int:
    """Return the steps after which a run cuts evaluation episodes of environments without a time limit.

    All evaluations together (at the start, of a random policy, every `eval_every` steps) take a `SHARE` of the steps.
    """
    evaluations = total_steps // eval_every + 2
    least, most = USUAL_LENGTHS
    usual = min(max(total_steps // SHARE, least), most)
    return max(total_steps // SHARE // (evaluations * episodes), usual)


class EvaluationInterruptedError(Exception):
    """Raised when an evaluation is interrupted."""


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of evaluation episodes, in the order of their seeds."""

    returns: list[float]
    lengths: list[int]
    infos: list[Mapping[str, float]] = field(default_factory=list, compare=False)
    """The numbers in the `info` of each episode's last step; empty for one that was cut."""

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    def metrics(self, info_keys: Iterable[str] = ()) -> dict[str, float]:
        """Return the statistics that are logged, and the means of these entries of `info`."""
        statistics = {
            "eval/return_mean": self.mean,
            "eval/return_std": float(np.std(self.returns)),
            "eval/return_min": float(np.min(self.returns)),
            "eval/return_max": float(np.max(self.returns)),
            "eval/return_median": float(np.median(self.returns)),
            "eval/length_mean": float(np.mean(self.lengths)),
        }
        return {**statistics, **info_means("eval", self.infos, info_keys)}


def info_means(prefix: str, infos: Sequence[Mapping[str, float]], keys: Iterable[str]) -> dict[str, float]:
    """Return the mean of each key over the episodes that have it, as `<prefix>/<key>`."""
    values = {key: [info[key] for info in infos if key in info] for key in keys}
    return {f"{prefix}/{key}": float(np.mean(found)) for key, found in values.items() if found}


def mean_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the mean return and length of training episodes."""
    returns, lengths = zip(*((one.episode_return, one.length) for one in episodes), strict=True)
    return {"train/episode_return": float(np.mean(returns)), "train/episode_length": float(np.mean(lengths))}


class Evaluator:
    """Runs the same episodes at each call, in environments that are made once.

    Episode i starts from seed `seed + 10_000 + i`. Training shares neither environments nor random generators with it.
    """

    def __init__(
        self, env: EnvLike, episodes: int, seed: int, engine: EngineName = "auto", longest: int | None = None
    ) -> None:
        """Make the environments. Without a time limit of theirs, episodes are cut after `longest` steps."""
        self.seeds = [seed + FIRST_SEED + i for i in range(episodes)]
        self.envs: Engine = make_engine(as_evaluated(env), min(episodes, AT_ONCE), engine)
        self._longest = None if self.envs.time_limited else longest
        self._warned = False

    def __call__(self, act: Act, interrupted: Interrupted = lambda: False) -> Evaluation:
        """Evaluate `act`; raise EvaluationInterruptedError when interrupted."""
        episodes: list[Episode] = []
        for first in range(0, len(self.seeds), self.envs.num_envs):
            episodes += self._wave(act, self.seeds[first : first + self.envs.num_envs], interrupted)
        returns = [episode.episode_return for episode in episodes]
        return Evaluation(returns, [episode.length for episode in episodes], [episode.info for episode in episodes])

    def random(self, seed: int, interrupted: Interrupted = lambda: False) -> Evaluation:
        """Evaluate a policy whose actions are uniformly random."""
        draw = np.random.default_rng(seed)
        observation, action = self.envs.observation, self.envs.action

        def act(obs: Tensor) -> Tensor:
            return torch.from_numpy(action.random(observation.numbers_of(obs.cpu().numpy()), draw)).to(obs.device)

        return self(act, interrupted)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _wave(self, act: Act, seeds: list[int], interrupted: Interrupted) -> list[Episode]:
        """Run one episode per seed, each in its own environment; the last wave may need fewer environments."""
        n = len(seeds)
        unused = seeds[-1:] * (self.envs.num_envs - n)
        self.envs.reset(seeds + unused)
        finished: dict[int, Episode] = {}
        for _ in range(self._limit):
            if interrupted():
                raise EvaluationInterruptedError
            self.envs.step(act(self.envs.obs))
            for episode in self.envs.take_episodes():
                finished.setdefault(episode.env, episode)
            if all(i in finished for i in range(n)):
                break
        else:
            self._warn(n - sum(i in finished for i in range(n)), n)
            for i, under_way in enumerate(self.envs.under_way()):
                finished.setdefault(i, Episode(i, *under_way))
        return [finished[i] for i in range(n)]

    @property
    def _limit(self) -> int:
        return LONGEST_EPISODE if self._longest is None else min(self._longest, LONGEST_EPISODE)

    def _warn(self, cut: int, episodes: int) -> None:
        """Say once how many episodes were cut, and what to do."""
        if not self._warned:
            logger.warning(
                "%s: %d of %d evaluation episodes were cut after %d steps: give the environment a time limit, with "
                "max_episode_steps of gymnasium.make or gymnasium.register.",
                *(self.envs.env_name, cut, episodes, self._limit),
            )
        self._warned = True
