"""Where a package keeps what mathdoc reads: `[tool.mathdoc]` in the pyproject.toml above it, or the defaults.

[tool.mathdoc]
package = "springs"                    # what is checked where no package is named
notation = "docs/notation"             # a table per module
exercises = "docs/exercises.py"        # run(dtype, seed): calls the marked lines with small data
baseline = "docs/formulas.json"        # the level that each formula has reached
"""

import importlib.util
import tomllib
from collections.abc import Iterable
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


def find_settings(package: str | None = None, **given: Path | None) -> Settings:
    """The settings of a package, named by its folder or by its import name; without a name the file's.

    `given` overrides the file.
    """
    folder = _folder(package) if package is not None else _named_package(Path.cwd())
    root = _root(folder)
    table = _table(root)
    paths = {
        "notation": root / table.get("notation", "docs/notation"),
        "exercises": root / table.get("exercises", "docs/exercises.py"),
        "baseline": root / table.get("baseline", "docs/formulas.json"),
    }
    paths |= {name: path.resolve() for name, path in given.items() if path is not None}
    return Settings(folder, root, **paths)


def packages_of(files: Iterable[Path]) -> list[Path]:
    """The packages that files belong to, each once: by the folders they are in, or as their tables or exercises."""
    found: dict[Path, None] = {}
    for file in files:
        path = file.resolve()
        inside = [above for above in path.parents if (above / "__init__.py").is_file()]
        outermost = next((above for above in inside if not (above.parent / "__init__.py").is_file()), None)
        package = outermost or _served(path)
        if package is not None:
            found[package] = None
    return list(found)


def _served(path: Path) -> Path | None:
    """The package whose notation or exercises a file is."""
    root = _root(path)
    if "package" not in _table(root):
        return None
    settings = find_settings(str(root / _table(root)["package"]))
    return settings.package if path == settings.exercises or settings.notation in path.parents else None


def _root(folder: Path) -> Path:
    """The folder above with a pyproject.toml."""
    return next((above for above in folder.parents if (above / "pyproject.toml").is_file()), folder.parent)


def _named_package(folder: Path) -> Path:
    root = _root(folder / "here")
    package = _table(root).get("package")
    if package is None:
        raise MathdocError("Which package? Name its folder, or run `mathdoc init PACKAGE`, which writes it down.")
    return _folder(str(root / package))


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
    unknown = sorted(table.keys() - {"package", "notation", "exercises", "baseline"})
    if unknown:
        raise MathdocError(
            f"[tool.mathdoc] has no setting {unknown[0]}: known are package, notation, exercises and baseline."
        )
    return table
