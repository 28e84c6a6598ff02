"""The architecture page names files that exist, and a training step is as few files as it promises."""

import re
from pathlib import Path

import pytest

from minerva.trainers.registry import ALGORITHMS

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text()
FILES = ("config", "losses", "evaluate", "improve", "agent", "trainer", "metrics")


def test_every_path_on_the_page_exists() -> None:
    paths = set(re.findall(r"`((?:minerva|docs|tests|tools|packages)(?:/[\w./]+)?)`", PAGE))
    assert len(paths) > 30
    assert [path for path in sorted(paths) if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize(("algo", "title"), [("ppo", "PPO"), ("vmpo", "V-MPO"), ("mpo", "MPO")])
def test_a_training_step_is_at_most_14_files(algo: str, title: str) -> None:
    text = PAGE.split(f"### {title}\n")[1].split("\n#")[0]
    assert 0 < len(re.findall(r"^\d+\. `minerva/[\w/]+\.py`", text, re.M)) <= 14
    assert f"minerva/trainers/{algo}/improve.py" in text


@pytest.mark.parametrize(("algo", "title"), [("ppo", "PPO"), ("vmpo", "V-MPO"), ("mpo", "MPO")])
def test_the_mathematics_of_an_update_is_at_most_5_files(algo: str, title: str) -> None:
    text = PAGE.split(f"### {title}\n")[1].split("\n#")[0]
    (first, last) = map(int, re.findall(r"mathematics alone is in files (\d+) to (\d+)", text)[0])
    files = dict(re.findall(r"^(\d+)\. `(minerva/[\w/]+\.py)`", text, re.M))
    mathematics = [files[str(number)] for number in range(first, last + 1)]
    assert {f"minerva/trainers/{algo}/{name}.py" for name in ("evaluate", "improve", "losses")} <= set(mathematics)
    assert len(mathematics) <= 5


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_has_the_seven_files(algo: str) -> None:
    assert re.findall(r"^\| `(\w+)\.py` \|", PAGE, re.M) == list(FILES)
    folder = REPOSITORY / "minerva" / "trainers" / algo
    assert [name for name in FILES if not (folder / f"{name}.py").is_file()] == []
