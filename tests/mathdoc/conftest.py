"""What the tests of mathdoc share: copies of Minerva with other markers, and the check of such a copy."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from changed_copies import Change, SmallChecked

from mathdoc.check import Report, check
from mathdoc.settings import find_settings

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def checked_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Change]], Report]:
    """`checked_with(changes)`: the report on a copy of Minerva in which these texts were replaced."""

    def checked(changes: Sequence[Change]) -> Report:
        root = tmp_path_factory.mktemp("copy")
        skipped = shutil.ignore_patterns("__pycache__", "*.npz")
        shutil.copytree(REPOSITORY / "minerva", root / "minerva", ignore=skipped)
        shutil.copytree(REPOSITORY / "docs" / "notation", root / "docs" / "notation")
        for name in ("pyproject.toml", "docs/exercises.py"):
            shutil.copy(REPOSITORY / name, root / name)
        for module, old, new in changes:
            path = root / "minerva" / f"{module.replace('.', '/')}.py"
            text = path.read_text()
            assert text.count(old) == 1, f"{module} has {old!r} {text.count(old)} times"
            path.write_text(text.replace(old, new))
        return check(find_settings(str(root / "minerva")))

    return checked


@pytest.fixture
def small(tmp_path: Path) -> SmallChecked:
    """`small(body, entries, call)`: the report on a package with one function `f(x, y)` that ends with `return z`.

    `entries` is its notation, `call` what the exercises do; `torch`, `np` and `draw(*shape)` are at hand there.
    """

    def checked(body: str, entries: str, call: str, above: str = "", seeds: Sequence[int] | None = None) -> Report:
        package, notation = tmp_path / "small", tmp_path / "docs" / "notation"
        package.mkdir(exist_ok=True)
        notation.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        imports = "import numpy as np\nimport torch\n"
        (package / "__init__.py").write_text(f"{imports}{above}\ndef f(x, y=None):\n{lines}    return z\n")
        (notation / "small.toml").write_text(AXES + "[functions.f]\n" + entries)
        calls = "".join(f"    {line}\n" for line in call.splitlines())
        (tmp_path / "docs" / "exercises.py").write_text(EXERCISES + calls)
        return check(find_settings(str(package)))

    return checked


AXES = '[axes]\nt = "time"\nk = "index"\ni = "row"\nj = "column"\n'

EXERCISES = """
import numpy as np
import torch
from small import *

def run(dtype, seed):
    torch.set_default_dtype(getattr(torch, dtype))
    generator = torch.Generator().manual_seed(seed)
    def draw(*shape):
        return torch.randn(*shape, generator=generator)
    try:
        _run(dtype, seed, draw)
    finally:
        torch.set_default_dtype(torch.float32)

def _run(dtype, seed, draw):
"""
