"""The reference page of the language: each formula on it has the value of the expression behind it."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from mathdoc.evaluate import Evaluation
from mathdoc.katex import check_syntax
from mathdoc.lexer import tokens
from mathdoc.named import COLUMN, ROW
from mathdoc.notation import Binding
from mathdoc.parser import parse
from mathdoc.shapes import TAIL, shape_of

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "formula-language.md"
draw = np.random.default_rng(3).standard_normal


def matrix(tex: str, values: np.ndarray) -> Binding:
    shape = "matrix" if values.ndim == 2 else "vector"
    binding = Binding(tex, tex, TAIL[shape])
    binding.shape = shape
    return binding


names = {"a": np.array(0.7), "b": np.array(0.4), "N": np.array(7.0), "x": draw(7), "y": draw(7), "Q": draw((5, 7))}
names |= {"S": (draw(7) > 0).astype(float), "A": draw((4, 4)), "B": draw((4, 4)), "v": draw(4), "w": draw(4)}
names |= {"f": names["x"][0], "g": names["x"][-1]}
AXES = {"x": ("x_i", ("i",)), "y": ("y_i", ("i",)), "Q": ("Q_{t,i}", ("t", "i")), "S": ("S", ("i",))}
bindings = {Binding(*[AXES[n][0], n, AXES[n][1]] if n in AXES else [n, n, ()]): names[n] for n in "abNfgxyQS"}
bindings |= {matrix(name, names[name]): names[name] for name in "ABvw"}

BLOCKS = re.findall(r"```formulas\n(.*?)```", PAGE.read_text(), re.DOTALL)
EXAMPLES = [
    tuple(re.split(r"\s{4,}|\s{2,}(?=\S+$)", line, maxsplit=1)) for block in BLOCKS for line in block.splitlines()
]


@pytest.mark.parametrize(("tex", "code"), EXAMPLES, ids=[example[0] for example in EXAMPLES])
def test_an_example_has_the_value_of_its_expression(tex: str, code: str) -> None:
    check_syntax(f"z = {tex}")
    tree = parse(tokens(tex), bindings, "tikl")
    value = Evaluation(bindings).run(tree)
    order = tuple(axis for axis in ("t", "i", "k", ROW, COLUMN) if axis in value.axes)
    expected = eval(code, {"np": np, "math": math, **names})
    assert set(value.axes) & {ROW, COLUMN} == set(TAIL[shape_of(tree)])
    np.testing.assert_allclose(value.over(order), expected, rtol=1e-12)


def test_the_page_has_its_examples() -> None:
    assert len(EXAMPLES) >= 80
    assert all(len(example) == 2 for example in EXAMPLES)
