"""Where the weights come from that a run begins with, if its seed did not draw them."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from minerva.errors import RunError

INIT_FROM = "init_from"
"""Key in a run's config and checkpoints."""
POLICY, AGENT, TRAINER, USED = "policy", "agent", "trainer", "policy, by a trainer that had trained"
"""What was taken: networks and normaliser alone or all that the agent had learned, which can be repeated, or also what
a trainer kept of earlier runs."""


@dataclass(frozen=True)
class Origin:
    """The weights that a run begins with, and the run that they are from."""

    checkpoint: str
    """The file that holds them, as the path was given; empty if a program set them."""
    algo: str
    step: int
    """Environment steps after which the parent had them."""
    weights: str
    """SHA-256 of networks and normaliser."""
    taken: str = POLICY

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self | None:
        """Return the origin that a config or a checkpoint names, or None; raise ValueError if it is no origin."""
        saved = config.get(INIT_FROM)
        if saved is None:
            return None
        try:
            origin = cls(**saved)
        except TypeError:  # no mapping, or other keys
            raise ValueError(f"{INIT_FROM} is not what Minerva writes") from None
        texts = (origin.checkpoint, origin.algo, origin.weights)
        if not all(type(text) is str for text in texts) or type(origin.step) is not int or origin.step < 0:
            raise ValueError(f"{INIT_FROM} is not what Minerva writes")
        if not re.fullmatch(r"[0-9a-f]{64}", origin.weights) or origin.taken not in (POLICY, AGENT, TRAINER, USED):
            raise ValueError(f"{INIT_FROM} is not what Minerva writes")
        return origin

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as written to config.yaml."""
        return asdict(self)

    def is_in(self, folder: Path) -> bool:
        """Return whether the checkpoint lies in this run's folder."""
        return self.checkpoint != "" and folder.resolve() in Path(self.checkpoint).resolve().parents

    def __str__(self) -> str:
        if not self.checkpoint:
            return f"fine-tuned from weights that a program set ({self.weights[:8]})"
        file = Path(self.checkpoint)
        run = file.parent.parent if file.parent.name == "checkpoints" else file
        whole = {POLICY: "", AGENT: "the agent of "}.get(self.taken, "the trainer of ")
        return f"fine-tuned from {whole}{run.name or file.name} at step {self.step:,} ({self.weights[:8]})"


def known_origin(mine: Origin | None, begun: Mapping[str, Any] | None, file: Path, resume: bool) -> Origin | None:
    """Return where the first weights of a run are from: as its config `begun` in `file` says, if it is to go on.

    `mine` is what its trainer says; without `begun` the run is new.
    """
    if begun is None and resume:
        raise RunError(f"{file.parent} has no checkpoint to resume from: give the folder of a run.")
    if begun is None or not (resume or (mine and mine.is_in(file.parent))):
        return mine
    try:
        return Origin.read(begun)
    except ValueError as error:
        raise RunError(f"{file} cannot be used ({error}): give the folder of a run.") from None
