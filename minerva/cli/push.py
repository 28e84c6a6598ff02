"""`minerva push`: share a policy on the Hugging Face Hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from minerva.cli.typed_env import import_from_here
from minerva.cli.typed_networks import OwnWords, typed_networks
from minerva.cli.which import Which
from minerva.errors import printable
from minerva.runs.output import make_console


@dataclass(frozen=True)
class Push:
    """Export a run's best policy as `minerva export` does, and upload the folder to the Hugging Face Hub."""

    run_dir: tyro.conf.Positional[Path]
    """A run's folder."""
    repository: tyro.conf.Positional[str]
    """Where to: user/name. It is made if it is not there."""
    which: Which
    private: bool = False
    """Make a new repository private."""
    episodes: int = 100
    """Evaluation episodes for the return on the model card."""
    video: bool = True
    """Add the run's video, or record one."""
    env: str | None = None
    """Environment id to evaluate and record on; None: the one it was trained on."""
    trust_env: bool = False
    """Allow an id of the form your_module:YourEnv-v0 that the run names to import its module."""
    own_networks: OwnWords = None
    """Own networks that it was trained with, as part=module:name: a run's files never import what they name."""

    def run(self) -> int:
        """Export, upload and print the address and how to load it. Return 0."""
        import_from_here(self.env)
        from minerva.lab.export.folder import export  # torch's exporter takes a second to import
        from minerva.utils.hub import check_repository, upload

        check_repository(self.repository)
        console = make_console()
        with console.status("exporting, evaluating, recording"):
            how: dict[str, Any] = {name: getattr(self, name) for name in ("episodes", "video", "env", "trust_env")}
            done = export(self.run_dir, self.which.name, own_networks=typed_networks(self.own_networks), **how)
        with console.status("uploading"):
            address = upload(done.path, self.repository, self.private)
        console.print(printable(f"files: {', '.join(done.files)}"), markup=False, soft_wrap=True)
        console.print(printable(f"pushed: {address}"), markup=False, soft_wrap=True)
        console.print(f'load: minerva.load_policy("{self.repository}")', markup=False, highlight=False, soft_wrap=True)
        return 0
