"""Symbols of the notation inside a formula: the longest match wins."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mathdoc.lexer import Token, closing
from mathdoc.notation import Binding, Slot
from mathdoc.tree import Index, Number, Use


def longest(found: list[Token], at: int, bindings: Iterable[Binding], letters: set[str]) -> tuple[Use, int] | None:
    """The symbol that begins at a token, and where it ends."""
    best: tuple[tuple[int, int], Use, int] | None = None
    known = list(bindings)
    for binding in known:
        for end, indices in _matches(found, at, binding, known, letters):
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
    found: list[Token], at: int, binding: Binding, bindings: list[Binding], letters: set[str]
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
        for index, end in _indices(found, token, bindings, letters, wanted.axis):
            earlier = [known for known in indices if known.axis == wanted.axis]
            if not earlier or earlier[0] == index:
                yield from go(item + 1, end, indices if earlier else (*indices, index))

    if pattern:
        yield from go(0, at, ())


def _indices(
    found: list[Token], token: int, bindings: list[Binding], letters: set[str], axis: str
) -> Iterator[tuple[Index, int]]:
    """An index as it may be written at a token (`t`, `t+1`, `n-k`, `(t+1) \\bmod N`, another symbol), and its end."""
    letter = found[token].text
    if letter == "(":
        for index, end in _indices(found, token + 1, bindings, letters, axis):
            if index.letter and index.shift and [t.text for t in found[end : end + 2]] == [")", "\\bmod"]:
                yield from _round(found, end + 2, bindings, letters, index)
        return
    if found[token].scripted and letter not in letters:
        inner = longest(found, token, bindings, letters)
        if inner is not None and inner[0].indices and _ends_index(found, inner[1]):
            yield Index(axis, "", chosen=inner[0]), inner[1]
    if not found[token].scripted or letter not in letters:
        return
    yield Index(axis, letter), token + 1
    if token + 2 < len(found) and found[token + 1].text in ("+", "-"):
        sign, behind = 1 if found[token + 1].text == "+" else -1, found[token + 2].text
        if behind.isdigit():
            index = Index(axis, letter, sign * int(behind))
            yield index, token + 3
            if token + 3 < len(found) and found[token + 3].text == "\\bmod":
                yield from _round(found, token + 4, bindings, letters, index)
        elif behind in letters and behind != letter:
            yield Index(axis, letter, 0, behind, sign), token + 3


def _round(
    found: list[Token], at: int, bindings: list[Binding], letters: set[str], index: Index
) -> Iterator[tuple[Index, int]]:
    """An index that goes round after as many entries as stand at a token."""
    size = longest(found, at, bindings, letters) if at < len(found) else None
    if size is not None:
        yield replace(index, round=size[0]), size[1]
    elif at < len(found) and found[at].text.isdigit():
        yield replace(index, round=Number(float(found[at].text))), at + 1


def _ends_index(found: list[Token], at: int) -> bool:
    return at < len(found) and found[at].text in (",", "}")


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
