"""The part of the parser that reads functions, fractions, cases and integrals."""

from abc import abstractmethod

from mathdoc.lexer import Token, closing
from mathdoc.matching import longest
from mathdoc.notation import Binding
from mathdoc.ranges import RangeParser
from mathdoc.tree import (
    Apply,
    Call,
    Cases,
    Continuous,
    Integral,
    Matrix,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    Transposed,
)
from mathdoc.words import ALIASES, ARGUMENTS, BARE, BRACKETED, BRACKETS, ELEMENTWISE, NAMED, REDUCTIONS, TIMES

MATRICES = {"pmatrix", "bmatrix", "matrix"}


class FunctionParser(RangeParser):
    """The parser of expressions adds `factor`, `within` and `ended`."""

    @abstractmethod
    def factor(self) -> Node:
        """An atom with its exponents."""

    @abstractmethod
    def within(self, end: str) -> Node:
        """What is inside a pair of brackets or bars."""

    @abstractmethod
    def ended(self) -> bool:
        """Whether a term ends here."""

    def applied(self, binding: Binding, first: int) -> Node:
        """A function of the code with its arguments."""
        binding.used = True
        if self.peek() != "(":
            self.fail(f"`{binding.tex}` is a function: its arguments follow in brackets")
        return Apply(binding, self.arguments(None), span=self.span(first))

    def function(self, token: Token) -> Node:
        """`\\sin x`, `\\sin^2 x`, `\\log_2 x`."""
        first = self.at
        self.at += 1
        base: Node | None = None
        exponent: Node | None = None
        if self.peek() == "_":
            if token.text != "\\log":
                self.fail("only a logarithm has a base")
            self.at += 1
            base = self.group()
        if self.peek() == "^":
            if self.peek(2) == "-":
                self.fail(f"`{token.text}^{{-1}}` has two meanings: write \\arc..., or a fraction")
            self.at += 1
            exponent = self.group()
        node: Node = Call(BARE[token.text], (self.argument(),), span=self.span(first))
        if base is not None:
            node = Quotient(node, Call("log", (base,)), span=self.span(first))
        return node if exponent is None else Power(node, exponent, span=self.span(first))

    def argument(self) -> Node:
        """Of a function: in brackets, or bare, and then exactly one factor or one sum with its term."""
        if self.peek() in ("(", "["):
            return self.within(BRACKETS[self.peek()])
        if self.peek() in REDUCTIONS and longest(self.found, self.at, self.bindings, self.letters) is None:
            return self.factor()
        inner = self.factor()
        if not self.ended() and self.peek() not in {"/"} | TIMES | ELEMENTWISE:
            self.fail("what a function without brackets applies to is one factor: write the brackets")
        return inner

    def fraction(self) -> Node:
        r"""`\frac{a}{b}`."""
        first = self.at
        self.at += 1
        top = self.operand()
        bottom = self.operand()
        return Quotient(top, bottom, span=self.span(first))

    def operand(self) -> Node:
        """`{...}`, or a single sign: `\\frac12`."""
        return self.group() if self.peek() == "{" else self.atom()

    def root(self) -> Node:
        r"""`\sqrt{a}`, `\sqrt[3]{a}`."""
        first = self.at
        self.at += 1
        degree = self.within("]") if self.peek() == "[" else None
        inner = self.operand()
        if degree is None:
            return Call("sqrt", (inner,), span=self.span(first))
        return Power(inner, Quotient(Number(1.0), degree), span=self.span(first))

    def rounded(self, function: str) -> Node:
        r"""`\lfloor a \rfloor`, `\lceil a \rceil`, and to the nearest `\lfloor a \rceil`."""
        first = self.at
        self.inside.append("")
        self.at += 1
        inner = self.sum()
        self.inside.pop()
        nearest = function == "floor" and self.peek() == "\\rceil"
        self.take("\\rceil" if nearest else f"\\r{function}")
        return Call("round" if nearest else function, (inner,), span=self.span(first))

    def binomial(self) -> Node:
        r"""`\binom{n}{k}`."""
        first = self.at
        self.at += 1
        return Call("binom", (self.operand(), self.operand()), span=self.span(first))

    def scalar_product(self) -> Node:
        r"""`\langle u, v \rangle`."""
        first = self.at
        self.at += 1
        left = self.sum()
        self.take(",")
        right = self.sum()
        self.take("\\rangle")
        return Product((Transposed(left), right), span=self.span(first))

    def operator_name(self) -> str:
        """What stands in the braces behind this command."""
        end = closing(self.found, self.at + 1)
        name = "".join(token.text for token in self.found[self.at + 2 : end])
        return ALIASES.get(name, name)

    def named(self) -> Node:
        r"""`\operatorname{clip}(a, b, c)`, `\operatorname{Var}_i(x_i)`, `\operatorname{argmax}_i x_i`."""
        first = self.at
        end = closing(self.found, self.at + 1)
        name = self.operator_name()
        if name in BRACKETED and (name not in NAMED or (end + 1 < len(self.found) and self.found[end + 1].text == "_")):
            self.at = end + 1
            return self.bracketed(BRACKETED[name], first)
        if name in ARGUMENTS:
            self.at = end
            return self.reduction(ARGUMENTS[name])
        if name not in NAMED:
            known = ", ".join(sorted({*NAMED, *BRACKETED, *ARGUMENTS}))
            self.fail(f"\\operatorname{{{name}}} is not a known function: known are {known}")
        self.at = end + 1
        return Call(name, self.arguments(NAMED[name]), span=self.span(first))

    def environment(self) -> Node:
        r"""`\begin{cases}`, or a matrix by its entries."""
        first = self.at
        end = closing(self.found, self.at + 1)
        name = "".join(token.text for token in self.found[self.at + 2 : end])
        if name not in MATRICES | {"cases"}:
            self.fail(f"of the environments cases and the matrices are known: {', '.join(sorted(MATRICES))}")
        self.at = end + 1
        return self.cases(first) if name == "cases" else self.matrix(first)

    def matrix(self, first: int) -> Node:
        r"""`\begin{pmatrix} a & b \\ c & d \end{pmatrix}`, its rows of equal length."""
        rows: list[list[Node]] = [[]]
        while self.peek() != "\\end":
            rows[-1].append(self.sum())
            if self.peek() == "\\\\" and self.peek(1) != "\\end":
                rows.append([])
            elif self.peek() not in ("&", "\\\\", "\\end"):
                self.fail("`&` was expected here")
            self.at += self.peek() != "\\end"
        self.at = closing(self.found, self.at + 1) + 1
        if len({len(row) for row in rows}) > 1:
            self.fail("the rows of this matrix differ in length")
        return Matrix(tuple(entry for row in rows for entry in row), len(rows[0]), span=self.span(first))

    def cases(self, first: int) -> Node:
        r"""`\begin{cases} a & a > b \\ b & \text{otherwise} \end{cases}`."""
        values: list[Node] = []
        conditions: list[Node] = []
        while self.peek() != "\\end":
            values.append(self.sum())
            self.at += self.peek() == ","
            self.take("&")
            if self.peek() == "\\text":
                self.at = closing(self.found, self.at + 1) + 1
            if self.peek() in ("\\\\", "\\end"):
                self.at += self.peek() == "\\\\"
                break
            conditions.append(self.condition())
            self.at += self.peek() == ","
            self.at += self.peek() == "\\\\"
        self.take("\\end")
        self.at = closing(self.found, self.at) + 1
        if len(values) == len(conditions):
            self.fail("say what holds in all other cases: the last line ends with & \\text{otherwise}")
        return Cases(tuple(values), tuple(conditions), span=self.span(first))

    def blackboard(self) -> Node:
        """`\\mathbb{E}` is a mean, `\\mathbb{1}` an indicator."""
        if self.peek(2) in ("1", "I"):
            return self.indicator()
        first = self.at
        self.at += 4
        return self.bracketed("mean", first)

    def integral(self) -> Node:
        r"""`\int_a^b y_i \, dx_i`: behind the `d` is a symbol with one index, or a variable of its own."""
        first = self.at
        self.at += 1
        ends: dict[str, Node | None] = {"_": None, "^": None}
        while self.peek() in ends:
            sign = self.peek()
            self.at += 1
            ends[sign] = self.group()
        for at in range(self.at, len(self.found)):
            upright = [token.text for token in self.found[at : at + 4]] == ["\\mathrm", "{", "d", "}"]
            start = at + 4 if upright else at + 1
            over = longest(self.found, start, self.bindings, self.letters) if start < len(self.found) else None
            if (upright or self.found[at].text == "d") and over is not None and len(over[0].indices) == 1:
                body = self.integrand(at, frozenset()) if at > self.at else Number(1.0)
                self.at = over[1]
                over[0].binding.used = True
                return Integral(body, over[0], ends["_"], ends["^"], span=self.span(first))
            name = self.found[start].text if start < len(self.found) else ""
            free = name in {token.text for token in self.found[self.at : at]}
            if (upright or self.found[at].text == "d") and free and ends["_"] and ends["^"]:
                body = self.integrand(at, frozenset((name,)))
                self.at = start + 1
                return Continuous(body, name, ends["_"], ends["^"], span=self.span(first))
        self.fail("over what? An integral has limits and ends with d and its variable, \\int_0^1 e^{-x} \\, dx, "
                  "or with d and a symbol that has one index, \\int y_i \\, dx_i")  # fmt: skip
        raise AssertionError

    def integrand(self, end: int, dummies: frozenset[str]) -> Node:
        """What stands between an integral's limits and its `d`."""
        inner = type(self)(self.found[self.at : end], self.bindings, self.letters)
        inner.dummies = self.dummies | dummies
        body = inner.sum()
        if inner.at < len(inner.found):
            inner.fail(f"`{inner.peek()}` was not expected here")
        return body

    def argument_of(self) -> Node:
        """`\\arg\\max_k`."""
        kind = {"\\max": "argmax", "\\min": "argmin"}.get(self.peek(1), "")
        if not kind:
            self.fail("`\\arg` is followed by \\max or \\min")
        self.at += 1
        return self.reduction(kind)
