"""The schedule, on an executor that only pretends: order, room, failures, and what the time allows."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from minerva.lab.benchmark import schedule as scheduling
from minerva.lab.benchmark.board import Board, State, each_seed, over_seeds
from minerva.lab.benchmark.files import Files, progress, reason_in
from minerva.lab.benchmark.grid import Cell, Grid, make_grid
from minerva.lab.benchmark.measure import train_seconds
from minerva.lab.benchmark.schedule import Schedule
from minerva.lab.benchmark.tasks import Maker, Task

STEPS = 1000


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Pretender:
    """Ends each training after `seconds`, with its metrics written; each measuring at once, with its result."""

    def __init__(self, files: Files, clock: Clock, slots: int = 1, seconds: float = 10.0) -> None:
        self.files, self.clock, self.slots, self.seconds = files, clock, slots, seconds
        self.tasks: dict[Task, float] = {}
        self.trained: list[str] = []
        self.finished: set[Cell] = set()
        self.broken: set[str] = set()
        self.stopped: list[Task] = []

    def room(self, task: Task) -> bool:
        return len(self.tasks) < self.slots

    def start(self, task: Task) -> None:
        self.tasks[task] = self.clock.now + (self.seconds if task.kind == "train" else 0.0)

    def running(self) -> list[Task]:
        return list(self.tasks)

    def ended(self) -> list[tuple[Task, int]]:
        over = [task for task, end in self.tasks.items() if end <= self.clock.now]
        return [(task, self._end(task)) for task in over]

    def stop(self, tasks: Any) -> None:
        self.stopped += [task for task in tasks if task.kind == "train"]
        self.tasks = {task: end for task, end in self.tasks.items() if task not in tasks}

    def _end(self, task: Task) -> int:
        del self.tasks[task]
        first = task.cells[0]
        if task.kind == "measure":
            write_result(self.files, first)
            return 0
        self.trained.append(f"{first.entry.name} {first.env} {','.join(str(cell.seed) for cell in task.cells)}")
        if first.entry.name in self.broken:
            task.log.parent.mkdir(parents=True, exist_ok=True)
            task.log.write_text("something\nerror: it broke\n")
            return 1
        for cell in task.cells:
            write_metrics(self.files, cell, STEPS)
            self.finished.add(cell)
        return 0


def write_metrics(files: Files, cell: Cell, step: int) -> None:
    files.run(cell).mkdir(parents=True, exist_ok=True)
    row = {"step": step, "charts/SPS": 50.0, "charts/time": 0.0, "train/episode_return": -3.0}
    (files.run(cell) / "metrics.jsonl").write_text(json.dumps(row) + "\n")


def write_result(files: Files, cell: Cell, **changed: Any) -> None:
    kept = {"algo": cell.entry.algo, "env": cell.env, "seed": cell.seed, "preset": cell.entry.preset, "changed": {}}
    kept |= {"steps": STEPS, "total_steps": STEPS, "train_seconds": 10, "device": "cpu", "returns": [1.0, 3.0]}
    files.result(cell).parent.mkdir(parents=True, exist_ok=True)
    files.result(cell).write_text(json.dumps({**kept, **changed}))


Make = Callable[..., tuple[Schedule, Pretender]]


@pytest.fixture
def grid() -> Grid:
    return make_grid({"ppo": {}, "vmpo": {}}, envs=["Pendulum-v1", "Hopper-v5"], seeds=2, total_steps=STEPS)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "out", tmp_path / "kept")


@pytest.fixture
def make(grid: Grid, files: Files, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A schedule whose time is pretended, too."""

    def made(within: float | None = None, together: bool = False, **options: Any) -> tuple[Schedule, Pretender]:
        clock = Clock()
        executor = Pretender(files, clock, **options)
        monkeypatch.setattr(scheduling, "time", clock)
        monkeypatch.setattr(Files, "finished", lambda self, cell: cell in executor.finished)
        return Schedule(Maker(grid, files), executor, lambda row, rows: together, within), executor

    return made


ROWS = ["ppo Pendulum-v1", "ppo Hopper-v5", "vmpo Pendulum-v1", "vmpo Hopper-v5"]


def kinds(grid: Grid, files: Files) -> list[str]:
    return [state.kind for state in Board(grid, files, Console(quiet=True)).states([]).values()]


def test_cells_are_run_in_the_grids_order_each_measured_before_the_next_begins(
    make: Make, grid: Grid, files: Files
) -> None:
    schedule, executor = make()
    seen: list[tuple[str, int]] = []
    assert schedule.run(lambda running: seen.extend((task.kind, task.cells[0].seed) for task in running))
    assert executor.trained == [f"{row} {seed}" for row in ROWS for seed in (0, 1)]
    changes = [one for one, before in zip(seen, [None, *seen], strict=False) if one != before]
    assert changes[:4] == [("train", 0), ("measure", 0), ("train", 1), ("measure", 1)]
    assert kinds(grid, files) == ["done"] * 8


def test_seeds_can_be_trained_together(make: Make, grid: Grid, files: Files) -> None:
    schedule, executor = make(together=True)
    schedule.run(lambda running: None)
    assert executor.trained == [f"{row} 0,1" for row in ROWS]
    assert kinds(grid, files) == ["done"] * 8


def test_what_has_a_result_is_not_run_again(make: Make, grid: Grid, files: Files) -> None:
    for row in grid.rows()[:3]:
        write_result(files, row[0])
    schedule, executor = make(together=True)
    schedule.run(lambda running: None)
    assert executor.trained == [*(f"{row} 1" for row in ROWS[:3]), f"{ROWS[3]} 0,1"]


def test_a_failed_cell_is_named_with_its_reason_and_the_others_go_on(make: Make, grid: Grid, files: Files) -> None:
    schedule, executor = make()
    executor.broken = {"ppo"}
    assert schedule.run(lambda running: None)
    assert kinds(grid, files) == ["failed"] * 4 + ["done"] * 4
    state = Board(grid, files, Console(quiet=True)).states([])[grid.rows()[0][1]]
    assert state.note == f"it broke (log: {files.log(grid.rows()[0][1:])})"
    assert executor.trained == [f"{row} {seed}" for row in ROWS for seed in (0, 1)]


def test_without_a_terminal_each_beginning_and_end_is_a_line_of_its_own(make: Make, grid: Grid, files: Files) -> None:
    schedule, executor = make()
    executor.broken = {"vmpo"}
    output = io.StringIO()
    with Board(grid, files, Console(file=output, width=80)) as board:
        schedule.run(board.update)
    lines = output.getvalue().splitlines()
    ppo, vmpo = grid.rows()[0][0], grid.rows()[2][0]
    assert lines[:2] == [f"training {ppo}; log: {files.log([ppo])}", f"done: {ppo}: 2.0"]
    assert f"failed: {vmpo}: it broke (log: {files.log([vmpo])})" in lines
    assert len(lines) == 2 * 8


@pytest.mark.parametrize("width", [40, 80, 160])
def test_in_a_terminal_the_table_is_followed_by_a_row_for_each_task(width: int, grid: Grid, files: Files) -> None:
    rows, maker = grid.rows(), Maker(grid, files)
    write_result(files, rows[0][0])
    write_metrics(files, rows[1][0], 250)
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    with Board(grid, files, console) as board:
        board.update([maker.train(rows[1][:1]), maker.measure(rows[2][0])])
    assert isinstance(console.file, io.StringIO)
    picture = console.file.getvalue().removeprefix("\x1b[?25l").split("\r")[0]  # without the cursor, until it is wiped
    lines = [line.rstrip() for line in picture.splitlines()]
    assert max(map(len, lines)) <= width
    words = [line.split() for line in lines]
    assert words[0][:2] == ["entry", "environment"]
    training = next(line for line in words if line[:2] == ["ppo", "on"])
    assert "25" in training
    assert any(line[0] == "measuring" for line in words if line)
    assert "1 of 8 done, 2 running, 5 not run" in " ".join(lines)


def test_a_failure_is_forgotten_when_the_cell_is_tried_again(make: Make, grid: Grid, files: Files) -> None:
    schedule, executor = make()
    executor.broken = {"ppo", "vmpo"}
    schedule.run(lambda running: None)
    schedule, executor = make()
    schedule.run(lambda running: None)
    assert kinds(grid, files) == ["done"] * 8


def test_what_cannot_be_finished_in_time_is_not_begun(make: Make, grid: Grid, files: Files) -> None:
    schedule, executor = make(within=35.0)  # three runs of ten seconds and a little
    begun: list[str] = []
    assert schedule.run(lambda running: begun.extend(map(str, running)))
    assert len(executor.trained) == 3
    assert begun[-1] == "vmpo on Pendulum-v1, seed 0"  # nothing is known of its pace; it is stopped
    assert "ppo on Hopper-v5, seed 1" not in begun
    assert kinds(grid, files) == ["done"] * 3 + ["not run"] * 5


def test_earlier_results_tell_what_can_be_finished(make: Make, grid: Grid, files: Files) -> None:
    write_result(files, grid.rows()[0][0], train_seconds=100)
    schedule, executor = make(within=50.0)
    assert schedule.run(lambda running: None)
    assert not any(trained.startswith("ppo") for trained in executor.trained)
    assert len([trained for trained in executor.trained if trained.startswith("vmpo")]) == 4


def test_what_is_running_when_the_time_is_up_is_stopped(make: Make, grid: Grid, files: Files) -> None:
    write_metrics(files, grid.rows()[0][0], 300)
    schedule, executor = make(within=5.0)
    assert schedule.run(lambda running: None)
    assert [str(task) for task in executor.stopped] == ["ppo on Pendulum-v1, seed 0"]
    assert kinds(grid, files) == ["stopped"] + ["not run"] * 7


def test_what_is_finished_when_the_time_is_up_is_still_measured(make: Make, grid: Grid, files: Files) -> None:
    schedule, executor = make(within=5.0)
    executor.stop = lambda tasks: [executor._end(task) for task in tasks]  # type: ignore[method-assign]
    assert schedule.run(lambda running: None)  # it came to its end in the very last moment
    assert kinds(grid, files) == ["done"] + ["not run"] * 7


def test_what_is_trained_and_has_no_result_is_to_be_measured(make: Make, grid: Grid, files: Files) -> None:
    (finished, unfinished), *_ = grid.rows()
    _, executor = make()
    for cell in (finished, unfinished):
        write_metrics(files, cell, STEPS)
    executor.finished = {finished}
    assert kinds(grid, files) == ["to be measured", "stopped"] + ["not run"] * 6
    write_result(files, finished)
    assert kinds(grid, files) == ["done", "stopped"] + ["not run"] * 6


def test_slots_are_filled(make: Make) -> None:
    schedule, executor = make(slots=3)
    most = 0

    def count(running: Any) -> None:
        nonlocal most
        most = max(most, len(running))

    schedule.run(count)
    assert most == 3
    assert executor.clock.now < 45  # eight runs of ten seconds


def test_a_file_of_another_experiment_is_refused(make: Make, grid: Grid, files: Files) -> None:
    cell = grid.rows()[0][0]
    for changed in ({"total_steps": 2 * STEPS}, {"preset": "fast"}, {"changed": {"gamma": 0.5}}, {"env": "Hopper-v5"}):
        write_result(files, cell, **changed)
        with pytest.raises(ValueError, match=f"another experiment .{next(iter(changed))}: "):
            files.done(cell)
    files.result(cell).write_text("{}")
    with pytest.raises(ValueError, match="is not a result"):
        files.done(cell)


# --- what files say -------------------------------------------------------------------------------------------


def test_progress_is_what_the_latest_rows_say(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    assert progress(log).step == 0
    rows = [{"step": n, "charts/SPS": 10.0 * n, "train/episode_return": -float(n), "x": "y" * 500} for n in range(200)]
    text = "".join(json.dumps(row) + "\n" for row in [{"step": 0, "eval/return_mean": 5.0}, *rows])
    log.write_text(text + json.dumps({"step": 300})[:-1])  # cut off while being written
    assert progress(log) == (199, 1990.0, -199.0, ())  # the evaluation is too long ago to be seen


def test_training_time_leaves_out_the_waiting_between_processes() -> None:
    def rows(first: int, last: int, began: float, per_second: float) -> list[dict[str, Any]]:
        steps = range(first + 100, last + 1, 100)
        return [{"step": n, "charts/SPS": per_second, "charts/time": began + (n - first) / per_second} for n in steps]

    once = rows(0, 1000, 5000.0, 10.0)
    assert train_seconds(once) == 100.0
    assert train_seconds(once + rows(1000, 2000, 90_000.0, 20.0)) == 150.0
    assert train_seconds([{"step": 0, "eval/return_mean": 1.0}, *once, {"step": 1000}]) == 100.0
    assert train_seconds([]) == 0.0


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("error: no such thing\n", 2, "no such thing"),
        ("ERROR    seed1: it broke\nerror: last of all\n", 1, "it broke"),
        ("ERROR    seed2: it broke\nerror: last of all\n", 1, "last of all"),
        ("Traceback\n  line\nValueError: x\n", 1, "ValueError: x"),
        ("some line\n", -9, "killed by signal 9"),
        ("", 1, "exit code 1"),
    ],
)
def test_a_reason_is_read_from_the_log(text: str, code: int, reason: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("error: of an earlier attempt\n" + text)
    assert reason_in(log, len("error: of an earlier attempt\n"), 1, code) == reason


def test_the_table_counts_neighbours_and_gives_mean_and_standard_deviation() -> None:
    done = [State("done", 900.0), State("done", 1100.0)]
    assert each_seed([*done, State("not run"), State("not run")]).markup == (
        "[green]900[/green], [green]1,100[/green], [dim]not run (2)[/dim]"
    )
    assert over_seeds([*done, State("running")]).markup == "[bold]1,000[/bold] ± 141"
    assert over_seeds([State("not run")] * 2).markup == "[dim]not run[/dim]"
