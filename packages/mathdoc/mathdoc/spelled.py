"""A formula as it was understood: every bracket and operator written out, symbols as they stand in the formula."""

from collections.abc import Callable

from mathdoc.tree import (
    Apply,
    Call,
    Continuous,
    Dummy,
    Imaginary,
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
    children,
)


def spelled(node: Node, tex: str) -> str:
    """The node in words and signs; `tex` is the formula that it is a part of."""
    return _Spelled(tex).of(node)


class _Spelled:
    def __init__(self, tex: str) -> None:
        self.tex = tex

    def of(self, node: Node) -> str:
        known: list[tuple[type[Node], Callable[..., str]]] = [
            (Number, lambda n: f"{n.value:g}"),
            (Position, lambda n: n.letter),
            (Use, self._use),
            (Sum, self._sum),
            (Product, lambda n: " * ".join(self._inner(factor) for factor in n.factors)),
            (Quotient, lambda n: f"{self._inner(n.top)} / {self._inner(n.bottom)}"),
            (Power, lambda n: f"{self._inner(n.base)} ^ {self._inner(n.exponent)}"),
            (Call, lambda n: f"{n.function}({', '.join(map(self.of, n.arguments))})"),
            (Apply, lambda n: f"{n.binding.tex}({', '.join(map(self.of, n.arguments))})"),
            (Indicator, lambda n: f"1 if {self.of(n.left)} {n.relation} {self.of(n.right)} else 0"),
            (Member, lambda n: f"1 if {n.letter} in {self.of(n.mask)} else 0"),
            (Reduce, self._reduce),
            (Dummy, lambda n: n.name),
            (Imaginary, lambda _: "i"),
            (
                Continuous,
                lambda n: (
                    f"integral over {n.name} from {self.of(n.lower)} to {self.of(n.upper)} of ({self.of(n.body)})"
                ),
            ),
        ]
        for kind, say in known:
            if type(node) is kind:
                return say(node)
        return f"{type(node).__name__.lower()}({', '.join(map(self.of, children(node)))})"

    def _inner(self, node: Node) -> str:
        """In brackets, unless it is one thing."""
        text = self.of(node)
        return text if isinstance(node, (Number, Position, Use, Call)) else f"({text})"

    def _use(self, node: Use) -> str:
        return self.tex[slice(*node.span)] if node.span != (0, 0) else node.binding.tex

    def _sum(self, node: Sum) -> str:
        text = ""
        for term, sign in zip(node.terms, node.signs, strict=True):
            said = f"({self.of(term)})" if isinstance(term, Sum) else self.of(term)
            text += (f" {'-' if sign < 0 else '+'} " if text else "-" if sign < 0 else "") + said
        return text

    def _reduce(self, node: Reduce) -> str:
        where = f" in {self.of(node.member)}" if node.member is not None else ""
        ends = (("from", node.lower), ("to", node.upper), ("but", node.apart))
        where += "".join(f" {word} {self.of(end)}" for word, end in ends if end is not None)
        return f"{node.kind} over {node.letter}{where} of ({self.of(node.body)})"
