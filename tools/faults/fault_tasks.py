"""Small runs of the three algorithms, and all that a finished one is: what must be the same however it got there."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util.tensor_util import make_ndarray
from tiny_runs import WALL_CLOCK, flags

from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import RunFolder
from minerva.runs.metrics import read_rows
from minerva.runs.store import SEGMENTS, CheckpointStore

UNCOMPARED = ("logs", SEGMENTS, "generators")
"""Of a checkpoint: what holds clocks, how rows are laid out, and generators that a process seeds at random."""


class Task(NamedTuple):
    """A run that takes about a second: algorithm, environment, hyperparameters, steps."""

    algo: str
    env: str
    hyperparameters: dict[str, Any]
    steps: int
    eval_every: int

    def command(self, folder: Path, **changed: Any) -> list[str]:
        """Return the run's command-line arguments."""
        watched = {"eval_every": self.eval_every, "eval_episodes": 2}
        options = {"env": self.env, "total_steps": self.steps, "compile": "off", **watched, **self.hyperparameters}
        return ["train", self.algo, *flags(run_dir=folder, preset="none", **{**options, **changed})]


SMALL: dict[str, Any] = {"policy_layer_sizes": (8,), "num_envs": 2}
ROLLOUT: dict[str, Any] = {**SMALL, "rollout_steps": 64}
TASKS = {
    "ppo": Task(
        "ppo", "fault_envs:ShortHopper-v0", {**ROLLOUT, "critic_layer_sizes": (8,), "minibatch_size": 64}, 384, 128
    ),
    "vmpo": Task(
        "vmpo", "fault_envs:ShortReacher-v0", {**ROLLOUT, "value_layer_sizes": (8,), "minibatch_size": 48}, 384, 128
    ),
    "mpo": Task(
        "mpo",
        "fault_envs:ShortCheetah-v0",
        {**SMALL, "critic_layer_sizes": (8,), "action_samples": 3, "batch_size": 4, "n_step": 3}
        | {"update_after": 40, "updates_per_step": 0.3, "replay_size": 300},
        384,
        128,
    ),
    "sac": Task(
        "sac",
        "fault_envs:ShortCheetah-v0",
        {**SMALL, "critic_layer_sizes": (8,), "batch_size": 4}
        | {"update_after": 40, "updates_per_step": 0.3, "replay_size": 300},
        384,
        128,
    ),
}


def outcome(folder: Path, algo: str, best: bool = True) -> dict[str, Any]:
    """Return everything that a finished run writes except times: state, replay, metrics, evaluations, TensorBoard."""
    run = RunFolder(folder, algo)
    found = CheckpointStore(run).newest()
    state = {name: part for name, part in found.checkpoint.state.items() if name not in UNCOMPARED}
    replay = torch.cat([rows["float32"] for _, rows in found.rows])[-150:] if found.rows else None
    return {
        "finished": found.checkpoint.about["finished"],
        **_flat(state),
        **({"replay": replay} if replay is not None else {}),
        "best": _flat(load_checkpoint(run.best).state["trainer"]["agent"]) if best else None,
        "metrics": [_without_clock(row) for row in read_rows(run.metrics)],
        "evaluations": read_rows(run.evaluations),
        "tensorboard": _scalars(run.tensorboard),
    }


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names under which two outcomes differ in any bit."""
    return [name for name in one.keys() | other.keys() if _bits(one.get(name)) != _bits(other.get(name))]


def _bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (
            str(value.dtype),
            tuple(value.shape),
            value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
        )
    if isinstance(value, dict):
        return {name: _bits(part) for name, part in value.items()}
    return json.dumps(value)


def _flat(tree: Any, path: str = "") -> dict[str, Any]:
    if isinstance(tree, list) and tree and isinstance(tree[0], (dict, torch.Tensor)):
        tree = {str(i): part for i, part in enumerate(tree)}
    if not isinstance(tree, dict):
        return {path: tree}
    return {
        name: leaf for key, part in tree.items() for name, leaf in _flat(part, f"{path}/{key}" if path else key).items()
    }


def _without_clock(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in WALL_CLOCK}


def _scalars(folder: Path) -> list[tuple[int, str, float]]:
    """Return every scalar in the event files, in order, including those that TensorBoard's reader would hide."""
    events = [event for path in sorted(folder.iterdir()) for event in EventFileLoader(str(path)).Load()]
    values = [(event.step, value) for event in events for value in event.summary.value]
    arranged = "custom_scalars__config__"  # how charts are laid out: every file says it
    left_out = (*WALL_CLOCK, arranged)
    return [(step, value.tag, float(make_ndarray(value.tensor))) for step, value in values if value.tag not in left_out]
