"""The report without a browser: what is in the file, what is not, and the tables for papers."""

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from minerva.cli.main import main
from minerva.lab.analysis.comparison import Comparison, compare
from minerva.lab.analysis.records import read_records
from minerva.lab.analysis.report import page
from minerva.lab.analysis.tables import latex, markdown

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">'\"&`|${}"


class Tags(HTMLParser):
    """Every tag with its attributes, and the text of the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        self.texts.setdefault(attributes.get("id") or tag, data)


@pytest.fixture(scope="module")
def everything(grid: Path, results: Path) -> Comparison:
    return compare(read_records([grid, results]))


@pytest.fixture(scope="module")
def text(everything: Comparison) -> str:
    return page(everything, "All there is")


def make_hostile(grid: Path, home: Path) -> Path:
    """A run whose every text is an attack."""
    run = home / "run"
    shutil.copytree(grid / "mpo" / "Pendulum-v1" / "seed0", run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config |= {"env": HOSTILE, "algo": "mpo", "device": HOSTILE, "engine": HOSTILE, "commit": HOSTILE}
    config["hyperparameters"] |= {HOSTILE: HOSTILE, "gamma": HOSTILE}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(run / "videos" / "best.gif", run / "videos" / "<img src=x onerror=alert(1)>.gif")
    kept = {"algo": HOSTILE, "env": HOSTILE, "label": HOSTILE, "command": HOSTILE, "changed": {HOSTILE: HOSTILE}}
    for seed in range(2):
        result = {**kept, "seed": seed, "steps": 5, "returns": [1.0, seed], "curve": [{"step": 0, "returns": [0.5]}]}
        (home / f"x_seed{seed}.json").write_text(json.dumps(result))
    return home


def test_nothing_in_the_file_points_outside_it(text: str) -> None:
    for tag, attributes in Tags(text).tags:
        for name in ("src", "href", "srcset", "data", "action", "poster", "style"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, name, value)
        assert tag not in ("iframe", "object", "embed", "base", "form")
        assert not any(name.startswith("on") for name in attributes)
    assert "@import" not in text
    assert "url(" not in text


def test_the_policy_allows_this_script_and_no_other(text: str) -> None:
    tags = Tags(text)
    (policy,) = [a["content"] or "" for _, a in tags.tags if a.get("http-equiv") == "Content-Security-Policy"]
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(tags.texts[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_the_raw_data_are_all_there(text: str, everything: Comparison) -> None:
    kept = json.loads(Tags(text).texts["raw"])
    records = [record for cell in everything.cells for record in cell.records]
    assert len(kept["runs"]) == len(records)
    for run, record in zip(kept["runs"], records, strict=True):
        assert run["returns"] == record.returns
        assert [point["returns"] for point in run["curve"]] == [point.returns for point in record.curve]


def test_every_section_has_its_content(text: str) -> None:
    for anchor in ("curves", "final", "over-tasks", "health", "speed", "settings", "videos", "data", "how"):
        assert f'<section id="{anchor}">' in text
        assert f'href="#{anchor}"' in text
    assert "data:image/gif;base64," in text
    assert 'class="lost">lost</span> by 2%' in text  # PPO on HalfCheetah-v5, against one run of SB3's zoo
    assert text.count('<figure class="chart"') > 15


def test_a_section_without_content_is_left_out(grid: Path) -> None:
    alone = page(compare(read_records([grid / "vmpo-squashed" / "Pendulum-v1" / "seed0"])), "One run")
    assert 'id="videos"' not in alone
    assert 'id="over-tasks"' not in alone  # one seed of one entry: nothing to compare
    assert 'id="curves"' in alone


def test_a_text_from_a_file_never_becomes_a_tag(grid: Path, tmp_path: Path) -> None:
    comparison = compare(read_records([make_hostile(grid, tmp_path)]))
    hostile, calm = Tags(page(comparison, HOSTILE)), Tags(page(compare(read_records([grid])), "calm"))
    scripts = [a for tag, a in hostile.tags if tag == "script"]
    assert len(scripts) == 2
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in calm.tags} | {"circle"}
    assert not any(name.startswith("on") for _, attributes in hostile.tags for name in attributes)
    assert json.loads(hostile.texts["raw"])["runs"][0]["env"] == HOSTILE


# --- tables for papers --------------------------------------------------------------------------------------------


def test_markdown_has_a_row_per_cell_with_the_peer_and_the_verdict(everything: Comparison) -> None:
    lines = markdown(everything).splitlines()
    assert len(lines) == 2 + len(everything.cells)
    assert len({line.count("|") for line in lines}) == 1
    (row,) = [line for line in lines if line.startswith("| HalfCheetah-v5 at 1M | PPO |")]
    assert "| 5 | 5,703 ± 805 | 5,775 [4,885, 6,519] | 5,819 ± 664 (PPO, Stable-Baselines3 zoo, one run) |" in row
    assert row.endswith("| lost |")


def test_hostile_text_stays_in_its_cell(grid: Path, tmp_path: Path) -> None:
    comparison = compare(read_records([make_hostile(grid, tmp_path)]))
    lines = markdown(comparison).splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {9}
    assert "<" not in markdown(comparison)
    body = latex(comparison).splitlines()[4:-2]
    assert len(body) == len(comparison.cells)
    for line in body:
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == 7
        assert not re.search(r"(?<!\\)[#$%_{}]", re.sub(r"\\text\w+\{\}|\$\\(pm|times)\$", "", line))


def test_latex_is_a_booktabs_table(everything: Comparison) -> None:
    lines = latex(everything).splitlines()
    assert lines[0].startswith(r"\begin{tabular}")
    assert lines[-1] == r"\end{tabular}"
    assert [line for line in lines if line.endswith("rule")] == [r"\toprule", r"\midrule", r"\bottomrule"]
    assert any(r"5,703 $\pm$ 805" in line for line in lines)


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_and_says_where(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(grid)]) == 0
    assert capsys.readouterr().out == "report: report.html\n"
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert main(["report", str(grid), "--out", "mine.html", "--title", "Mine & yours"]) == 0
    assert "<h1>Mine &amp; yours</h1>" in (tmp_path / "mine.html").read_text()


@pytest.mark.parametrize(("flag", "begins"), [("--markdown", "| task |"), ("--latex", r"\begin{tabular}")])
def test_a_table_is_printed_instead_of_a_page(
    flag: str, begins: str, grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(grid), flag]) == 0
    assert capsys.readouterr().out.startswith(begins)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("report", "Missing from minerva report|needs runs to compare"),
        ("report {tmp}/nowhere", "nowhere does not exist: give a run's folder"),
        ("report {tmp}/empty", "empty contains no run and no result: give a run's folder"),
        ("report {tmp}/notes.txt", "notes.txt is neither a run's folder nor a result file"),
        ("report {tmp}/bad_seed0.json", "bad_seed0.json is not a result file .*minerva benchmark"),
        ("report {tmp}/begun", "no run with an evaluation yet"),
        ("report {grid} --out {tmp}/empty", "is a folder: give a file name"),
        ("report {grid} --out {tmp}/no/where.html", "does not exist: create it, or give another --out"),
        ("report {grid} --pdf", "--pdf"),
    ],
)
def test_wrong_input_gets_exit_code_2_and_one_sentence(
    command: str, words: str, grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "bad_seed0.json").write_text("{}")
    run = grid / "mpo" / "Pendulum-v1" / "seed0"
    shutil.copytree(run, tmp_path / "begun", ignore=shutil.ignore_patterns("*.jsonl", "*.safetensors"))
    before = sorted(tmp_path.rglob("*"))
    assert main(command.format(tmp=tmp_path, grid=grid).split()) == 2
    out, err = capsys.readouterr()
    assert re.search(words, " ".join(err.replace("│", " ").split()))
    assert "Traceback" not in out + err
    assert sorted(tmp_path.rglob("*")) == before
