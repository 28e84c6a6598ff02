"""Level 0: which statement a marker belongs to, and which markers belong to none."""

from pathlib import Path

import pytest

from mathdoc.extract import Source, read_source


@pytest.fixture
def source_of(tmp_path: Path):
    def read(text: str) -> Source:
        path = tmp_path / "module.py"
        path.write_text(text)
        return read_source(path, "module")

    return read


@pytest.mark.parametrize(
    ("text", "target", "lines"),
    [
        ("# LaTeX: x = y\nx = y\n", "x", (2, 2)),
        ("x = y  # LaTeX: x = y\n", "x", (1, 1)),
        ("# LaTeX: x = y\nx = (\n    y\n    + 0\n)\n", "x", (2, 5)),
        ("x = (  # LaTeX: x = y\n    y\n)\n", "x", (1, 3)),
        ("def f():\n    # LaTeX: x = y\n    return y + 1\n", "return", (3, 3)),
        ("class A:\n    def f(self):\n        # LaTeX: x = y\n        self.x[0] += y\n", "self.x[0]", (4, 4)),
        ('t = "# LaTeX: a string"\n# LaTeX: x = y\nx: int = y\n', "x", (3, 3)),
        ("if z:\n    pass\nelse:\n    # LaTeX: x = y\n    x = y\n", "x", (5, 5)),
    ],
)
def test_a_marker_belongs_to_the_whole_statement(source_of, text: str, target: str, lines: tuple[int, int]) -> None:
    (marker,) = source_of(text).markers
    assert (marker.tex, marker.target) == ("x = y", target)
    assert (marker.statement.lineno, marker.statement.end_lineno) == lines


def test_the_scope_is_the_function_with_its_classes(source_of) -> None:
    text = "class A:\n  class B:\n    def f(self):\n      def g():\n        x = 1 + 1  # LaTeX: x = 2\n"
    assert source_of(text).markers[0].scope == "A.B.f.g"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n    # LaTeX: x = y\n    y\n)\n", "inside a statement"),
        ("x = (\n    y  # LaTeX: x = y\n)\n", "inside a statement"),
        ("# LaTeX: x = y\n\nx = y\n", "over nothing"),
        ("# LaTeX: x = y\n# another comment\nx = y\n", "over nothing"),
        ("# LaTeX: x = y\n# LaTeX: x = z\nx = y\n", "a statement has one"),
        ("x = y\n# LaTeX: x = y\n", "over nothing"),
        ("# LaTeX: x = y\nfor x in y:\n    pass\n", "over a block"),
        ("# LaTeX: x = y\nx = y  # LaTeX: x = y\n", "has a marker already"),
        ("# latex: x = y\nx = y\n", "almost a marker"),
        ("# LaTeX[prose]: x = y\nx = y\n", "almost a marker"),
        ("# LaTeX[slack=1e-3]: x = y\nx = y\n", "almost a marker"),
    ],
)
def test_a_marker_without_its_statement_is_a_problem(source_of, text: str, message: str) -> None:
    (problem,) = source_of(text).problems
    assert message in problem.message


def test_a_marker_may_state_its_slack_or_that_it_is_prose(source_of) -> None:
    text = (
        '# LaTeX[slack=1e-6 "a series"]: x = y\nx = y\n'
        '# LaTeX[slack float32=1e-4 "cancels"]: x = y\nx = y\n'
        '# LaTeX[prose "a sort"]: x = y\nx = y\n'
    )
    both, single, prose = source_of(text).markers
    assert both.slack == {"float64": 1e-6, "float32": 1e-6}
    assert single.slack == {"float32": 1e-4}
    assert prose.prose
    assert [marker.reason for marker in (both, single, prose)] == ["a series", "cancels", "a sort"]
