"""The search index after what would be found twice was taken out of it, and the navigation's link to the repository."""

import json
import subprocess
from pathlib import Path
from typing import Any

import make_site
import pytest
from search_index import thin_search_index


def entry(location: str, level: int, title: str, text: str) -> dict[str, Any]:
    return {"location": location, "level": level, "title": title, "text": text, "path": [], "tags": []}


LISTING = (
    "<pre><code>1def fall(height):\n2    hidden_name = height  # comment_word\n3    return hidden_name</code></pre>"
)
ITEMS = [
    entry("guides/x/", 1, "X", "word " * 1000),
    entry("math/body/", 1, "body", "falling/body.py"),
    entry(
        "math/body/#fall-time",
        3,
        "fall: time",
        "time = sqrt(height) verified # line 3 copy symbol in the code meaning h",
    ),
    entry("math/body/#full-source", 2, "Full Source", LISTING),
    entry("source/body/", 1, "body", "falling/body.py"),
    entry("source/body/#annotated-source", 2, "Annotated Source", LISTING),
    entry("reference/body/#functions", 2, "Functions", ""),
    entry("reference/body/#fall", 3, "fall", "<pre><code>def fall(height)</code></pre> <p>How long it takes.</p>"),
    entry("reference/body/#__call__", 5, "__call__", "<pre><code>def __call__(self)</code></pre> <p>Fall.</p>"),
    entry("reference/minerva/#fall", 3, "fall", "<pre><code>def fall(height)</code></pre> <p>How long it takes.</p>"),
]


@pytest.fixture
def thin(tmp_path: Path) -> dict[str, dict[str, Any]]:
    path = tmp_path / "search.json"
    path.write_text(json.dumps({"config": {"lang": ["en"]}, "items": ITEMS}))
    thin_search_index(path)
    index = json.loads(path.read_text())
    assert index["config"] == {"lang": ["en"]}
    return {item["location"]: item for item in index["items"]}


def test_what_is_found_elsewhere_leaves_the_index(thin: dict[str, dict[str, Any]]) -> None:
    assert thin.keys() == {
        "guides/x/",
        "math/body/",
        "math/body/#fall-time",
        "source/body/#annotated-source",
        "reference/body/#fall",
    }
    assert thin["guides/x/"]["text"] == ("word " * 1000).strip()
    assert thin["math/body/#fall-time"]["text"] == "time = sqrt(height) h"


def test_a_name_of_the_code_alone_is_found_in_the_annotated_source(thin: dict[str, dict[str, Any]]) -> None:
    source = thin["source/body/#annotated-source"]
    assert (source["title"], source["text"]) == ("body", "hidden_name")


@pytest.mark.parametrize(
    ("remote", "link"),
    [
        ("https://example.org/lab/minerva.git", "https://example.org/lab/minerva"),
        ("https://token@example.org/lab/minerva", "https://example.org/lab/minerva"),
        ("git@example.org:lab/minerva.git", "https://example.org/lab/minerva"),
        ("/home/somebody/minerva", None),
    ],
)
def test_the_repository_is_linked_where_it_is_on_the_web(tmp_path: Path, remote: str, link: str | None) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "remote", "add", "origin", remote], cwd=tmp_path, check=True)
    assert make_site._repository(tmp_path) == ([{"Repository": link}] if link else [])
