"""`minerva export`: write a policy as ONNX, in a folder to share."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from minerva.cli.which import Which
from minerva.runs.signals import raised_signals

STOPPED = 3


@dataclass(frozen=True)
class ExportPolicy:
    """Export a run's best policy as ONNX, with observation normalisation, action scaling, model card and example."""

    run_dir: tyro.conf.Positional[Path]
    """A run's folder, or a checkpoint file."""
    which: Which
    out: Path | None = None
    """Folder to write; None: the folder `export` inside the run's folder."""
    episodes: int = 100
    """Evaluation episodes for the return on the model card."""
    video: bool = True
    """Add the run's video, or record one."""

    def run(self) -> int:
        """Export the policy and print the folder. Return 0, or 3 if a signal stopped it: then nothing is written."""
        from minerva.lab.export.folder import export  # torch's exporter takes a second to import
        from minerva.lab.export.graph import OBSERVATIONS, TOLERANCE

        console = Console(highlight=False)
        try:
            with raised_signals(), console.status("exporting, evaluating, recording"):
                which = self.which.name
                done = export(self.run_dir, which, out=self.out, episodes=self.episodes, video=self.video)
        except KeyboardInterrupt:
            console.print("stopped: nothing was exported.")
            return STOPPED
        low, high = done.score.interval
        console.print(
            f"checked on {OBSERVATIONS:,} observations: actions differ by at most {done.difference:.1e} of their range "
            f"(tolerance {TOLERANCE:g})",
            soft_wrap=True,
        )
        console.print(
            f"return {done.score.mean:,.1f} ± {done.score.std:,.1f} over {len(done.score.returns)} episodes, "
            f"95 % confidence interval of the IQM [{low:,.1f}, {high:,.1f}]",
            markup=False,
            soft_wrap=True,
        )
        console.print(f"files: {', '.join(done.files)}", markup=False, soft_wrap=True)
        console.print(f"export: {done.path}", markup=False, soft_wrap=True)
        return 0
