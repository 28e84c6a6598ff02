"""The grid of a benchmark: named entries times environments times seeds, read from a small TOML file."""

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from minerva.api import tuned
from minerva.config import AT_LEAST_ONE, check_plain, checked, nearest, parse_seeds, read_text
from minerva.envs.ids import check_id
from minerva.envs.saved import refuse_unknown_code
from minerva.errors import ConfigError, MinervaError
from minerva.trainers.registry import ALGORITHMS, config_class

Count = Annotated[int, AT_LEAST_ONE]


@dataclass(frozen=True)
class Entry:
    """A named training setup: an algorithm, a preset, and overridden hyperparameters."""

    name: str
    algo: str
    preset: str = "none"
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        """Return the part of the name after the algorithm, used in result files: empty for `ppo`, `3m` for `ppo-3m`."""
        return self.name.removeprefix(self.algo).lstrip("-_.")


class Cell(NamedTuple):
    """One run: an entry on an environment with a seed and a budget of steps."""

    entry: Entry
    env: str
    seed: int
    total_steps: int

    @property
    def task(self) -> str:
        """Return the environment id in a form that is safe in file names."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.env.removeprefix("dm_control/"))

    def __str__(self) -> str:
        return f"{self.entry.name} on {self.env}, seed {self.seed}"


@dataclass(frozen=True)
class Grid:
    """All runs of a benchmark, in execution order: entry by entry, environment by environment."""

    entries: tuple[Entry, ...]
    envs: tuple[str, ...]
    seeds: tuple[int, ...]
    total_steps: int | None = None
    """Environment steps per run; None: the preset's."""
    episodes: int = 100
    """Deterministic evaluation episodes of each run's last checkpoint."""
    evaluations: int = 20
    """Evaluations during each training run."""
    results: Path | None = None
    """Folder of the result files."""

    def rows(self) -> list[list[Cell]]:
        """Return one list of cells per entry and environment, with a cell for each seed."""
        rows = [(entry, env, self._budget(entry, env)) for entry in self.entries for env in self.envs]
        return [[Cell(entry, env, seed, budget) for seed in self.seeds] for entry, env, budget in rows]

    def check(self) -> None:
        """Raise MinervaError for the first name or value that cannot be used."""
        for env in self.envs:
            check_id(env)
        for entry in self.entries:
            for env in self.envs:
                try:
                    _, values = tuned(entry.algo, env, entry.preset, None, dict(entry.hyperparameters))
                    config_class(entry.algo).from_dict(values)
                except MinervaError as error:
                    raise ConfigError(f"{entry.name}: {error}") from None

    @property
    def names(self) -> set[str]:
        """Return what selects entries: their names and their algorithms."""
        return {name for entry in self.entries for name in (entry.name, entry.algo)}

    def part(self, names: Sequence[str], envs: Sequence[str]) -> "Grid":
        """Return the grid of these entries and environments; empty: all. An entry's name goes before an algorithm."""
        exact = {entry.name for entry in self.entries}
        entries = [e for e in self.entries if not names or e.name in names or e.algo in set(names) - exact]
        kept = [env for env in self.envs if not envs or env in envs]
        return dataclasses.replace(self, entries=tuple(entries), envs=tuple(kept))

    def _budget(self, entry: Entry, env: str) -> int:
        return tuned(entry.algo, env, entry.preset, self.total_steps, {})[0]


def make_grid(entries: Mapping[str, Mapping[str, Any]], **values: Any) -> Grid:
    """Return a grid from plain values as in a TOML file; `results` is not resolved against a folder."""
    known = [field.name for field in dataclasses.fields(Grid)]
    for name in values:
        if name not in known:
            raise ConfigError(f"{name} is not a setting of a grid. {nearest(name, known)}")
    for name in ("total_steps", "episodes", "evaluations"):
        if name in values:
            values[name] = checked(name, values[name], Count)
    values["seeds"] = tuple(_seeds(values.get("seeds", 5)))
    values["envs"] = tuple(_names("envs", values.get("envs", [])))
    grid = Grid(entries=tuple(_entry(name, entry) for name, entry in entries.items()), **values)
    if not grid.entries:
        raise ConfigError("The grid has no entries: name at least one algorithm, [entries.ppo] or --algos ppo.")
    files = [(entry.algo, entry.label) for entry in grid.entries]
    twice = [entry.name for entry, file in zip(grid.entries, files, strict=True) if files.count(file) > 1]
    if twice:
        raise ConfigError(f"{' and '.join(twice)} would write the same files: give them more distinct names.")
    grid.check()
    return grid


def chosen(grids: Mapping[str, Grid], names: Sequence[str], envs: Sequence[str]) -> dict[str, Grid]:
    """Return the parts of these grids with these entries and environments; empty: all. Grids with neither are left out.

    Raise ConfigError for a name that is in none of them, and if nothing is left.
    """
    where = "this grid" if len(grids) == 1 else "any of these grids"
    known = (
        {name for grid in grids.values() for name in grid.names},
        {env for grid in grids.values() for env in grid.envs},
    )
    for wanted, of in zip((names, envs), known, strict=True):
        for name in wanted:
            if name not in of:
                raise ConfigError(f"{name} is not in {where}. {nearest(name, of)}")
    parts = {path: grid.part(names, envs) for path, grid in grids.items()}
    left = {path: grid for path, grid in parts.items() if grid.entries and grid.envs}
    if not left:
        raise ConfigError(f"None of these grids has {', '.join(names)} on {', '.join(envs)}: give one that has.")
    return left


def read_grid(path: Path, trust_env: bool = False, **changed: Any) -> Grid:
    """Read the grid in a TOML file, with `changed` values replaced. Its `results` is relative to the file's folder.

    Unless `trust_env`, an id whose module is not imported yet is refused: importing it would run its code.
    """
    try:
        values = tomllib.loads(read_text(path))
        check_plain(values)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} cannot be read as a grid ({error}): give a TOML file with envs and entries."
        ) from None
    entries = values.pop("entries", {})
    if not isinstance(entries, dict):
        raise ConfigError(f"{path}: entries is {entries!r}: write a table for each, such as [entries.ppo].")
    if "results" in values:
        values["results"] = path.parent / checked("results", values["results"], str)
    try:
        for env in _names("envs", values["envs"]) if "envs" in values and not trust_env else ():
            refuse_unknown_code(env)
        return make_grid(entries, **{**values, **changed})
    except MinervaError as error:
        raise ConfigError(f"{path}: {error}") from None


def _entry(name: str, values: Any) -> Entry:
    """Return an entry from the values of its table; `name` is the algorithm if they name none."""
    if not isinstance(values, dict):
        raise ConfigError(f"entries.{name} is {values!r}: write a table, such as [entries.{name}].")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ConfigError(
            f"{name!r} cannot name an entry: use letters, digits, dots and dashes; it becomes a folder name."
        )
    given = {"algo": name, "preset": "none", **values}
    algo, preset = (checked(key, given[key], str) for key in ("algo", "preset"))
    if algo not in ALGORITHMS:
        raise ConfigError(f"{algo} is not an algorithm of Minerva. {nearest(algo, ALGORITHMS)}")
    return Entry(name, algo, preset, {key: value for key, value in values.items() if key not in ("algo", "preset")})


def _seeds(value: Any) -> list[int]:
    """Return the seeds given as a count, `0:5`, `0,3` or a list."""
    if isinstance(value, list) or (isinstance(value, str) and not value.isdigit()):
        seeds = parse_seeds(value if isinstance(value, str) else ",".join(map(str, value)))
    else:
        seeds = parse_seeds(f"0:{checked('seeds', int(value) if isinstance(value, str) else value, Count)}")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds is {value}: each may be there once.")
    return seeds


def _names(name: str, value: Any) -> list[str]:
    """Return a non-empty list of distinct strings; raise ConfigError if it is not one."""
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{name} is {value!r}: list at least one environment id, such as Pendulum-v1.")
    if len(set(value)) < len(value):
        raise ConfigError(f"{name} is {value!r}: each may be there once.")
    return list(value)
