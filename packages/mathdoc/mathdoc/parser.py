"""Formulas as trees, by recursive descent over a restricted LaTeX. The notation decides what is a symbol.

equation := symbol (= | \\leftarrow | \\approx) sum
sum      := [-] term { (+|-) term }
term     := factor { [\\cdot | \\times | \\odot | /] factor }      a sum sign reaches to the end of its term
factor   := atom [ ^ exponent ]
atom     := symbol | number | index | ( sum ) | { sum } | |sum| | \\frac | \\sqrt | function | reduction
            | indicator | cases
"""

import math
from collections.abc import Callable, Iterable

from mathdoc.functions import FunctionParser
from mathdoc.lexer import Token, closing, multiplied, separated, tokens
from mathdoc.matching import guess, longest
from mathdoc.notation import Binding
from mathdoc.problem import FormulaError
from mathdoc.shapes import shape_of
from mathdoc.tree import (
    Call,
    Dummy,
    Elementwise,
    Identity,
    Imaginary,
    Inverse,
    Node,
    Number,
    Position,
    Power,
    Product,
    Quotient,
    Sum,
    Transposed,
    Use,
    walk,
)
from mathdoc.words import (
    ARGUMENTS,
    BARE,
    BARS,
    BEFORE_BRACKETS,
    BRACKETED,
    BRACKETS,
    ELEMENTWISE,
    ENDS,
    NAMED,
    NORMS,
    REDUCTIONS,
    RELATIONS,
    TIMES,
    TRANSPOSED,
)

FONT = {"\\mathsf", "\\mathrm", "{", "}"}
"""What may stand around the sign of a transpose."""


def split_equation(tex: str) -> tuple[list[Token], list[Token]]:
    """The tokens left and right of the relation."""
    found = tokens(tex)
    depth = 0
    for at, token in enumerate(found):
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(token.text, 0)
        if token.text in RELATIONS and depth == 0:
            if not found[:at] or not found[at + 1 :]:
                raise FormulaError("one side of this equation is empty", token.start, token.end)
            return found[:at], found[at + 1 :]
    raise FormulaError("a formula is an equation: its left-hand side is what the line assigns", 0, len(tex))


def parse(found: list[Token], bindings: Iterable[Binding], axes: Iterable[str]) -> Node:
    """The tree of one side of an equation."""
    known, letters = list(bindings), set(axes)
    words = {item.text for b in known for item in b.pattern if isinstance(item, Token)}
    found = multiplied(separated(found, letters, words), {b.tex for b in known}, words)
    parser = _Parser(found, known, letters)
    tree = parser.sum()
    if parser.at < len(found):
        parser.fail(f"`{found[parser.at].text}` was not expected here")
    return tree


class _Parser(FunctionParser):
    # --- sums, terms, factors -------------------------------------------------------------------------------

    def sum(self) -> Node:
        first = self.at
        signs = [-1 if self.peek() == "-" else 1]
        self.at += self.peek() in ("+", "-")
        terms = [self.remainder()]
        while self.peek() in ("+", "-"):
            signs.append(1 if self.peek() == "+" else -1)
            self.at += 1
            terms.append(self.remainder())
        if len(terms) == 1 and signs == [1]:
            return terms[0]
        return Sum(tuple(terms), tuple(signs), span=self.span(first))

    def ended(self) -> bool:
        """Whether a term ends here. A bar ends it if one is open, and begins a factor if none is."""
        bar = self.peek() in BARS and bool(self.inside) and self.inside[-1] == self.peek()
        return not self.peek() or self.peek() in ENDS or bar

    def remainder(self) -> Node:
        r"""A term, or `a \bmod b` of two."""
        first = self.at
        left = self.term()
        while self.peek() == "\\bmod":
            self.at += 1
            left = Call("mod", (left, self.term()), span=self.span(first))
        return left

    def term(self) -> Node:
        first = self.at
        factors = [self.factor()]
        while not self.ended():
            if self.peek() == "/":
                self.at += 1
                bottom = self.factor()
                top = factors[0] if len(factors) == 1 else Product(tuple(factors), span=self.span(first))
                factors = [Quotient(top, bottom, span=self.span(first))]
                if not self.ended() and self.peek() != "/":
                    self.fail("what follows a quotient written with / is ambiguous: use \\frac or brackets")
                continue
            if self.peek() in ELEMENTWISE:
                self.at += 1
                factors[-1] = Elementwise((factors[-1], self.factor()), span=self.span(first))
                continue
            inner = self.peek() == "\\cdot" and shape_of(factors[-1]) == "vector"
            outer = self.peek() == "\\otimes" and shape_of(factors[-1]) == "vector"
            cross = self.peek() == "\\times" and shape_of(factors[-1]) == "vector"
            self.at += self.peek() in TIMES or outer
            factors.append(self.factor())
            if inner and shape_of(factors[-1]) == "vector":  # the scalar product of two vectors
                factors[-2:] = [Product((Transposed(factors[-2]), factors[-1]), span=self.span(first))]
            elif cross and shape_of(factors[-1]) == "vector":
                factors[-2:] = [Call("cross", (factors[-2], factors[-1]), span=self.span(first))]
            elif outer:
                factors[-1] = Transposed(factors[-1], span=factors[-1].span)
        return factors[0] if len(factors) == 1 else Product(tuple(factors), span=self.span(first))

    def factor(self) -> Node:
        first = self.at
        base = self.atom()
        while self.peek() in ("^", "!"):
            if self.peek() == "!":
                self.at += 1
                base = Call("factorial", (base,), span=self.span(first))
                continue
            end = closing(self.found, self.at + 1)
            written = [token.text for token in self.found[self.at + 2 : end] if token.text not in FONT]
            matrix = shape_of(base)
            if matrix and written and written[-1] in TRANSPOSED and len(written) <= 2:
                base = Transposed(Inverse(base) if written[0] == "-" else base, span=self.span(first))
                self.at = end + 1
            elif matrix and written == ["\\dagger"]:
                base = Call("conj", (Transposed(base),), span=self.span(first))
                self.at = end + 1
            elif matrix == "matrix" and written == ["-", "1"]:
                self.at = end + 1
                base = Inverse(base, span=self.span(first))
            else:
                self.at += 1
                return Power(base, self.group(), span=self.span(first))
        return base

    # --- atoms ----------------------------------------------------------------------------------------------

    def atom(self) -> Node:
        first = self.at
        if not self.peek():
            self.fail("the formula ends too early")
        if self.peek() in self.dummies and self.peek(1) not in ("_", "'"):
            self.at += 1
            return Dummy(self.found[first].text, span=self.span(first))
        symbol = longest(self.found, self.at, self.bindings, self.letters)
        if symbol is not None:
            use, self.at = symbol
            if self.continues(shape_of(use)):
                self.at = first
                return self.unknown()
            if use.binding.shape == "function":
                return self.applied(use.binding, first)
            for part in walk(use):
                if isinstance(part, Use):
                    part.binding.used = True
            return use
        token = self.found[self.at]
        if token.kind == "number":
            self.at += 1
            return Number(float(token.text), span=self.span(first))
        if token.text in BRACKETS:
            return self.within(BRACKETS[token.text])
        if token.text in BARS:
            inner = self.within(token.text)
            return Call(self.norm() if token.text == "\\|" else "abs", (inner,), span=self.span(first))
        return self.operator(token)

    def within(self, end: str) -> Node:
        """What is inside a pair of brackets or bars."""
        self.inside.append(end)
        self.at += 1
        inner = self.sum()
        self.take(end)
        self.inside.pop()
        return inner

    def norm(self) -> str:
        """Which norm, by its subscript; Euclid's without."""
        if self.peek() != "_":
            return "norm"
        kind = NORMS.get(self.peek(2), "")
        if not kind:
            self.fail("the norms are 1, 2, F and \\infty")
        self.at = closing(self.found, self.at + 1) + 1
        return kind

    def continues(self, shape: str) -> bool:
        """Whether what was matched is only the beginning of a longer symbol: `M` of `M_\\pi`, `w_t` of `w_t^{old}`."""
        word = self.peek() == "^" and self.at + 2 < len(self.found) and self.found[self.at + 2].kind == "word"
        return self.peek() in ("_", "'") or (word and not shape)

    def operator(self, token: Token) -> Node:
        first = self.at
        known: dict[str, Callable[[], Node]] = {
            "\\frac": self.fraction,
            "\\sqrt": self.root,
            "\\binom": self.binomial,
            "\\langle": self.scalar_product,
            "\\lfloor": lambda: self.rounded("floor"),
            "\\lceil": lambda: self.rounded("ceil"),
            "\\mathbb": self.blackboard,
            "\\mathbf": self.indicator,
            "\\operatorname": self.named,
            "\\mathrm": self.named,
            "\\text": self.named,
            "\\begin": self.environment,
            "\\arg": self.argument_of,
        }
        if token.text in known and self.is_operator(token.text):
            return known[token.text]()
        if token.text in BARE:
            return self.function(token)
        if token.text in REDUCTIONS:
            return self.reduction(REDUCTIONS[token.text])
        upright = self.upright(first)
        if upright is not None:
            return upright
        if token.text in BEFORE_BRACKETS and self.peek(1) in ("(", "["):
            self.at += 1
            return Call(BEFORE_BRACKETS[token.text], self.arguments(1), span=self.span(first))
        if token.text == "\\pi" and self.peek(1) not in ("_", "'"):
            self.at += 1
            return Number(math.pi, span=self.span(first))
        if token.text == "\\infty":
            self.at += 1
            return Number(math.inf, span=self.span(first))
        if token.kind == "letter" and token.text in self.letters and self.peek(1) not in ("_", "'"):
            self.at += 1
            return Position(token.text, span=self.span(first))
        if token.text == "I" and any(binding.shape for binding in self.bindings):
            self.at += 1
            return Identity(span=self.span(first))
        if token.text == "\\int":
            return self.integral()
        return self.unknown()

    def upright(self, first: int) -> Node | None:
        r"""`e^x`, `\mathrm{e}^x` and the imaginary unit, `\mathrm{i}` or `\mathrm{j}`."""
        letter = self.peek(2) if [self.peek(), self.peek(1), self.peek(3)] == ["\\mathrm", "{", "}"] else ""
        if letter in ("i", "j"):
            self.at += 4
            return Imaginary(span=self.span(first))
        width = 4 if letter == "e" else 1
        if "e" in (letter, self.peek()) and self.peek(width) == "^":
            self.at += width + 1
            return Call("exp", (self.group(),), span=self.span(first))
        return None

    def is_operator(self, command: str) -> bool:
        """`\\mathbb{E}` and `\\mathbf{1}` are operators, other letters in these fonts are symbols."""
        if command in ("\\mathrm", "\\text"):
            return self.operator_name() in {*NAMED, *BRACKETED, *ARGUMENTS}
        letters = {"\\mathbb": ("E", "1", "I"), "\\mathbf": ("1",)}.get(command)
        return letters is None or ((self.peek(1), self.peek(3)) == ("{", "}") and self.peek(2) in letters)

    def unknown(self) -> Node:
        if self.found[self.at].text in ("^", "_"):
            self.fail("a script stands behind a symbol, a bracket or a function, and here it stands behind none")
        end = guess(self.found, self.at)
        start, stop = self.found[self.at].start, self.found[end - 1].end
        raise FormulaError("UNKNOWN", start, stop)
