"""What the tests of mathdoc share: copies of Minerva with other markers, and the check of such a copy."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from changed_copies import Change

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
