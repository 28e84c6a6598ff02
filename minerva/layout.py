"""How an environment gives an observation, as plain values that a checkpoint can hold; and the row that it becomes.

A layout is one of these, where a row has the parts in the order of the layout:

- `[3, 4]`: an array of numbers of this shape
- `["image", 255, 84, 84, 3]`: an array of this shape with whole numbers from 0 to 255
- `["choices", [2], [0, 1], [4, 5]]`: an array of shape [2], a choice of 4 counted from 0 and one of 5 counted from 1;
  each becomes a one-hot vector. The shape of a single choice is `[]`
- `{"name": layout, ...}` and `["tuple", layout, ...]`: a mapping and a tuple of layouts
- `None`: a vector of numbers, which is a row already

A row without images is a vector of numbers. One with images is a vector of bytes, so that they need no more memory than
in the environment: first all numbers, four bytes for each, then the images one after another.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Layout = list[Any] | dict[str, Any] | None

IMAGE, CHOICES, TUPLE = "image", "choices", "tuple"
"""The first entry of a layout that is no shape."""
NUMBER_BYTES = 4
"""Bytes of a number, which is float32; the length of a row of bytes is a multiple of it."""


def leaves(layout: Layout) -> list[Any]:
    """Return the layouts of the arrays, in the order of a row; raise ValueError if it is no layout."""
    if isinstance(layout, dict):
        return [leaf for part in layout.values() for leaf in leaves(part)]
    if not isinstance(layout, list):
        raise ValueError("the observation's layout holds something else than shapes")
    kind = layout[0] if layout and isinstance(layout[0], str) else None
    if kind == TUPLE:
        return [leaf for part in layout[1:] for leaf in leaves(part)]
    if kind == CHOICES and len(layout) == 4:
        shape, starts, counts = layout[1:]
        whole = all(_whole(part) for part in layout[1:]) and all(n > 0 for n in [*shape, *counts])
        if whole and math.prod(shape) == len(counts) == len(starts):
            return [layout]
    sizes = layout[1:] if kind == IMAGE else layout  # grey images have no axis of channels
    if _whole(sizes) and all(n > 0 for n in sizes) and (kind is None or len(sizes) in (3, 4)):
        return [layout]
    raise ValueError("the observation's layout holds something else than shapes")


def names(layout: Any, name: str = "") -> list[str]:
    """Return the name of each array: the keys and numbers that lead to it, joined by dots."""
    before = f"{name}." if name else ""
    if isinstance(layout, dict):
        return [found for key, part in layout.items() for found in names(part, f"{before}{key}")]
    if layout[:1] == [TUPLE]:
        return [found for n, part in enumerate(layout[1:]) for found in names(part, f"{before}{n}")]
    return [name or "observations"]


def structured(layout: Any, parts: Iterator[Any]) -> Any:
    """Return one part for each array, in the structure of the layout."""
    if isinstance(layout, dict):
        return {name: structured(part, parts) for name, part in layout.items()}
    if layout[:1] == [TUPLE]:
        return tuple(structured(part, parts) for part in layout[1:])
    return next(parts)


def _whole(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and abs(n) < 2**31 for n in values)


def is_image(leaf: Any) -> bool:
    """Return whether a leaf of a layout is an image."""
    return bool(leaf) and leaf[0] == IMAGE


def image_shapes(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Return the largest value and the shape of each image."""
    return () if layout is None else tuple(tuple(leaf[1:]) for leaf in leaves(layout) if is_image(leaf))


def vector_sizes(layout: Layout) -> list[int]:
    """Return the number of numbers that each array but the images has in a row."""
    vectors = [leaf for leaf in leaves(layout) if not is_image(leaf)]
    return [sum(leaf[3]) if leaf[:1] == [CHOICES] else math.prod(leaf) for leaf in vectors]


def number_name(layout: Layout, index: int) -> str:
    """Return which number of an observation this one of its row is: `velocity[0]`, or `[0]` in a lone array."""
    vectors = [name for name, leaf in zip(names(layout), leaves(layout), strict=True) if not is_image(leaf)]
    for name, size in zip(vectors, vector_sizes(layout), strict=True):
        if index < size:
            return f"{'' if isinstance(layout, list) and layout[:1] != [TUPLE] else name}[{index}]"
        index -= size
    return f"action_mask[{index}]"


def image_bytes(images: Sequence[Sequence[int]]) -> int:
    """Return the length of all images in a row, with the bytes that fill it up."""
    size = sum(math.prod(shape) for _, *shape in images)
    return -(-size // NUMBER_BYTES) * NUMBER_BYTES


def array_shape(leaf: Any) -> tuple[int, ...]:
    """Return the shape in which the environment gives an array."""
    if leaf[:1] == [CHOICES]:
        return tuple(leaf[1])
    return tuple(leaf[2:] if is_image(leaf) else leaf)


def arrays(layout: Layout, observation: Any, name: str = "") -> list[tuple[Any, Array, str]]:
    """Return (leaf, array, name) of an observation, single or batched; raise ValueError if it has another form."""
    if isinstance(layout, dict):
        if not isinstance(observation, Mapping) or not layout.keys() <= observation.keys():
            held = ", ".join(map(str, observation)) if isinstance(observation, Mapping) else type(observation).__name__
            raise ValueError(f"{f'its {name}' if name else 'it'} holds {held}, not the entries {', '.join(layout)}")
        before = f"{name}." if name else ""
        return [found for key, part in layout.items() for found in arrays(part, observation[key], f"{before}{key}")]
    if layout is not None and layout[:1] == [TUPLE]:
        if not isinstance(observation, (tuple, list)) or len(observation) != len(layout) - 1:
            held = (
                f"{len(observation)} entries" if isinstance(observation, (tuple, list)) else type(observation).__name__
            )
            raise ValueError(f"{f'its {name}' if name else 'it'} holds {held}, not a tuple of {len(layout) - 1}")
        parts, before = zip(layout[1:], observation, strict=True), f"{name}." if name else ""
        return [found for n, (part, one) in enumerate(parts) for found in arrays(part, one, f"{before}{n}")]
    values = np.asarray(observation)
    shape = () if layout is None else array_shape(layout)
    if layout is None or values.shape[values.ndim - len(shape) :] != shape:
        wanted = "not with names" if layout is None else f"in the shape {shape}"
        raise ValueError(f"its {name or 'array'} has the shape {values.shape}, and the environment gives it {wanted}")
    if values.dtype.kind not in "fiub":
        raise ValueError(f"its {name or 'array'} holds {values.dtype}, and not numbers")
    return [(layout, values, name)]


def rows(layout: Layout, observation: Any, mask: Array | None = None) -> Array:
    """Return observations as rows, with the numbers of a mask after all others.  -> [..., row]"""
    found = arrays(layout, observation)
    _check_leads(found)
    vectors = [_one_hot(*one) if one[0][:1] == [CHOICES] else _flat(*one[:2]) for one in found if not is_image(one[0])]
    vectors += [] if mask is None else [mask]
    images = [_image(*one) for one in found if is_image(one[0])]
    if not images:
        return np.concatenate(vectors, -1)
    lead = images[0].shape[:-1]
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and refused by whoever reads it
        numbers = np.concatenate([np.zeros((*lead, 0)), *vectors], -1).astype(np.float32)
    size = sum(image.shape[-1] for image in images)
    filling = np.zeros((*lead, -size % NUMBER_BYTES), np.uint8)
    return np.concatenate([numbers.view(np.uint8), *images, filling], -1)


def _lead(leaf: Any, values: Array) -> tuple[int, ...]:
    """Return the leading axes of an array: those of a batch."""
    return values.shape[: values.ndim - len(array_shape(leaf))]


def _check_leads(found: list[tuple[Any, Array, str]]) -> None:
    """Raise ValueError unless all arrays have the same leading axes."""
    first, values, name = found[0]
    for leaf, others, other in found[1:]:
        if _lead(leaf, others) != _lead(first, values):
            raise ValueError(
                f"its {name} has the shape {values.shape}, and its {other} {others.shape}: batch all or none"
            )


def _flat(leaf: Any, values: Array) -> Array:
    """Return arrays as vectors.  [..., *shape] -> [..., n]"""
    return values.reshape(*_lead(leaf, values), math.prod(array_shape(leaf)))


def _image(leaf: Any, values: Array, name: str) -> Array:
    within = values.dtype == np.uint8 and leaf[1] == 255
    if not within and values.size and (values.dtype.kind == "f" or values.min() < 0 or values.max() > leaf[1]):
        raise ValueError(
            f"its {name or 'values'} are {values.dtype} from {values.min()} to {values.max()}, and an image has whole "
            f"numbers from 0 to {leaf[1]}"
        )
    return _flat(leaf, values).astype(np.uint8)


def _one_hot(leaf: Any, values: Array, name: str) -> Array:
    """Return the one-hot vectors of choices, one after another.  [..., *shape] -> [..., sum of counts]"""
    starts, counts = (np.asarray(part, np.int64) for part in leaf[2:])
    chosen = _flat(leaf, values) - starts
    if ((chosen < 0) | (chosen >= counts) | (chosen % 1 != 0)).any():
        raise ValueError(f"its {name or 'value'} is {values}, and not among the choices of the environment")
    return np.concatenate([np.eye(count)[chosen[..., n].astype(np.int64)] for n, count in enumerate(counts)], -1)
