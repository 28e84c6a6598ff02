"""The Python of a guide is run from its first block to its last, as one script, with small budgets."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import FinishedRun

import minerva.api

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
PAGES = ["python", "from-other-libraries", "robot", "callbacks"]
SMALL = {"total_steps": 256, "num_envs": 2, "rollout_steps": 64, "minibatch_size": 64, "update_epochs": 1}
WATCHED = {"eval_every": 10**6, "eval_episodes": 1, "compile": "off"}


def small(train: Callable[..., Any]) -> Callable[..., Any]:
    """Train as asked, but for a budget of seconds."""

    @functools.wraps(train)
    def call(*arguments: Any, settings: dict[str, Any] | None = None, **named: Any) -> Any:
        return train(*arguments, settings={**(settings or {}), **WATCHED}, **{**named, **SMALL})

    return call


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_guide_runs(
    page: str, finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (GUIDES / f"{page}.md").read_text(), re.M | re.S)
    assert blocks
    script = "\n".join(blocks).replace("runs/<folder>", str(finished_run.folder))
    short = re.sub(r"trainer\.train\((\d)00_000,", r"trainer.train(\1 * 2_048, **WATCHED,", script)
    monkeypatch.chdir(tmp_path)
    for name in ("train", "train_seeds"):
        monkeypatch.setattr(minerva.api, name, small(getattr(minerva.api, name)))
    exec(compile(short, f"{page}.md", "exec"), {"WATCHED": WATCHED})
