"""The search index without what would be found twice: a site of some hundred pages of code has megabytes of it.

Listings of whole files, headings without text and special methods, which are found by their class, leave it. So that
every other name is still found, the annotated source of a module is found by the names that occur nowhere else in the
index of that module.
"""

import builtins
import json
import keyword
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

LONGEST = {"reference": 40, "math": 200, "hyperparameters": 400, "presets": 80, "notation": 300, "results": 200}
"""Characters of an entry of a generated page: a signature and what it begins with. Hand-written pages stay whole."""

NAME = re.compile(r"[A-Za-z_]\w{2,}")
CAPTION = re.compile(r"(verified|prose|refused)( with slack)? # line .*?meaning", re.DOTALL)
MARKUP = re.compile(r"</?(?:pre|code|p)>")
EVERYWHERE = {*keyword.kwlist, *dir(builtins), "verified"}
NOT_CODE = re.compile(r'"""[\s\S]*?"""|#.*')


def thin_search_index(path: Path) -> None:
    """Rewrite a search index that Zensical made."""
    index = json.loads(path.read_text())
    kept = [_short(entry) for entry in index["items"] if not _repeated(entry)]
    known: dict[str, set[str]] = defaultdict(set)
    for entry in kept:
        known[_module(entry)] |= set(NAME.findall(entry["title"] + " " + entry["text"]))
    for entry in index["items"]:
        if entry["location"].endswith("#annotated-source"):
            code = MARKUP.sub(" ", NOT_CODE.sub("", entry["text"]))
            names = sorted(set(NAME.findall(code)) - known[_module(entry)] - EVERYWHERE)
            kept.append({**entry, "title": _module(entry), "text": " ".join(names)})
    path.write_text(json.dumps({**index, "items": kept}, ensure_ascii=False, separators=(",", ":")))


def _module(entry: dict[str, Any]) -> str:
    return str(entry["location"]).split("/")[1] if "/" in entry["location"] else ""


def _repeated(entry: dict[str, Any]) -> bool:
    kind = entry["location"].partition("/")[0]
    if kind == "source" or entry["title"] == "Full Source":
        return True
    of_the_public_names = entry["location"].startswith("reference/minerva/#")
    special_method = kind == "reference" and entry["title"].startswith("__")
    empty = kind in ("math", "reference") and entry["level"] > 1 and not entry["text"]
    return of_the_public_names or special_method or empty


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    kind = entry["location"].partition("/")[0]
    text = CAPTION.sub(" ", entry["text"]).replace("\u200b", "")
    text = " ".join((MARKUP.sub(" ", text) if kind in LONGEST else text).split())
    return {**entry, "text": text[: LONGEST.get(kind)]}
