"""Extend a run: go on with more steps or with other rates. What changed is recorded in config.yaml, with the step."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minerva.errors import RunError
from minerva.runs.checkpoint import Checkpoint

EXTENDED = ("total_steps", "eval_every", "eval_episodes")
"""What may change when a run is extended, beside the settings that an update takes as numbers."""
HYPERPARAMETERS = "hyperparameters."


def is_extension(changed: Sequence[str], changeable: Sequence[str]) -> bool:
    """Return whether a run can go on with these differences between configs, each `name: old -> new`."""
    names = {*EXTENDED, *(HYPERPARAMETERS + name for name in changeable)}
    return all(difference.split(":")[0] in names for difference in changed)


def changed_hyperparameters(changed: Sequence[str]) -> list[str]:
    """Return the names of the hyperparameters among the differences."""
    names = [difference.split(":")[0] for difference in changed]
    return [name.removeprefix(HYPERPARAMETERS) for name in names if name.startswith(HYPERPARAMETERS)]


def recorded(existing: dict[str, Any], config: dict[str, Any], step: int, changed: Sequence[str]) -> dict[str, Any]:
    """Return the contents of config.yaml after an extension at `step`."""
    history = [*existing.get("history", []), {"step": step, "changed": list(changed)}]
    return {**existing, **config, "history": history}


def check_same_run(folder: Path, changed: Sequence[str], changeable: Sequence[str] | None) -> None:
    """Raise RunError if settings of the run in the folder changed; those that are `changeable` may, if any are."""
    if changed and (changeable is None or not is_extension(changed, changeable)):
        raise RunError(
            f"{folder} contains a run of another config ({'; '.join(changed[:3])}): give another folder, or the same "
            "config to resume it."
        )


def check_extension(folder: Path, checkpoint: Checkpoint, total_steps: int, changed: Sequence[str]) -> None:
    """Raise RunError if no step is left to extend the run by."""
    step, finished = checkpoint.state.get("step"), checkpoint.about.get("finished") is True
    more = total_steps > checkpoint.about.get("total_steps", 0)
    if changed and isinstance(step, int) and (step > total_steps or (finished and not more)):
        raise RunError(
            f"{folder} is at step {step:,}{' and finished' * finished}, so that nothing would be trained with the "
            f"changes ({'; '.join(changed[:3])}): give larger --total-steps."
        )
