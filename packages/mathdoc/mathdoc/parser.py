"""Formulas as trees, by recursive descent over a restricted LaTeX. The notation decides what is a symbol.

equation := symbol (= | \\leftarrow | \\approx) sum
sum      := [-] term { (+|-) term }
term     := factor { [\\cdot | \\times | /] factor }      a sum sign reaches to the end of its term
factor   := atom [ ^ exponent ]
atom     := symbol | number | index | ( sum ) | { sum } | |sum| | \\frac | \\sqrt | function | reduction | indicator
"""

from collections.abc import Callable, Iterable

from mathdoc.lexer import Token, closing, tokens
from mathdoc.matching import guess, longest
from mathdoc.notation import Binding
from mathdoc.problem import FormulaError
from mathdoc.tree import (
    Call,
    Index,
    Indicator,
    Member,
    Node,
    Number,
    Position,
    Power,
    Product,
    Quotient,
    Reduce,
    Sum,
    Use,
)

RELATIONS = {"=", "\\leftarrow", "\\approx"}
COMPARISONS = {"<", ">", "\\leq", "\\geq"}
BARE = {"\\exp": "exp", "\\log": "log", "\\tanh": "tanh", "\\sin": "sin", "\\cos": "cos", "\\ln": "log"}
NAMED = {"softplus": 1, "sigmoid": 1, "erf": 1, "sg": 1, "relu": 1, "sign": 1, "clip": 3}
REDUCTIONS = {"\\sum": "sum", "\\prod": "prod", "\\max": "max", "\\min": "min"}
BRACKETED = {"Var": "var", "Std": "std"}
ENDS = {")", "]", "}", ",", "+", "-", "|", "\\rfloor", *RELATIONS, *COMPARISONS}


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
    parser = _Parser(found, list(bindings), set(axes))
    tree = parser.sum()
    if parser.at < len(found):
        parser.fail(f"`{found[parser.at].text}` was not expected here")
    return tree


class _Parser:
    def __init__(self, found: list[Token], bindings: list[Binding], axes: set[str]) -> None:
        self.found = found
        self.bindings = bindings
        self.letters = axes
        self.at = 0

    # --- tokens ---------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> str:
        position = self.at + ahead
        return self.found[position].text if position < len(self.found) else ""

    def take(self, text: str) -> Token:
        if self.peek() != text:
            self.fail(f"`{text}` was expected here")
        self.at += 1
        return self.found[self.at - 1]

    def fail(self, message: str, hint: str = "", start: int | None = None, end: int | None = None) -> None:
        place = self.found[min(self.at, len(self.found) - 1)]
        raise FormulaError(message, place.start if start is None else start, end or place.end, hint)

    def span(self, first: int) -> tuple[int, int]:
        return self.found[first].start, self.found[self.at - 1].end

    # --- sums, terms, factors -------------------------------------------------------------------------------

    def sum(self) -> Node:
        first = self.at
        signs = [-1 if self.peek() == "-" else 1]
        self.at += self.peek() in ("+", "-")
        terms = [self.term()]
        while self.peek() in ("+", "-"):
            signs.append(1 if self.peek() == "+" else -1)
            self.at += 1
            terms.append(self.term())
        if len(terms) == 1 and signs == [1]:
            return terms[0]
        return Sum(tuple(terms), tuple(signs), span=self.span(first))

    def term(self) -> Node:
        first = self.at
        factors = [self.factor()]
        while self.peek() and self.peek() not in ENDS:
            if self.peek() == "/":
                self.at += 1
                bottom = self.factor()
                top = factors[0] if len(factors) == 1 else Product(tuple(factors), span=self.span(first))
                factors = [Quotient(top, bottom, span=self.span(first))]
                if self.peek() and self.peek() not in ENDS | {"/"}:
                    self.fail("what follows a quotient written with / is ambiguous: use \\frac or brackets")
                continue
            self.at += self.peek() in ("\\cdot", "\\times")
            factors.append(self.factor())
        return factors[0] if len(factors) == 1 else Product(tuple(factors), span=self.span(first))

    def factor(self) -> Node:
        first = self.at
        base = self.atom()
        if self.peek() != "^":
            return base
        self.at += 1
        exponent = self.group()
        return Power(base, exponent, span=self.span(first))

    def group(self) -> Node:
        self.take("{")
        inner = self.sum()
        self.take("}")
        return inner

    # --- atoms ----------------------------------------------------------------------------------------------

    def atom(self) -> Node:
        first = self.at
        if not self.peek():
            self.fail("the formula ends too early")
        symbol = longest(self.found, self.at, self.bindings, self.letters)
        if symbol is not None:
            use, self.at = symbol
            if self.continues():
                self.at = first
                return self.unknown()
            use.binding.used = True
            return use
        token = self.found[self.at]
        if token.kind == "number":
            self.at += 1
            return Number(float(token.text), span=self.span(first))
        brackets = {"(": ")", "[": "]", "{": "}"}
        if token.text in brackets:
            self.at += 1
            inner = self.sum()
            self.take(brackets[token.text])
            return inner
        if token.text == "|":
            self.at += 1
            inner = self.sum()
            self.take("|")
            return Call("abs", (inner,), span=self.span(first))
        return self.operator(token)

    def continues(self) -> bool:
        """Whether what was matched is only the beginning of a longer symbol: `M` of `M_\\pi`, `w_t` of `w_t^{old}`."""
        word = self.peek() == "^" and self.at + 2 < len(self.found) and self.found[self.at + 2].kind == "word"
        return self.peek() in ("_", "'") or word

    def operator(self, token: Token) -> Node:
        first = self.at
        known: dict[str, Callable[[], Node]] = {
            "\\frac": self.fraction,
            "\\sqrt": self.root,
            "\\lfloor": self.floor,
            "\\mathbb": self.expectation,
            "\\mathbf": self.indicator,
            "\\operatorname": self.named,
        }
        if token.text in known and self.is_operator(token.text):
            return known[token.text]()
        if token.text in BARE:
            self.at += 1
            return Call(BARE[token.text], (self.argument(),), span=self.span(first))
        if token.text in REDUCTIONS:
            return self.reduction()
        if token.kind == "letter" and token.text in self.letters:
            self.at += 1
            return Position(token.text, span=self.span(first))
        return self.unknown()

    def is_operator(self, command: str) -> bool:
        """`\\mathbb{E}` and `\\mathbf{1}` are operators, other letters in these fonts are symbols."""
        letter = {"\\mathbb": "E", "\\mathbf": "1"}.get(command)
        return letter is None or (self.peek(1), self.peek(2), self.peek(3)) == ("{", letter, "}")

    def unknown(self) -> Node:
        if self.found[self.at].text in ("^", "_"):
            self.fail("a script stands behind a symbol or a bracket, not behind a function: write `\\tanh(x)^2`")
        end = guess(self.found, self.at)
        start, stop = self.found[self.at].start, self.found[end - 1].end
        raise FormulaError("UNKNOWN", start, stop)

    def argument(self) -> Node:
        """Of a function: in brackets, or bare, and then exactly one factor or one sum with its term."""
        if self.peek() in ("(", "["):
            opening = self.peek()
            self.at += 1
            inner = self.sum()
            self.take(")" if opening == "(" else "]")
            return inner
        if self.peek() in REDUCTIONS and longest(self.found, self.at, self.bindings, self.letters) is None:
            return self.factor()
        inner = self.factor()
        if self.peek() and self.peek() not in ENDS | {"/", "\\cdot", "\\times"}:
            self.fail("what a function without brackets applies to is one factor: write the brackets")
        return inner

    def arguments(self, count: int) -> tuple[Node, ...]:
        opening = self.peek()
        if opening not in ("(", "["):
            self.fail("`(` was expected here")
        self.at += 1
        found = [self.sum()]
        while self.peek() == ",":
            self.at += 1
            found.append(self.sum())
        if len(found) != count:
            self.fail(f"this function takes {count} arguments, not {len(found)}")
        self.take(")" if opening == "(" else "]")
        return tuple(found)

    def fraction(self) -> Node:
        first = self.at
        self.at += 1
        top = self.group()
        bottom = self.group()
        return Quotient(top, bottom, span=self.span(first))

    def root(self) -> Node:
        first = self.at
        self.at += 1
        return Call("sqrt", (self.group(),), span=self.span(first))

    def floor(self) -> Node:
        first = self.at
        self.at += 1
        inner = self.sum()
        self.take("\\rfloor")
        return Call("floor", (inner,), span=self.span(first))

    def named(self) -> Node:
        first = self.at
        end = closing(self.found, self.at + 1)
        name = "".join(token.text for token in self.found[self.at + 2 : end])
        if name in BRACKETED:
            self.at = end + 1
            return self.bracketed(BRACKETED[name], first)
        if name not in NAMED:
            known = ", ".join(sorted([*NAMED, *BRACKETED]))
            self.fail(f"\\operatorname{{{name}}} is not a known function: known are {known}")
        self.at = end + 1
        return Call(name, self.arguments(NAMED[name]), span=self.span(first))

    # --- over an index --------------------------------------------------------------------------------------

    def expectation(self) -> Node:
        first = self.at
        self.at += 4
        return self.bracketed("mean", first)

    def bracketed(self, kind: str, first: int) -> Node:
        if self.peek() != "_":
            self.fail("over which index? Write it below: \\mathbb{E}_t[...]")
        letters, member, _, _ = self.index()
        (body,) = self.arguments(1)
        for letter in reversed(letters):
            body = Reduce(kind, letter, body, member, span=self.span(first))
        return body

    def reduction(self) -> Node:
        first = self.at
        kind = REDUCTIONS[self.peek()]
        self.at += 1
        if self.peek() in ("(", "[") and kind in ("max", "min"):
            return Call(kind, self.arguments(2), span=self.span(first))
        if self.peek() != "_":
            self.fail("over which index? Write it below: \\sum_t")
        letters, member, below, or_equal = self.index()
        body = self.term()
        for letter in reversed(letters):
            body = Reduce(kind, letter, body, member, below, or_equal, span=self.span(first))
        return body

    def index(self) -> tuple[list[str], Use | None, str, bool]:
        """`_t`, `_{b,i}`, `_{t \\in S}`, `_{k<t}`: the letters, the set, the letter it stays below."""
        self.take("_")
        self.take("{")
        letters = [self.letter()]
        while self.peek() == ",":
            self.at += 1
            letters.append(self.letter())
        member, below, or_equal = None, "", False
        if self.peek() == "\\in":
            self.at += 1
            member = self.mask(letters[0])
        elif self.peek() in ("<", "\\leq"):
            or_equal = self.peek() == "\\leq"
            self.at += 1
            below = self.letter()
        self.take("}")
        return letters, member, below, or_equal

    def letter(self) -> str:
        letter = self.peek()
        if letter not in self.letters:
            self.fail(f"`{letter}` is no index: explain it under [axes]", f'[axes]\n{letter} = "..."')
        self.at += 1
        return letter

    def mask(self, letter: str) -> Use:
        """A set: a symbol with one axis, which takes the index's letter."""
        node = self.atom()
        if not isinstance(node, Use) or not node.indices:
            self.fail("a set is a symbol of the notation with an axis: a mask, 0 outside and more inside")
        assert isinstance(node, Use)
        if len(node.indices) == 1:
            return Use(node.binding, (Index(node.indices[0].axis, letter),), span=node.span)
        return node

    def indicator(self) -> Node:
        first = self.at
        self.at += 4
        self.take("[")
        if self.peek() in self.letters and self.peek(1) == "\\in":
            letter = self.letter()
            self.at += 1
            node: Node = Member(letter, self.mask(letter), span=self.span(first))
        else:
            left = self.sum()
            relation = self.peek()
            if relation not in COMPARISONS:
                self.fail("a comparison was expected here: <, >, \\leq, \\geq or \\in")
            self.at += 1
            node = Indicator(relation, left, self.sum(), span=self.span(first))
        self.take("]")
        return node
