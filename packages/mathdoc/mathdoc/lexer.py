"""LaTeX as tokens with their places. Spacing is dropped, and what may be written in two ways comes out in one."""

import re
from dataclasses import dataclass

from mathdoc.problem import FormulaError

TOKEN = re.compile(
    r"(?P<command>\\operatorname\*|\\[A-Za-z]+|\\[^A-Za-z])|(?P<number>\d+(?:\.\d+)?)|(?P<letter>[A-Za-z])|(?P<mark>\S)"
)

SPACING = {"\\left", "\\right", "\\!", "\\,", "\\;", "\\:", "\\ ", "\\quad", "\\qquad", "\\big", "\\Big", "\\bigl"}
SPACING |= {"\\bigr", "\\Bigl", "\\Bigr", "\\biggl", "\\biggr", "\\limits", "\\displaystyle", "\\textstyle"}
SPACING |= {"\\bigg", "\\Bigg", "\\Biggl", "\\Biggr", "\\middle", "~", "\\nolimits"}

TAKES_ONE = {"\\bar", "\\tilde", "\\hat", "\\widehat", "\\widetilde", "\\vec", "\\dot", "\\mathcal", "\\mathbb"}
TAKES_ONE |= {"\\mathbf", "\\mathrm", "\\operatorname", "\\text", "\\boldsymbol", "\\mathsf", "\\mathit"}

SAME = {"\\lvert": "|", "\\rvert": "|", "\\vert": "|", "\\mid": "|", "\\gt": ">", "\\lt": "<", "\\ge": "\\geq"}
SAME |= {"\\le": "\\leq", "\\lbrack": "[", "\\rbrack": "]", "\\tfrac": "\\frac", "\\dfrac": "\\frac"}
SAME |= {"\\lVert": "\\|", "\\rVert": "\\|", "\\Vert": "\\|", "\\ne": "\\neq", "\\lbrace": "\\{", "\\rbrace": "\\}"}
SAME |= {"\\gets": "\\leftarrow", "\\wedge": "\\land", "\\ast": "*", "\\div": "/"}
SAME |= {"\\operatorname*": "\\operatorname"}


@dataclass(frozen=True)
class Token:
    """`scripted` is set inside a subscript or superscript: only there is a letter an index."""

    kind: str
    text: str
    start: int
    end: int
    scripted: bool = False


def tokens(tex: str) -> list[Token]:
    """The formula's tokens: `x_t` and `x_{t}` are the same, and `{old}` in a script is one word."""
    plain = [token for token in _scan(tex) if token.text not in SPACING]
    braced = _braced(plain)
    return _words(braced)


def _scan(tex: str) -> list[Token]:
    found: list[Token] = []
    for match in TOKEN.finditer(tex):
        kind = match.lastgroup or ""
        text = SAME.get(match[0], match[0])
        kind = "mark" if len(text) == 1 and kind == "command" else kind
        behind = [token.text for token in found[-2:]]
        if (
            kind == "number"
            and text.isdigit()
            and ("\\frac" in behind[-1:] or (behind[:1] == ["\\frac"] and behind[1].isdigit()))
        ):
            # without braces TeX takes one digit: \frac12 is a half
            found += [Token(kind, digit, match.start() + k, match.start() + k + 1) for k, digit in enumerate(text)]
        else:
            found.append(Token(kind, text, match.start(), match.end()))
    return found


def _braced(plain: list[Token]) -> list[Token]:
    """Braces around what a script or an accent applies to, where they were left out."""
    out: list[Token] = []
    at = 0
    while at < len(plain):
        token = plain[at]
        out.append(token)
        at += 1
        if token.text in ("_", "^") or token.text in TAKES_ONE:
            if at == len(plain):
                raise FormulaError(f"nothing follows `{token.text}`", token.start, token.end)
            if plain[at].text != "{":
                end = _single(plain, at)
                first, last = plain[at], plain[end - 1]
                inner = _braced(plain[at:end])
                open_, close = Token("mark", "{", first.start, first.start), Token("mark", "}", last.end, last.end)
                out += [open_, *inner, close]
                at = end
    return out


def _single(plain: list[Token], at: int) -> int:
    """The end of what stands without braces: one token, or an accent with what it applies to."""
    if plain[at].text not in TAKES_ONE or at + 1 == len(plain):
        return at + 1
    if plain[at + 1].text == "{":
        return closing(plain, at + 1) + 1
    return _single(plain, at + 1)


def _words(braced: list[Token]) -> list[Token]:
    """Letters that touch inside a script are one word: `min` in `z_{min}` holds no index."""
    out: list[Token] = []
    scripts: list[bool] = []
    for at, token in enumerate(braced):
        before = braced[at - 1].text if at else ""
        if token.text == "{":
            scripts.append(before in ("_", "^") or any(scripts))
        elif token.text == "}" and scripts:
            scripts.pop()
        scripted = any(scripts)
        joined = out and out[-1].scripted and out[-1].kind in ("letter", "word") and out[-1].end == token.start
        if scripted and token.kind == "letter" and joined:
            out[-1] = Token("word", out[-1].text + token.text, out[-1].start, token.end, True)
        else:
            out.append(Token(token.kind, token.text, token.start, token.end, scripted))
    return out


def separated(found: list[Token], letters: set[str] | frozenset[str], words: set[str]) -> list[Token]:
    """Indices that touch, as `ij` in `Q_{ij}`, as if commas stood between them; `words` are left as they are."""
    out: list[Token] = []
    for token in found:
        if token.kind != "word" or token.text in words or not set(token.text) <= letters:
            out.append(token)
            continue
        for at, letter in enumerate(token.text):
            place = token.start + at
            if at:
                out.append(Token("mark", ",", place, place, True))
            out.append(Token("letter", letter, place, place + 1, True))
    return out


def multiplied(found: list[Token], symbols: set[str], words: set[str]) -> list[Token]:
    """Symbols that touch in an exponent, as `rT` in `e^{-rT}`, one by one; `words` are left as they are."""
    out: list[Token] = []
    for token in found:
        if token.kind != "word" or token.text in words or not set(token.text) <= symbols:
            out.append(token)
            continue
        places = enumerate(token.text, token.start)
        out += [Token("letter", letter, place, place + 1, True) for place, letter in places]
    return out


def closing(found: list[Token], at: int) -> int:
    """The position of the brace that closes the one at `at`."""
    depth = 0
    for position in range(at, len(found)):
        depth += {"{": 1, "}": -1}.get(found[position].text, 0)
        if depth == 0:
            return position
    raise FormulaError("this brace is never closed", found[at].start, found[at].end)
