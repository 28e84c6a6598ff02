"""The results page: every cell of the committed grids and the best published figure at its budget, none left out."""

from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

from curves import Picture, curves_of, peers_of, write_svg
from suites import LARGE, Cells, over_task_sets, side_by_side

from minerva.lab.analysis.comparison import Cell, Task, compare, entry_title, number
from minerva.lab.analysis.peers import Figure, all_published, best_peer, published
from minerva.lab.analysis.records import RESULT_FILES, read_result
from minerva.lab.benchmark import grid
from minerva.lab.benchmark.files import Files
from minerva.trainers.registry import published_as

FIRST_GRIDS = (
    "suite_gym_1m",
    "suite_dm_control_500k",
    "suite_gym_3m",
    "suite_25k",
    "suite_50k",
    "suite_100k",
    "suite_200k",
    "mpo_ablation",
    "dm_control_500k",
    "gym_3m",
    "gym_1m",
    "vmpo_8m",
)
"""Order of the grids, others follow by name; those of which nothing was run come after those of which something was."""

HEAD = """\
# Results

Mean return of 100 deterministic episodes of the *last* checkpoint: mean ± standard deviation over seeds, then
interquartile mean (IQM) over seeds with its stratified-bootstrap 95 % interval. Seeds are 0 to n-1, and all of a row
are here, each linked to its raw file; settings were chosen on other seeds, from 1000 up, but for the choices that
`benchmarks/results/README.md` tells of. Every row stands beside the best
published mean of the same algorithm at the same budget; where nobody published V-MPO, beside the best PPO. Protocols
differ, and are named at the end. *Not run* is what it says. Below each table stand the commands: what is not run they
run, and what is there they make again, on the kind of device and the engine that made it, into the folder `again`;
where a default has changed since, `benchmarks/results/README.md` says so, and a row's files have its settings.

Where a grid has all tasks of a published comparison, a table ranks its entries among *all* algorithms that published
these tasks at this budget, by the mean over tasks; its IQM is over tasks and seeds. Steps are environment steps
everywhere, and each row names the version of Gym and the action repeat. On Gym a score of 0 is a random policy and 1 is
TD3 (v4), as in published comparisons.

`minerva docs results` writes this page from `benchmarks/results` and `benchmarks/grids`. Curves are interquartile means
over seeds with their 95 % intervals, and grey points are published means with one standard deviation;
`minerva report benchmarks/results` shows each seed. What is still missing of the suites, and of the ablation, within
twenty minutes of a GPU:

```bash
minerva benchmark benchmarks/grids/suite_*.toml --device cuda --matmul high --within 20m
minerva benchmark benchmarks/grids/mpo_ablation.toml --device cuda --matmul high --within 20m
```
"""

COLUMNS = "| task | entry | mean ± std | IQM [95 %] | seeds | best peer | |\n|---|---|--:|--:|---|---|---|"
VERDICTS = ("won", "lost", "no figure", "not run")
OTHERS = "Other results"
NOTE = (
    "Gym v1 to v4 are not v5: it changed rewards, contacts or observations of Ant, Hopper, Humanoid and Walker2d."
    " All figures that are known: `minerva/lab/analysis/peers.toml`."
)
CURVES = """\
Some peers published the curve of every seed. Their files are not part of this repository: the points in the pictures,
and the means and intervals of the tables, are computed from them. No figure is known of MPO with a critic like that of
the default, of V-MPO below eight million steps, or of any of these on Gym v5 but for those of rl_games and SLM-Lab.
"""
PICTURES = "assets/curves"
"""Where the pictures lie, from the page's folder."""
FRONT = "algorithms"


class Row(NamedTuple):
    """An entry on a task: the result files of its seeds, and the command that makes them."""

    published_as: tuple[str, ...]
    """Algorithm names to look up in published figures, the closest first."""
    name: str
    task: Task
    files: tuple[Path, ...]
    command: str
    cell: Cell | None
    """Its finished seeds; None if none is finished."""


class Section(NamedTuple):
    """A grid: the name of its file, its title and its rows."""

    name: str
    title: str
    rows: tuple[Row, ...]


def results_page(root: Path, links: str) -> str:
    """Return the Markdown page of a checkout, each raw file linked to as `links`/<path in benchmarks/results>."""
    home = root / "benchmarks" / "results"
    sections = _sections(root)
    rows = [row for section in sections for row in section.rows]
    parts = [_section(section, home, links) for section in sections]
    page = [HEAD, _summary(sections), *parts, _others(rows, home, links), _protocols(rows)]
    return "\n\n".join(part.strip() for part in page if part) + "\n"


def _summary(sections: Sequence[Section]) -> str:
    """Return how many rows won, lost and are not run, of all grids together and of each."""
    counts = {section.name: [_verdict(row) for row in section.rows] for section in sections}
    every = list(chain.from_iterable(counts.values()))
    won, lost, unknown, left = (every.count(kind) for kind in VERDICTS)
    peers = f"{unknown} that nobody published a figure for, {left} not run"
    lines = []
    for section in sections:
        found = [str(counts[section.name].count(kind) or "") for kind in VERDICTS]
        lines.append(f"| {section.title} | {len(section.rows)} | {' | '.join(found)} |")
    table = "\n".join(
        ["| grid | rows | won | lost | no published figure | not run |\n|---|--:|--:|--:|--:|--:|", *lines]
    )
    return f"**{won} won, {lost} lost** of {len(every)} rows; {peers}.\n\n{table}"


def write_pictures(root: Path, folder: Path) -> None:
    """Draw the learning curves of every grid, and of all algorithms on Gym MuJoCo for the front page."""
    for name, picture in pictures_by_name(root).items():
        write_svg(folder / f"{name}.svg", picture)


def pictures_by_name(root: Path) -> dict[str, Picture]:
    """Return what is drawn in each picture, by the name of its file."""
    sections = {section.name: section for section in _sections(root)}
    drawn = {name: _picture(section) for name, section in sections.items()}
    drawn[FRONT] = Picture(_picture(Section(FRONT, "", sections["gym_3m"].rows + sections["gym_1m"].rows)).ours, {})
    return {name: picture for name, picture in drawn.items() if picture.ours}


def _picture(section: Section) -> Picture:
    """Return the curves of a section, of the environments that have one, and the peers' points beside them."""
    cells = [row.cell for row in section.rows if row.cell is not None]
    drawn = curves_of(cells, list(dict.fromkeys(cell.task.env for cell in cells)))
    ours = {task: lines for task, lines in drawn.items() if lines}
    peers = peers_of(list(dict.fromkeys(row.task for row in section.rows)))
    return Picture(ours, {task: peers[task] for task in ours if peers.get(task)})


# --- the grids ------------------------------------------------------------------------------------------------------


def _sections(root: Path) -> list[Section]:
    grids = sorted((root / "benchmarks" / "grids").glob("*.toml"), key=_grid_order)
    sections = [_grid_section(path, root) for path in grids]
    return sorted(sections, key=lambda section: not any(row.cell for row in section.rows))


def _grid_order(path: Path) -> tuple[int, str]:
    return (FIRST_GRIDS.index(path.stem) if path.stem in FIRST_GRIDS else len(FIRST_GRIDS), path.stem)


def _grid_section(path: Path, root: Path) -> Section:
    """Return a grid's section: its rows, under its first comment as title."""
    read = grid.read_grid(path)
    files = Files(Path(), (read.results or root / "benchmarks" / "results").resolve())
    title = path.read_text().splitlines()[0].lstrip("# ").rstrip(".")
    return Section(path.stem, title, tuple(_grid_row(cells, files, path.relative_to(root)) for cells in read.rows()))


def _grid_row(cells: Sequence[grid.Cell], files: Files, path: Path) -> Row:
    first = cells[0]
    entry = first.entry
    for cell in cells:
        files.done(cell)  # raises ConfigError for the file of another experiment
    results = tuple(files.result(cell) for cell in cells)
    records = [read_result(file) for file in results if file.is_file()]
    return Row(
        published_as(entry.algo, entry.hyperparameters),
        entry_title(entry.algo, entry.label, first.total_steps),
        Task(first.env, first.total_steps),
        results,
        f"minerva benchmark {path.as_posix()} --algos {entry.name} --envs {first.env}",
        compare(records).cells[0] if records else None,
    )


# --- the page -------------------------------------------------------------------------------------------------------


def _section(section: Section, home: Path, links: str) -> str:
    drawn = [f"![Learning curves with 95 % intervals: {section.title}]({PICTURES}/{section.name}.svg)"]
    head = [f"## {section.title}", *(drawn if _has_curves(section) else ())]
    cells: Cells = {(row.name, row.task): row.cell for row in section.rows}
    large = len(section.rows) > LARGE
    rows = [row for row in section.rows if not large or any(file.is_file() for file in row.files)]
    table = "\n".join([COLUMNS, *(_line(row, home, links) for row in rows)])
    commands = "```bash\n" + "\n".join(_commands(section, rows)) + "\n```"
    if large:
        head += [*over_task_sets(cells), side_by_side(cells)]
        folded = _folded("Every row that was run, and the commands", *((table,) if rows else ()), commands)
    else:
        head += [table, *over_task_sets(cells)]
        folded = _folded("Each row's command", commands)
    return "\n\n".join([*head, folded])


def _has_curves(section: Section) -> bool:
    return any(record.curve for row in section.rows if row.cell for record in row.cell.records)


def _folded(summary: str, *parts: str) -> str:
    return "\n\n".join([f'<details markdown="1"><summary>{summary}</summary>', *parts, "</details>"])


def _commands(section: Section, rows: Sequence[Row]) -> list[str]:
    """Return the command of each of these rows, and one for each entry of which other rows are left."""
    entries = dict.fromkeys(row.command.split(" --envs ")[0] for row in section.rows if row not in rows)
    return [*map(_command, rows), *entries]


def _command(row: Row) -> str:
    """Return the command that runs a row's missing seeds, or reproduces the row if none is missing."""
    if not all(file.is_file() for file in row.files):
        return row.command
    about = read_result(row.files[0]).about
    options = ["--device cuda"] if "NVIDIA" in about.get("device", "cpu") else []
    options += ["--matmul high"] if ("--matmul", "high") in pairwise(about.get("command", "").split()) else []
    return " ".join([row.command, *options, f"--engine {about.get('engine', 'gymnasium')}", "--results again"])


def _line(row: Row, home: Path, links: str) -> str:
    cell, peer = row.cell, _peer(row)
    ours = [cell.mean_text, cell.iqm_text] if cell else ["*not run*", ""]
    theirs = "none at this budget"
    if peer is not None:
        theirs = f"{peer.text} ({peer.algorithm}, {peer.source}, {peer.seeds_text})"
    verdict = ""
    if cell is not None and peer is not None:
        verdict = "**won**" if _verdict(row) == "won" else "lost"
        if peer.mean != 0:  # a share of nothing is no number
            verdict += f" by {abs(cell.mean - peer.mean) / abs(peer.mean):.0%}"
    return f"| {row.task.name} | {row.name} | {' | '.join(ours)} | {_seeds(row, home, links)} | {theirs} | {verdict} |"


def _seeds(row: Row, home: Path, links: str) -> str:
    """Return every seed's mean, linked to its raw file, and the number of missing seeds."""
    records = row.cell.records if row.cell else ()
    found = [f"[{number(record.score)}]({links}/{record.source.relative_to(home).as_posix()})" for record in records]
    missing = len(row.files) - len(found)
    return " ".join(found) + (f" and {missing} *not run*" if found and missing else "")


def _others(rows: Sequence[Row], home: Path, links: str) -> str:
    """Return the section of result files that belong to no grid."""
    known = {file for row in rows for file in row.files}
    files = [file for file in sorted(home.rglob(RESULT_FILES)) if file not in known]
    cells = compare([read_result(file) for file in files]).cells if files else ()
    lines = []
    for cell in cells:
        row = Row(cell.published_as, cell.entry, cell.task, tuple(record.source for record in cell.records), "", cell)
        lines.append(_line(row, home, links))
    return "\n\n".join([f"## {OTHERS}", "\n".join([COLUMNS, *lines])]) if lines else ""


def _protocols(rows: Sequence[Row]) -> str:
    """Return the table of the protocols of the published figures at the budgets of this page."""
    tasks = dict.fromkeys(row.task for row in rows)
    named = {figure.source: figure for task in tasks for figure in published(task.env, task.budget)}
    lines = [f"| {peer.source} | {peer.protocol} | {peer.reference} |" for _, peer in sorted(named.items())]
    table = "\n".join(["| peer | protocol | source |\n|---|---|---|", *lines])
    files = [f"| {curves.where} | {curves.holds} | {curves.licence} |" for curves in all_published().curves]
    shipped = "\n".join(["| curves of every seed | algorithms and tasks | licence |\n|---|---|---|", *files])
    return "\n\n".join(["## Protocols", table, NOTE, CURVES.strip(), shipped])


def _peer(row: Row) -> Figure | None:
    return best_peer(row.task.env, row.task.budget, row.published_as)


def _verdict(row: Row) -> str:
    peer = _peer(row)
    if row.cell is None:
        return "not run"
    return "no figure" if peer is None else "won" if row.cell.mean >= peer.mean else "lost"
