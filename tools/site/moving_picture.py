"""Draw a run's best policy as a small looping picture, for README; no display is needed.

python tools/site/moving_picture.py RUN docs/assets/humanoid.webp --camera track
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import imageio.v3
from PIL import Image

from minerva.envs.saved import with_kwargs
from minerva.errors import ConfigError
from minerva.lab.analysis.video import record
from minerva.lab.analysis.video_settings import VideoSettings
from minerva.policy import load_policy

LARGEST = 1_000_000
"""Bytes of a picture that a page can afford."""
QUALITIES = (80, 65, 50, 35, 20)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the picture that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--width", type=int, default=400)
    parser.add_argument("--height", type=int, default=300)
    parser.add_argument("--fps", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--camera", default=None, help="a camera of the task's model, in Gymnasium's MuJoCo tasks")
    given = parser.parse_args(arguments)
    id_ = load_policy(given.run).about["env"]
    env = None if given.camera is None else with_kwargs(id_, {"camera_name": given.camera})
    settings = VideoSettings(
        seconds=given.seconds, fps=given.fps, width=given.width, height=given.height, overlay=False
    )
    with tempfile.TemporaryDirectory() as folder:
        video = record(given.run, settings=settings, out=Path(folder) / "episode.mp4", env=env, seed=given.seed)
        frames = [Image.fromarray(frame) for frame in imageio.v3.imiter(video.path)]
    size = write_looping(frames, 1000 / video.fps, given.out)
    print(f"{given.out}: {len(frames)} frames, {size:,} bytes, return {video.returns[0]:,.1f} so far")


def write_looping(frames: Sequence[Image.Image], milliseconds: float, out: Path, largest: int = LARGEST) -> int:
    """Write frames as a looping WebP in the best quality that is small enough, and return its size in bytes."""
    for quality in QUALITIES:
        first, *others = frames
        duration = round(milliseconds)
        first.save(out, "WEBP", save_all=True, append_images=others, duration=duration, loop=0, quality=quality)
        if out.stat().st_size <= largest:
            return out.stat().st_size
    size = out.stat().st_size
    out.unlink()
    raise ConfigError(f"{out} would have {size:,} bytes: give fewer --seconds, a lower --fps or a smaller --width.")


if __name__ == "__main__":
    main()
