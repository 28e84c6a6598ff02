"""What `minerva train` prints: the settings before a run, and its returns and the commands to try next after it."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from minerva.cli.seeds import Seeds
from minerva.cli.train import RunOptions
from minerva.cli.typed_networks import typed_names
from minerva.config import Config
from minerva.envs.rendering import drawable
from minerva.errors import printable
from minerva.runs.folder import RunFolder
from minerva.runs.settings import Result


def print_settings(
    console: Console,
    algo: str,
    options: RunOptions,
    config: Config,
    envs: Any,
    processes: int = 1,
    seeds: Seeds | None = None,
) -> None:
    """Print the algorithm, environment, seeds, budget and engine, every hyperparameter, and what the task decides."""
    ranks = f" of {processes} processes" if processes > 1 else ""
    budget = f"{options.total_steps:,} steps on {options.device}{ranks}, stepped by {envs.name}"
    which = f"seed {options.seed}" if seeds is None else f"seeds {options.seeds or seeds} together"
    task = escape(printable(str(options.task)))
    console.print(f"[bold]{algo}[/] on [bold]{task}[/], {which}, {budget}", soft_wrap=True)
    settings = {name: _format_value(value) for name, value in config.to_dict().items()}
    if seeds is not None:
        settings |= {name: ",".join(values) for name, values in seeds.varied_values().items()}
    console.print(f"[dim]{'  '.join(f'{name}={value}' for name, value in settings.items())}[/]")
    rules = config.derived(len(envs.action.low))
    if rules:
        console.print("derived from the task:")
    for name, rule in rules.items():
        console.print(f"  {name}: {rule}", soft_wrap=True)


def _format_value(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def print_summary(console: Console, algo: str, options: RunOptions, result: Result) -> None:
    """Print returns before and after training, and the commands to try next. The last line is `run: <folder>`."""

    def say(line: str) -> None:  # paths and commands verbatim
        console.print(printable(line), markup=False, soft_wrap=True)

    folder = RunFolder(result.folder, algo)
    quoted = shlex.quote(str(result.folder))
    own = {part: name.split(":") for part, name in typed_names(options.own_networks).items()}
    given = ", ".join(f"{part!r}: {module}.{name}" for part, (module, name) in own.items())
    imported = ", ".join(dict.fromkeys(["minerva", *(module for module, _ in own.values())]))
    loaded = f"{str(result.folder)!r}{f', own_networks={{{given}}}' if given else ''}"
    program = f"import {imported}; print(minerva.load_policy({loaded}))"
    program = f'"{program}"' if quoted == str(result.folder) else shlex.quote(program)
    if result.finished:
        _draw_learning_curve(folder, f"{algo} on {options.env}", result.random)
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        table.add_row("random policy", f"{result.random:,.1f}")
        table.add_row("before training", f"{result.before:,.1f}")
        table.add_row("after training", f"[bold]{result.after:,.1f}[/]", f"(best {result.best:,.1f})")
        if result.step < options.total_steps:
            say(f"\n{result.step:,} steps: the rest of {options.total_steps:,} is too short for another rollout")
        say("\nmean return of deterministic evaluation episodes")
        console.print(table)
        say(f"\nlearning curve: {folder.curve}")
        say("next steps:")
        say(f"  {_command('minerva')} evaluate {quoted} --episodes 100{_typed(options)}")
        if drawable(options.env):
            say(f"  {_command('minerva')} video {quoted}{_typed(options)}")
        say(f"  {_command('tensorboard')} --logdir {quoted}")
        say(f"  {_command('python')} -c {program}")
    else:
        say(f"stopped at step {result.step:,}; a checkpoint is written. To resume, run:")
        say(f"  {resume_command(algo, options, result.folder)}")
    say(f"run: {result.folder}")


def resume_command(algo: str, options: RunOptions, *folders: Path) -> str:
    """Return the command that resumes these runs."""
    return f"{_command('minerva')} train {algo} --resume {shlex.join(map(str, folders))}{_typed(options)}"


def _typed(options: RunOptions) -> str:
    """Return the options with which a person names code of own modules, as a run's file may not."""
    env = f" --env {shlex.quote(options.env)}" if ":" in options.env else ""
    return env + (f" --own-networks {shlex.join(options.own_networks)}" if options.own_networks else "")


def _command(name: str) -> str:
    """Return a command of this Python environment as the user can type it, even if it is not activated."""
    here = Path(sys.executable).parent / name
    if not here.exists() or shutil.which(name) == str(here):
        return name
    return shlex.quote(str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here))


def _draw_learning_curve(folder: RunFolder, title: str, random_return: float) -> None:
    if folder.curve.exists():
        return  # leave a run that had finished before unchanged
    from minerva.lab.analysis.curve import learning_curve  # matplotlib takes a second to import

    learning_curve(folder, title, random_return)
