"""Records of trained seeds, read from run folders and from the result files of a benchmark."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minerva.config import check_plain
from minerva.errors import CheckpointError, RunError
from minerva.lab.analysis.health import Track, tracks
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import STARTED, RunFolder, read_config
from minerva.runs.metrics import read_rows
from minerva.runs.origin import Origin

RESULT_FILES = "*_seed*.json"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading values of another kind than expected raises."""
VIDEOS = (".mp4", ".gif")
LARGEST_COUNT = 2**63 - 1
LARGEST_RETURN = 1e100
"""Statistics of larger numbers overflow."""
LARGEST_FILE = 200_000_000
"""Bytes; a real result file has about ten thousand."""


class Point(NamedTuple):
    """One deterministic evaluation: the environment step, every episode's return, and when it was."""

    step: int
    returns: list[float]
    seconds: float | None = None
    """Since the run was started, pauses included; None if it is not known."""

    @property
    def mean(self) -> float:
        """Return the mean over its episodes."""
        return math.fsum(self.returns) / len(self.returns)


@dataclass(frozen=True)
class Record:
    """Settings, scores and provenance of one trained seed."""

    algo: str
    env: str
    seed: int
    label: str
    """Name of the variant; empty for the algorithm with its preset."""
    budget: int
    """Environment steps requested."""
    steps: int
    """Environment steps taken."""
    returns: list[float]
    """Returns of all episodes in the evaluation of the last policy."""
    curve: list[Point]
    source: Path
    origin: Origin | None = None
    """Where its first weights come from, if not from its seed."""
    random: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps_per_second: float | None = None
    together: int = 1
    """Seeds that were trained in the same process."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Device, engine, commit, versions and other provenance to show."""
    health: tuple[Track, ...] = ()
    videos: tuple[Path, ...] = ()
    finished: bool = True
    """True if training finished."""
    measured: bool = False
    """True if the last checkpoint was evaluated separately after training."""

    @property
    def score(self) -> float:
        """Return the mean return of the last policy."""
        return math.fsum(self.returns) / len(self.returns)

    @property
    def parent(self) -> str:
        """Return what tells its first weights from others; an empty string if its seed drew them."""
        return f"{self.origin.taken} {self.origin.weights}" if self.origin else ""

    @property
    def protocol(self) -> str:
        """Return a description of how `returns` were measured."""
        which = "last checkpoint" if self.measured else "last evaluation of training"
        return f"{which}, {len(self.returns)} deterministic episodes"


# --- finding ------------------------------------------------------------------------------------------------------


def read_records(paths: Sequence[Path], unread: list[RunError] | None = None) -> list[Record]:
    """Read all seeds at these paths (run folders, folders that contain runs, result files), each seed once.

    With a list `unread`, a run or file that cannot be read is an error in it, as long as another one can be read.
    """
    errors: list[RunError] = []
    found = [record for path in paths for read in _readers(path) for record in _read(read, errors)]
    if errors and (unread is None or not found):
        raise errors[0]
    if unread is not None:
        unread += errors
    if not found:
        raise RunError(f"{paths[0]} contains no run with an evaluation yet: wait for the first one.")
    results = _each_once(record for record in found if record.measured)
    runs = _each_once(record for record in found if not record.measured)
    merged = []
    for key, result in results.items():
        same = [other for other in runs if other[:6] == key[:6]]
        merged.append(_with_run(result, runs.pop(same[0])) if same else result)
    return [*merged, *runs.values()]


def _each_once(records: Iterable[Record]) -> dict[tuple[Any, ...], Record]:
    """Return one record per seed: of several for the same seed, the one with most steps, then the newest."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        settings = "" if record.label else json.dumps(dict(record.settings), sort_keys=True, default=str)
        key = (record.algo, record.label, record.env, record.budget, record.seed, record.parent, settings)
        known = [found[key]] if key in found else []
        found[key] = max(*known, record, record, key=lambda one: (one.steps, one.about.get("started", "")))
    return found


def _with_run(result: Record, run: Record) -> Record:
    """Return a result file's record, with the metrics, videos and settings of the run's folder."""
    return replace(result, health=run.health, videos=run.videos, settings=run.settings)


def _read(read: Callable[[], list[Record]], errors: list[RunError]) -> list[Record]:
    try:
        return read()
    except RunError as error:
        errors.append(error)
        return []


def _readers(path: Path) -> list[Callable[[], list[Record]]]:
    """Return a function for each run and each result file at a path, which reads it."""
    if path.is_file() and path.suffix != ".json":
        raise RunError(f"{path} is neither a run's folder nor a result file (.json): give one of these.")
    if path.is_file():
        return [lambda: [read_result(path)]]
    runs = sorted(file.parent for file in path.rglob("config.yaml")) if path.is_dir() else []
    files = [file for file in sorted(path.rglob(RESULT_FILES)) if not any(run in file.parents for run in runs)]
    if not path.exists():
        raise RunError(f"{path} does not exist: give a run's folder, a folder that contains runs, or result files.")
    if not runs and not files:
        raise RunError(
            f"{path} contains no run and no result: give a run's folder, a folder that contains runs, or result files."
        )
    return [
        *(lambda file=file: [read_result(file)] for file in files),
        *(lambda run=run: read_run(run) for run in runs),
    ]


# --- a result file ------------------------------------------------------------------------------------------------


def read_result(path: Path) -> Record:
    """Read a result file written by `minerva benchmark`."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            raise ValueError("it is no regular file, or too long for one")
        kept = json.loads(path.read_text())
        check_plain(kept)
        steps, seconds = _count(kept["steps"]), kept.get("train_seconds")
        hyperparameters = kept.get("hyperparameters") or {
            "preset": kept.get("preset", "auto"),
            **kept.get("changed", {}),
        }
        return Record(
            algo=_text(kept["algo"]),
            env=_text(kept["env"]),
            seed=_count(kept["seed"]),
            label=str(kept.get("label", "")),
            budget=_count(kept.get("total_steps") or _rounded(steps)),
            steps=steps,
            returns=_numbers(kept["returns"]),
            curve=_curve(kept.get("curve", []), [(0, 0.0), (steps, float(seconds))] if seconds else ()),
            source=path,
            random=_number(kept.get("random")),
            settings=dict(hyperparameters),
            steps_per_second=_number(steps / seconds) if seconds else None,
            together=_count(kept.get("seeds_trained_together", 1)),
            about=_about(kept),
            measured=True,
        )
    except UNREADABLE as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise RunError(f"{path} is not a result file ({reason}): give one that `minerva benchmark` wrote.") from None


def _rounded(steps: int) -> int:
    """Return the requested budget of a run that ended with its last complete rollout: 1,000,000 for 999,424 steps."""
    return int(float(f"{steps:.1e}"))


# --- a run's folder -----------------------------------------------------------------------------------------------


def read_run(folder: Path) -> list[Record]:
    """Read a run's folder; return an empty list if it has no evaluation yet."""
    config = read_config(folder / "config.yaml")
    try:
        algo, env, seed = _text(config["algo"]), _text(config["env"]), _count(config["seed"])
        files = RunFolder(folder, algo)
        rows = read_rows(files.metrics) if files.metrics.is_file() else []
        clock = _clock(rows, config)
        curve = _curve(read_rows(files.evaluations) if files.evaluations.is_file() else [], clock)
        settings = dict(config["hyperparameters"])
        if not curve:
            return []
        random_return, finished = _outcome(files.last)
        record = Record(
            algo=algo,
            env=_task(config),
            seed=seed,
            label=_label(folder, algo, env),
            budget=_count(config["total_steps"]),
            steps=max(_count(row["step"]) for row in rows) if rows else curve[-1].step,
            returns=curve[-1].returns,
            curve=curve,
            source=folder,
            origin=Origin.read(config),
            random=random_return,
            settings=settings,
            steps_per_second=_speed(rows),
            about=_about(config),
            health=tracks(algo, settings, rows),
            videos=_videos(folder),
            finished=finished,
        )
    except UNREADABLE as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise RunError(
            f"{folder} is not a run of Minerva ({reason}): give a folder that `minerva train` wrote."
        ) from None
    return [record]


def _task(config: Mapping[str, Any]) -> str:
    """Return the environment's id with its arguments or a mark of what made it: with others it is another task."""
    kwargs = config.get("env_kwargs") or {}
    arguments = ", ".join(f"{name}={value!r}" for name, value in sorted(kwargs.items()))
    if "env_made_by" in config:
        arguments = f"not from an id, {hashlib.sha256(str(config['env_made_by']).encode()).hexdigest()[:8]}"
    return f"{config['env']} ({arguments})" if arguments else str(config["env"])


def _label(folder: Path, algo: str, env: str) -> str:
    """Return the entry's name without the algorithm, for runs of a grid (<entry>/<task>/seed<k>); else empty."""
    task = re.sub(r"[^A-Za-z0-9._-]+", "-", env.removeprefix("dm_control/"))
    home = folder.absolute().parent
    if home.name != task or not re.fullmatch(r"seed\d+", folder.name):
        return ""
    return home.parent.name.removeprefix(algo).lstrip("-_.")


def _outcome(checkpoint: Path) -> tuple[float | None, bool]:
    """Return the random policy's return and whether the run is finished, from the last checkpoint."""
    try:
        about, state = load_checkpoint(checkpoint)
        return _number(state["returns"].get("random")), about.get("finished") is True
    except (CheckpointError, *UNREADABLE):
        return None, False


def _speed(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the last logged steps per second, an average since the process began."""
    seen = [row["charts/SPS"] for row in rows if row.get("charts/SPS")]
    return _number(seen[-1]) if seen else None


def _videos(folder: Path) -> tuple[Path, ...]:
    home = folder / "videos"
    found = sorted(home.iterdir()) if home.is_dir() else []
    return tuple(path for path in found if path.suffix in VIDEOS and path.is_file() and not path.is_symlink())


# --- shared by both -----------------------------------------------------------------------------------------------


def _curve(rows: Sequence[Mapping[str, Any]], clock: Sequence[tuple[int, float]]) -> list[Point]:
    """Return the evaluations; `clock` are steps with the seconds at which they were reached, in order."""
    taken = [_count(row["step"]) for row in rows]
    steps, times = np.array(clock, dtype=np.float64).reshape(-1, 2).T
    seconds = np.interp(taken, steps, times).tolist() if clock else [None] * len(taken)
    return [
        Point(step, _numbers(row["returns"]), second) for step, row, second in zip(taken, rows, seconds, strict=True)
    ]


def _clock(rows: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Return the steps of a run's reports with the seconds since its start; nothing if that is not known."""
    times = [(_count(row["step"]), _number(row["charts/time"])) for row in rows if "charts/time" in row]
    try:
        started = datetime.strptime(str(config.get("started")), STARTED).timestamp()
    except ValueError:
        return []
    return [(0, 0.0), *((step, time - started) for step, time in times if time is not None)]


def _about(kept: Mapping[str, Any]) -> dict[str, str]:
    names = ("device", "engine", "commit", "started", "command", "env_made_by")
    versions = kept.get("versions") or {}
    about = {name: str(kept[name]) for name in names if kept.get(name)}
    return about | {name: str(versions[name]) for name in ("python", "minerva", "torch", "mujoco") if name in versions}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("the name of its algorithm or environment is no text")
    return value


def _count(value: Any) -> int:
    """Return a seed or a number of steps; raise ValueError if it is none."""
    count = int(value)
    if not 0 <= count <= LARGEST_COUNT:
        raise ValueError(f"a seed or a number of steps is not between 0 and {LARGEST_COUNT}")
    return count


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and abs(value) <= LARGEST_RETURN else None


def _numbers(values: Any) -> list[float]:
    numbers = [float(value) for value in values]
    if not numbers or not all(abs(number) <= LARGEST_RETURN for number in numbers):
        raise ValueError("its returns are not finite numbers")
    return numbers
