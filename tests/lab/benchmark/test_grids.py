"""Grids: what a file means, what is refused, and that the committed ones and the committed results belong together."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from minerva.cli.benchmarking import parse_duration, widest_layer
from minerva.cli.main import _parse, main
from minerva.errors import ConfigError
from minerva.lab.analysis.peers import all_published
from minerva.lab.benchmark.files import Files
from minerva.lab.benchmark.grid import Cell, Entry, Grid, chosen, make_grid, read_grid
from minerva.lab.benchmark.tasks import Maker, command_line_options
from minerva.presets import presets
from minerva.trainers.registry import ALGORITHMS, config_class

REPOSITORY = Path(__file__).parents[3]
GRIDS = sorted((REPOSITORY / "benchmarks" / "grids").glob("*.toml"))
TEXT = """
total_steps = 512
seeds = "2:4"
envs = ["Pendulum-v1", "dm_control/cheetah/run"]
results = "kept"

[entries.ppo]
preset = "auto"

[entries.ppo-slow]
algo = "ppo"
preset = "none"
policy_lr = 1e-5
"""


def grid_file(folder: Path, text: str) -> Path:
    file = folder / "grid.toml"
    file.write_text(text)
    return file


def test_a_grid_is_read_entry_by_entry_environment_by_environment_seed_by_seed(tmp_path: Path) -> None:
    grid = read_grid(grid_file(tmp_path, TEXT))
    plain, slow = Entry("ppo", "ppo", "auto"), Entry("ppo-slow", "ppo", "none", {"policy_lr": 1e-5})
    assert grid.rows() == [
        [Cell(entry, env, seed, 512) for seed in (2, 3)]
        for entry in (plain, slow)
        for env in ("Pendulum-v1", "dm_control/cheetah/run")
    ]
    assert (grid.episodes, grid.evaluations, grid.results) == (100, 20, tmp_path / "kept")


def test_files_are_named_after_algorithm_environment_label_and_seed(tmp_path: Path) -> None:
    files, rows = Files(tmp_path / "out", tmp_path / "kept"), read_grid(grid_file(tmp_path, TEXT)).rows()
    assert files.result(rows[0][0]) == tmp_path / "kept/ppo/Pendulum-v1_seed2.json"
    assert files.result(rows[3][1]) == tmp_path / "kept/ppo/cheetah-run_slow_seed3.json"
    assert files.run(rows[3][1]) == tmp_path / "out/ppo-slow/cheetah-run/seed3"


def test_a_module_named_by_a_grid_is_imported_only_when_the_person_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs_too.py").write_text("open('trace', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    grid_file(tmp_path, 'envs = ["theirs_too:Pendulum-v1"]\nseeds = 1\n[entries.ppo]\n')
    assert main(["benchmark", "grid.toml", "--status"]) == 2
    assert "would import and run the module 'theirs_too'" in capsys.readouterr().err
    assert not Path("trace").exists()
    assert main(["benchmark", "grid.toml", "--status", "--trust-env"]) == 0
    assert Path("trace").exists()


def test_a_grid_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "grid.toml")  # opening it would wait for somebody who writes
    with pytest.raises(ConfigError, match="no regular file"):
        read_grid(tmp_path / "grid.toml")


SEEDS = [(3, (0, 1, 2)), ("3", (0, 1, 2)), ("1:3", (1, 2)), ([4, 2], (4, 2)), ([7], (7,))]


@pytest.mark.parametrize(("seeds", "meant"), SEEDS)
def test_seeds_are_a_count_or_a_range_or_a_list(seeds: Any, meant: tuple[int, ...]) -> None:
    assert make_grid({"ppo": {}}, envs=["Pendulum-v1"], seeds=seeds).seeds == meant


def test_the_log_of_many_seeds_has_a_short_name_that_tells_how_many_they_were(tmp_path: Path) -> None:
    files, grid = Files(tmp_path, tmp_path), make_grid({"ppo": {}}, envs=["Pendulum-v1"], seeds=1000)
    cells = grid.rows()[0]
    log = files.log([*cells[:400], cells[500], *cells[998:]])
    assert log.name == "train_seeds_0-399_500_998-999.log"
    log.parent.mkdir(parents=True)
    log.touch()
    assert [files.trained_together(cells[seed]) for seed in (0, 399, 400, 500, 999)] == [403, 403, 1, 403, 403]


def test_without_a_budget_a_run_has_its_presets() -> None:
    grid = make_grid({"mpo": {"preset": "auto"}, "ppo": {}}, envs=["Pendulum-v1"])
    budgets = [row[0].total_steps for row in grid.rows()]
    assert budgets == [presets("mpo")["Pendulum-v1"].values["total_steps"], 1_000_000]


def test_a_part_of_a_grid_is_chosen_by_entry_or_algorithm_and_environment(tmp_path: Path) -> None:
    grid = read_grid(grid_file(tmp_path, TEXT + "[entries.vmpo-3m]\nalgo = 'vmpo'\n"))
    names = [entry.name for entry in grid.entries]
    assert [entry.name for entry in grid.part(["ppo"], []).entries] == ["ppo"]  # an entry before an algorithm
    assert [entry.name for entry in grid.part(["vmpo", "ppo-slow"], []).entries] == ["ppo-slow", "vmpo-3m"]
    assert [entry.name for entry in grid.part([], ["Pendulum-v1"]).entries] == names
    assert grid.part([], ["Pendulum-v1"]).envs == ("Pendulum-v1",)


def test_several_grids_are_chosen_from_together(tmp_path: Path) -> None:
    """A name may be in one of them only; a grid without any of the names is left out."""
    one = make_grid({"ppo": {}, "vmpo-3m": {"algo": "vmpo"}}, envs=["Pendulum-v1", "Hopper-v5"])
    other = make_grid({"mpo": {}, "ppo-1m": {"algo": "ppo"}}, envs=["Pendulum-v1"])
    grids = {"one": one, "other": other}

    def rows(names: list[str], envs: list[str]) -> list[str]:
        parts = chosen(grids, names, envs).items()
        return [f"{path} {row[0].entry.name} {row[0].env}" for path, grid in parts for row in grid.rows()]

    assert len(rows([], [])) == 6
    assert rows(["ppo"], ["Pendulum-v1"]) == ["one ppo Pendulum-v1", "other ppo-1m Pendulum-v1"]
    assert rows(["vmpo", "mpo"], ["Hopper-v5"]) == ["one vmpo-3m Hopper-v5"]
    assert rows([], ["Hopper-v5"]) == ["one ppo Hopper-v5", "one vmpo-3m Hopper-v5"]
    with pytest.raises(ConfigError, match="sac is not in any of these grids"):
        chosen(grids, ["sac"], [])
    with pytest.raises(ConfigError, match="None of these grids has mpo on Hopper-v5"):
        chosen(grids, ["mpo"], ["Hopper-v5"])


REFUSED: list[tuple[str, tuple[str, ...]]] = [
    ("total_stepz = 5\n" + TEXT, ("total_stepz is not a setting of a grid", "Did you mean total_steps")),
    (TEXT.replace("512", "0"), ("total_steps is 0: it must be in [1, inf)",)),
    (TEXT.replace("512", "'many'"), ("total_steps is 'many': it must be a whole number",)),
    (TEXT.replace("2:4", "4:2"), ("seeds is 4:2", "0:8 for seeds 0 to 7")),
    (TEXT.replace("2:4", "1,1"), ("seeds is 1,1: each may be there once",)),
    (TEXT.replace("Pendulum-v1", "Pendulun-v1"), ("Pendulun-v1 is not a known environment", "Pendulum-v1")),
    (TEXT.replace("cheetah/run", "cheetah/walk"), ("not a task of dm_control", "dm_control/cheetah/run")),
    (TEXT.replace('"ppo"\npreset', '"pppo"\npreset'), ("pppo is not an algorithm", "Did you mean ppo")),
    (TEXT.replace("policy_lr", "policy_lt"), ("ppo-slow: policy_lt is not a setting", "Did you mean policy_lr")),
    (TEXT.replace("1e-5", "-1"), ("ppo-slow: policy_lr is -1.0: it must be in (0, inf)",)),
    (TEXT.replace('"none"', '"fst"'), ("ppo-slow: fst is not a preset of ppo", "Did you mean fast")),
    (TEXT.replace("ppo-slow", '"a b"'), ("'a b' cannot name an entry",)),
    (TEXT.replace("ppo-slow", '"ppo-"'), ("ppo and ppo- would write the same files",)),
    ("envs = ['Pendulum-v1']", ("no entries", "[entries.ppo]")),
    ("[entries.ppo]", ("envs is []", "at least one environment id")),
    ("envs = [", ("cannot be read as a grid", "TOML")),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_a_wrong_grid_is_refused_with_the_fix(
    text: str, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["benchmark", str(grid_file(tmp_path, text)), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", ("give a grid's TOML file, or --algos and --envs",)),
        ("missing.toml", ("missing.toml cannot be read as a grid",)),
        ("--algos ppo,vmp --envs Pendulum-v1", ("vmp is not an algorithm", "Did you mean vmpo")),
        ("--algos ppo --envs Pendulum-v1 --seeds 0", ("seeds is 0",)),
        ("--algos ppo --envs Pendulum-v1 --jobs 0", ("jobs is 0: it must be at least 1",)),
        ("--algos ppo --envs Pendulum-v1 --within soon", ("within is soon", "20m")),
        ("--algos ppo --envs Pendulum-v1 --device cuda:99", ("device is cuda:99",)),
        ("{grid} --algos mpo", ("mpo is not in this grid", "ppo")),
        ("{grid} --envs Pendulum-v2", ("Pendulum-v2 is not in this grid", "Did you mean Pendulum-v1")),
    ],
)
def test_wrong_options_are_refused_with_the_fix(
    options: str, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grid_file(tmp_path, TEXT)
    assert main(["benchmark", *options.format(grid=grid).split(), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said


@pytest.mark.parametrize(("text", "value"), [("90s", 90.0), ("20m", 1200.0), ("1h30m", 5400.0), ("0.5s", 0.5)])
def test_times_are_written_with_their_unit(text: str, value: float) -> None:
    assert parse_duration(text) == value


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_hyperparameters_typed_as_options_are_the_ones_of_the_grid(algo: str) -> None:
    hyperparameters = {"policy_lr": 1e-30, "num_envs": 3, "policy_layer_sizes": [8, 4], "gamma": 0.5}
    types = config_class(algo).annotations()
    flag = {"vmpo": "squash", "mpo": "mirrored_samples"}.get(algo, "anneal_lr")
    for value in (True, False):
        changed = {**hyperparameters, flag: value}
        if "normalize_rewards" in types:
            changed["normalize_rewards"] = value  # which may be None as well, and is typed in another way
        config = _parse(["train", algo, "--preset", "none", *command_line_options(algo, changed)]).hyperparameters
        kind = config_class(algo)
        assert config.to_dict() == kind.from_dict(kind.overridden({}, changed)).to_dict()


def test_networks_are_as_wide_as_their_widest_layer() -> None:
    entry = Entry("ppo", "ppo", "none", {"policy_layer_sizes": [8], "critic_layer_sizes": [16, 100, 4]})
    assert widest_layer(Cell(entry, "Pendulum-v1", 0, 1)) == 100


# --- what is committed ----------------------------------------------------------------------------------------


def committed() -> list[tuple[Grid, Files]]:
    return [(grid, Files(Path("out"), (grid.results or Path()).resolve())) for grid in map(read_grid, GRIDS)]


def test_every_committed_result_is_the_result_of_a_cell_of_a_committed_grid() -> None:
    wanted = {files.result(cell) for grid, files in committed() for row in grid.rows() for cell in row}
    there = set((REPOSITORY / "benchmarks" / "results").rglob("*_seed*.json"))
    assert there - wanted == set()
    for grid, files in committed():
        done = [files.done(cell) for row in grid.rows() for cell in row]  # refuses what is another experiment's
        assert all(len(kept["returns"]) == grid.episodes for kept in done if kept)


def test_no_two_grids_keep_different_experiments_in_one_file() -> None:
    cells: dict[Path, set[str]] = {}
    for grid, files in committed():
        maker = Maker(grid, files)
        for row in grid.rows():
            for cell in row:
                cells.setdefault(files.result(cell), set()).add(" ".join(maker.options(cell)))
    assert [path for path, commands in cells.items() if len(commands) > 1] == []


def test_the_published_rows_are_in_the_grids() -> None:
    grids = {path.stem: grid for path, (grid, _) in zip(GRIDS, committed(), strict=True)}
    counts = {name: (len(grids[name].rows()), len(grids[name].seeds)) for name in ("dm_control_500k", "gym_3m")}
    assert counts == {"dm_control_500k": (16, 5), "gym_3m": (10, 5)}
    assert {row[0].total_steps for row in grids["dm_control_500k"].rows()} == {500_000}


def test_the_suites_have_every_default_on_every_task_of_published_comparisons() -> None:
    grids = {path.stem: grid for path, (grid, _) in zip(GRIDS, committed(), strict=True)}
    sets = all_published().task_sets
    dm_control, gym = grids["suite_dm_control_500k"], grids["suite_gym_1m"]
    assert set(dm_control.envs) == set(sets["dm_control, 28 tasks"])
    assert set(dm_control.envs[:18]) == set(sets["dm_control, the 18 tasks of DreamerV3"])
    mujoco = [name for name, spec in gymnasium.registry.items() if "envs.mujoco" in str(spec.entry_point)]
    assert set(gym.envs) == {name for name in mujoco if name.endswith("-v5")}
    for grid in (dm_control, gym):
        defaults = {entry.algo for entry in grid.entries if (entry.preset, entry.hyperparameters) == ("none", {})}
        assert (defaults, grid.seeds, grid.episodes) == (set(ALGORITHMS), (0, 1, 2, 3, 4), 100)
        assert [entry.preset for entry in grid.entries if entry.algo == "sac"] == ["none", "mpo-critic"]


def test_an_ablation_takes_away_parts_of_the_default_and_nothing_else() -> None:
    """What an entry sets is a setting whose default is another value; the first entry sets nothing."""
    (ablation,) = [read_grid(path) for path in GRIDS if path.stem == "mpo_ablation"]
    assert (len(ablation.envs), ablation.seeds) == (5, (0, 1, 2, 3, 4))
    default = config_class("mpo")().to_dict()
    first, *others = ablation.entries
    assert first.hyperparameters == {}
    for entry in others:
        assert entry.hyperparameters
        assert all(default[name] != value for name, value in entry.hyperparameters.items()), entry.name
