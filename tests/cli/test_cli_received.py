"""Files and folders that somebody sent: they control no terminal, no shell, and end in one sentence at worst."""

import ast
import io
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from needs import all_but_first_slow
from rich.console import Console
from tiny_runs import BATCH, FinishedRun, train_command

from minerva.cli.main import main
from minerva.cli.summary import print_summary
from minerva.cli.train import RunOptions
from minerva.errors import RunError, printable
from minerva.lab.benchmark.files import progress
from minerva.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from minerva.runs.settings import Result

ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r"


@pytest.fixture
def run(finished_run: FinishedRun, tmp_path: Path) -> Path:
    """A finished run that a test may change."""
    shutil.copytree(finished_run.folder, tmp_path / "run")
    return tmp_path / "run"


def change_config(run: Path, **values: object) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump({**config, **values}))


# --- the terminal and the shell -----------------------------------------------------------------------------------


def test_text_for_a_terminal_keeps_its_letters_and_spells_out_the_rest() -> None:
    assert printable("Größe ±3\n\tπ 走") == "Größe ±3\n\tπ 走"
    assert printable(ESCAPES + "\udcff") == r"\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\udcff"
    assert str(RunError(ESCAPES)) == printable(ESCAPES)


@pytest.mark.parametrize(
    "command", ["report {run}", "evaluate {run} --episodes 1", "train ppo --config {run}", "train --resume {run}"]
)
@pytest.mark.parametrize("where", ["config", "checkpoint", "folder"])
def test_no_escape_sequence_of_a_file_reaches_the_terminal(
    command: str, where: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    if where == "config":
        change_config(run, env=ESCAPES, algo=ESCAPES if command.startswith("report") else "ppo")
    elif where == "checkpoint":
        for file in (run / "checkpoints").glob("ppo_*.safetensors"):
            about, state = load_checkpoint(file)
            monkeypatch.setattr("minerva.runs.checkpoint.check_plain", lambda value: None)
            save_checkpoint(file, Checkpoint({**about, "env": ESCAPES, "versions": {ESCAPES: ESCAPES}}, state))
            monkeypatch.undo()
            monkeypatch.chdir(run.parent)
    else:
        run = run.rename(run.with_name(f"run{ESCAPES}"))
        (run / "config.yaml").unlink()
    main(shlex.split(command.format(run=shlex.quote(str(run)))))
    shown = "".join(capsys.readouterr())
    assert shown.strip()
    assert not set(ESCAPES) - set(printable(ESCAPES)) & set(shown)


def test_no_escape_sequence_reaches_the_terminal_by_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    handlers, logging.root.handlers = logging.root.handlers, []
    try:
        main(["presets", "ppo"])
        logging.getLogger("minerva").warning("%s is odd", ESCAPES)
    finally:
        logging.root.handlers = handlers
    shown = capsys.readouterr().err
    assert "is odd" in shown
    assert "\x1b" not in shown


def test_the_printed_commands_name_the_folder_whatever_its_name_is(tmp_path: Path) -> None:
    folder = tmp_path / "$(touch pwned) `id` 'a' \"b\" \\"
    folder.mkdir()
    (folder / "learning_curve.png").touch()
    lines = io.StringIO()
    print_summary(Console(file=lines, width=500), "ppo", RunOptions(), Result(folder, True, 1, 0, 0, 0, 0))
    commands = [
        shlex.split(line) for line in lines.getvalue().splitlines() if line.startswith("  ") and "touch" in line
    ]
    assert len(commands) == 4
    for *_, last in ([word for word in words if "touch" in word] for words in commands):
        found = (
            [node.value for node in ast.walk(ast.parse(last)) if isinstance(node, ast.Constant)]
            if "import" in last
            else []
        )
        assert str(folder) in (last, *found)


@pytest.mark.parametrize("engine", all_but_first_slow(["gymnasium", "processes"]))
def test_the_command_imports_nothing_from_the_folder_it_is_started_in(engine: str, tmp_path: Path) -> None:
    for name in ("minerva", "torch", "numpy", "gymnasium"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    command = [str(Path(sys.executable).parent / "minerva"), *train_command(tmp_path / "run", total_steps=BATCH)]
    done = subprocess.run([*command, "--engine", engine], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "imported").exists()


# --- damage -------------------------------------------------------------------------------------------------------

DEEP = "[" * 5_000
DAMAGED = {
    "digits": "seed: " + "9" * 400,
    "hexadecimal digits": "seed: 0x" + "f" * 9_000,
    "infinity": "seed: .inf",
    "keys": "hyperparameters: {1: 2, 3: 4}",
    "unhashable": "algo: [ppo]",
    "depth": f"derived: {DEEP}",
    "bytes": "env: !!binary aGVsbG8=",
    "control": 'env: "\\e[2J"',
}
"""A line that replaces one of config.yaml."""


def damage(run: Path, line: str) -> None:
    file, key = run / "config.yaml", line.partition(":")[0]
    config = yaml.safe_load(file.read_text())
    del config[key]
    file.write_text(f"{line}\n{yaml.safe_dump(config)}")


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_config_is_refused_in_a_sentence(
    line: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    damage(run, line)
    for command in (["train", "ppo", "--config", str(run)], ["train", "--resume", str(run)]):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_each_bad_run_is_a_line_in_the_report_of_the_good_ones(
    run: Path, finished_run: FinishedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {name: tmp_path / "runs" / f"bad{number}" for number, name in enumerate(DAMAGED)}
    for name, folder in bad.items():
        shutil.copytree(run, folder)
        damage(folder, DAMAGED[name])
    os.mkfifo(_made(tmp_path / "runs" / "fifo") / "config.yaml")
    os.mkfifo(tmp_path / "runs" / "x_seed0.json")
    (tmp_path / "runs" / "y_seed0.json").write_text('{"steps": ' + "9" * 400 + "}")
    (tmp_path / "runs" / "z_seed0.json").write_text("[" * 100_000)
    evaluations = _made(tmp_path / "runs" / "returns") / "eval" / "evaluations.jsonl"
    shutil.copytree(run, evaluations.parents[1], dirs_exist_ok=True)
    evaluations.write_text('{"step": 0, "returns": [' + "9" * 400 + "]}")
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "runs"), str(finished_run.folder), "--out", str(out)]) == 0
    page = out.read_text()
    for folder in (*bad.values(), tmp_path / "runs" / "fifo", evaluations.parents[1]):
        assert len(re.findall(rf"<p>{folder}\b[^<]*</p>", page)) == 1, folder
    for name in "xyz":
        assert len(re.findall(rf"<p>[^<]*/{name}_seed0\.json[^<]*</p>", page)) == 1
    assert str(finished_run.folder) in page
    capsys.readouterr()
    assert main(["report", str(tmp_path / "runs" / "fifo"), "--out", str(out)]) == 2
    assert "is not a regular file" in capsys.readouterr().err


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "text",
    [
        f"envs = {DEEP}",
        f"seeds = {'9' * 400}",
        "seeds = 1000000000",
        'seeds = "0:1000000000"',
        f"total_steps = {'9' * 400}",
        f"total_steps = {'9' * 5_000}",
        f"[entries.ppo]\npolicy_lr = {'9' * 400}",
        "[entries.ppo]\npolicy_layer_sizes = [" + "1," * 30_000 + "]",
        'envs = ["\\u001b[2J"]',
    ],
    ids=lambda text: text[:30],
)
def test_a_grid_beyond_all_measure_is_refused_in_a_sentence(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = 'envs = ["Pendulum-v1"]\n' * ("envs" not in text) + text + "\n[entries.ppo]" * ("entries" not in text)
    (tmp_path / "grid.toml").write_text(whole)
    assert main(["benchmark", str(tmp_path / "grid.toml"), "--status", "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert "grid.toml" in message


@pytest.mark.parametrize(
    "line", ["[1]", DEEP, '{"step": Infinity}', '{"step": "x"}', '{"step": ' + "9" * 400 + "}", "3", "\udcff"]
)
def test_the_progress_of_a_damaged_log_is_that_of_its_other_lines(line: str, tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text(f'{{"step": 3, "charts/SPS": 2.0}}\n{line}\n', errors="surrogateescape")
    assert progress(log)[:2] == (3, 2.0)
