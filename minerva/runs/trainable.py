"""What a run needs of a trainer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from minerva.compute.tree import Tree
from minerva.evaluation import Evaluator
from minerva.metrics import Metric
from minerva.runs.status import RunStatus
from minerva.runs.store import ReplayRows


class Trainable(Protocol):
    """What a run needs of a trainer."""

    @property
    def algo(self) -> str:
        """The algorithm's name."""

    @property
    def resumes_exactly(self) -> bool:
        """Whether its simulators can be saved in mid-episode."""

    @property
    def metrics(self) -> Sequence[Metric]:
        """What the algorithm's updates report."""

    def describe(self) -> dict[str, Any]:
        """Algorithm, environment, seed, device and hyperparameters, as plain values."""

    def specs(self) -> dict[str, Any]:
        """Return what is observed and how it is acted on, so that the policy can be rebuilt without the environment."""

    def make_evaluator(self, episodes: int) -> Evaluator:
        """Environments for evaluation."""

    def greedy(self, obs: Tensor) -> Tensor:
        """The deterministic policy."""

    def state_dict(self) -> Tree:
        """Everything training needs to go on."""

    def load_state_dict(self, state: Tree) -> str:
        """Take over a state made by `state_dict`; why the environments could not be restored, or nothing."""

    def start(self, step: int) -> None:
        """Begin new episodes everywhere, at the start of a run or where they could not be restored."""

    @property
    def rows(self) -> ReplayRows | None:
        """A replay, whose rows are saved apart from the state."""

    def status(
        self, train: float | None, evaluations: list[float], reports: Iterable[Mapping[str, float]]
    ) -> RunStatus:
        """How its run stands."""
