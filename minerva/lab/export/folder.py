"""Export folder: ONNX graph, checkpoint, config, model card, example script and video."""

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from minerva.api import evaluate
from minerva.errors import ConfigError, EnvError, RunError
from minerva.lab.export.card import Score, model_card
from minerva.lab.export.graph import Exported, exported
from minerva.policy import Policy, load_policy
from minerva.runs.folder import find_checkpoint
from minerva.runs.metrics import read_rows

logger = logging.getLogger("minerva")

GRAPH, EXAMPLE, CARD, CONFIG = "policy.onnx", "run_policy.py", "README.md", "config.yaml"
EXAMPLE_SOURCE = Path(__file__).with_name(EXAMPLE)
"""Script that is copied into every export; it does not import Minerva."""
VIDEO_SECONDS = 20
"""Length of the video that is recorded if the run has none."""


@dataclass(frozen=True)
class Export:
    """An export: its folder and files, the score on its card, and the ONNX graph's deviation from the policy."""

    path: Path
    difference: float
    score: Score
    files: list[str]


def export(
    run: str | Path, which: str = "best", *, out: str | Path | None = None, episodes: int = 100, video: bool = True
) -> Export:
    """Export the policy of a run (or of a checkpoint) into `out`, or into the folder `export` of the run.

    The return on the card is that of `episodes` episodes, or of the evaluation during training if its environment
    cannot be made from an id. `video` records an episode if the run has no video.
    """
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}: it must be at least 1.")
    run = Path(run)
    checkpoint = find_checkpoint(run, which)
    target = Path(out) if out is not None else _run_folder(run) / "export"
    _refuse_foreign(target)
    policy = load_policy(run, which)
    graph = exported(policy)
    score = _score(run, which, policy, episodes)
    with _moved_when_complete(target) as folder:
        video_file = _add_video(run, which, folder) if video else None
        _write(folder, graph, policy, checkpoint)
        (folder / CARD).write_text(model_card(policy.about, checkpoint.name, score, graph.difference, video_file))
        files = sorted(path.name for path in folder.iterdir())
    return Export(target, graph.difference, score, files)


def _write(folder: Path, graph: Exported, policy: Policy, checkpoint: Path) -> None:
    (folder / GRAPH).write_bytes(graph.content)
    shutil.copy(checkpoint, folder / checkpoint.name)
    shutil.copy(EXAMPLE_SOURCE, folder / EXAMPLE)
    config = checkpoint.parent.parent / CONFIG
    if config.is_file():
        shutil.copy(config, folder / CONFIG)
    else:  # a checkpoint alone also holds its settings
        (folder / CONFIG).write_text(yaml.safe_dump(policy.about, sort_keys=False))


def _run_folder(run: Path) -> Path:
    folder = run if run.is_dir() else run.parent.parent
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{run} is not in a run's folder: give the folder to write with --out.")
    return folder


def _refuse_foreign(target: Path) -> None:
    """Raise RunError unless the target is a new or empty folder, or an earlier export."""
    if target.exists() and not target.is_dir():
        raise RunError(f"{target} is a file: give a new folder.")
    if target.is_dir() and any(target.iterdir()) and not (target / GRAPH).is_file():
        raise RunError(f"{target} contains other files and no export: give an empty or new folder.")


def _score(run: Path, which: str, policy: Policy, episodes: int) -> Score:
    try:
        done = evaluate(run, episodes=episodes, which=which)
    except EnvError as error:
        rows = read_rows(_run_folder(run) / "eval" / "evaluations.jsonl")
        found = [row["returns"] for row in rows if row["step"] == policy.about["step"]]
        if not found:
            raise
        logger.warning("The card shows the evaluation during training, because no other can be made: %s", error)
        return Score(found[-1], "episodes of the evaluation during training")
    return Score(done.returns, f"episodes, from the seeds {policy.about['seed'] + 10_000:,} and up")


def _add_video(run: Path, which: str, folder: Path) -> str | None:
    """Copy the run's video of this policy into the folder, or record one; return its name, or None with a warning."""
    videos = _run_folder(run) / "videos" if run.is_dir() else None
    for form in ("mp4", "gif"):
        if videos is not None and (videos / f"{which}.{form}").is_file():
            shutil.copy(videos / f"{which}.{form}", folder / f"replay.{form}")
            return f"replay.{form}"
    # in a subprocess: MuJoCo chooses its renderer when it is imported, and the evaluation has imported it already
    command = [sys.executable, "-m", "minerva", "video", str(run), f"--{which}", "--seconds", str(VIDEO_SECONDS)]
    out = folder / "replay.mp4"
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True)
    if done.returncode == 0:
        return out.name
    logger.warning("There is no video in the folder: %s", " ".join(done.stderr.split()) or "it could not be drawn")
    return None


@contextlib.contextmanager
def _moved_when_complete(target: Path) -> Iterator[Path]:
    """Yield a temporary folder, and move its files to `target` at the end of the block."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        yield folder
        target.mkdir(exist_ok=True)
        for path in target.glob("replay.*"):
            path.unlink()  # of an earlier export, possibly of another policy
        for path in folder.iterdir():
            os.replace(path, target / path.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
