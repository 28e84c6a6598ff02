"""`mathdoc init PACKAGE`: settings, notation tables and exercises to begin with, guessed from the code.

What is there already is left as it is.
"""

import ast
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from mathdoc.extract import Source, package_sources
from mathdoc.guess import Guessed, guessed, is_array
from mathdoc.settings import Settings

SIZES = (5, 3, 7, 4, 6, 2, 8, 9, 11, 10)
"""How many values the indices take: all different, so that exchanged axes are seen."""
MATRIX = {"": [], "vector": [4], "matrix": [4, 4]}
"""The sizes of what is a matrix or a vector."""

MARKER = "# LaTeX: y = a x + b"


def begin(settings: Settings) -> Iterator[str]:
    """Write what is missing, and say what was written and what is left to do."""
    sources = [source for source in package_sources(settings.package) if source.markers]
    if not sources:
        name = settings.package.name
        yield f"{name} has no formula yet: write one above a statement, `{MARKER}`, and run this again."
    yield from _settings(settings)
    tables = {source.module: guessed(source) for source in sources}
    for source in sources:
        table = tables[source.module]
        path = settings.notation / f"{source.module}.toml"
        if _written(path, table_text(table)):
            symbols = [binding for entries in table.symbols.values() for binding in entries]
            open_ = [binding.tex for binding in symbols if not binding.var]
            left = f"; nothing fits {', '.join(open_)}: put its variable in place of ..." if open_ else ""
            yield f"{_short(path, settings)}: {len(symbols)} symbols guessed from their names{left}"
    said = _short(settings.exercises, settings)
    text = exercises_text(settings.package.name, sources, tables)
    if sources and _written(settings.exercises, text):
        yield f"{said}: a call of each function with formulas; see that it is sensible"
    elif sources:
        yield from _uncalled(text, settings.exercises.read_text(), said)
    yield f"Next: read the guesses, then `mathdoc check {_short(settings.package, settings)}`."


def _uncalled(text: str, there: str, said: str) -> Iterator[str]:
    """The calls that exercises which are there lack, to be added by hand."""
    calls = re.findall(r"^    ((?:\w+ = )?(\w+)(?:\.\w+)?\(.*\))$", text, re.MULTILINE)
    missing = [call for call, name in calls if name != "return" and not re.search(rf"\b{name}\(", there)]
    if missing:
        yield f"{said} is left as it is; these calls are not in it:\n" + "\n".join(f"    {call}" for call in missing)


def _settings(settings: Settings) -> Iterator[str]:
    path = settings.root / "pyproject.toml"
    text = path.read_text() if path.is_file() else ""
    if "[tool.mathdoc]" not in text:
        lines = {"package": settings.package, "notation": settings.notation, "exercises": settings.exercises}
        table = "".join(f'{name} = "{_short(place, settings)}"\n' for name, place in lines.items())
        path.write_text(f"{text}{chr(10) if text else ''}[tool.mathdoc]\n{table}")
        yield f"{path.name}: the settings [tool.mathdoc]"


def _short(path: Path, settings: Settings) -> str:
    root = settings.root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _written(path: Path, text: str) -> bool:
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return True


# --- a table ----------------------------------------------------------------------------------------------------


def table_text(table: Guessed) -> str:
    """The table of a module, as TOML."""
    text = "# Guessed from names: read each line, and correct what is wrong.\n"
    for line, why in table.unread.items():
        text += f"# line {line} could not be read: {why}\n"
    if table.axes:
        text += "\n[axes]\n" + "".join(f'{axis} = "index {axis}"\n' for axis in table.axes)
    for scope, entries in table.symbols.items():
        if entries:
            name = f'"{scope}"' if "." in scope else scope
            text += f"\n[functions.{name}]\n" if scope else "\n[symbols]\n"
        for binding in entries:
            axes = f', axes = "{" ".join(binding.axes)}"' if binding.axes else ""
            axes += f', shape = "{binding.shape}"' if binding.shape else ""
            when = ', when = "before"' if binding.when else ""
            fields = f'var = "{binding.var or "..."}"{axes}{when}, text = "{binding.text or "..."}"'
            text += f"{quoted(binding.tex)} = {{ {fields} }}\n"
    if table.meanings:
        text += "\n[meanings]\n" + "".join(f'{quoted(tex)} = "{said}"\n' for tex, said in table.meanings.items())
    return text


def quoted(tex: str) -> str:
    """A symbol as a key of TOML."""
    return f"'{tex}'" if "'" not in tex else '"' + tex.replace("\\", "\\\\") + '"'


# --- exercises --------------------------------------------------------------------------------------------------


def exercises_text(package: str, sources: list[Source], tables: dict[str, Guessed]) -> str:
    """A file that calls each function with formulas on arrays whose sizes follow from the guessed axes."""
    axes = list(dict.fromkeys(axis for table in tables.values() for axis in table.axes))
    variables = [b.var for table in tables.values() for entries in table.symbols.values() for b in entries]
    varied = " + seed" if any("len(" in var or ".shape[" in var for var in variables) else ""
    sizes = {axis: f"{SIZES[number % len(SIZES)]}{varied}" for number, axis in enumerate(axes)}
    imports: list[str] = []
    calls: list[str] = []
    names: set[str] = set()
    libraries = {"import numpy as np"}
    for source in sources:
        maker, line = _maker(source)
        libraries |= {line} - {""}
        module = package if source.module == package else f"{package}.{source.module}"
        made = _Calls(source, tables[source.module], sizes, maker)
        lines = list(made.lines())
        taken = {name: f"{source.module.replace('.', '_')}_{name}" for name in made.used if name in names}
        for name, other in taken.items():
            lines = [re.sub(rf"\b{name}\(", f"{other}(", line) for line in lines]
        names |= made.used
        calls += lines
        said = (f"{name} as {taken[name]}" if name in taken else name for name in sorted(made.used))
        imports.append(f"from {module} import {', '.join(said)}")
    body = "\n".join(f"    {line}" for line in calls)
    heading = '"""Run every line that carries a formula on small data whose sizes all differ, for `mathdoc check`."""'
    return (
        f"{heading}\n\n" + "\n".join([*sorted(libraries), *sorted(imports)]) + "\n\n\ndef run(dtype, seed):\n"
        '    """Call everything once, in one precision: change what its formulas have no meaning for."""\n'
        "    random = np.random.default_rng(seed)\n\n    def draw(*shape):\n"
        f"        return random.uniform(0.5, 1.5, shape).astype(dtype)\n\n{body}\n"
    )


def _maker(source: Source) -> tuple[str, str]:
    """How an array of the module's library is made, and what to import for it."""
    imported = {alias.name.split(".")[0] for node in ast.walk(source.tree) if isinstance(node, ast.Import)
                for alias in node.names}  # fmt: skip
    imported |= {
        (node.module or "").split(".")[0] for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)
    }
    if "torch" in imported:
        return "torch.from_numpy({})", "import torch"
    return ("jnp.asarray({})", "import jax.numpy as jnp") if "jax" in imported else ("{}", "")


class _Calls:
    """The calls of a module's functions."""

    def __init__(self, source: Source, table: Guessed, sizes: dict[str, str], maker: str) -> None:
        self.source, self.table, self.sizes, self.maker = source, table, sizes, maker
        self.numbers = count(3)
        self.used: set[str] = set()

    def lines(self) -> Iterator[str]:
        made: set[str] = set()
        for scope in self.table.symbols:
            first, _, rest = scope.partition(".")
            node = _defined(self.source.tree, first)
            self.used |= {first} - {""}
            if isinstance(node, ast.ClassDef) and rest:
                init, method = _defined(node, "__init__"), _defined(node, rest)
                name = first.lower()
                if first not in made:
                    made.add(first)
                    yield f"{name} = {first}({self._arguments(init, first, 'self.')})"
                if isinstance(method, ast.FunctionDef):
                    yield f"{name}.{rest}({self._arguments(method, scope, '')})"
            elif isinstance(node, ast.FunctionDef) and not rest:
                yield f"{first}({self._arguments(node, scope, '')})"
            elif scope:
                yield f"# call {scope} of {self.source.module}"

    def _arguments(self, node: ast.AST | None, scope: str, prefix: str) -> str:
        """A value for each argument without a default, and for those that a symbol stands for; `prefix` is what a
        variable is called by in the formulas.
        """
        if not isinstance(node, ast.FunctionDef):
            return ""
        symbols = {binding.var for binding in self.table.symbols.get(scope, [])}
        positional = node.args.args[: len(node.args.args) - len(node.args.defaults)]
        optional = [a for a in node.args.args[len(positional) :] if prefix + a.arg in symbols]
        keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        named = [a for a, default in keywords if default is None or prefix + a.arg in symbols]
        said = [self._value(a.arg, a.annotation, scope, prefix) for a in positional if a.arg != "self"]
        said += [f"{a.arg}={self._value(a.arg, a.annotation, scope, prefix)}" for a in [*optional, *named]]
        return ", ".join(said)

    def _value(self, name: str, annotation: ast.expr | None, scope: str, prefix: str) -> str:
        """An array with the axes of its symbol, a record of such, or a number that no other argument has."""
        kind = ast.unparse(annotation) if annotation else ""
        maker = "{}" if "ndarray" in kind else self.maker
        for where, entries in self.table.symbols.items():
            for binding in entries:
                mine = where == scope or where.startswith(f"{scope}.")
                array = binding.axes or binding.shape in ("vector", "matrix")
                if mine and binding.var in (name, prefix + name) and array:
                    sizes = [self.sizes[axis] for axis in binding.axes or ()] + [*map(str, MATRIX[binding.shape])]
                    regular = " + 3 * np.eye(4, dtype=dtype)" if binding.shape == "matrix" else ""
                    return maker.format(f"draw({', '.join(sizes)}){regular}")
                if mine and binding.var == name and binding.shape == "function":
                    return "lambda *x: sum(part * part for part in x)"
        if is_array(kind):
            return maker.format(f"draw({next(iter(self.sizes.values()), SIZES[0])})")
        record = _defined(self.source.tree, kind)
        if isinstance(record, ast.ClassDef):
            self.used.add(kind)
            fields = [node for node in record.body if isinstance(node, ast.AnnAssign) and node.value is None]
            parts = [self._value(ast.unparse(f.target), f.annotation, scope, f"{prefix}{name}.") for f in fields]
            return f"{kind}({', '.join(parts)})"
        number = next(self.numbers)
        return f"{number} + seed" if kind == "int" else f"{0.1 * number:.1f} + 0.01 * seed"


def _defined(tree: ast.AST, name: str) -> ast.AST | None:
    """The function or class of that name in a body."""
    body = getattr(tree, "body", [])
    return next((node for node in body if getattr(node, "name", None) == name), None)
