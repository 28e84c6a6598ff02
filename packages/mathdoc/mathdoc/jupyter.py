"""The magic for notebooks: `%load_ext mathdoc.jupyter`, then `%%mathdoc` above a cell whose formulas are to be checked.

    %%mathdoc
    #: 'g' = { var = "gravity", text = "gravity" }
    # LaTeX: v_n = \\sqrt{2 g h_n}
    speed = np.sqrt(2 * gravity * level)

Lines that begin with `#:` are entries of a notation table; what they leave out is guessed from the names. The cell is
run once on copies in float64 to be checked, and then as it is.
"""

import copy
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from mathdoc.backend import computing
from mathdoc.capture import HOOK, Recorder, rewritten
from mathdoc.extract import read_source
from mathdoc.formula import understand
from mathdoc.guess import guessed
from mathdoc.init import table_text
from mathdoc.notation import Binding, normal, read_notation
from mathdoc.problem import MathdocError
from mathdoc.reading import line_faults
from mathdoc.verify import verify

ENTRY = re.compile(r"^#:(.*)$", re.MULTILINE)
PASTE = re.compile(r"paste into cell\.toml:\n\s*\[[^\n]*\]\n(\s*)(?=')")
"""What a message says of a table, which a cell has in its own lines."""


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext` calls."""

    def mathdoc(line: str, cell: str) -> None:
        """Check the formulas of the cell, and run it."""
        try:
            print(checked_cell(cell, shell.user_ns))
        except MathdocError as error:
            print(f"error: {error}")
        shell.run_cell(cell)

    shell.register_magic_function(mathdoc, "cell", "mathdoc")


def checked_cell(cell: str, names: dict[str, Any]) -> str:
    """What is found about each formula of a cell, which is run on copies of what the names stand for."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cell.py"
        path.write_text(cell)
        source = read_source(path, "cell")
        if not source.markers and not source.problems:
            raise MathdocError("this cell has no formula: write one above a statement, `# LaTeX: y = a x + b`.")
        table = guessed(source)
        for tex, binding in _written(cell).items():
            _put(table.symbols, tex, binding)
        for entries in table.symbols.values():  # what nothing is known of is asked for where it stands
            entries[:] = [binding for binding in entries if binding.var]
        (Path(folder) / "cell.toml").write_text(table_text(table))
        formulas, problems = understand(source, read_notation(Path(folder), "cell"))
        problems += (faults := line_faults(source, formulas))
        recorder = Recorder(formulas)
        with computing("float64"):
            space = {name: _double(value) for name, value in names.items()} | {HOOK: recorder}
            recorder.recording = True
            exec(compile(rewritten(source.tree, recorder), "<cell>", "exec"), space)
            recorder.recording = False
        lines = []
        for formula, probe in zip(formulas, recorder.probes, strict=True):
            verdict = verify(formula, {"float64": probe})
            if any(fault.line == formula.marker.line for fault in faults):
                continue
            lines += [str(problem) for problem in verdict.problems] or [f"{verdict.status}: {formula.marker.tex}"]
        said = "\n".join([*map(str, problems), *lines]).replace(f"{folder}/", "")
        return PASTE.sub(r"write into the cell:\n\1#: ", said)


def _written(cell: str) -> dict[str, dict[str, str]]:
    """The entries that the cell itself holds."""
    try:
        return tomllib.loads("\n".join(ENTRY.findall(cell)))
    except tomllib.TOMLDecodeError as error:
        raise MathdocError(f"the lines with #: are entries of TOML: {error}") from error


def _put(symbols: dict[str, list[Binding]], tex: str, entry: dict[str, str]) -> None:
    """An entry of the cell in place of what was guessed."""
    for bindings in symbols.values():
        for binding in bindings:
            if normal(binding.tex) == normal(tex):
                binding.var = entry.get("var", binding.var)
                binding.axes = tuple(entry["axes"].split()) if "axes" in entry else binding.axes
                binding.text = entry.get("text", binding.text or tex)
                binding.when = entry.get("when", binding.when)


def _double(value: Any) -> Any:
    """A copy of an array in float64; everything else as it is."""
    kind = type(value).__module__.split(".")[0]
    if kind == "torch" and hasattr(value, "is_floating_point") and hasattr(value, "clone"):
        return value.detach().clone().double() if value.is_floating_point() else value.clone()
    if kind in ("numpy", "jax", "jaxlib") and hasattr(value, "astype") and hasattr(value, "dtype"):
        return value.astype("float64") if value.dtype.kind == "f" else copy.copy(value)
    return value
