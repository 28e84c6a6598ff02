"""`minerva video`: film a trained policy, also where there is no screen."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.status import Status

from minerva.cli.which import Which
from minerva.errors import ConfigError
from minerva.lab.analysis.video import Progress, VideoSettings, record
from minerva.runs.signals import raised_signals

STOPPED = 3


@dataclass(frozen=True)
class RecordVideo:
    """Film a run's best policy, its return in the picture, into the run's folder `videos`. Needs no screen."""

    run_dir: tyro.conf.Positional[Path]
    """A run's folder, or a checkpoint file."""
    which: Which
    settings: VideoSettings
    out: Path | None = None
    """A file to write instead."""
    env: str | None = None
    """Another environment id than the one it was trained on."""
    seed: int | None = None
    """Seed of the first episode (10000 is added); None: the run's own."""

    def run(self) -> int:
        """Film and say where it lies. Exit code 0, or 3 if a signal came: then nothing is left behind."""
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"seed is {self.seed}: it must be 0 or more.")
        console = Console(highlight=False)
        try:
            with raised_signals(), console.status("drawing") as status:
                show = _shown(status, self.settings.episodes)
                chosen: dict[str, Any] = {"out": self.out, "env": self.env, "seed": self.seed}
                video = record(self.run_dir, self.which.name, self.settings, progress=show, **chosen)
        except KeyboardInterrupt:
            console.print("stopped: no video was written.")
            return STOPPED
        for episode, (total, length) in enumerate(zip(video.returns, video.lengths, strict=True)):
            console.print(f"episode {episode + 1}: return {total:,.1f} in {length:,} steps")
        seconds = video.frames / video.fps
        console.print(f"{video.frames:,} pictures, {seconds:,.1f} s at {video.fps:.3g} a second")
        console.print(f"video: {video.path}", markup=False, soft_wrap=True)
        return 0


def _shown(status: Status, episodes: int) -> Progress:
    def show(episode: int, step: int, total: float) -> None:
        status.update(f"drawing episode {episode + 1} of {episodes}, step {step:,}, return {total:,.1f}")

    return show
