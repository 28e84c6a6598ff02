"""Export folder: ONNX graph, checkpoint, config, model card, example script and video."""

import contextlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from minerva.api import evaluate
from minerva.compute.python import PYTHON, search_path
from minerva.errors import ConfigError, EnvError, RunError
from minerva.lab.export.card import Score, model_card
from minerva.lab.export.graph import Exported, exported
from minerva.networks.own import OwnNetworks
from minerva.policy import Policy, load_policy
from minerva.runs.folder import find_checkpoint, refuse_foreign
from minerva.runs.metrics import read_rows
from minerva.runs.own_networks import NETWORKS, saved_networks

logger = logging.getLogger("minerva")

GRAPH, EXAMPLE, CARD, CONFIG = "policy.onnx", "run_policy.py", "README.md", "config.yaml"
EXAMPLE_SOURCE = Path(__file__).with_name(EXAMPLE)
"""Script that is copied into every export; it does not import Minerva."""
VIDEO_FORMATS = ("mp4", "gif")
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
    run: str | Path,
    which: str = "best",
    *,
    out: str | Path | None = None,
    episodes: int = 100,
    video: bool = True,
    env: str | None = None,
    trust_env: bool = False,
    own_networks: OwnNetworks | None = None,
) -> Export:
    """Export the policy of a run (or of a checkpoint) into `out`, or into the folder `export` of the run.

    The return on the card is that of `episodes` episodes, or of the evaluation during training if its environment
    cannot be made again; `env`, `trust_env` and `own_networks` are those of `minerva.evaluate`. `video` records an
    episode if the run has no video.
    """
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}: it must be at least 1.")
    run = Path(run)
    checkpoint = find_checkpoint(run, which)
    target = Path(out) if out is not None else _run_folder(run) / "export"
    _refuse_foreign(target)
    _refuse_links(checkpoint.parent.parent, which)
    if not re.fullmatch(r"[\w. -]+", checkpoint.name):
        raise RunError(
            f"{checkpoint} has an unusual name: use letters, digits, dots and dashes, as it goes on the card."
        )
    policy = load_policy(run, which, own_networks=own_networks)
    graph = exported(policy)
    how: dict[str, Any] = {"env": env, "trust_env": trust_env, "own_networks": own_networks}
    score = _score(run, which, policy, episodes, how)
    with _moved_when_complete(target) as folder:
        video_file = _add_video(run, which, folder, how) if video else None
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
    if target.is_symlink():
        raise RunError(f"{target} is a link: remove it, or give the folder that it points to with --out.")
    if target.exists() and not target.is_dir():
        raise RunError(f"{target} is a file: give a new folder.")
    if target.is_dir() and any(target.iterdir()) and not (target / GRAPH).is_file():
        raise RunError(f"{target} contains other files and no export: give an empty or new folder.")


def _refuse_links(folder: Path, which: str) -> None:
    """Raise RunError if what an export takes from a run's folder is a link, which could point to any file."""
    videos = (f"videos/{which}.{form}" for form in VIDEO_FORMATS)
    for inside in (CONFIG, "eval", "eval/evaluations.jsonl", "videos", *videos):
        if os.path.lexists(folder / inside):
            refuse_foreign(folder / inside)


def _score(run: Path, which: str, policy: Policy, episodes: int, how: dict[str, Any]) -> Score:
    try:
        done = evaluate(run, episodes=episodes, which=which, **how)
    except EnvError as error:
        if how["env"] is not None:
            raise
        file = (run if run.is_dir() else run.parent.parent) / "eval" / "evaluations.jsonl"
        rows = read_rows(file) if file.is_file() else []
        found = [row["returns"] for row in rows if row["step"] == policy.about["step"]]
        if not found and policy.about["return"] is None:
            raise
        logger.warning("The card shows the evaluation during training, because no other can be made: %s", error)
        if not found:  # a checkpoint without its run's folder
            return Score([policy.about["return"]], "mean return, of the last evaluation during training")
        return Score(found[-1], "episodes of the evaluation during training")
    return Score(done.returns, f"episodes, from the seeds {policy.about['seed'] + 10_000:,} and up")


def _add_video(run: Path, which: str, folder: Path, how: dict[str, Any]) -> str | None:
    """Copy the run's video of this policy into the folder, or record one; return its name, or None with a warning."""
    videos = _run_folder(run) / "videos" if run.is_dir() else None
    for form in VIDEO_FORMATS:
        if videos is not None and (videos / f"{which}.{form}").is_file():
            shutil.copy(videos / f"{which}.{form}", folder / f"replay.{form}")
            return f"replay.{form}"
    # in a subprocess: MuJoCo chooses its renderer when it is imported, and the evaluation has imported it already
    command = [*PYTHON, "-m", "minerva", "video", str(run), f"--{which}", "--seconds", str(VIDEO_SECONDS)]
    out = folder / "replay.mp4"
    trust = [*(["--trust-env"] if how["trust_env"] else []), *(["--env", how["env"]] if how["env"] else [])]
    own = saved_networks(how["own_networks"]).get(NETWORKS, {})
    trust += ["--own-networks", *(f"{part}={name}" for part, name in own.items())] if own else []
    done = subprocess.run([*command, *trust, "--out", str(out)], capture_output=True, text=True, env=search_path())
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
