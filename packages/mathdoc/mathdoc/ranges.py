"""The part of the parser that reads tokens, indices and what runs over them."""

from abc import ABC, abstractmethod

from mathdoc.lexer import Token
from mathdoc.notation import Binding
from mathdoc.problem import FormulaError
from mathdoc.tree import Call, Index, Indicator, Member, Node, Number, Product, Quotient, Reduce, Sum, Use, free_axes
from mathdoc.words import COMPARISONS

Range = dict[str, object]


class RangeParser(ABC):
    """Tokens with a position in them. The parser of expressions adds `sum`, `term` and `atom`."""

    def __init__(self, found: list[Token], bindings: list[Binding], axes: set[str]) -> None:
        self.found = found
        self.bindings = bindings
        self.letters = axes
        self.at = 0
        self.inside: list[str] = []
        """The ends of the brackets and bars that are open, innermost last."""
        self.dummies: frozenset[str] = frozenset()
        """The variables of the integrals around."""

    @abstractmethod
    def sum(self) -> Node:
        """A sum of terms."""

    @abstractmethod
    def term(self) -> Node:
        """A product of factors."""

    @abstractmethod
    def atom(self) -> Node:
        """What has no operator outside brackets."""

    # --- tokens ---------------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> str:
        """The text of a token from here on; empty behind the last."""
        position = self.at + ahead
        return self.found[position].text if position < len(self.found) else ""

    def take(self, text: str) -> Token:
        """The next token, which must be this one."""
        if self.peek() != text:
            self.fail(f"`{text}` was expected here")
        self.at += 1
        return self.found[self.at - 1]

    def fail(self, message: str, hint: str = "", start: int | None = None, end: int | None = None) -> None:
        """Raise an error at a place; without one, here."""
        place = self.found[min(self.at, len(self.found) - 1)]
        raise FormulaError(message, place.start if start is None else start, end or place.end, hint)

    def span(self, first: int) -> tuple[int, int]:
        """The place in the text from a token up to here."""
        return self.found[first].start, self.found[self.at - 1].end

    def group(self) -> Node:
        """A sum in braces."""
        self.take("{")
        self.inside.append("}")
        inner = self.sum()
        self.inside.pop()
        self.take("}")
        return inner

    def arguments(self, count: int | None) -> tuple[Node, ...]:
        """A function's arguments in brackets; two may be more, and None is any number."""
        opening = self.peek()
        ends = {"(": ")", "[": "]", "\\{": "\\}"}
        if opening not in ends:
            self.fail("`(` was expected here")
        self.at += 1
        self.inside.append(ends[opening])
        found = [self.sum()]
        while self.peek() == ",":
            self.at += 1
            found.append(self.sum())
        if count is not None and len(found) != count and not (count == 2 and len(found) > 2):
            self.fail(f"this function takes {count} arguments, not {len(found)}")
        self.inside.pop()
        self.take(ends[opening])
        return tuple(found)

    # --- over an index --------------------------------------------------------------------------------------

    def bracketed(self, kind: str, first: int) -> Node:
        """A mean or variance, which has its body in brackets."""
        if self.peek() != "_":
            self.fail("over which index? Write it below: \\mathbb{E}_t[...]")
        letters, limits = self.index()
        if kind == "cov":
            one, other = self.arguments(2)
            away = [Sum((part, self.reduced("mean", letters, limits, part, first)), (1, -1)) for part in (one, other)]
            return self.reduced("mean", letters, limits, Product(tuple(away)), first)
        (body,) = self.arguments(1)
        if kind in ("logsumexp", "softmax"):
            power = Call("exp", (body,), span=body.span)
            total = self.reduced("sum", letters, limits, power, first)
            if kind == "softmax":
                return Quotient(power, total, span=self.span(first))
            return Call("log", (total,), span=self.span(first))
        return self.reduced(kind, letters, limits, body, first)

    def reduction(self, kind: str) -> Node:
        """A sum, product, maximum or minimum, which reaches to the end of its term."""
        first = self.at
        self.at += 1
        if self.peek() in ("(", "[", "\\{") and kind in ("max", "min"):
            left, *rest = self.arguments(2)
            for right in rest:
                left = Call(kind, (left, right), span=self.span(first))
            return left
        if self.peek() != "_":
            self.fail("over which index? Write it below: \\sum_t")
        letters, limits = self.index()
        body = self.term()
        return self.reduced(kind, letters, limits, body, first)

    def reduced(self, kind: str, letters: list[str], limits: Range, body: Node, first: int) -> Node:
        """The body below one reduction for each letter."""
        for letter in reversed(letters):
            body = Reduce(kind, letter, body, **limits, span=self.span(first))  # type: ignore[arg-type]
        return body

    def index(self) -> tuple[list[str], Range]:
        """`_t`, `_{b,i}`, `_{t \\in S}`, `_{k<t}`, `_{i=1}^{N}`, `_{k=t}^{T}`: the letters, and how far they run."""
        self.take("_")
        self.take("{")
        letters = [self.letter()]
        while self.peek() == ",":
            self.at += 1
            letters.append(self.letter())
        limits: Range = {}
        relation = self.peek()
        self.at += relation != "}"
        if relation == "\\in":
            limits["member"] = self.mask(letters[0])
        elif relation in ("<", "\\leq"):
            limits = {"pair": self.alone(), "upper": self.limit(-1 if relation == "<" else 0)}
        elif relation in (">", "\\geq"):
            limits = {"pair": self.alone(), "lower": self.limit(1 if relation == ">" else 0)}
        elif relation == "\\neq":
            limits = {"pair": self.alone(), "apart": self.limit(0)}
        elif relation == "=":
            return letters, self.from_to()
        self.take("}")
        return letters, limits

    def alone(self) -> str:
        """The index that is all of a limit."""
        return self.peek() if self.peek() in self.letters and self.peek(1) == "}" else ""

    def limit(self, moved: int) -> Node:
        """An end of a range, moved to the last value that is in it."""
        inner = self.sum()
        return Sum((inner, Number(1.0)), (1, moved), span=inner.span) if moved else inner

    def from_to(self) -> Range:
        """The rest of `_{i=1}^{N}`. An array's first entry has the number 1, unless the range begins at 0."""
        lower = self.sum()
        self.take("}")
        self.take("^")
        limits: Range = {"lower": lower}
        if not free_axes(lower):
            limits["base"] = 0 if lower == Number(0.0) else 1
            if lower in (Number(0.0), Number(1.0)):
                del limits["lower"]
        if (self.peek(), self.peek(1), self.peek(2)) == ("{", "\\infty", "}"):
            self.at += 3
        else:
            limits["upper"] = self.group()
        return limits

    def letter(self) -> str:
        """An index."""
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

    # --- conditions -----------------------------------------------------------------------------------------

    def indicator(self) -> Node:
        """`\\mathbf{1}[...]` or `\\mathbb{1}_{...}`."""
        self.at += 4
        if self.peek() == "_":
            self.at += 1
        end = {"[": "]", "(": ")", "{": "}", "\\{": "\\}"}.get(self.peek(), "")
        if not end:
            self.fail("`[` was expected here")
        self.at += 1
        self.inside.append(end)
        node = self.condition()
        self.inside.pop()
        self.take(end)
        return node

    def condition(self) -> Node:
        """Comparisons, of which all must hold."""
        first = self.at
        found = [self.comparison()]
        while self.peek() == "\\land":
            self.at += 1
            found.append(self.comparison())
        return found[0] if len(found) == 1 else Product(tuple(found), span=self.span(first))

    def comparison(self) -> Node:
        r"""A comparison, or `t \in S`."""
        first = self.at
        if self.peek() in self.letters and self.peek(1) == "\\in":
            letter = self.letter()
            self.at += 1
            return Member(letter, self.mask(letter), span=self.span(first))
        left = self.sum()
        relation = self.peek()
        if relation not in COMPARISONS:
            self.fail("a comparison was expected here: <, >, \\leq, \\geq or \\in")
        self.at += 1
        return Indicator(relation, left, self.sum(), span=self.span(first))
