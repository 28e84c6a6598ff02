"""The final table for a paper, as Markdown and as LaTeX."""

from collections.abc import Callable

from minerva.lab.analysis.comparison import Cell, Comparison

HEADINGS = ("task", "entry", "seeds", "mean ± std", "IQM [95 % interval]", "best peer", "their protocol", "verdict")

LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "-",
}


def markdown(comparison: Comparison) -> str:
    """Return the final table as GitHub Markdown."""
    lines = [_row(HEADINGS, " | ", str), "|---|---|--:|--:|--:|---|---|---|"]
    return "\n".join([*lines, *(_row(_cells(cell), " | ", _plain) for cell in comparison.cells)])


def latex(comparison: Comparison) -> str:
    """Return the final table as LaTeX, for the package booktabs."""
    head = [r"\begin{tabular}{llrrrlll}", r"\toprule", " & ".join(map(_tex, HEADINGS)) + r" \\", r"\midrule"]
    rows = [" & ".join(map(_tex, _cells(cell))) + r" \\" for cell in comparison.cells]
    return "\n".join([*head, *rows, r"\bottomrule", r"\end{tabular}"])


def _cells(cell: Cell) -> tuple[str, ...]:
    unfinished = "" if cell.finished else " (not finished)"
    peer = cell.peer
    theirs = f"{peer.text} ({peer.algorithm}, {peer.source}, {peer.seeds_text})" if peer else "none at this budget"
    return (
        cell.task.name,
        cell.entry,
        str(len(cell.records)),
        f"{cell.mean_text}{unfinished}",
        cell.iqm_text,
        theirs,
        peer.protocol if peer else "",
        cell.verdict,
    )


def _row(cells: tuple[str, ...], between: str, written: Callable[[str], str]) -> str:
    return f"| {between.join(map(written, cells))} |"


def _plain(text: str) -> str:
    """Escape text so that it can neither end its cell nor become an HTML tag."""
    one_line = " ".join(text.split())
    return one_line.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def _tex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))
