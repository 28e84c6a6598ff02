"""What is refused before anything runs: limits a formula lacks, symbols that a line does not read, stale ones."""

import pytest
from changed_copies import SmallChecked

ENTRIES = '\'x_t\' = { var = "x", axes = "t", text = "x" }\n\'y\' = { var = "y", text = "y" }\n'
CALL = "f(draw(5), 2.5 + seed)"


def messages(report: object) -> list[str]:
    return [problem.message for problem in report.problems]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("formula", "line", "what"),
    [
        ("z_t = \\exp(y x_t)", "z = torch.exp(torch.clamp(y * x, -99, 99))", "limits a value"),
        ("z_t = \\exp(y x_t)", "z = torch.exp((y * x).clamp_max(99))", "limits a value"),
        ("z_t = y x_t", "z = torch.minimum(y * x, torch.tensor(99.0))", "limits a value"),
        ("z_t = y x_t", "z = min(y, 99) * x", "limits a value"),
        ("z_t = y \\max(x_t, 0)", "z = min(y, 99) * torch.relu(x)", "limits a value"),
        ("z_t = y x_t", "z = torch.where(x < 99, y * x, 0.0)", "chooses between values"),
        ("z_t = y x_t", "z = y * x if y < 99 else x", "chooses between values"),
        ("z_t = y x_t", "z = torch.nan_to_num(y * x)", "replaces what is not a number"),
        ("z_t = \\sqrt{y} x_t + 1", "z = abs(y) ** 0.5 * x + 1 + abs(0)", "takes an absolute value"),
        ("z_t = y x_t", "z = round(y, 5) * x", "rounds a value"),
        ("z_t = y x_t", "z = safe(y * x)", "limits a value"),
    ],
)
def test_what_the_line_does_and_the_formula_does_not_say(
    small: SmallChecked, formula: str, line: str, what: str
) -> None:
    above = "def safe(q):\n    return torch.clamp(q, -99, 99)\n"
    said = messages(small(f"# LaTeX: {formula}\n{line}", ENTRIES, CALL, above))
    assert any(f"the line {what} and the formula does not say so" in message for message in said), said


@pytest.mark.parametrize(
    ("formula", "line"),
    [
        ("z_t = \\min(\\max(x_t, -y), y)", "z = torch.clamp(x, -y, y)"),
        (
            "z_t = \\operatorname{clip}(x_t, -y, y)",
            "z = torch.minimum(torch.maximum(x, torch.tensor(-y)), torch.tensor(y))",
        ),
        ("z_t = y x_t \\mathbf{1}[x_t > 0]", "z = torch.where(x > 0, y * x, 0.0)"),
        ("z_t = y x_t \\mathbf{1}[x_t > 0]", "z = y * torch.relu(x)"),
        ("z = y \\max_t x_t", "z = y * x.max()"),
        ("z = \\log \\sum_t \\exp(y x_t)", "z = (y * x).max() + torch.log(torch.exp(y * x - (y * x).max()).sum())"),
        (
            "z_t = \\begin{cases} y x_t & x_t > 0 \\\\ x_t & \\text{otherwise} \\end{cases}",
            "z = torch.where(x > 0, y * x, x)",
        ),
    ],
)
def test_the_same_in_another_form_is_accepted(small: SmallChecked, formula: str, line: str) -> None:
    body = f"# LaTeX: {formula}\n{line}"
    calls = "f(4 * draw(5), 2.5 + seed)\nf(4 * draw(5), 1.5 + seed)\nf(0.1 * draw(5), 1.0 + seed)"
    assert messages(small(body, ENTRIES, calls)) == []


@pytest.mark.parametrize(
    ("body", "entries", "says"),
    [
        ("w = y\n# LaTeX: z_t = y x_t\nz = w * x", ENTRIES, "`y` is `y`, which this line does not read"),
        ("# LaTeX: z_t = y x_t\nz = 2.5 * x", ENTRIES, "`y` is `y`, which this line does not read"),
        (
            "gamma = 2 * y\n# LaTeX: z_t = \\gamma x_t + y\nz = gamma * x + y",
            ENTRIES.replace("'y' = ", "'\\gamma' = ") + '\'y\' = { var = "gamma", text = "y" }\n',
            "the line has a variable `gamma`",
        ),
        (
            "# LaTeX: w_t = y x_t\nw = y * x\nw = w.clamp(-1, 1)\nz = w",
            ENTRIES,
            "`w_t` is `w`, and line 7 writes that again without a formula",
        ),
        ("# LaTeX: w_t = y x_t\nw = y * x\nw.clamp_(-1, 1)\nz = w", ENTRIES, "writes that again"),
        ("# LaTeX: w_t = y x_t\nw = y * x\nw += 1\nz = w", ENTRIES, "writes that again"),
        ("x = x.clamp(-1, 1)\n# LaTeX: z_t = y x_t\nz = y * x", ENTRIES, "`x_t` is the argument `x`"),
    ],
)
def test_a_symbol_that_is_not_what_its_line_reads(small: SmallChecked, body: str, entries: str, says: str) -> None:
    said = messages(small(body, entries, CALL))
    assert any(says in message for message in said), said


def test_a_written_reason_excuses_a_symbol(small: SmallChecked) -> None:
    entries = ENTRIES.replace('var = "y"', 'var = "y", implied = "w is y"')
    assert messages(small("w = y\n# LaTeX: z_t = y x_t\nz = w * x", entries, CALL)) == []


def test_variables_of_two_branches_are_not_stale(small: SmallChecked) -> None:
    body = "if y > 3:\n    # LaTeX: w_t = y x_t\n    w = y * x\nelse:\n    w = x\nz = w"
    assert messages(small(body, ENTRIES, CALL)) == []


def test_a_value_that_is_added_to_is_a_formula(small: SmallChecked) -> None:
    body = "# LaTeX: \\mathcal{L} = \\sum_t x_t\nz = x.sum()\n# LaTeX: \\mathcal{L}' = \\mathcal{L} + y\nz += y"
    assert messages(small(body, ENTRIES, CALL)) == []
    wrong = body.replace("\\mathcal{L} + y", "\\mathcal{L} - y")
    assert any("the formula gives" in message for message in messages(small(wrong, ENTRIES, CALL)))


# --- the table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "var",
    [
        "torch.mul(x, 2)",
        "x.mul(2)",
        "x.sum()",
        "np.exp(x)",
        "sum(x)",
        "abs(x)",
        "x.clamp_(0)",
        "x.neg()",
        "math.exp(y)",
    ],
)
def test_a_call_in_the_table_does_not_compute(small: SmallChecked, var: str) -> None:
    said = messages(small("# LaTeX: z_t = y x_t\nz = y * x", ENTRIES.replace('var = "x"', f'var = "{var}"'), CALL))
    assert any("which would hide in the table" in message for message in said), said


def test_a_symbol_for_the_whole_line_is_refused(small: SmallChecked) -> None:
    entries = ENTRIES.replace('var = "x"', 'var = "net(x, y)"')
    said = messages(
        small("# LaTeX: z_t = x_t + 0 y\nz = net(x, y)", entries, CALL, "def net(x, y):\n    return x * y\n")
    )
    assert any("is the whole line" in message for message in said), said


@pytest.mark.parametrize(("text", "fine"), [("3: limit", True), ("3", True), ("4: limit", False), ("1e-8", False)])
def test_a_number_in_a_meaning_is_the_codes(small: SmallChecked, text: str, fine: bool) -> None:
    entries = ENTRIES + f'\'c\' = {{ var = "LIMIT", text = "{text}" }}\n'
    said = messages(small("# LaTeX: z_t = c y x_t\nz = LIMIT * y * x", entries, CALL, "LIMIT = 3.0\n"))
    assert (said == []) == fine
    assert fine or "the table says that `c` is" in said[0]


def test_slack_has_an_upper_limit(small: SmallChecked) -> None:
    said = messages(small('# LaTeX[slack=0.5 "why"]: z_t = y x_t\nz = 1.3 * y * x', ENTRIES, CALL))
    assert said == ["a slack of 0.5 would let errors pass: at most 0.01"]
