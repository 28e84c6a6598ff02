"""The looping picture of README: as good as fits."""

from pathlib import Path

import numpy as np
import pytest
from moving_picture import write_looping
from PIL import Image

from minerva.errors import ConfigError


def test_a_picture_loops_in_the_best_quality_that_fits(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    frames = [Image.fromarray(source.integers(0, 255, (48, 64, 3), dtype=np.uint8)) for _ in range(4)]
    free, tight = (write_looping(frames, 50, tmp_path / f"{size}.webp", size) for size in (10**6, 10_000))
    assert free > 10_000 >= tight
    for name in ("1000000", "10000"):
        with Image.open(tmp_path / f"{name}.webp") as shown:
            assert (shown.n_frames, shown.size, shown.info["loop"]) == (4, (64, 48), 0)
            shown.seek(1)
            shown.load()
            assert shown.info["duration"] == 50
    with pytest.raises(ConfigError, match="give fewer --seconds"):
        write_looping(frames, 50, tmp_path / "none.webp", 100)
    assert not (tmp_path / "none.webp").exists()
