"""What a formula means: its value on named axes against NumPy, and what the parser refuses."""

import numpy as np
import pytest

from mathdoc.evaluate import Evaluation
from mathdoc.lexer import tokens
from mathdoc.mutate import mutants
from mathdoc.named import Named
from mathdoc.notation import Binding, arithmetic
from mathdoc.parser import parse, split_equation
from mathdoc.problem import FormulaError

draw = np.random.default_rng(0).standard_normal
Q, X, F = draw((5, 7)), draw(7), draw(8)
MASK = (X > 0).astype(float)

VALUES = {
    Binding("Q_{b,i}", "q", ("i", "b")): Q,
    Binding("x_b", "x", ("b",)): X,
    Binding("F_b", "f", ("b",)): F,
    Binding("x_b^{old}", "old", ("b",)): 2 * X,
    Binding("S", "mask", ("b",)): MASK,
    Binding("\\eta", "eta", ()): np.array(0.7),
    Binding("\\log\\eta", "stored", ()): np.array(-3.0),
    Binding("\\gamma", "gamma", ()): np.array(0.9),
    Binding("V(s_b)", "v", ("b",)): X**2,
    Binding("N", "n", ()): np.array(5.0),
    Binding("w_j", "w", ("...", "j")): draw((4, 3)),
    Binding("u_j", "u", ("j",)): draw(3),
}
by_name = {binding.tex: values for binding, values in VALUES.items()}


def value(tex: str) -> Named:
    return Evaluation(VALUES).run(parse(tokens(tex), VALUES, "tbijkl"))


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        ("2 \\eta + 1", 2 * 0.7 + 1),
        ("-\\eta^2", -(0.7**2)),
        ("\\eta - 1 - 2", 0.7 - 3),
        ("2 \\cdot 3 / \\eta", 6 / 0.7),
        ("\\frac{1}{2} (\\eta + 1)", 0.85),
        ("10^{-6}", 1e-6),
        ("{\\eta}^2", 0.49),
        ("\\sqrt{\\eta}", 0.7**0.5),
        ("|-\\eta|", 0.7),
        ("\\lfloor 10 \\eta + 0.5 \\rfloor", 7),
        ("\\log\\eta", -3.0),
        ("\\log(\\eta)", np.log(0.7)),
        ("\\log N \\cdot 2", 2 * np.log(5)),
        ("\\max(\\eta, 1) + \\min(\\eta, 1)", 1.7),
        ("\\operatorname{clip}(3, -\\eta, \\eta)", 0.7),
        ("\\operatorname{softplus}(0)", np.log(2)),
        ("\\sum_b x_b", X.sum()),
        ("\\sum_b x_b - 1", X.sum() - 1),
        ("\\sum_b x_b \\eta", X.sum() * 0.7),
        ("\\sum_b (x_b - 1)", X.sum() - 7),
        ("\\sum_k x_k^2", (X**2).sum()),
        ("\\sum_{b \\in S} x_b", X[X > 0].sum()),
        ("\\mathbb{E}_{b \\in S}[x_b]", X[X > 0].mean()),
        ("\\max_{b \\in S} x_b", X.max()),
        ("\\mathbb{E}_b[x_b]", X.mean()),
        ("\\operatorname{Var}_b(x_b)", X.var()),
        ("\\operatorname{Std}_b[x_b]", X.std()),
        ("\\mathbb{E}_b[\\mathbf{1}[x_b > 0]]", (X > 0).mean()),
        ("\\sum_b \\gamma^b x_b", (0.9 ** np.arange(7) * X).sum()),
        ("\\log \\sum_b \\exp(x_b) - \\log N", np.log(np.exp(X).sum()) - np.log(5)),
        ("\\prod_b x_b", X.prod()),
        ("\\sum_b V(s_b)", (X**2).sum()),
        ("\\sum_b x_b^{old}", 2 * X.sum()),
        ("\\sum_b (F_{b+1} - F_b)", F[-1] - F[0]),
        ("\\frac{1}{N} \\sum_b \\sum_i Q_{b,i}", Q.sum() / 5),
        ("\\sum_{b,i} Q_{b,i}", Q.sum()),
    ],
)
def test_a_formula_has_the_value_that_its_reading_gives(tex: str, expected: float) -> None:
    assert value(tex).axes == ()
    np.testing.assert_allclose(value(tex).values, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("tex", "axes", "expected"),
    [
        ("Q_{b,i} x_b", ("b", "i"), (Q * X).T),
        ("\\frac{\\exp(Q_{b,i})}{\\sum_k \\exp(Q_{b,k})}", ("b", "i"), (np.exp(Q) / np.exp(Q).sum(0)).T),
        ("\\sum_i Q_{b,i}", ("b",), Q.sum(0)),
        ("\\prod_{k<b} x_k", ("b",), np.concatenate([[1], np.cumprod(X)[:-1]])),
        ("\\mathbf{1}[b \\in S]", ("b",), MASK),
        ("w_j u_j", ("...1", "j"), by_name["w_j"] * by_name["u_j"]),
    ],
)
def test_arrays_meet_by_the_names_of_their_axes(tex: str, axes: tuple[str, ...], expected: np.ndarray) -> None:
    found = value(tex)
    assert set(found.axes) == set(axes)
    np.testing.assert_allclose(found.over(axes), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("tex", "message"),
    [
        ("\\kappa", "UNKNOWN"),
        ("x_b^{new}", "UNKNOWN"),
        ("\\eta_b", "UNKNOWN"),
        ("\\log N \\eta", "one factor"),
        ("1 / \\eta N", "ambiguous"),
        ("\\mathbb{E}[x_b]", "over which index"),
        ("\\sum x_b", "over which index"),
        ("\\sum_q x_b", "is no index"),
        ("\\operatorname{TopK}(x_b)", "not a known function"),
        ("(\\eta + 1", "`)` was expected"),
        ("\\eta + ", "ends too early"),
        ("\\eta )", "not expected"),
        ("\\sin^{-1} \\eta", "has two meanings"),
        ("\\int x_b", "over what?"),
        ("\\int_\\eta x_b \\, dx_b", "the points of this integral end at"),
        ("\\begin{array} \\eta \\end{array}", "cases and the matrices are known"),
        ("\\operatorname{clip}(\\eta, 1)", "takes 3 arguments"),
        ("\\mathbf{1}[\\eta + 1]", "comparison was expected"),
        ("\\mathbb{E}_{b \\in \\eta}[x_b]", "a set is a symbol"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(tex: str, message: str) -> None:
    with pytest.raises(FormulaError) as raised:
        value(tex)
    assert message in raised.value.message
    assert 0 <= raised.value.start <= len(tex)


@pytest.mark.parametrize(
    ("tex", "message"),
    [
        ("\\sum_i x_b", "has the index i"),
        ("Q_{i,b} + x_b", "the index b runs over"),
        ("Q_{b,b}", "the index b runs over 5 and 7"),
        ("\\gamma^t", "used as a number"),
    ],
)
def test_indices_that_do_not_fit_are_refused(tex: str, message: str) -> None:
    with pytest.raises(FormulaError, match=message):
        value(tex)


def test_the_two_sides_of_an_equation() -> None:
    left, right = split_equation("\\mathbf{1}[a = b] = c")
    assert [token.text for token in right] == ["c"]
    assert left[-1].text == "]"
    for tex in ("x + y", "= y", "x ="):
        with pytest.raises(FormulaError):
            split_equation(tex)


def test_spellings_of_the_same_symbol_are_one() -> None:
    for one, other in [
        ("x_{t}", "x_t"),
        ("\\tilde{\\eta}", "\\tilde\\eta"),
        ("x \\, y", "x y"),
        ("\\bar A_t", "\\bar{A}_t"),
    ]:
        assert [token.text for token in tokens(one)] == [token.text for token in tokens(other)]
    assert [token.text for token in tokens("z_{min}")] == ["z", "_", "{", "min", "}"]


def test_mutants_differ_from_their_formula_in_value_or_in_axes() -> None:
    tree = parse(tokens("\\frac{1}{N} \\sum_i Q_{b,i} - \\operatorname{clip}(x_b, -\\eta, \\eta)"), VALUES, "tbijkl")
    right = Evaluation(VALUES).run(tree).over(("b",))
    found = mutants(tree)
    assert len(found) > 15
    for mutant in found:
        try:
            wrong = Evaluation(VALUES).run(mutant.tree)
        except FormulaError:
            continue
        assert set(wrong.axes) != {"b"} or not np.allclose(wrong.over(("b",)), right, rtol=1e-9), mutant.what


@pytest.mark.parametrize(
    "allowed", ["x", "self.mean", "x.shape[0]", "moments['first']", "values[-1]", "net(x)", "x[:, 1:]"]
)
def test_a_notation_entry_may_be_a_place(allowed: str) -> None:
    assert arithmetic(allowed) == ""


@pytest.mark.parametrize(
    "refused", ["x + 1", "-x", "x * y", "1e-8", "[x]", "lambda: x", "x if y else z", "x ==", "x > 0"]
)
def test_a_notation_entry_is_never_arithmetic(refused: str) -> None:
    assert arithmetic(refused) != ""
