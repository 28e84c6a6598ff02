"""Protocol of the trainers that a run can drive."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from minerva.compute.tree import Tree
from minerva.evaluation import Evaluator
from minerva.metrics import Metric
from minerva.runs.origin import Origin
from minerva.runs.status import RunStatus
from minerva.runs.store import ReplayRows


class Trainable(Protocol):
    """Interface that a run needs of a trainer."""

    @property
    def algo(self) -> str:
        """Return the algorithm's name."""

    @property
    def resumes_exactly(self) -> bool:
        """Return whether its simulators can be saved in mid-episode."""

    @property
    def inexact_reason(self) -> str:
        """Return why a resumed run differs in bits although its simulators are restored; empty: it does not."""

    @property
    def metrics(self) -> Sequence[Metric]:
        """Return the metrics that the algorithm's updates report."""

    @property
    def origin(self) -> Origin | None:
        """Return where its weights come from, or None if its seed drew them."""

    def trained(self, checkpoint: Path, step: int) -> None:
        """Note that its weights are from now on those of the run whose last checkpoint this is."""

    def describe(self) -> dict[str, Any]:
        """Return algorithm, environment, seed, device and hyperparameters, as plain values."""

    def specs(self) -> dict[str, Any]:
        """Return the observation and action specs, so that the policy can be rebuilt without the environment."""

    def make_evaluator(self, episodes: int, longest: int) -> Evaluator:
        """Return an evaluator of this many episodes, cut after `longest` steps where there is no time limit."""

    def greedy(self, obs: Tensor) -> Tensor:
        """Return the deterministic actions of the policy."""

    @property
    def changeable(self) -> Sequence[str]:
        """Return the names of the settings that an update takes as numbers."""

    def change(self, **settings: float) -> None:
        """Change settings of the coming updates."""

    def take_logged(self) -> dict[str, float]:
        """Return the means of what the user's code has logged since the last call."""

    def state_dict(self) -> Tree:
        """Return the full training state, from which training can be resumed."""

    def load_state_dict(self, state: Tree) -> str:
        """Load a state made by `state_dict`; return why the environments could not be restored, or an empty string."""

    def start(self, step: int) -> None:
        """Begin new episodes in all environments, at the start of a run or if they could not be restored."""

    @property
    def rows(self) -> ReplayRows | None:
        """Return the replay, whose rows are saved apart from the state, or None."""

    def status(
        self, train: float | None, evaluations: list[float], reports: Iterable[Mapping[str, float]]
    ) -> RunStatus:
        """Return the status of its run, from the mean training return, the evaluations and the latest reports."""
