"""The first version's settings, in terms of which many tests are stated: one environment, plain losses."""

from typing import Any

from minerva.presets import presets


def source(algo: str) -> dict[str, Any]:
    """The values of the algorithm's preset `source`, to be changed by a test."""
    return dict(presets(algo)["source"].values)
