"""`minerva export`: write a policy as ONNX, in a folder to share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from minerva.cli.typed_env import import_from_here
from minerva.cli.typed_networks import OwnWords, typed_networks
from minerva.cli.which import Which
from minerva.errors import printable
from minerva.runs.output import make_console
from minerva.runs.signals import STOPS, raised_signals, status_of


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
    env: str | None = None
    """Environment id to evaluate and record on; None: the one it was trained on."""
    trust_env: bool = False
    """Allow an id of the form your_module:YourEnv-v0 that the run names to import its module. Without it, the card
    shows the evaluation during training."""
    own_networks: OwnWords = None
    """Own networks that it was trained with, as part=module:name: a run's files never import what they name."""

    def run(self) -> int:
        """Export the policy and print the folder. Return 0; a signal's status if one stopped it: nothing is written."""
        import_from_here(self.env)
        from minerva.lab.export.folder import export  # torch's exporter takes a second to import
        from minerva.lab.export.graph import OBSERVATIONS, TOLERANCE

        console = make_console()
        try:
            with raised_signals(), console.status("exporting, evaluating, recording"):
                how: dict[str, Any] = {
                    name: getattr(self, name) for name in ("out", "episodes", "video", "env", "trust_env")
                }
                done = export(self.run_dir, self.which.name, own_networks=typed_networks(self.own_networks), **how)
        except STOPS as stop:
            console.print("stopped: nothing was exported.")
            return status_of(stop)
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
        console.print(printable(f"files: {', '.join(done.files)}"), markup=False, soft_wrap=True)
        console.print(printable(f"export: {done.path}"), markup=False, soft_wrap=True)
        return 0
