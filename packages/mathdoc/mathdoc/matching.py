"""Symbols of the notation inside a formula: the longest match wins."""

from collections.abc import Iterable, Iterator

from mathdoc.lexer import Token, closing
from mathdoc.notation import Binding, Slot
from mathdoc.tree import Index, Use


def longest(found: list[Token], at: int, bindings: Iterable[Binding], letters: set[str]) -> tuple[Use, int] | None:
    """The symbol that begins at a token, and where it ends."""
    best: tuple[tuple[int, int], Use, int] | None = None
    for binding in bindings:
        for end, indices in _matches(found, at, binding, letters):
            literal = sum(not isinstance(item, Slot) for item in binding.pattern)
            rank = (end, literal - sum(index.shift != 0 or bool(index.other) for index in indices))
            if best is None or rank > best[0]:
                span = (found[at].start, found[end - 1].end)
                best = (rank, Use(binding, _all_axes(binding, indices), span=span), end)
    return best[1:] if best else None


def _all_axes(binding: Binding, written: tuple[Index, ...]) -> tuple[Index, ...]:
    """The written indices, and the axes that the symbol leaves unwritten."""
    named = {index.axis for index in written}
    return written + tuple(Index(axis, axis) for axis in sorted(binding.letters - named))


def _matches(
    found: list[Token], at: int, binding: Binding, letters: set[str]
) -> Iterator[tuple[int, tuple[Index, ...]]]:
    """Every way in which a symbol's pattern fits, as its end and its indices."""
    pattern = binding.pattern

    def go(item: int, token: int, indices: tuple[Index, ...]) -> Iterator[tuple[int, tuple[Index, ...]]]:
        if item == len(pattern):
            yield token, indices
            return
        if token >= len(found):
            return
        wanted = pattern[item]
        if not isinstance(wanted, Slot):
            if found[token].text == wanted.text:
                yield from go(item + 1, token + 1, indices)
            return
        for index, end in _indices(found, token, letters, wanted.axis):
            earlier = [known for known in indices if known.axis == wanted.axis]
            if not earlier or earlier[0] == index:
                yield from go(item + 1, end, indices if earlier else (*indices, index))

    if pattern:
        yield from go(0, at, ())


def _indices(found: list[Token], token: int, letters: set[str], axis: str) -> Iterator[tuple[Index, int]]:
    """An index as it may be written at a token (`t`, `t+1`, `n-k`), and its end."""
    letter = found[token].text
    if not found[token].scripted or letter not in letters:
        return
    yield Index(axis, letter), token + 1
    if token + 2 < len(found) and found[token + 1].text in ("+", "-"):
        sign, behind = 1 if found[token + 1].text == "+" else -1, found[token + 2].text
        if behind.isdigit():
            yield Index(axis, letter, sign * int(behind)), token + 3
        elif behind in letters and behind != letter:
            yield Index(axis, letter, 0, behind, sign), token + 3


def _is_name(inside: list[Token]) -> bool:
    """Whether a superscript belongs to a symbol, as in `w^{old}`, `x^{(k)}` and `x^*`: others are exponents."""
    word = len(inside) == 1 and (inside[0].kind == "word" or inside[0].text in ("*", "+", "-", "\\prime", "\\star"))
    return word or (len(inside) > 2 and inside[0].text == "(" and inside[-1].text == ")")


def guess(found: list[Token], at: int) -> int:
    """Where a symbol that nobody defined seems to end: its accents, scripts and primes belong to it."""
    end = at + 1
    if found[at].kind == "command" and end < len(found) and found[end].text == "{":
        end = closing(found, end) + 1
    while end < len(found):
        if found[end].text == "'":
            end += 1
        elif found[end].text in "_^" and end + 1 < len(found) and found[end + 1].text == "{":
            inside = found[end + 2 : closing(found, end + 1)]
            if found[end].text == "^" and not _is_name(inside):
                break
            end = closing(found, end + 1) + 1
        else:
            break
    return end
