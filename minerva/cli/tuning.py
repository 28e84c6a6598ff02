"""Search as `minerva tune` was told."""

import shlex
import sys
from pathlib import Path

from minerva.api import tuned
from minerva.cli.tune import Tune
from minerva.cli.typed_env import import_from_here
from minerva.config import parse_seeds
from minerva.envs.ids import check_id
from minerva.errors import ConfigError
from minerva.lab.cluster.space import space
from minerva.lab.cluster.tuning import Search, preset_file
from minerva.presets import preset_for
from minerva.runs.folder import write_atomically
from minerva.runs.output import make_console
from minerva.trainers.registry import config_class


def run(command: Tune) -> int:
    """Search, write the preset, and print the best settings and the command that uses them."""
    import_from_here(command.env)
    check_id(command.env)
    preset = str(Path(command.preset).absolute()) if command.preset.endswith(".toml") else command.preset
    for name in ("trials", "evaluations", "total_steps", "jobs"):
        if getattr(command, name) is not None and getattr(command, name) < 1:
            raise ConfigError(f"{name} is {getattr(command, name)}: it must be at least 1.")
    kind = config_class(command.algo)
    budget, values = tuned(command.algo, command.env, preset, command.total_steps, {})
    dimensions = tuple(space(command.algo, kind.from_dict(values), command.search))
    seeds, out = tuple(parse_seeds(command.seeds)), command.out.absolute()
    console = make_console()
    for each in dimensions:
        console.print(f"searching {each}", markup=False)
    options = (command.trials, command.evaluations, out, command.device, command.engine)
    search = Search(command.algo, command.env, seeds, budget, preset, dimensions, *options)
    best = search.run(command.address, command.jobs)
    base = preset_for(command.algo, command.env, preset)
    source = (
        f"{shlex.join(['minerva', *sys.argv[1:]])}: the best of {best.trials} trials, {best.mean:,.1f} over "
        f"{len(seeds)} seeds from {seeds[0]} after {best.step:,} steps"
    )
    known = {name: (value, base.sources[name]) for name, value in base.values.items()}
    file = out / f"{command.algo}.toml"
    write_atomically(file, preset_file(search, best, known, source))
    console.print(f"best: {best.mean:,.1f} over {len(seeds)} seeds after {best.step:,} steps", markup=False)
    for name, value in best.hyperparameters.items():
        console.print(f"  {name} = {value}", markup=False)
    use = shlex.join(["minerva", "train", command.algo, "--env", command.env, "--preset", str(file)])
    console.print(f"next: {use}", markup=False, soft_wrap=True)
    return 0
