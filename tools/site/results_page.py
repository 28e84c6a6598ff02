"""The results page: every cell of the committed grids and the best published figure at its budget, none left out."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from curves import Drawn, curves_of, write_svg

from minerva.lab.analysis.comparison import SUITE_MAXIMUM, Cell, Task, compare, entry_title, number
from minerva.lab.analysis.peers import Figure, best_peer, means_over
from minerva.lab.analysis.records import RESULT_FILES, read_result
from minerva.lab.benchmark import grid
from minerva.lab.benchmark.files import Files
from minerva.trainers.registry import published_as

FIRST_GRIDS = ("dm_control_500k", "gym_3m", "gym_1m", "vmpo_8m")
"""Grids that the page begins with; others follow by name."""

HEAD = """\
# Results

Mean return of 100 deterministic episodes of the *last* checkpoint: mean ± standard deviation over seeds, then
interquartile mean over seeds with its stratified-bootstrap 95 % interval. Seeds are 0 to n-1, and all of a row are
here, each linked to its raw file; settings were chosen on other seeds, from 1000 up, but for the choices that
`benchmarks/results/README.md` tells of. Every row stands beside the best
published mean of the same algorithm at the same budget; where nobody published V-MPO, beside the best PPO. Protocols
differ, and are named at the end. *Not run* is what it says. Below each table stand the commands: what is not run they
run, and what is there they make again, on the kind of device and the engine that made it, into the folder `again`.

`minerva docs results` writes this page from `benchmarks/results` and `benchmarks/grids`. Curves are interquartile means
over seeds with their 95 % intervals; `minerva report benchmarks/results` shows each seed. What is still missing, within
twenty minutes of a GPU: `minerva benchmark benchmarks/grids/<grid>.toml --device cuda --within 20m`.
"""

COLUMNS = "| task | entry | mean ± std | IQM [95 %] | seeds | best peer | |\n|---|---|--:|--:|---|---|---|"
OTHERS = "Other results"
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
    kinds = [_verdict(row) for row in rows]
    won, lost, unknown, left = (kinds.count(kind) for kind in ("won", "lost", "no figure", "not run"))
    peers = f"{unknown} that nobody published a figure for, {left} not run"
    summary = f"**{won} won, {lost} lost** of {len(rows)} rows; {peers}."
    parts = [_section(section, home, links) for section in sections]
    page = [HEAD, summary, *parts, _others(rows, home, links), _protocols(rows)]
    return "\n\n".join(part.strip() for part in page if part) + "\n"


def write_pictures(root: Path, folder: Path) -> None:
    """Draw the learning curves of every grid, and of all algorithms on Gym MuJoCo for the front page."""
    for name, drawn in pictured_by_name(root).items():
        write_svg(folder / f"{name}.svg", drawn)


def pictured_by_name(root: Path) -> dict[str, Drawn]:
    """Return what is drawn in each picture, by the name of its file."""
    sections = {section.name: section for section in _sections(root)}
    front = Section(FRONT, "", sections["gym_3m"].rows + sections["gym_1m"].rows)
    drawn = {section.name: _pictured(section) for section in (*sections.values(), front)}
    return {name: curves for name, curves in drawn.items() if curves}


def _pictured(section: Section) -> Drawn:
    """Return the curves of a section, by environment; only environments that have one."""
    cells = [cell for cell in map(_cell, section.rows) if cell is not None]
    drawn = curves_of(cells, list(dict.fromkeys(cell.task.env for cell in cells)))
    return {task: lines for task, lines in drawn.items() if lines}


# --- the grids ------------------------------------------------------------------------------------------------------


def _sections(root: Path) -> list[Section]:
    grids = sorted((root / "benchmarks" / "grids").glob("*.toml"), key=_grid_order)
    return [_grid_section(path, root) for path in grids]


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
    return Row(
        published_as(entry.algo, entry.hyperparameters),
        entry_title(entry.algo, entry.label, first.total_steps),
        Task(first.env, first.total_steps),
        tuple(files.result(cell) for cell in cells),
        f"minerva benchmark {path.as_posix()} --algos {entry.name} --envs {first.env}",
    )


# --- the page -------------------------------------------------------------------------------------------------------


def _section(section: Section, home: Path, links: str) -> str:
    lines = [_line(row, home, links) for row in section.rows]
    commands = "\n".join(map(_command, section.rows))
    folded = '<details markdown="1"><summary>Each row\'s command</summary>'
    drawn = [f"![Learning curves with 95 % intervals: {section.title}]({PICTURES}/{section.name}.svg)"]
    table = "\n".join([COLUMNS, *lines])
    parts = [f"## {section.title}", *(drawn if _pictured(section) else ()), table, *_means(section)]
    return "\n\n".join([*parts, folded, f"```bash\n{commands}\n```", "</details>"])


def _command(row: Row) -> str:
    """Return the command that runs a row's missing seeds, or reproduces the row if none is missing."""
    if not all(file.is_file() for file in row.files):
        return row.command
    about = read_result(row.files[0]).about
    options = ["--device cuda"] if "NVIDIA" in about.get("device", "cpu") else []
    options += ["--matmul high"] if ("--matmul", "high") in pairwise(about.get("command", "").split()) else []
    return " ".join([row.command, *options, f"--engine {about.get('engine', 'gymnasium')}", "--results again"])


def _line(row: Row, home: Path, links: str) -> str:
    cell, peer = _cell(row), _peer(row)
    ours = [cell.mean_text, cell.iqm_text] if cell else ["*not run*", ""]
    theirs = "none at this budget"
    if peer is not None:
        theirs = f"{peer.text} ({peer.algorithm}, {peer.source}, {peer.seeds_text})"
    verdict = ""
    if cell is not None and peer is not None:
        share = abs(cell.mean - peer.mean) / abs(peer.mean)
        verdict = f"{'**won**' if _verdict(row) == 'won' else 'lost'} by {share:.0%}"
    return f"| {row.task.name} | {row.name} | {' | '.join(ours)} | {_seeds(row, home, links)} | {theirs} | {verdict} |"


def _seeds(row: Row, home: Path, links: str) -> str:
    """Return every seed's mean, linked to its raw file, and the number of missing seeds."""
    found = [
        f"[{number(read_result(file).score)}]({links}/{file.relative_to(home).as_posix()})"
        for file in row.files
        if file.is_file()
    ]
    missing = len(row.files) - len(found)
    return " ".join(found) + (f" and {missing} *not run*" if found and missing else "")


def _means(section: Section) -> list[str]:
    """Return, for every entry, the mean over tasks of one scale, and those of sources that published all of them."""
    lines = []
    for name in dict.fromkeys(row.name for row in section.rows):
        rows = [row for row in section.rows if row.name == name]
        one_scale = all(row.task.suite in SUITE_MAXIMUM for row in rows)
        envs, budget = [row.task.env for row in rows], rows[0].task.budget
        theirs = means_over(envs, budget, rows[0].published_as) if one_scale and len(rows) > 1 else []
        if not theirs:
            continue
        done = [cell.mean for cell in map(_cell, rows) if cell is not None]
        result = f"*not run* ({len(done)} of {len(rows)} are)"
        if len(done) == len(rows):
            ours = sum(done) / len(done)
            result = f"{number(ours)}, {'**won**' if ours >= theirs[0][2] else 'lost'}"
        peers = ", ".join(f"{number(mean)} ({algorithm}, {source})" for source, algorithm, mean in theirs)
        lines.append(f"Mean of the {len(rows)} tasks, {name}: {result}. Peers: {peers}.")
    return lines


def _others(rows: Sequence[Row], home: Path, links: str) -> str:
    """Return the section of result files that belong to no grid."""
    known = {file for row in rows for file in row.files}
    files = [file for file in sorted(home.rglob(RESULT_FILES)) if file not in known]
    cells = compare([read_result(file) for file in files]).cells if files else ()
    lines = []
    for cell in cells:
        row = Row(cell.published_as, cell.entry, cell.task, tuple(record.source for record in cell.records), "")
        lines.append(_line(row, home, links))
    return "\n\n".join([f"## {OTHERS}", "\n".join([COLUMNS, *lines])]) if lines else ""


def _protocols(rows: Sequence[Row]) -> str:
    """Return the table of the protocols of the published figures on this page."""
    named = {peer.source: peer for peer in map(_peer, rows) if peer is not None}
    lines = [f"| {peer.source} | {peer.protocol} | {peer.reference} |" for _, peer in sorted(named.items())]
    note = (
        "Gym v1 to v4 are not v5: it changed rewards, contacts or observations of Ant, Hopper, Humanoid and Walker2d."
        " All figures that are known: `minerva/lab/analysis/peers.toml`."
    )
    return "\n\n".join(["## Protocols", "\n".join(["| peer | protocol | source |\n|---|---|---|", *lines]), note])


def _cell(row: Row) -> Cell | None:
    """Return the cell of a row's finished seeds, or None if none is finished."""
    records = [read_result(file) for file in row.files if file.is_file()]
    return compare(records).cells[0] if records else None


def _peer(row: Row) -> Figure | None:
    return best_peer(row.task.env, row.task.budget, row.published_as)


def _verdict(row: Row) -> str:
    cell, peer = _cell(row), _peer(row)
    if cell is None:
        return "not run"
    return "no figure" if peer is None else "won" if cell.mean >= peer.mean else "lost"
