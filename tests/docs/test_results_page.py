"""The committed results page: what the generator makes of the committed results and grids, and nothing left out."""

import json
import re
import shutil
from pathlib import Path

import pytest
from curves import DIGEST, Drawn, digest
from results_page import FRONT, PICTURES, pictures_by_name, results_page

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
    for name, picture in pictures_by_name(REPOSITORY).items():
        assert DIGEST + digest(picture) in there[name], f"{name}: run `minerva docs results` and commit the pictures"


def test_a_curve_or_a_published_point_that_changes_changes_the_hash() -> None:
    picture = pictures_by_name(REPOSITORY)["gym_1m"]

    def moved(drawn: Drawn) -> Drawn:
        task, ((entry, line), *others) = next(iter(drawn.items()))
        return {**drawn, task: [(entry, line._replace(middle=line.middle + 1.0)), *others]}

    changed = {digest(picture._replace(ours=moved(picture.ours))), digest(picture._replace(peers=moved(picture.peers)))}
    assert len(changed | {digest(picture)}) == 3


def test_the_best_peers_stand_beside_our_curves_at_the_budgets_of_their_figures() -> None:
    """FlashSAC has figures after 100,000, 200,000 and a million steps, and the highest mean over the five tasks."""
    picture = pictures_by_name(REPOSITORY)["gym_1m"]
    assert picture.ours.keys() == picture.peers.keys()
    points = dict(picture.peers["Hopper-v5"])
    assert list(points) == ["FlashSAC", "XQC", "SimBaV2 (2 updates per step)", "SAC", "PPO"]
    assert all(list(points[name].x) == [100_000, 200_000, 1_000_000] for name in ("FlashSAC", "SAC"))
    assert (points["FlashSAC"].middle[-1], points["FlashSAC"].high[-1]) == (4_064, 4_064 + 218)


def test_every_raw_file_is_linked_to_and_every_link_leads_to_one(checkout: Path) -> None:
    linked = re.findall(r"\]\(\.\./(benchmarks/results/[^)]+)\)", results_page(checkout, "../benchmarks/results"))
    there = [path.relative_to(checkout).as_posix() for path in checkout.rglob("*_seed*.json")]
    assert sorted(linked) == sorted(there)


def test_every_cell_of_every_grid_has_its_row_and_its_command(checkout: Path) -> None:
    """A large grid has a cell for each, one command for each entry, and a row for each that was run: none at first."""
    page = results_page(checkout, "raw")
    commands = re.findall(r"^minerva benchmark (benchmarks/grids/\w+\.toml) --algos (\S+) --envs (\S+)", page, re.M)
    assert len(set(commands)) == len(commands)
    listed = page.split("## Protocols")[0]
    assert len(re.findall(r"^\| [\w/-]+ at [\d.]+[kM] \| [A-Z][^|]+\| ", listed, re.M)) == len(commands)
    wanted = {f"dm_control/{task}" for task in ("walker/run", "hopper/stand", "ball_in_cup/catch")}
    assert wanted < {env for _, algo, env in commands if algo.startswith("mpo-distributional")}
    suite = page.split("## Every default on the 28 dm_control tasks")[1].split("\n## ")[0]
    lines = [line for line in suite.splitlines() if re.match(r"\| [a-z_]+/[a-z_]+ at 500k", line)]
    run = [line for line in lines if re.match(r"\| \S+ at 500k \| [A-Z]", line)]
    tasks = [line for line in lines if line not in run]
    assert len(tasks) == 28
    assert sum(line.split("|")[1].endswith(" * ") for line in tasks) == 18
    names = [line.split()[1] for line in run]
    assert all(line.count("*not run*") == 5 - names.count(line.split()[1]) for line in tasks)
    entries = ["mpo-default-500k", "sac-500k", "sac-mpo-critic-500k", "ppo-500k", "vmpo-500k"]
    grid = "minerva benchmark benchmarks/grids/suite_dm_control_500k.toml"
    assert re.findall(rf"^{grid} --algos (\S+)$", suite, re.M) == entries


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

    for value, verdict in ((3_392.0, "**won** by 0%"), (2_000.0, "lost by 41%")):
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


def test_a_peer_without_any_return_is_beaten_by_no_share(checkout: Path) -> None:
    """DreamerV3's PPO has 0 on hopper/hop."""
    home = only_grid(
        checkout,
        'total_steps = 500_000\nseeds = 1\nresults = "../results"\nenvs = ["dm_control/hopper/hop"]\n'
        '[entries.ppo-500k]\nalgo = "ppo"\n',
    )
    write_result(home, "ppo", "dm_control/hopper/hop", "500k", 0, [3.0], 500_000)
    (row,) = rows(results_page(checkout, "raw"), "| hopper/hop at 500k | PPO |")
    assert row[-2].startswith("0")
    assert row[-1] == "**won**"


def only_grid(checkout: Path, text: str) -> Path:
    """Replace all grids and results by one grid; return the folder of the results."""
    for name in ("grids", "results"):
        shutil.move(checkout / "benchmarks" / name, checkout / "before" / name)
        (checkout / "benchmarks" / name).mkdir()
    (checkout / "benchmarks" / "grids" / "only.toml").write_text(text)
    return checkout / "benchmarks" / "results"


def write_result(home: Path, algo: str, env: str, label: str, seed: int, returns: list[float], steps: int) -> None:
    template = json.loads((home.parents[1] / "before/results/mpo/Pendulum-v1_seed0.json").read_text())
    made = {"preset": "none", "label": label, "changed": {}, "steps": steps, "total_steps": steps, "curve": []}
    made |= {"algo": algo, "env": env, "seed": seed, "returns": returns}
    name = env.removeprefix("dm_control/").replace("/", "-") + (f"_{label}" if label else "")
    (home / algo).mkdir(exist_ok=True)
    (home / algo / f"{name}_seed{seed}.json").write_text(json.dumps({**template, **made}))


def test_a_mean_over_tasks_waits_for_all_of_them_and_stands_among_the_peers(checkout: Path) -> None:
    names = "walker/walk walker/run cheetah/run cartpole/swingup reacher/hard hopper/stand pendulum/swingup"
    tasks = [f"dm_control/{name}" for name in (*names.split(), "ball_in_cup/catch")]
    head = '# Eight\ntotal_steps = 500_000\nseeds = 2\nresults = "../results"\n'
    home = only_grid(checkout, f"{head}envs = {json.dumps(tasks)}\n[entries.mpo]\n")

    def ranked() -> list[list[str]]:
        table = results_page(checkout, "raw").split("| **dm_control, eight tasks**, 500k |")[1].split("\n\n")[0]
        return rows(table, "| ")[1:]

    for done, task in enumerate(tasks):
        assert ranked()[-1][:2] == ["**MPO**", f"*not run* ({done} of 8 tasks are)"]
        for seed in (0, 1):
            write_result(home, "mpo", task, "", seed, [700.0 + 10 * done + 100 * seed], 500_000)
    place = [row[0] for row in ranked()].index("**MPO**")
    assert ranked()[place] == ["**MPO**", "785", "785 [749, 821]", "here, 16 runs"]
    assert [row[0] for row in ranked()][place - 1 : place + 2] == ["DreamerV3", "**MPO**", "DMPO"]  # 790, 785, 777


def test_an_ablation_is_shown_relative_to_its_first_entry(checkout: Path) -> None:
    entries = ["default", *(f"without-{n}" for n in range(9))]
    tables = "\n".join(f'[entries.{name}]\nalgo = "mpo"' for name in entries)
    head = '# Ablation\ntotal_steps = 1000\nseeds = 3\nresults = "../results"\n'
    home = only_grid(checkout, f'{head}envs = ["Hopper-v5", "Ant-v5", "Swimmer-v5"]\n{tables}\n')
    for env, size in (("Hopper-v5", 3000.0), ("Ant-v5", 500.0), ("Swimmer-v5", 40.0)):
        for seed in range(3):
            write_result(home, "mpo", env, "default", seed, [size], 1000)
            write_result(home, "mpo", env, "without-3", seed, [size / 4], 1000)
    page = results_page(checkout, "raw")
    (whole,), (part,), (left,) = (rows(page, f"| MPO {name} | ") for name in ("default", "without-3", "without-4"))
    assert whole[1:] == ["3,000 ± 0", "500 ± 0", "40.0 ± 0.0", "1.00 [1.00, 1.00]"]
    assert part[1:] == ["750 ± 0", "125 ± 0", "10.0 ± 0.0", "0.25 [0.25, 0.25]"]
    assert left[1:] == ["*not run*"] * 4


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
