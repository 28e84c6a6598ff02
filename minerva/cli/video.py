"""`minerva video`: record a video of a trained policy; no display is needed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.status import Status

from minerva.cli.typed_env import import_from_here
from minerva.cli.typed_networks import OwnWords, typed_networks
from minerva.cli.which import Which
from minerva.errors import ConfigError, printable
from minerva.lab.analysis.video_settings import VideoSettings
from minerva.runs.output import make_console
from minerva.runs.signals import STOPS, raised_signals, status_of


@dataclass(frozen=True)
class RecordVideo:
    """Record a video of a run's best policy, with its return as an overlay, in the run's folder `videos`.

    No display is needed.
    """

    run_dir: tyro.conf.Positional[Path]
    """A run's folder, or a checkpoint file."""
    which: Which
    settings: VideoSettings
    out: Path | None = None
    """Video file to write; None: a new file in the run's folder `videos`."""
    env: str | None = None
    """Environment id to record; None: the one it was trained on."""
    seed: int | None = None
    """Seed of the first episode (10000 is added); None: the run's seed."""
    trust_env: bool = False
    """Allow an id of the form your_module:YourEnv-v0 that the run names to import its module."""
    own_networks: OwnWords = None
    """Own networks that it was trained with, as part=module:name: a run's files never import what they name."""

    def run(self) -> int:
        """Record the video and print its path. Return 0; a signal's status if one stopped it: nothing is written."""
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"seed is {self.seed}: it must be 0 or more.")
        from minerva.lab.analysis.video import record  # PyTorch, which reading the options does not need

        import_from_here(self.env)
        console = make_console()
        try:
            with raised_signals(), console.status("rendering") as status:
                show = _show_progress(status, self.settings.episodes)
                names = ("out", "env", "seed", "trust_env")
                overrides: dict[str, Any] = {name: getattr(self, name) for name in names}
                overrides["own_networks"] = typed_networks(self.own_networks)
                video = record(self.run_dir, self.which.name, self.settings, progress=show, **overrides)
        except STOPS as stop:
            console.print("stopped: no video was written.")
            return status_of(stop)
        for episode, (total, length) in enumerate(zip(video.returns, video.lengths, strict=True)):
            console.print(f"episode {episode + 1}: return {total:,.1f} in {length:,} steps")
        seconds = video.frames / video.fps
        console.print(f"{video.frames:,} frames, {seconds:,.1f} s at {video.fps:.3g} frames per second")
        console.print(printable(f"video: {video.path}"), markup=False, soft_wrap=True)
        return 0


def _show_progress(status: Status, episodes: int) -> Callable[[int, int, float], None]:
    def show(episode: int, step: int, total: float) -> None:
        status.update(f"rendering episode {episode + 1} of {episodes}, step {step:,}, return {total:,.1f}")

    return show
