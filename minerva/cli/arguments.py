"""What a person types, in the form that the parser reads: `train PPO Pendulum-v1 --total-steps 1e6` and the like."""

from collections.abc import Sequence
from typing import Any, get_args

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from minerva.trainers.registry import ALGORITHMS

VALUES = ConstructorRegistry()
"""How the values of options are read from words."""


def in_full(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the algorithm in small letters and an environment that follows it as `--env`."""
    words = list(arguments)
    if words[:1] != ["train"]:
        return words
    if words[1:2] and (algo := words[1].lower().replace("-", "")) in ALGORITHMS:
        words[1] = algo
        if words[2:3] and not words[2].startswith("-"):
            words.insert(2, "--env")
    return words


def parsed(
    kind: Any, arguments: Sequence[str], program: str, description: str | None = None, default: Any = None
) -> Any:
    """Return a command of the type `kind`, with the options among the arguments."""
    markers = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    given = {} if default is None else {"default": default}
    try:
        return tyro.cli(
            kind, prog=program, description=description, args=list(arguments), config=markers, registry=VALUES, **given
        )
    except BrokenPipeError:  # nobody reads the help, or the error
        raise SystemExit(0 if {"-h", "--help"} & {*arguments} else 2) from None


@VALUES.primitive_rule
def _numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read whole numbers also as 1e6, and layer widths also as 64,64."""
    if info.type is int:
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda words: _whole(words[0]),
            is_instance=lambda value: type(value) is int,
            str_from_instance=lambda value: [str(value)],
        )
    if info.type_origin is tuple and {*get_args(info.type)} <= {
        int,
        ...,
    }:  # of a default, it has one int for each width
        return PrimitiveConstructorSpec(
            nargs="*",
            metavar="[INT [INT ...]]",
            instance_from_str=lambda words: tuple(_whole(part) for word in words for part in word.split(",")),
            is_instance=lambda value: isinstance(value, tuple) and all(type(width) is int for width in value),
            str_from_instance=lambda value: [str(width) for width in value],
        )
    return None


def _whole(text: str) -> int:
    """Return the whole number of a text such as 100000 or 1e5."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
        return int(value) if value.is_integer() else int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
