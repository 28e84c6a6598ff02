"""The API reference: every function, class and method with its full signature and docstring, from the syntax alone."""

import ast
from collections.abc import Iterator, Sequence

from mathdoc.extract import Source
from mathdoc.pages.text import fence, name, prose

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
MISSING = "*No docstring provided.*"
WIDEST = 100
PUBLIC_METHODS = ("__init__", "__call__")
"""The methods with underscores that a reader of the public interface wants to see."""


def api_page(
    source: Source, path: str, *, private: bool = True, public: Sequence[tuple[str, Definition]] = ()
) -> list[str]:
    """The blocks of a module's reference page, with its `private` names or without.

    `public` is what a package offers under its own name, each with the module that defines it.
    """
    blocks = [f"# `{source.module}`", f"`{path}`", described(source.tree)]
    defined = [("", node) for node in source.tree.body if isinstance(node, Definition)]
    shown = [(home, node) for home, node in [*public, *defined] if private or _is_public(node)]
    for title, kind in (("Functions", Function), ("Classes", ast.ClassDef)):
        found = [block for home, node in shown if isinstance(node, kind) for block in _entry(node, home, private)]
        blocks += [f"## {title}", *found] if found else []
    return blocks


def re_exported(source: Source, sources: Sequence[Source], package: str) -> list[tuple[str, Definition]]:
    """What a module imports in order to offer it, `from package.module import name as name`, with its module."""
    modules = {f"{package}.{other.module}": other for other in sources}
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ImportFrom) or node.module not in modules:
            continue
        names = {alias.name for alias in node.names if alias.asname == alias.name}
        home = modules[node.module]
        defined = [child for child in home.tree.body if isinstance(child, Definition)]
        found += [(home.module, child) for child in defined if child.name in names]
    return found


def described(node: ast.Module | Definition) -> str:
    """The docstring, or that there is none."""
    docstring = ast.get_docstring(node)
    return prose(docstring) if docstring else MISSING


def summary(tree: ast.Module) -> str:
    """The docstring's first line."""
    return prose((ast.get_docstring(tree) or "").split("\n")[0])


def _is_public(node: Definition) -> bool:
    return not node.name.startswith("_") or node.name in PUBLIC_METHODS


def _entry(node: Definition, home: str, private: bool) -> Iterator[str]:
    blocks = _class(node, private) if isinstance(node, ast.ClassDef) else _function(node, "###")
    yield next(blocks)
    if home:
        yield f"*Defined in* [`{home}`]({home}.md)"
    yield from blocks


def _class(node: ast.ClassDef, private: bool) -> Iterator[str]:
    yield f"### {node.name}"
    bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases)
    if bases:
        yield f"*Base classes:* {bases}"
    yield described(node)
    methods = [child for child in node.body if isinstance(child, Function) and (private or _is_public(child))]
    if methods:
        yield f"#### Methods in {node.name}"
        for method in methods:
            yield from _function(method, "#####")


def _function(node: Function, heading: str) -> Iterator[str]:
    yield f"{heading} {name(node.name)}"
    yield fence(signature(node))
    yield described(node)


def signature(node: Function) -> str:
    """The whole signature with decorators, annotations and defaults; one argument a line where it is long."""
    decorators = "".join(f"@{ast.unparse(decorator)}\n" for decorator in node.decorator_list)
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    arguments = ast.unparse(node.args)
    line = f"{keyword} {node.name}({arguments}){returns}"
    if len(line) > WIDEST:
        parts = "".join(f"    {part},\n" for part in _arguments(node.args))
        line = f"{keyword} {node.name}(\n{parts}){returns}"
    return decorators + line


def _arguments(arguments: ast.arguments) -> list[str]:
    """Each argument as it is written."""
    ordinary = [*arguments.posonlyargs, *arguments.args]
    missing = len(ordinary) - len(arguments.defaults)
    parts = []
    for at, argument in enumerate(ordinary):
        default = arguments.defaults[at - missing] if at >= missing else None
        parts.append(_argument(argument, default))
        if arguments.posonlyargs and at == len(arguments.posonlyargs) - 1:
            parts.append("/")
    if arguments.vararg:
        parts.append(f"*{_argument(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parts += [_argument(argument, default) for argument, default in pairs]
    if arguments.kwarg:
        parts.append(f"**{_argument(arguments.kwarg, None)}")
    return parts


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    equals = " = " if annotation else "="
    return argument.arg + annotation + (f"{equals}{ast.unparse(default)}" if default else "")
