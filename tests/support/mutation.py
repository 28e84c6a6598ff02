"""Mutations of a file's bytes and of the values in it, drawn from a generator: the same seed gives the same inputs."""

import copy
import json
import math
import random
from typing import Any

TOKENS = [
    *(b"\x00", b"\xff\xfe", b"\x1b]0;x\x07", b"\r", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"9" * 400, b"-1", b"1e999", b".inf", b"nan", b"NaN", b"-0", b"0x7f", b"null", b"~", b"true", b"1_0"),
    *(b"[" * 3000, b"{" * 3000, b"[" * 60 + b"]" * 60, b"[[x]]\n", b"[entries]\n", b"{}", b"[]", b'""', b"''"),
    *(b"&a [*a]", b"!!python/name:os.system ", b"!!binary ", b"!!timestamp 9999-99-99", b"<<: *a\n", b"? ", b"---\n"),
    *(b"1979-05-27T07:32:00Z", b"99:99:99", b"2024-01-01", b"\n", b"\t", b" ", b":", b"=", b",", b"#", b'"', b"'"),
    *(b"this:X-v0", b"../../x", b"$(touch x)", b"<script>", b"__class__", b"dm_control/", b"none", b"x.toml"),
]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, 10**400, 0.5, 1e308, -1e308, 1e-320, math.nan, math.inf),
    *("", "x", "nan", "1.5", "0", "-1", "a\x1b[31mb", "a\x00b", "\ud800", "../../x", "this:X-v0", "Pendulum-v1"),
    *("x" * 5000, [], {}, [[]], {"a": {}}, [1, 2, 3], [None], [0.1] * 50, ["a", 1], {"": 0}, [10**9], [1] * 3000),
]


def mutated_bytes(content: bytes, others: list[bytes], source: random.Random) -> bytes:
    """Return the content with one to four changes; parts may come from `others`."""
    for _ in range(source.randint(1, 4)):
        first, second = sorted(source.randrange(len(content) + 1) for _ in range(2))
        match source.randrange(7):
            case 0:
                content = content[:first] + content[second:]
            case 1:
                content = content[:second] + content[first:]  # a part twice
            case 2:
                content = content[:first] + source.choice(TOKENS) + content[first:]
            case 3:
                content = content[:first] + source.choice(TOKENS) + content[second:]
            case 4:
                content = content[:first] + bytes([source.randrange(256)]) + content[first + 1 :]
            case 5:
                other = source.choice(others)
                content = content[:first] + other[source.randrange(len(other) + 1) :]
            case 6:
                content = content[:first]
    return content


def mutated_values(tree: Any, source: random.Random) -> Any:
    """Return a copy of nested values with one to three of them removed, replaced, renamed or wrapped."""
    tree = copy.deepcopy(tree)
    for _ in range(source.randint(1, 3)):
        places = _places(tree)
        if not places:
            break
        owner, key = source.choice(places)
        match source.randrange(6):
            case 0 if isinstance(owner, dict):
                del owner[key]
            case 1 if isinstance(owner, dict):
                owner[source.choice(["", "step", "algo", "x\ty", "__class__", key + "s"])] = owner.pop(key)
            case 2:
                other, name = source.choice(places)
                owner[key] = copy.deepcopy(other[name])
            case 3:
                for _ in range(source.choice((1, 2, 200))):
                    owner[key] = [owner[key]] if source.random() < 0.5 else {"a": owner[key]}
            case 4 if type(owner[key]) in (int, float):
                owner[key] = owner[key] * source.choice((-1, 0, 0.5, 1000, 10**12))
            case _:
                owner[key] = copy.deepcopy(source.choice(ODD))
    return tree


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every value in nested dicts and lists."""
    found, left = [], [tree]
    while left:
        owner = left.pop()
        keys = list(owner) if isinstance(owner, dict) else range(len(owner))
        found += [(owner, key) for key in keys]
        left += [owner[key] for key in keys if isinstance(owner[key], (dict, list))]
    return found


def toml(table: dict[str, Any]) -> str:
    """Return a table as TOML, everything inside it inline."""
    return "".join(f"{json.dumps(str(name))} = {_toml(value)}\n" for name, value in table.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(str(name))} = {_toml(part)}' for name, part in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(str(value) if value is None else value)
