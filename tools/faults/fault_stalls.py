"""Measure how long training waits for its checkpoints, in real runs."""

import json
import time
from pathlib import Path
from typing import Any

from fault_kills import ALGOS
from fault_runs import Case, Child, Outcome

from minerva.api import make_trainer
from minerva.presets import preset_for
from minerva.runs.run import Run
from minerva.trainers.registry import config_class

ENV = "HalfCheetah-v5"
SECONDS = 200.0
"""Seconds for which a run is observed, from its first report on."""
MOST = 0.01
"""Largest share of the run time."""


def stalls(folder: Path) -> Case:
    """The preset of each algorithm with the checkpoints and evaluations that it has anyway; MPO's replay is full."""

    def case(number: int) -> Outcome:
        if number >= len(ALGOS):
            raise StopIteration
        algo, note = ALGOS[number], folder / f"{ALGOS[number]}.json"
        ended = Child(lambda: _watch(algo, folder / algo, note), folder / f"{algo}.log").wait(patience=1200)
        if not note.exists():
            return Outcome(algo, f"ended with {ended.code}: {ended.text[-500:]}")
        seen = json.loads(note.read_text())
        name = f"{algo}, {seen['saves']} checkpoints in {seen['seconds']:.0f} s"
        share = seen["waited"] / seen["seconds"]
        failure = "" if share <= MOST and seen["saves"] > 0 else f"{share:.2%}"
        return Outcome(name, failure, {f"{algo}, %": 100 * share})

    return case


def _watch(algo: str, place: Path, note: Path) -> None:
    values = dict(preset_for(algo, ENV, "auto").values)
    budget = values.pop("total_steps", 1_000_000)
    trainer = make_trainer(algo, ENV, 0, "cpu", config_class(algo).from_dict(values), engine="gymnasium")
    if trainer.rows is not None:
        _fill(trainer.rows)
    seen: dict[str, Any] = {"waited": 0.0, "saves": 0}
    save = Run._save

    def timed(self: Run, *arguments: Any) -> None:
        began = time.monotonic()
        save(self, *arguments)
        if "began" in seen:
            seen["waited"] += time.monotonic() - began
            seen["saves"] += 1

    def enough(*_: Any) -> bool:
        """Counting begins with the first report: what was compiled before is no training, and the replay is saved."""
        now = time.monotonic()
        seen.setdefault("began", now)
        if now - seen["began"] < SECONDS:
            return False
        note.write_text(json.dumps({**seen, "seconds": now - seen["began"]}))
        return True

    Run._save = timed  # type: ignore[method-assign]
    trainer.train(budget, place, quiet=True, callbacks=[enough])


def _fill(replay: Any) -> None:
    """A full replay; its first checkpoint, which writes all of it, comes before the first report."""
    rows = replay.state["storage"]["float32"]
    rows.normal_()
    rows[..., -2:] = 0  # no row ends an episode
    replay.written = replay.steps
    replay.state["newest"].fill_(replay.steps - 1)
