"""The committed results page: what the generator makes of the committed results and grids, and nothing left out."""

import json
import re
import shutil
from pathlib import Path

import pytest
from curves import DIGEST, digest
from results_page import FRONT, PICTURES, pictured_by_name, results_page

from minerva.cli.main import main
from minerva.errors import ConfigError

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout as far as the page needs one."""
    for name in ("benchmarks/results", "benchmarks/grids", "tools/site"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    (tmp_path / "docs").mkdir()
    return tmp_path


def keep(checkout: Path, grid: str, results: str) -> None:
    """Leave one grid and its results alone, of which a page is made in a moment."""
    for path in (checkout / "benchmarks").rglob("*"):
        if (path.parent.name == "grids" and path.stem != grid) or ("_seed" in path.name and not path.match(results)):
            path.unlink()


def rows(page: str, begin: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith(begin)]


def test_the_committed_page_is_what_the_command_writes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkout)
    assert main(["docs", "results"]) == 0
    assert capfd.readouterr().out == "results: docs/results.md, docs/assets/curves\n"
    committed = (REPOSITORY / "docs" / "results.md").read_text()
    assert (checkout / "docs" / "results.md").read_text() == committed, "run `minerva docs results` and commit the page"


def test_every_grid_with_curves_has_its_picture_and_every_picture_its_numbers() -> None:
    """A picture carries a hash of what is drawn: one that was not drawn again after a new result is out of date."""
    shown = re.findall(r"!\[[^]]+\]\(assets/curves/(\w+)\.svg\)", (REPOSITORY / "docs" / "results.md").read_text())
    there = {path.stem: path.read_text() for path in (REPOSITORY / "docs" / PICTURES).glob("*.svg")}
    assert sorted([*shown, FRONT]) == sorted(there)
    for name, drawn in pictured_by_name(REPOSITORY).items():
        assert DIGEST + digest(drawn) in there[name], f"{name}: run `minerva docs results` and commit the pictures"


def test_a_curve_that_changes_changes_the_hash() -> None:
    drawn = pictured_by_name(REPOSITORY)["gym_1m"]
    task, ((entry, line), *others) = next(iter(drawn.items()))
    moved = {**drawn, task: [(entry, line._replace(middle=line.middle + 1.0)), *others]}
    assert digest(moved) != digest(drawn)


def test_every_raw_file_is_linked_to_and_every_link_leads_to_one(checkout: Path) -> None:
    linked = re.findall(r"\]\(\.\./(benchmarks/results/[^)]+)\)", results_page(checkout, "../benchmarks/results"))
    there = [path.relative_to(checkout).as_posix() for path in checkout.rglob("*_seed*.json")]
    assert sorted(linked) == sorted(there)


def test_every_cell_of_every_grid_has_its_row_and_its_command(checkout: Path) -> None:
    page = results_page(checkout, "raw")
    commands = re.findall(r"^minerva benchmark (benchmarks/grids/\w+\.toml) --algos (\S+) --envs (\S+)", page, re.M)
    assert len(set(commands)) == len(commands)
    listed = page.split("## Protocols")[0]
    assert len(re.findall(r"^\| [\w/-]+ at [\d.]+[kM] \|", listed, re.M)) == len(commands)
    wanted = {f"dm_control/{task}" for task in ("walker/run", "hopper/stand", "ball_in_cup/catch")}
    assert wanted < {env for _, algo, env in commands if algo.startswith("mpo-distributional")}


def test_the_command_of_a_row_that_is_there_makes_it_again_the_way_it_was_made(checkout: Path) -> None:
    """Without another folder for its results nothing would be run."""
    keep(checkout, "dm_control_500k", "mpo/walker-run_500k_*")
    file = checkout / "benchmarks" / "results" / "mpo" / "walker-run_500k_seed0.json"
    row = "minerva benchmark benchmarks/grids/dm_control_500k.toml --algos mpo-500k --envs dm_control/walker/run"
    made = f"{row} --device cuda --matmul high --engine envpool --results again"
    assert made in results_page(checkout, "raw").splitlines()
    written = json.loads(file.read_text())
    exactly = written["command"].replace("--matmul high ", "--matmul highest ")
    file.write_text(json.dumps({**written, "device": "cpu", "command": exactly, "engine": "gymnasium"}))
    assert f"{row} --engine gymnasium --results again" in results_page(checkout, "raw").splitlines()
    file.unlink()
    assert row in results_page(checkout, "raw").splitlines()


def test_a_row_says_won_or_lost_or_that_it_was_not_run(checkout: Path) -> None:
    keep(checkout, "ppo_1m", "ppo/Hopper-v5_seed*")
    hopper = checkout / "benchmarks" / "results" / "ppo" / "Hopper-v5_seed0.json"
    kept = json.loads(hopper.read_text())

    def row() -> list[str]:
        (found,) = rows(results_page(checkout, "raw"), "| Hopper-v5 at 1M | PPO |")
        return found

    for value, verdict in ((2_609.0, "**won** by 0%"), (2_000.0, "lost by 23%")):
        for seed in range(5):
            path = hopper.with_name(f"Hopper-v5_seed{seed}.json")
            path.write_text(json.dumps({**kept, "seed": seed, "returns": [value]}))
        assert row()[2:4] == [f"{value:,.0f} ± 0", f"{value:,.0f} [{value:,.0f}, {value:,.0f}]"]
        assert row()[-1] == verdict
    for seed in range(1, 5):
        hopper.with_name(f"Hopper-v5_seed{seed}.json").unlink()
    assert row()[3] == "one seed"
    assert row()[4].endswith("and 4 *not run*")
    hopper.unlink()
    assert row()[2] == "*not run*"


def test_a_mean_over_tasks_waits_for_all_of_them(checkout: Path) -> None:
    names = "walker/walk walker/run cheetah/run cartpole/swingup reacher/hard hopper/stand pendulum/swingup"
    tasks = [f"dm_control/{name}" for name in (*names.split(), "ball_in_cup/catch")]
    head = '# Eight\ntotal_steps = 500_000\nseeds = 1\nresults = "../results"\n'
    grid = f'{head}envs = {json.dumps(tasks)}\n[entries.mpo]\npreset = "auto"\n'
    shutil.rmtree(checkout / "benchmarks" / "grids")
    (checkout / "benchmarks" / "grids").mkdir()
    (checkout / "benchmarks" / "grids" / "eight.toml").write_text(grid)
    home = checkout / "benchmarks" / "results"
    home.rename(checkout / "benchmarks" / "before")
    template = json.loads((checkout / "benchmarks/before/mpo/Pendulum-v1_seed0.json").read_text())
    (home / "mpo").mkdir(parents=True)

    def line() -> str:
        (found,) = [
            line for line in results_page(checkout, "raw").splitlines() if line.startswith("Mean of the 8 tasks")
        ]
        return found

    peers = "Peers: 736 (MPO, DreamerV3 repository), 615 (MPO, Tonic)."
    for done, task in enumerate(tasks):
        assert line() == f"Mean of the 8 tasks, MPO: *not run* ({done} of 8 are). {peers}"
        made = {"preset": "auto", "label": "", "changed": {}, "steps": 500_000, "total_steps": 500_000}
        made |= {"env": task, "seed": 0, "returns": [700.0 + 10 * done]}
        name = task.removeprefix("dm_control/").replace("/", "-")
        (home / "mpo" / f"{name}_seed0.json").write_text(json.dumps({**template, **made}))
    assert line() == f"Mean of the 8 tasks, MPO: 735, lost. {peers}"


def test_what_belongs_to_no_grid_is_not_left_out(checkout: Path) -> None:
    assert "## Other results" not in results_page(checkout, "raw")
    template = checkout / "benchmarks/results/ppo/Hopper-v5_seed0.json"
    kept = {**json.loads(template.read_text()), "env": "Swimmer-v5"}
    template.with_name("Swimmer-v5_seed0.json").write_text(json.dumps(kept))
    page = results_page(checkout, "raw")
    (row,) = rows(page.split("## Other results")[1], "| Swimmer-v5 at 1M | PPO |")
    assert row[5] == "282 ± 10 (PPO, Stable-Baselines3 zoo, one run)"


def test_a_file_of_another_experiment_is_refused(checkout: Path) -> None:
    path = checkout / "benchmarks/results/vmpo/HalfCheetah-v5_seed0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "changed": {"gamma": 0.5}}))
    with pytest.raises(ConfigError, match="the result of another experiment"):
        results_page(checkout, "raw")
