"""The API reference: every function, class and method with its full signature and docstring, from the syntax alone."""

import ast
from collections.abc import Iterator

from mathdoc.extract import Source
from mathdoc.pages.text import fence, name, prose

Function = ast.FunctionDef | ast.AsyncFunctionDef
MISSING = "*No docstring provided.*"
WIDEST = 100


def api_page(source: Source, path: str) -> list[str]:
    """The blocks of a module's reference page."""
    functions = [node for node in source.tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    classes = [node for node in source.tree.body if isinstance(node, ast.ClassDef)]
    blocks = [f"# `{source.module}`", f"`{path}`", described(source.tree)]
    if functions:
        blocks += ["## Functions", *(block for node in functions for block in _function(node, "###"))]
    if classes:
        blocks += ["## Classes", *(block for node in classes for block in _class(node))]
    return blocks


def described(node: ast.Module | ast.ClassDef | Function) -> str:
    """The docstring, or that there is none."""
    docstring = ast.get_docstring(node)
    return prose(docstring) if docstring else MISSING


def summary(tree: ast.Module) -> str:
    """The docstring's first line."""
    return prose((ast.get_docstring(tree) or "").split("\n")[0]).replace("|", "&#124;")


def _class(node: ast.ClassDef) -> Iterator[str]:
    yield f"### {node.name}"
    bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases)
    if bases:
        yield f"*Base classes:* {bases}"
    yield described(node)
    methods = [child for child in node.body if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))]
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
