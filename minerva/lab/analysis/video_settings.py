"""Settings of a video, which the command line reads without a renderer."""

import math
from dataclasses import dataclass
from typing import Literal, Self

from minerva.errors import ConfigError

Format = Literal["mp4", "gif"]

SIZE: dict[str, tuple[int, int]] = {"mp4": (640, 480), "gif": (320, 240)}
FASTEST: dict[str, float] = {"mp4": 50.0, "gif": 100 / 3}
"""Largest frame rates that players and browsers show well."""
LONGEST: dict[str, float] = {"mp4": 600.0, "gif": 120.0}
"""Longest videos in seconds; a GIF of two minutes already has tens of megabytes."""
SMALLEST, LARGEST = 64, 1920


@dataclass(frozen=True)
class VideoSettings:
    """Episodes, format, size and frame rate of a video."""

    episodes: int = 1
    """Episodes to record; episode i starts from seed + 10000 + i, as in an evaluation."""
    format: Format = "mp4"
    """mp4 (small and sharp) or gif (supported everywhere)."""
    width: int | None = None
    """Width in pixels of MuJoCo's frames; None: 640 for mp4 and 320 for gif. Other renderers keep their size."""
    height: int | None = None
    """Height in pixels of MuJoCo's frames; None: 480 for mp4 and 240 for gif."""
    fps: float | None = None
    """Largest number of frames per second; None: 50 for mp4 and 33 for gif. Episodes play in real time."""
    seconds: float | None = None
    """Longest part of each episode to record, in seconds; None: the whole episode."""
    overlay: bool = True
    """Show episode, step and return in the frame."""

    def checked(self) -> Self:
        """Return self, or raise ConfigError. Not done in `__post_init__`, where tyro would reword the error."""
        if self.format not in SIZE:
            raise ConfigError(f"format is {self.format}: it must be mp4 or gif.")
        if self.episodes < 1:
            raise ConfigError(f"episodes is {self.episodes}: it must be at least 1.")
        for name in ("width", "height"):
            value = getattr(self, name)
            if value is not None and not SMALLEST <= value <= LARGEST:
                raise ConfigError(f"{name} is {value}: it must be between {SMALLEST} and {LARGEST}.")
        for name in ("fps", "seconds"):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf):
                raise ConfigError(f"{name} is {value}: it must be above 0.")
        if self.fps is not None and not 1 <= self.fps <= 120:
            raise ConfigError(f"fps is {self.fps:g}: it must be between 1 and 120.")
        return self

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height in pixels."""
        width, height = SIZE[self.format]
        return self.width or width, self.height or height
