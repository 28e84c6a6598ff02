"""Formulas of statistics, physics and finance, as their fields write them: what holds passes, what does not is told."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mathdoc.__main__ import main
from mathdoc.check import Report, check
from mathdoc.settings import find_settings

Checked = Callable[..., Report]

HEAD = "import math\nimport numpy as np\n\n"
START = """import numpy as np
from field import f

def run(dtype, seed):
    random = np.random.default_rng(seed)

    def draw(*shape):
        return random.uniform(0.5, 1.5, shape).astype(dtype)

"""


@pytest.fixture
def field(tmp_path: Path) -> Checked:
    """`field(code, entries, calls)`: the check of a package whose module has one function `f`."""

    def checked(code: str, entries: str, calls: str, axes: str = "ijknt") -> Report:
        table = "[axes]\n" + "".join(f'{axis} = "index"\n' for axis in axes) + "[functions.f]\n"
        for line in entries.split("; "):
            tex, _, fields = line.partition(": ")
            var, _, rest = fields.partition(", ")
            table += f'\'{tex}\' = {{ var = "{var}", {rest}{", " if rest else ""}text = "meaning" }}\n'
        body = "".join(f"    {line}\n" for line in calls.splitlines())
        for name, text in {
            "field/__init__.py": HEAD + code,
            "docs/notation/field.toml": table,
            "docs/exercises.py": START + body,
            "pyproject.toml": "",
        }.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return check(find_settings(str(tmp_path / "field")))

    return checked


def said(report: Report) -> str:
    return "\n\n".join(map(str, report.problems))


RUNGE_KUTTA = """
def f(slope, t, y, h):
    # LaTeX: k_1 = g(t, y)
    k1 = slope(t, y)
    # LaTeX: k_2 = g(t + \\frac{h}{2}, y + \\frac{h}{2} k_1)
    k2 = slope(t + h / 2, y + h / 2 * k1)
    # LaTeX: y' = y + h k_2
    new = y + h * k2
    return new
"""
SLOPE = 'g: slope, shape = "function"; t: t; y: y, axes = "..."; h: h'
SWING = "f(lambda t, y: np.array([y[1], -y[0] * t]), 0.4 + 0.1 * seed, draw(2), 0.3 + 0.1 * seed)"

HOLDS = {
    "a function of the code": (RUNGE_KUTTA, SLOPE, SWING),
    "a matrix by its entries": (
        """
def f(a):
    # LaTeX: R = \\begin{pmatrix} \\cos a & -\\sin a \\\\ \\sin a & \\cos a \\end{pmatrix}
    matrix = np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
    return matrix
""",
        "a: a",
        "f(0.6 + 0.1 * seed)",
    ),
    "an index that goes round": (
        """
def f(spins, coupling):
    # LaTeX: E = -J \\sum_i s_i s_{(i+1) \\bmod N}
    energy = -coupling * np.sum(spins * np.roll(spins, -1))
    return energy
""",
        'J: coupling; s_i: spins, axes = "i"; N: len(spins)',
        "f(draw(6), 0.7 + 0.1 * seed)",
    ),
    "pairs": (
        """
def f(spins, coupling):
    # LaTeX: E = \\sum_{i<j} J_{ij} s_i s_j
    energy = np.sum(np.triu(coupling, 1) * np.outer(spins, spins))
    return energy
""",
        'J_{ij}: coupling, axes = "i j"; s_i: spins, axes = "i"',
        "f(draw(6), draw(6, 6))",
    ),
    "an entry that another symbol chooses": (
        """
def f(p, labels):
    # LaTeX: L = -\\frac{1}{N} \\sum_n \\log p_{n,y_n}
    loss = -np.log(p[np.arange(len(p)), labels]).mean()
    return loss
""",
        'p_{n,k}: p, axes = "n k"; y_n: labels, axes = "n"; N: len(p)',
        "f(draw(5, 3), random.integers(0, 3, 5))",
    ),
    "an integral": (
        """
def f(g, k):
    x = np.linspace(0, 2 * np.pi, 200)[:-1]
    # LaTeX: a_k = \\frac{1}{\\pi} \\int_0^{2\\pi} g(x) \\cos(k x) \\, dx
    coefficient = (g(x) * np.cos(k * x)).mean() * 2
    return coefficient
""",
        'g: g, shape = "function"; k: k',
        "f(lambda x: np.exp(np.sin(x + 1)), 2 + seed)",
    ),
    "a Fourier transform": (
        """
def f(x):
    # LaTeX: F_k = \\sum_{n=0}^{N-1} x_n e^{-\\frac{2 \\pi \\mathrm{i} k n}{N}}
    spectrum = np.fft.fft(x)
    return spectrum
""",
        'x_n: x, axes = "n"; N: len(x)',
        "f(draw(5 + seed))",
    ),
    "a series": (
        """
def f(x):
    # LaTeX: y = \\sum_{k=0}^{5} \\frac{x^k}{k!}
    series = sum(x**k / math.factorial(k) for k in range(6))
    return series
""",
        "x: x",
        "f(0.6 + 0.1 * seed)",
    ),
    "letters that touch in an exponent": (
        """
def f(r, t):
    # LaTeX: d = e^{-rT}
    discount = math.exp(-r * t)
    return discount
""",
        "r: r; T: t",
        "f(0.1 + 0.1 * seed, 1.5 + seed)",
    ),
    "a vector product": (
        """
def f(position, force):
    # LaTeX: \\tau = r \\times F
    moment = np.cross(position, force)
    return moment
""",
        'r: position, shape = "vector"; F: force, shape = "vector"',
        "f(draw(3), draw(3))",
    ),
    "a norm that the line spells out": (
        """
def f(x):
    # LaTeX: d = \\|x\\|_1 + \\|x\\|_\\infty
    distance = np.abs(x).sum() + np.abs(x).max()
    return distance
""",
        'x: x, shape = "vector"',
        "f(draw(4) - 1)",
    ),
    "a trace, in which two matrices may be exchanged": (
        """
def f(a, b):
    # LaTeX: t = \\operatorname{tr}(A B)
    trace = np.trace(a @ b)
    return trace
""",
        'A: a, shape = "matrix"; B: b, shape = "matrix"',
        "f(draw(4, 4), draw(4, 4))",
    ),
    "quantities in SI units": (
        """
BOLTZMANN = 1.380649e-23


def f(energies, temperature):
    # LaTeX: Z = \\sum_i e^{-\\frac{E_i}{k_B T}}
    partition = np.exp(-energies / (BOLTZMANN * temperature)).sum()
    # LaTeX: U = \\frac{1}{Z} \\sum_i E_i e^{-\\frac{E_i}{k_B T}}
    mean = (energies * np.exp(-energies / (BOLTZMANN * temperature))).sum() / partition
    return mean
""",
        'E_i: energies, axes = "i"; k_B: BOLTZMANN; T: temperature',
        "f(draw(4) * 1e-21, 200.0 + seed)",
    ),
    "a symbol that the line computes again": (
        """
def f(x):
    # LaTeX: \\bar{x} = \\frac{1}{N} \\sum_{i=1}^{N} x_i
    mean = x.mean()
    # LaTeX: s^2 = \\frac{1}{N-1} \\sum_{i=1}^N (x_i - \\bar{x})^2
    variance = x.var(ddof=1)
    return variance
""",
        'x_i: x, axes = "i"; N: len(x)',
        "f(draw(5))",
    ),
}


@pytest.mark.parametrize("name", HOLDS)
def test_what_holds_is_verified(field: Checked, name: str) -> None:
    report = field(*HOLDS[name])
    assert said(report) == ""
    assert {verdict.status for verdict in report.verdicts} == {"verified"}


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("a function of the code", "slope(t + h / 2, y", "slope(t + h / 3, y"),
        ("a function of the code", "y + h / 2 * k1", "y + h * k1"),
        ("a matrix by its entries", "-math.sin(a)], [math.sin(a)", "math.sin(a)], [-math.sin(a)"),
        ("an index that goes round", "np.roll(spins, -1)", "np.roll(spins, -2)"),
        ("pairs", "np.triu(coupling, 1)", "np.triu(coupling)"),
        ("an entry that another symbol chooses", "np.arange(len(p)), labels", "np.arange(len(p)), labels - 1"),
        ("an integral", "np.cos(k", "np.sin(k"),
        ("a Fourier transform", "fft.fft", "fft.ifft"),
        ("a series", "range(6)", "range(7)"),
        ("a vector product", "position, force)\n", "force, position)\n"),
        ("quantities in SI units", ").sum() / partition", ").mean() / partition"),
        ("a symbol that the line computes again", "x.var(ddof=1)", "x.var()"),
    ],
)
def test_what_does_not_hold_is_refused(field: Checked, name: str, right: str, wrong: str) -> None:
    code, entries, calls = HOLDS[name]
    assert right in code
    report = field(code.replace(right, wrong), entries, calls)
    assert "the formula gives" in said(report)


def test_a_result_that_is_zero_but_for_rounding_is_one(field: Checked) -> None:
    code = """
def f(x, k):
    # LaTeX: m = \\sum_i (x_i - \\frac{1}{N} \\sum_j x_j)
    rest = (x - x.mean()).sum()
    # LaTeX: a = \\int_0^{2 \\pi} \\sin(k u) \\, du + m
    odd = (1 - math.cos(2 * np.pi * k)) / k + rest
    return odd
"""
    report = field(code, 'x_i: x, axes = "i"; N: len(x); k: k', "f(draw(6), 2 + seed)")
    assert "the formula gives" not in said(report)


HEAT = """
def f(u, a):
    new = u.copy()
    # LaTeX: u'_i = u_i + a (u_{i+1} - 2 u_i + u_{i-1})
    new[1:-1] = u[1:-1] + a * (u[2:] - 2 * u[1:-1] + u[:-2])
    return new
"""


def test_a_part_of_an_array_is_written_where_the_formula_says(field: Checked) -> None:
    entries, call = 'u_i: u, axes = "i"; a: a', "f(draw(6), 0.3 + 0.1 * seed)"
    assert said(field(HEAT, entries, call)) == ""
    moved = field(HEAT.replace("new[1:-1]", "new[2:]"), entries, call)
    assert "writes from the entry 2 on, and by the formula i begins at the entry 1" in said(moved)
    named = field(HEAT.replace("new[1:-1]", "new[2:]").replace("u'_i", "u'_{i+1}"), entries, call)
    assert said(named) == ""


@pytest.mark.parametrize(
    ("tex", "line", "entries", "says"),
    [
        ("d_i = x_{i+1} + x_i", "np.roll(x, -1) + x", 'x_i: x, axes = "i"', "(i+1) \\bmod N"),
        ("y = e^{-rT}", "math.exp(-r * x)", "r: r", "`rT` is not defined"),
        ("y = 2 x_1", "2 * x[0]", 'x_i: x, axes = "i"', '\'x_1\' = { var = "x[0]" or var = "x[1]"'),
        ("y = \\nabla_x r", "r * 2", "r: r", "a derivative is written out"),
        ("y = g(2 x)", "abs(math.floor(r)) + h(2 * x)", "x: x", '\'g\' = { var = "h", shape = "function"'),
        ("y = \\sum_i x_i", "x.sum()", "x_i: x", 'axes = "i", or shape = "vector"'),
        ("y_i = \\log p_i", "np.log(np.exp(x))", 'p_i: np.exp(x), axes = "i"', "a line and a formula of its own"),
        ("y = \\log r", "np.log(r - 9)", "r: r", "the formula gives"),
        ("y = \\log(r - 9)", "np.log(r - 9)", "r: r", "choose exercises for which it is a number"),
        ("E = \\sum_{i<j} x_i x_j + x_j", "x.sum() * 1", 'x_i: x, axes = "i"', "index j"),
        ("E = \\sum_i x_i x_{(i+1) \\bmod 3}", "x.sum() * 1", 'x_i: x, axes = "i"', "goes round after 3 entries"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_cannot_be_checked_says_what_to_do(field: Checked, tex: str, line: str, entries: str, says: str) -> None:
    report = field(
        f"def h(x):\n    return x\n\n\ndef f(x, r):\n    # LaTeX: {tex}\n    y = {line}\n    return y\n",
        entries,
        "f(draw(5), 0.5 + 0.1 * seed)",
    )
    assert says in said(report)
    assert report.problems


def test_what_follows_from_one_fault_is_not_told_as_another(field: Checked) -> None:
    code = """
def f(x):
    # LaTeX: a = 2 \\beta x
    a = 2 * x
    # LaTeX: b = a + 1
    b = a + 1
    return b
"""
    report = field(code, "x: x; \\beta: ...", "f(0.5 + seed)")
    messages = [problem.message for problem in report.problems]
    assert messages == [
        "`\\beta`: it is not said yet which variable it stands for",
        "`\\beta` is refused in field.toml, line 9",
        "`a` is what line 6 computes, whose formula could not be read",
    ]


def test_a_case_that_no_exercise_reaches_is_told_without_what_stands_in_it(field: Checked) -> None:
    code = """
def f(r, d):
    # LaTeX: l_i = \\begin{cases} \\frac{r_i^2}{2} & |r_i| < d \\\\ d |r_i| - \\frac{d^2}{2} & \\text{else} \\end{cases}
    loss = np.where(np.abs(r) < d, 0.5 * r**2, d * np.abs(r) - 0.5 * d**2)
    return loss
"""
    entries = 'r_i: r, axes = "i"; d: d'
    assert said(field(code, entries, "f(3 * draw(9) - 3, 0.5 + 0.1 * seed)")) == ""
    report = field(code, entries, "f(3 * draw(9), 0.5 + 0.1 * seed)")
    assert {problem.message.partition(" to ")[0] for problem in report.problems} == {"the exercises never took this"}


def test_after_a_call_that_fails_the_next_is_made(field: Checked) -> None:
    code = "\ndef f(x):\n    # LaTeX: y = 2 x\n    y = 2 * x\n    return y\n"
    report = field(code, "x: x", "f(None)\nf(0.5 + seed)")
    assert [problem.message.partition(":")[0] for problem in report.problems] == ["this call fails"]
    assert report.problems[0].line == 10
    assert [verdict.status for verdict in report.verdicts] == ["verified"]


def test_gradients_that_agree_for_the_exercises_alone_are_told_so(field: Checked) -> None:
    pytest.importorskip("torch")
    code = "import torch\n\n\ndef f(a, q):\n    # LaTeX: g = A q\n    g = (a + a.T) @ q / 2\n    return g\n"
    calls = "import torch\na = draw(4, 4)\nf(torch.from_numpy(a + a.T), torch.from_numpy(draw(4)))"
    report = field(code, 'A: a, shape = "matrix"; q: q, shape = "vector"', calls)
    assert "equal only for values like those of the exercises" in said(report)


def test_a_product_of_matrices_is_explained(
    field: Checked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "\ndef f(k, h, p):\n    # LaTeX: Q = (I - K H) P\n    q = (np.eye(4) - k @ h) @ p\n    return q\n"
    matrices = "; ".join(f'{name.upper()}: {name}, shape = "matrix"' for name in "khp")
    assert said(field(code, matrices, "f(draw(4, 3), draw(3, 4), draw(4, 4))")) == ""
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "field/__init__.py:6"]) == 0
    assert "over (row), (column)" in capsys.readouterr().out


def test_a_wrong_line_beside_a_factorial_is_refused(field: Checked) -> None:
    code = """
def f(k, r):
    # LaTeX: l = \\sum_i (k_i \\log r - \\log k_i!)
    l = sum(n * math.log(r) - math.lgamma(n + 2) for n in k)
    return l
"""
    report = field(code, 'k_i: k, axes = "i"; r: r', "f(random.poisson(3, 6), 0.5 + 0.1 * seed)")
    assert "the formula gives" in said(report)
