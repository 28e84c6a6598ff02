"""Where a package keeps what mathdoc reads: `[tool.mathdoc]` in the pyproject.toml above it, or the defaults.

[tool.mathdoc]
notation = "docs/notation"             # a table per module
exercises = "docs/exercises.py"        # run(dtype, seed): calls the marked lines with small data
baseline = "docs/formulas.json"        # the level that each formula has reached
"""

import importlib.util
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mathdoc.problem import MathdocError


@dataclass(frozen=True)
class Settings:
    """A package and the files that belong to it."""

    package: Path
    root: Path
    notation: Path
    exercises: Path
    baseline: Path


def find_settings(package: str, **given: Path | None) -> Settings:
    """The settings of a package, named by its folder or by its import name. `given` overrides the file."""
    folder = _folder(package)
    root = next((above for above in folder.parents if (above / "pyproject.toml").is_file()), folder.parent)
    table = _table(root)
    paths = {
        "notation": root / table.get("notation", "docs/notation"),
        "exercises": root / table.get("exercises", "docs/exercises.py"),
        "baseline": root / table.get("baseline", "docs/formulas.json"),
    }
    paths |= {name: path.resolve() for name, path in given.items() if path is not None}
    return Settings(folder, root, **paths)


def _folder(package: str) -> Path:
    path = Path(package).resolve()
    if path.is_dir():
        return path
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MathdocError(f"{package} is neither the folder nor the import name of a package.")
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def _table(root: Path) -> dict[str, Any]:
    path = root / "pyproject.toml"
    if not path.is_file():
        return {}
    table: dict[str, Any] = tomllib.loads(path.read_text()).get("tool", {}).get("mathdoc", {})
    unknown = sorted(table.keys() - {"notation", "exercises", "baseline"})
    if unknown:
        raise MathdocError(f"[tool.mathdoc] has no setting {unknown[0]}: known are notation, exercises and baseline.")
    return table
