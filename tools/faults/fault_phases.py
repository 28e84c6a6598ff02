"""SIGKILL in every phase of a run, for each algorithm on each engine."""

import math
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import imageio_ffmpeg
from fault_runs import Case, Child, Outcome, Reference, finished_like, reference, train
from fault_tasks import TASKS

from minerva.cli.main import main
from minerva.envs.engines.registry import ENGINES
from minerva.lab.analysis.video import _Recorder
from minerva.loop.collector import LocalCollector
from minerva.loop.stacking import Stack
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import RunFolder
from minerva.runs.metrics import read_rows
from minerva.runs.run import Run
from minerva.runs.store import CheckpointStore

PHASES: dict[str, list[tuple[type, str]]] = {
    "start": [(Run, "__enter__")],
    "collect": [(LocalCollector, "fill_rollouts"), (LocalCollector, "fill_replay")],
    "update": [(Stack, "learn")],
    "evaluation": [(Run, "_evaluate")],
    "save": [(Run, "_save")],
    "resume": [(Run, "_resume")],
    "video": [(_Recorder, "write")],
}
"""The methods that a phase consists of."""
OF_A_CHECKPOINT = ("resume", "video")
"""Phases that only a run with a checkpoint has."""

OF_AN_ID = [engine for engine in ENGINES if engine not in ("vector", "warp")]
"""Engines that have the task; `vector` steps an object of the user's, and `warp` MuJoCo alone."""
CELLS = [(algo, engine) for engine in OF_AN_ID for algo in TASKS]
TOTAL, EVERY = 512, 64
"""Steps of a run, and between its evaluations: more than one for each kill, so that no run ends before its last."""
COMMON: dict[str, Any] = {"env": "Pendulum-v1", "total_steps": TOTAL, "eval_every": EVERY, "eval_episodes": 1}
ROLLOUT: dict[str, Any] = {"rollout_steps": EVERY // 2, "minibatch_size": EVERY // 2}

LONGEST = 20_000
"""Most calls and returns of functions that a phase goes on for before the kill; a shorter one is killed as it ends."""
ORPHANS_END = 60.0
"""Seconds after which no process of a killed run may be left; the machine may be busy."""
MARK = "FAULT_RUN"
"""Environment variable by which the processes of a run are found."""


class Killer:
    """SIGKILL for this process in the n-th occurrence of a phase, after so many calls and returns of functions."""

    def __init__(self, phase: str, occurrence: int, events: int) -> None:
        self.phase, self.occurrence, self.events = phase, occurrence, events
        self.process = 0

    def install(self) -> None:
        """Wrap the methods of all phases; those of other phases inside the phase do not count."""
        self.process = os.getpid()
        for phase, methods in PHASES.items():
            for owner, name in methods:
                setattr(owner, name, self._watched(phase, getattr(owner, name)))

    def _watched(self, phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self.occurrence -= phase == self.phase
            outer, due = sys.getprofile(), phase == self.phase and self.occurrence == 0
            sys.setprofile(self._count if due else None)
            try:
                return method(*arguments, **named)
            finally:
                if due:
                    self._die()
                sys.setprofile(outer)

        return watched

    def _count(self, frame: Any, event: str, argument: Any) -> None:
        self.events -= 1
        if self.events < 0:
            self._die()

    def _die(self) -> None:
        if os.getpid() == self.process:  # not a copy, in which a snapshot is rehearsed
            os.kill(self.process, signal.SIGKILL)


def phases(folder: Path) -> Case:
    """Kill a run once in each phase, at its start first and then in an order by lot, and let it end.

    EnvPool's simulators cannot be saved: there the run has to say so and to end with a sound folder.
    """
    known: dict[int, Reference] = {}

    def case(number: int) -> Outcome:
        cell = number % len(CELLS)
        algo, engine = CELLS[cell]
        options = {**COMMON, "engine": engine, **(ROLLOUT if "rollout_steps" in TASKS[algo].hyperparameters else {})}
        if cell not in known and engine != "envpool":
            known[cell] = reference(algo, folder / f"reference_{algo}_{engine}", **options)
        place = folder / f"phase_{number}"
        killed, failure = _killed_everywhere(algo, place, options, random.Random(f"phase {number}"))
        if not failure and engine == "envpool":
            failure = _ended_sound(algo, place, options)
        elif not failure:
            failure = finished_like(algo, place, known[cell].outcome, **options)
        shutil.rmtree(place, ignore_errors=True)
        figures = {"kills": len(killed), **{f"kills in {name.split()[0]}": 1 for name in killed}}
        return Outcome(f"{algo} on {engine} killed in {', '.join(killed)}", failure, figures)

    return case


def _killed_everywhere(algo: str, place: Path, options: dict[str, Any], source: random.Random) -> tuple[list[str], str]:
    """Return the kills, in words, and what went wrong in one of them, or an empty string."""
    first, *others = PHASES
    source.shuffle(others)
    left, killed, failure = [first, *others], [], ""
    while left and not failure:
        saved = CheckpointStore(RunFolder(place, algo)).exists()
        phase = next(name for name in left if saved or name not in OF_A_CHECKPOINT)
        left.remove(phase)
        often = phase == "update" and "replay_size" in TASKS[algo].hyperparameters
        occurrence = 1 if phase in ("start", *OF_A_CHECKPOINT) else source.randint(1, 8 if often else 2)
        events = int(math.exp(source.uniform(0, math.log(LONGEST))))
        ended = _started(phase, algo, place, options, Killer(phase, occurrence, events)).wait()
        if ended.code == -signal.SIGKILL:
            killed.append(f"{phase} ({occurrence}, {events})")
        else:
            failure = f"no kill in {phase} ({occurrence}, {events}): {ended.code}: {ended.text[-500:]}"
        failure = failure or _left_running(place) or _broken_video(place)
    return killed, failure


def _started(phase: str, algo: str, place: Path, options: dict[str, Any], killer: Killer) -> Child:
    record = ["video", str(place), "--last", "--seconds", "0.2"]
    command = record if phase == "video" else TASKS[algo].command(place, **options)

    def work() -> int:
        os.environ[MARK] = str(place)
        killer.install()
        return main(command)

    return Child(work, place.with_name(f"{place.name}.log"))


def _left_running(place: Path) -> str:
    """Return which processes of a killed run are left once they had the time to end, or an empty string."""
    mark, until = f"{MARK}={place}\0".encode(), time.monotonic() + ORPHANS_END
    while left := [process.name for process in Path("/proc").glob("[0-9]*") if mark in _environment(process)]:
        if time.monotonic() > until:
            return f"processes {left} are left"
        time.sleep(0.05)
    return ""


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes() + b"\0"
    except OSError:  # it ended, or is another user's
        return b""


def _broken_video(place: Path) -> str:
    """Return the name of a video that cannot be played, or an empty string: none at all is as good as a whole one."""
    for video in (place / "videos").glob("*.mp4"):
        if imageio_ffmpeg.count_frames_and_secs(str(video))[0] == 0:
            return f"{video.name} cannot be played"
    return ""


def _ended_sound(algo: str, place: Path, options: dict[str, Any]) -> str:
    """Let a run on EnvPool end; return what is wrong with how it did, or an empty string."""
    ended = train(algo, place, **options).wait()
    if ended.code != 0 or "not bit for bit" not in ended.text or "Traceback" in ended.text:
        return f"ended with {ended.code}: {ended.text[-600:]}"
    run = RunFolder(place, algo)
    load_checkpoint(run.best)
    evaluated = [row["step"] for row in read_rows(run.evaluations)]
    logged = [row["step"] for row in read_rows(run.metrics)]
    if evaluated != list(range(0, TOTAL + 1, EVERY)) or logged != sorted(logged):
        return f"evaluated at {evaluated}, logged at {logged}"
    return "" if CheckpointStore(run).newest().checkpoint.about["finished"] else "not finished"


def table(notes: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a table: kills of each algorithm on each engine, in each phase."""
    lines = [f"| engine | algorithm | {' | '.join(PHASES)} |", "|---|---|" + "---|" * len(PHASES)]
    for cell, (algo, engine) in enumerate(CELLS):
        mine = [note["figures"] for note in notes if note["number"] % len(CELLS) == cell]
        counts = (sum(figures.get(f"kills in {phase}", 0) for figures in mine) for phase in PHASES)
        lines.append(f"| {engine} | {algo} | {' | '.join(str(count) for count in counts)} |")
    return lines
