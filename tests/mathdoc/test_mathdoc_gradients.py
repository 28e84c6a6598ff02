"""Right values with wrong gradients: every line with gradients is compared in them."""

from dataclasses import replace

import numpy as np
import pytest
from changed_copies import SmallChecked

from mathdoc.capture import Sample
from mathdoc.gradient import gradient_difference
from mathdoc.lexer import tokens
from mathdoc.notation import Binding
from mathdoc.parser import parse
from mathdoc.verify import DIFFERENT

ROW = '\'x_t\' = { var = "x", axes = "t", text = "x" }\n\'y\' = { var = "y", text = "y" }\n'
CALL = "f(draw(3).requires_grad_(), 2.5 + seed)"


@pytest.mark.parametrize(
    ("formula", "line"),
    [
        ("z_t = \\exp(y x_t)", "z = torch.exp(y * x.detach())"),
        ("z_t = \\exp(y x_t)", "with torch.no_grad():\n    # LaTeX: FORMULA\n    z = torch.exp(y * x)"),
        ("z_t = \\exp(y x_t)", "z = torch.exp(y * x.data)"),
        ("z_t = y x_t^2", "z = y * x * x.detach()"),
        ("z_t = y \\operatorname{sg}(x_t)", "z = y * x"),
        ("z_t = y \\operatorname{sg}(x_t)^2", "z = y * x * x.detach()"),
        ("z = \\sum_t y x_t", "z = sum(y * v.detach() for v in x)"),
        ("z_t = y x_t", "z = y * (x + (x - x.detach()))"),
        ("z_t = \\lfloor y x_t \\rfloor", "z = y * x + (torch.floor(y * x) - y * x).detach()"),
    ],
)
def test_a_wrong_gradient_is_refused(small: SmallChecked, formula: str, line: str) -> None:
    body = line.replace("FORMULA", formula) if "FORMULA" in line else f"# LaTeX: {formula}\n{line}"
    said = [problem.message for problem in small(body, ROW, CALL).problems]
    assert any("their gradients in `x_t` differ" in message for message in said), said


@pytest.mark.parametrize(
    ("formula", "line"),
    [
        ("z_t = \\exp(y x_t)", "z = torch.exp(x) ** y"),
        ("z_t = y \\operatorname{sg}(x_t) x_t", "z = y * x * x.detach()"),
        (
            "z_t = \\operatorname{sg}(\\exp(y x_t))",
            "with torch.no_grad():\n    # LaTeX: FORMULA\n    z = torch.exp(y * x)",
        ),
        ("z = y \\max_t x_t", "z = y * x.max()"),
        ("z_t = |y x_t|", "z = (y * x).abs()"),
    ],
)
def test_a_right_gradient_is_accepted(small: SmallChecked, formula: str, line: str) -> None:
    body = line.replace("FORMULA", formula) if "FORMULA" in line else f"# LaTeX: {formula}\n{line}"
    report = small(body, ROW, CALL)
    assert [str(problem) for problem in report.problems] == []
    assert report.verdicts[0].gradient is not None


def test_a_gradient_that_is_no_number_is_refused(small: SmallChecked) -> None:
    zeros = "f(torch.zeros(3), 2.5)\nf(draw(3), 2.5)"
    said = [
        p.message
        for p in small("# LaTeX: z = y \\sqrt{\\sum_t x_t^2}\nz = y * torch.sqrt((x**2).sum())", ROW, zeros).problems
    ]
    assert said == ["value and line agree, but their gradients in `x_t` differ"]


def test_at_a_kink_either_side_is_accepted(small: SmallChecked) -> None:
    at_the_kink = "f(torch.tensor([1.0, -1.0, 0.25]), 1.0)\nf(2 * draw(5), 0.7 + seed)"
    body = "# LaTeX: z_t = \\operatorname{clip}(x_t, -y, y)\nz = torch.clamp(x, -y, y)"
    assert [str(p) for p in small(body, ROW, at_the_kink).problems] == []


def test_rounding_of_large_values_is_no_wrong_gradient() -> None:
    """Of 0.001 beside up to 9e5 a difference has three digits left, and others may by chance have the same ones."""
    z, x, y = (Binding(f"{name}_t", name, ("t",)) for name in "zxy")
    tree = parse(tokens("x_t + y_t"), {x: None, y: None}, "t")
    refused, unseen = [], []
    for seed in range(300):
        random = np.random.default_rng(seed)
        large, small, weights = 9e5 * random.random(5) ** 5, 1e-3 * random.standard_normal(5), random.standard_normal(5)
        right = Sample({x: large, y: small}, large + small, weights, {x: weights, y: weights})
        refused += [seed] if gradient_difference(tree, z, right)[0] > DIFFERENT else []
        missing = replace(right, gradients={x: weights, y: 0 * weights})
        unseen += [seed] if gradient_difference(tree, z, missing)[0] <= DIFFERENT else []
    assert refused == []
    assert len(unseen) < 30
