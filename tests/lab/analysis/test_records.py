"""Trained seeds read back, arranged for comparison, and laid beside what peers published."""

import json
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from minerva.errors import RunError
from minerva.lab.analysis.comparison import Cell, Task, compare, curve, number, short
from minerva.lab.analysis.peers import all_published, best_peer, figures, means_over, published, score
from minerva.lab.analysis.records import Point, Record, read_records
from minerva.lab.analysis.sections import curves, finals
from minerva.runs.metrics import read_rows
from minerva.trainers.registry import published_as

EIGHT = (
    "walker/walk walker/run cheetah/run cartpole/swingup reacher/hard hopper/stand pendulum/swingup ball_in_cup/catch"
)
DM_CONTROL = [f"dm_control/{task}" for task in EIGHT.split()]


def cells(*paths: Path) -> dict[tuple[str, str], Cell]:
    return {(cell.entry, cell.task.name): cell for cell in compare(read_records(paths)).cells}


# --- run folders --------------------------------------------------------------------------------------------------


def test_a_grid_of_runs_is_read_with_its_labels_and_evaluations(grid: Path) -> None:
    found = cells(grid)
    assert list(found) == [("MPO", "Pendulum-v1 at 384"), ("V-MPO squashed", "Pendulum-v1 at 384")]
    for cell in found.values():
        assert [record.seed for record in cell.records] == [0, 1]
        for record in cell.records:
            written = read_rows(record.source / "eval" / "evaluations.jsonl")
            assert [(point.step, point.returns) for point in record.curve] == [
                (row["step"], row["returns"]) for row in written
            ]
            assert record.returns == written[-1]["returns"]
            assert record.protocol == "last evaluation of training, 2 deterministic episodes"
            assert record.finished
            assert record.random is not None
            assert record.random < 0


def test_a_curve_over_seconds_has_the_times_at_which_steps_were_reported(grid: Path, tmp_path: Path) -> None:
    cell = cells(grid)["MPO", "Pendulum-v1 at 384"]
    for record in cell.records:
        reports = [row for row in read_rows(record.source / "metrics.jsonl") if "charts/time" in row]
        started = yaml.safe_load((record.source / "config.yaml").read_text())["started"]
        seconds = {row["step"]: row["charts/time"] - datetime.fromisoformat(started).timestamp() for row in reports}
        assert record.curve[0].seconds == 0
        assert record.curve[-1].seconds == pytest.approx(seconds[record.curve[-1].step])
    found = curve(cell, "seconds")
    assert found is not None
    assert found.x[-1] <= min(record.curve[-1].seconds or 0 for record in cell.records)
    assert "seconds since the start" in curves(compare(cell.records), "seconds")

    undated = shutil.copytree(cell.records[0].source, tmp_path / "undated")
    config = (undated / "config.yaml").read_text()
    (undated / "config.yaml").write_text(re.sub("(?m)^started: .*", "started: yesterday", config))
    (alone,) = cells(undated).values()
    assert curve(alone, "seconds") is None
    assert curve(alone) is not None


def test_the_kl_is_shown_over_its_bound(grid: Path) -> None:
    (record, *_) = [record for record in read_records([grid / "vmpo-squashed"]) if record.seed == 0]
    bound = yaml.safe_load((record.source / "config.yaml").read_text())["hyperparameters"]["epsilon_mu"]
    rows = [row for row in read_rows(record.source / "metrics.jsonl") if "kl/mean_sel" in row]
    (track,) = [track for track in record.health if track.panel == "Mean: KL over its bound"]
    assert track.metric == "health/kl_mean"
    assert track.steps == [row["step"] for row in rows]
    np.testing.assert_allclose(track.values, [row["kl/mean_sel"] / bound for row in rows], rtol=1e-5)
    panels = {track.panel for track in record.health}
    assert {"Temperature", "Effective samples", "Multiplier of the mean's KL"} <= panels
    assert {"Standard deviation: KL over its bound", "Multiplier of the standard deviation's KL"} <= panels


def test_a_long_track_is_averaged_in_parts_without_moving_its_mean(grid: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(grid / "mpo" / "Pendulum-v1" / "seed0", run)
    values = np.random.default_rng(0).uniform(1, 2, size=4_000)
    lines = [json.dumps({"step": step, "eta": value}) for step, value in enumerate(values)]
    (run / "metrics.jsonl").write_text("\n".join(lines))
    (track,) = next(iter(read_records([run]))).health
    assert len(track.values) == 160
    assert np.mean(track.values) == pytest.approx(values.mean(), rel=1e-5)


def test_runs_are_named_by_the_settings_that_tell_them_apart(grid: Path, tmp_path: Path) -> None:
    for name, seed, gamma in (("a", 0, 0.9), ("b", 1, 0.9), ("c", 0, 0.95)):
        shutil.copytree(grid / "mpo" / "Pendulum-v1" / "seed0", tmp_path / name)
        config = yaml.safe_load((tmp_path / name / "config.yaml").read_text())
        config["seed"], config["hyperparameters"]["gamma"] = seed, gamma
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(config))
    counts = {entry: len(cell.records) for (entry, _), cell in cells(tmp_path).items()}
    assert counts == {"MPO gamma=0.9": 2, "MPO gamma=0.95": 1}


def test_a_seed_that_is_there_twice_counts_once(grid: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(grid / "mpo" / "Pendulum-v1" / "seed0", tmp_path / name)
    assert len(read_records([tmp_path, tmp_path / "a"])) == 1


def test_a_result_file_is_joined_by_what_only_its_run_has(grid: Path, tmp_path: Path) -> None:
    (run,) = read_records([grid / "mpo" / "Pendulum-v1" / "seed0"])
    kept = {"algo": "mpo", "env": "Pendulum-v1", "seed": 0, "label": "", "total_steps": 384, "steps": 384}
    result = tmp_path / "Pendulum-v1_seed0.json"
    result.write_text(json.dumps({**kept, "returns": [-1.0, -3.0], "curve": [], "train_seconds": 2}))
    (joined,) = read_records([grid / "mpo" / "Pendulum-v1" / "seed0", result])
    assert joined.returns == [-1.0, -3.0]
    assert joined.protocol == "last checkpoint, 2 deterministic episodes"
    assert joined.steps_per_second == 192
    assert (joined.health, joined.videos) == (run.health, run.videos)
    assert [video.name for video in joined.videos] == ["best.gif"]


def test_a_run_that_was_not_finished_is_not_judged(grid: Path, tmp_path: Path) -> None:
    shutil.copytree(
        grid / "mpo" / "Pendulum-v1" / "seed0", tmp_path / "run", ignore=shutil.ignore_patterns("*.safetensors")
    )
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({**config, "env": "Hopper-v5", "total_steps": 10**6}))
    ((_, cell),) = cells(tmp_path / "run").items()
    assert cell.peer is not None
    assert not cell.finished
    assert f"{cell.mean_text} <small>not finished: at " in finals(compare(read_records([tmp_path / "run"])))
    assert cell.verdict == ""


# --- the committed results ----------------------------------------------------------------------------------------


FIGURE = r"(\**[\d,]+\**) ± ([\d,]+)"


def entry_of(task: str, algo: str, steps: str, more: str, found: dict[tuple[str, str], Cell]) -> str:
    """A default's entry is named with its label where the task has a row of a preset, too."""
    labelled = [f"{algo} {label}" for label in (steps.lower(), "default")] if "default" in more else []
    return next((entry for entry in labelled if (entry, f"{task} at {steps}") in found), algo)


def test_committed_results_give_the_figures_of_the_front_page(committed: Path) -> None:
    """With the better of two means in bold. Where a run stopped at a whole rollout the budget is what was meant."""
    found, page = cells(committed), (committed.parents[1] / "README.md").read_text()
    rows = re.findall(rf"^\| ([a-z_]+/[a-z]+) \| {FIGURE} \| \S+ \| {FIGURE} \| \S+ \|$", page, re.M)
    shown = [("MPO", f"{task} at 500k", mean, std) for task, mean, std, _, _ in rows]
    shown += [("MPO distributional", f"{task} at 500k", mean, std) for task, _, _, mean, std in rows]
    gym = re.findall(rf"^\| (\S+-v5) \| (\S+), (\d+M)([^|]*) \| {FIGURE} \| (\**[\d,]+\**) ", page, re.M)
    gym = [(task, entry_of(task, algo, steps, more, found), steps, *row) for task, algo, steps, more, *row in gym]
    shown += [(entry, f"{task} at {steps}", mean, std) for task, entry, steps, mean, std, _ in gym]
    assert (len(rows), len(gym)) == (8, 30)
    for entry, task, mean, std in shown:
        cell = found[entry, task]
        assert (number(cell.mean), number(cell.std or 0, like=cell.mean)) == (mean.strip("*"), std)
    for task, entry, steps, mean, _, theirs in gym:
        peer = found[entry, f"{task} at {steps}"].peer
        assert peer is not None
        assert number(peer.mean) == theirs.strip("*")
        assert (
            mean.startswith("**") == (found[entry, f"{task} at {steps}"].mean >= peer.mean) != theirs.startswith("**")
        )


def test_every_committed_file_is_in_the_comparison(committed: Path) -> None:
    files = list(committed.rglob("*_seed*.json"))
    comparison = compare(read_records([committed]))
    assert sum(len(cell.records) for cell in comparison.cells) == len(files)


def test_an_ablation_is_one_comparison(results: Path) -> None:
    groups = compare(read_records([results / "ablation"])).groups()
    assert [(group.entries, [task.name for task in group.tasks]) for group in groups] == [
        (("V-MPO estimator-dae", "V-MPO preset", "V-MPO squashed"), ["HalfCheetah-v5 at 500k"])
    ]


# --- curves and scores --------------------------------------------------------------------------------------------


def record(seed: int, steps: list[int], values: list[float], **changed: Any) -> Record:
    """A seed whose evaluations have one episode each."""
    points = [Point(step, [value]) for step, value in zip(steps, values, strict=True)]
    about: dict[str, Any] = {"algo": "ppo", "env": "E-v5", "label": "", "budget": 10, "steps": 10, "source": Path("x")}
    return Record(**{**about, "seed": seed, "returns": [values[-1]], "curve": points, **changed})


def test_a_curve_ends_where_the_shortest_seed_ends() -> None:
    long, other = record(0, [0, 5, 10], [0.0, 5.0, 10.0]), record(1, [0, 4, 8], [0.0, 40.0, 80.0])
    found = curve(Cell("PPO", Task("E-v5", 10), (long, other)))
    assert found is not None
    np.testing.assert_array_equal(found.x, [0, 5])
    np.testing.assert_allclose(found.middle, [0, (5 + 50) / 2])  # the second seed's 50 lies between 40 and 80
    np.testing.assert_allclose([found.low[1], found.high[1]], [5, 50])


def test_scores_are_0_for_chance_and_1_for_the_best_peer() -> None:
    peer = best_peer("Hopper-v5", 1_000_000, ["PPO"])
    assert peer is not None
    best = published("Hopper-v5", 1_000_000)[0]
    at = {"env": "Hopper-v5", "budget": 1_000_000}
    seeds = [record(0, [0], [20.0], random=20.0, **at), record(1, [0], [best.mean], random=20.0, **at)]
    comparison = compare(seeds)
    (scores,) = comparison.normalized("PPO", comparison.tasks)
    np.testing.assert_allclose(np.asarray(scores), [0, 1])
    suite = compare([record(seed, [0], [250.0], env="dm_control/walker/run") for seed in range(2)])
    np.testing.assert_allclose(np.asarray(suite.normalized("PPO", suite.tasks)), 0.25)


def test_a_label_that_repeats_the_budget_is_not_shown() -> None:
    def entries(*labels: str) -> tuple[str, ...]:
        made = [record(0, [0], [1.0], algo="mpo", label=label, budget=500_000) for label in labels]
        return compare(made).entries

    assert entries("500k", "wide-500k") == ("MPO", "MPO wide")
    assert entries("", "500k") == ("MPO", "MPO 500k")  # two labels at one budget are two entries
    assert entries("1500k") == ("MPO 1500k",)


def test_only_tasks_of_one_suite_and_budget_are_averaged() -> None:
    at = [("Hopper-v5", 10), ("Ant-v5", 10), ("Ant-v5", 20), ("dm_control/walker/run", 10)]
    made = [record(seed, [0], [1.0], env=env, budget=budget) for env, budget in at for seed in range(2)]
    made += [record(0, [0], [1.0], env="Hopper-v5", algo="mpo")]  # one seed is nothing to compare
    (group,) = compare(made).groups()
    assert group.entries == ("PPO",)
    assert [task.name for task in group.tasks] == ["Ant-v5 at 10", "Hopper-v5 at 10"]


@pytest.mark.parametrize(
    ("value", "text"), [(999_424, "999.4k"), (1_000_000, "1M"), (500_000, "500k"), (384, "384"), (2.5e9, "2.5B")]
)
def test_steps_are_printed_short(value: float, text: str) -> None:
    assert short(value) == text


# --- peers --------------------------------------------------------------------------------------------------------


def test_every_published_figure_names_its_source_and_protocol() -> None:
    assert len(figures()) > 500
    for figure in figures():
        assert figure.protocol
        assert figure.reference
        assert figure.budget >= 100_000
        assert figure.std is None or figure.std >= 0


def test_peers_are_ranked_by_their_mean_over_all_tasks_of_a_set() -> None:
    """Means of the published tables, and a rank among those who have all eight tasks and nobody else."""
    found = means_over(DM_CONTROL, 500_000)
    means = {(peer.algorithm, peer.source): round(1000 * mean) for peer, mean in found}
    assert means["MPO", "DreamerV3 repository"] == 736
    assert means["DMPO", "DreamerV3 repository"] == 777
    assert means["BRO (10 updates per step)", "SimbaV2 repository (action repeat 1)"] == 897
    assert list(means.values()) == sorted(means.values(), reverse=True)
    assert means_over([*DM_CONTROL, "dm_control/lqr/lqr_2_1"], 500_000) == []


def test_td3_scores_one_and_a_random_policy_zero() -> None:
    assert score("HalfCheetah-v5", 10_574) == 1
    assert score("HalfCheetah-v5", -289) == 0
    assert score("dm_control/walker/run", 500) == 0.5


def test_an_interval_over_tasks_holds_its_mean_and_is_that_of_a_set_with_figures() -> None:
    known = {(figure.algorithm, figure.source, figure.budget) for figure in figures()}
    sets = all_published().task_sets
    assert [len(sets[name]) for name in list(sets)[:3]] == [28, 18, 8]
    assert set(sets["dm_control, eight tasks"]) < set(sets["dm_control, the 18 tasks of DreamerV3"])
    assert len(all_published().overall) > 40
    for overall in all_published().overall:
        assert overall.low < overall.iqm < overall.high
        assert overall.tasks in sets
        assert overall[:3] in known


@pytest.mark.parametrize(
    ("env", "budget", "algo", "settings", "text", "source"),
    [
        ("HalfCheetah-v5", 1_000_000, "mpo", {}, "6,757 ± 692", "Tonic"),
        ("HalfCheetah-v5", 2_999_296, "ppo", {}, "7,337 ± 1,508", "Tianshou"),
        ("Humanoid-v5", 3_000_000, "ppo", {}, "6,060 ± 511", "FlashSAC repository (Gym v4)"),
        ("Walker2d-v5", 3_000_000, "vmpo", {}, "4,896 ± 704", "Tianshou"),  # nobody has V-MPO there
        ("Ant-v5", 1_000_000, "sac", {}, "5,850 ± 476", "Tianshou"),
        ("HalfCheetah-v5", 8_000_000, "vmpo", {}, "5,652", "V-MPO ledger in a fork of CleanRL"),
        ("dm_control/walker/walk", 500_000, "mpo", {}, "938 ± 20", "DreamerV3 repository"),
        ("dm_control/ball_in_cup/catch", 500_000, "mpo", {}, "913 ± 162", "Tonic"),
        ("dm_control/ball_in_cup/catch", 500_000, "mpo", {"critic": "categorical"}, "968 ± 4", "DreamerV3 repository"),
    ],
)
def test_the_best_peer_is_found_at_the_same_budget(
    env: str, budget: int, algo: str, settings: dict[str, str], text: str, source: str
) -> None:
    peer = best_peer(env, budget, published_as(algo, settings))
    assert peer is not None
    assert (peer.text, peer.source) == (text, source)


def test_no_peer_is_invented() -> None:
    assert best_peer("HalfCheetah-v5", 700_000, published_as("mpo", {})) is None
    assert best_peer("Pendulum-v1", 1_000_000, published_as("ppo", {})) is None
    assert best_peer("HalfCheetah-v5", 1_000_000, published_as("unheard-of", {})) is None


# --- files that are not what they should be -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "list indices"),
        ("{}", "'steps' is missing"),
        ('{"algo": "ppo", "env": "E", "seed": 0, "steps": 9, "returns": []}', "not finite numbers"),
        ('{"algo": "ppo", "env": "E", "seed": 0, "steps": 9, "returns": [NaN]}', "not finite numbers"),
        ('{"algo": "ppo", "env": "E", "seed": 0, "steps": 9, "returns": ["a"]}', "could not convert"),
        ('{"algo": "ppo", "env": "E", "seed": "x", "steps": 9, "returns": [1]}', "invalid literal"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_file_that_is_no_result_is_refused_by_name(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "E_seed0.json"
    path.write_text(text)
    with pytest.raises(RunError, match=reason) as refused:
        read_records([path])
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("damage", ["config", "metrics", "evaluations"])
def test_a_damaged_run_is_refused_by_name(damage: str, grid: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(grid / "mpo" / "Pendulum-v1" / "seed0", run)
    if damage == "config":
        (run / "config.yaml").write_text("algo: mpo\n")
    elif damage == "metrics":
        (run / "metrics.jsonl").write_text('{"eta": 1.0}\n')
    else:
        (run / "eval" / "evaluations.jsonl").write_text('{"step": 0, "returns": "none"}\n')
    with pytest.raises(RunError, match="is not a run of Minerva"):
        read_records([run])
