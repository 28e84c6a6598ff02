"""Markdown and HTML, safely."""

import html
import inspect
import re
from pathlib import Path


def escape(text: str) -> str:
    """Text inside HTML, also inside an attribute."""
    return html.escape(text, quote=True)


def prose(text: str) -> str:
    """A docstring as Markdown: examples are code, code in backticks stays, and nothing else is taken for markup."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(_example(block) if block.startswith(">>> ") else _paragraph(block) for block in blocks)


def _example(block: str) -> str:
    """A block of `>>>` lines as code to copy; with what it prints, as the interpreter shows both."""
    lines = block.split("\n")
    if all(line.startswith((">>> ", "... ")) for line in lines):
        return fence("\n".join(line[4:] for line in lines))
    return fence(block, "pycon")


def _paragraph(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _literal(part) for part in parts)


def _literal(text: str) -> str:
    escaped = re.sub(r"([*\[\]]|\b_|_\b)", r"\\\1", text)
    return escaped.replace("<", "&lt;")


def name(text: str) -> str:
    """A Python name in a heading: underscores inside it are harmless, those at its ends are not."""
    return re.sub(r"^_+|_+$", lambda found: "\\_" * len(found[0]), text)


def fence(code: str, language: str = "python") -> str:
    """A block of code. The fence is longer than any in the code."""
    marks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", code)), default=0))
    return f"{marks}{language}\n{code.rstrip()}\n{marks}"


def write(path: Path, *blocks: str) -> None:
    """A page of blocks with a blank line between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(block for block in blocks if block) + "\n")
