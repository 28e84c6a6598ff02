"""`minerva train`: train an agent, watch it, and be told what to do next."""

import contextlib
import functools
import io
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_type_hints

import torch
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from minerva.api import DEFAULT_STEPS, make_trainer
from minerva.cli.seeds import Seeds
from minerva.compute.compiled import CompileMode, MatmulPrecision
from minerva.compute.ranks import Ranks, init_from_torchrun
from minerva.config import Config, checked, nearest
from minerva.envs.engines.registry import EngineName
from minerva.errors import ConfigError, RunError
from minerva.loop.collector import Collector
from minerva.presets import NONE, preset_for
from minerva.runs.folder import PROVENANCE, RunFolder, new_folder_name, read_config
from minerva.runs.settings import Result
from minerva.runs.signals import ignored_signals
from minerva.runs.store import CheckpointStore
from minerva.trainers.registry import ALGORITHMS, config_class

DEFAULT_ENV = "Pendulum-v1"

SAVED = ("env", "seed", "device", "engine", "total_steps", "eval_every", "eval_episodes", "compile", "matmul")
"""The run options that are part of a run's config."""


@dataclass(frozen=True)
class RunOptions:
    """What to train on, for how long, and where to write."""

    env: str = DEFAULT_ENV
    """Environment id: any of gymnasium's, dm_control/<domain>/<task>, or your_module:YourEnv-v0."""
    seed: int = 0
    """Seed of everything random; training environments get seed + i, evaluation seed + 10000 + i."""
    seeds: str | None = None
    """Train these seeds together instead, each in a folder of its own: 0:8 is 0 to 7, or list them as 0,1,5."""
    vary: str | None = None
    """A hyperparameter's value for each of the seeds: policy_lr=1e-4,3e-4 (further ones after a space)."""
    total_steps: int = DEFAULT_STEPS
    """Environment steps to train for."""
    device: str = "cpu"
    """cpu, cuda or cuda:0."""
    actors: int = 0
    """Ray actors that act and step the environments, in equal blocks; 0: this process does. Needs the extra cluster."""
    address: str | None = None
    """The Ray cluster of the actors; None: this machine."""
    engine: EngineName = "auto"
    """What steps the environments: gymnasium, processes (gymnasium's, each free to raise, hang or die), envpool (C++
    threads), or auto: envpool where it is installed and has the task, else gymnasium."""
    preset: str = "auto"
    """Tuned settings to start from: auto (the environment's own, if it has one), none, a preset's name, or its file."""
    config: Path | None = None
    """A config.yaml to start from instead of a preset."""
    out_dir: Path = Path("runs")
    """Where the run's folder is made."""
    run_dir: Path | None = None
    """This very folder instead: if it holds an unfinished run of the same config, that one goes on."""
    resume: Annotated[tuple[Path, ...] | None, tyro.conf.arg(metavar="RUN [RUN ...]")] = None
    """A run's folder: go on where that run stopped, with its own config. Several: they go on together."""
    init_from: Path | None = None
    """A run or checkpoint whose policy is the starting point."""
    eval_every: int | None = None
    """Steps between evaluations; None: 20 evaluations a run."""
    eval_episodes: int = 15
    """Episodes per evaluation."""
    compile: CompileMode = "auto"
    """Compile the update with torch.compile where it pays, or never."""
    matmul: MatmulPrecision = "highest"
    """Products of float32 matrices on a GPU: highest (float32) or high (TF32: faster, with 10-bit factors)."""
    threads: int = 1
    """Torch threads; one is fastest for small networks, and the number changes the last bits of results."""
    wandb: str | None = None
    """Weights & Biases project to log to as well."""


@dataclass(frozen=True)
class TrainCommand:
    """Train with the options below; those of the environment's preset are already the defaults."""

    run_options: RunOptions
    hyperparameters: Config

    def run(self) -> int:
        """Train, then say what came of it. Exit code 0, or 3 if a signal stopped it."""
        options = self.run_options
        algo = next(name for name in ALGORITHMS if isinstance(self.hyperparameters, config_class(name)))
        if options.threads < 1:
            raise ConfigError(f"threads is {options.threads}: it must be at least 1.")
        torch.set_num_threads(options.threads)
        config = config_class(algo).from_dict(self.hyperparameters.to_dict())
        settings = {
            name: getattr(options, name) for name in ("eval_every", "eval_episodes", "compile", "matmul", "wandb")
        }
        if options.seeds is not None or options.vary is not None:
            return self._run_seeds(Seeds.given(algo, config, options.seeds, options.seed, options.vary or ""), settings)
        if options.resume is not None and len(options.resume) > 1:
            return self._run_seeds(self._resumed(algo, options.resume), settings)
        ranks = init_from_torchrun(options.device)
        engine = _stepped_by(algo, config, options, ranks)
        made_of = (algo, options.env, options.seed, options.device, config, options.init_from, engine)
        trainer = make_trainer(*made_of, ranks)
        folder = _folder(algo, options)
        console = Console(highlight=False, quiet=ranks.rank > 0)
        _announce(console, algo, options, config, trainer.envs.name, ranks.count)
        result = trainer.train(options.total_steps, folder, **settings)
        ranks.shutdown()
        with ignored_signals():  # the run is over and written: what is left is to tell of it
            if ranks.rank == 0:
                _conclude(console, algo, options.env, result)
        return 0 if result.finished else 3

    def _run_seeds(self, seeds: Seeds, settings: dict[str, Any]) -> int:
        """The same for a population."""
        options = self.run_options
        if init_from_torchrun(options.device).count > 1:
            raise ConfigError("Seeds are trained together by one process: start them without torchrun.")
        if options.actors:
            raise ConfigError("Actors belong to one learner: train the seeds one by one, or without --actors.")
        if options.resume is not None and (options.seeds is not None or options.vary is not None):
            raise ConfigError("--resume goes on with runs as they were begun: leave out --seeds and --vary.")
        population = seeds.population(options.env, options.device, options.init_from, options.engine)
        folders = options.resume or seeds.folders(options.env, options.out_dir, options.run_dir)
        console = Console(highlight=False)
        _announce(console, seeds.algo, options, seeds.configs[0], population.trainers[0].envs.name, seeds=seeds)
        results = population.train(options.total_steps, folders, **settings)
        in_place = options.resume is not None or options.run_dir is not None
        with ignored_signals():
            seeds.conclude(console, results, None if in_place else _resume_command(seeds.algo, *folders))
        return 0 if all(result.finished for result in results) else 3

    def _resumed(self, algo: str, folders: Sequence[Path]) -> Seeds:
        """Runs that go on together, each with its own config, under what the command line says otherwise."""
        saved = [_saved_command(algo, folder, is_run=True) for folder in folders]
        for folder in folders:
            _refuse_without_checkpoint(algo, folder)
        own = [command.hyperparameters.to_dict() for command in saved]
        said = {name: value for name, value in self.hyperparameters.to_dict().items() if value != own[0][name]}
        configs = [config_class(algo).from_dict({**values, **said}) for values in own]
        return Seeds(algo, [self.run_options.seed, *(command.run_options.seed for command in saved[1:])], configs)


def _stepped_by(algo: str, config: Config, options: RunOptions, ranks: Ranks) -> EngineName | Collector:
    """What steps the environments: an engine of this process, or Ray actors."""
    if not options.actors:
        return options.engine
    if ranks.count > 1:
        raise ConfigError("Actors belong to one learner: start them without torchrun.")
    from minerva.lab.cluster.actors import ray_blocks  # Ray is an extra, and takes a second to import

    return ray_blocks(algo, config, options.env, options.actors, options.engine, options.address)


def train_type(arguments: Sequence[str]) -> Any:
    """The type of `minerva train`, its defaults filled from what the command line names: a preset or a config file.

    Defaults depend on the environment, so the few options that choose them are read first.
    """
    chosen = _chosen(arguments)
    algo = next((word for word in arguments if word in ALGORITHMS), None)
    members = []
    for name in ALGORITHMS:
        default = _defaults(name, chosen) if name == algo else TrainCommand(RunOptions(), _unchecked(name, NONE.values))
        members.append(Annotated[TrainCommand, tyro.conf.subcommand(name, default=default)])
    return Union[tuple(members)]  # noqa: UP007  built at run time


def with_algorithm(arguments: Sequence[str]) -> list[str]:
    """The arguments of `minerva train`, with the algorithm that a saved config names if they name none."""
    words = list(arguments)
    chosen = _chosen(words)
    if not chosen.resume or words[:1] != ["train"] or any(word in ALGORITHMS for word in words):
        return words
    algo = read_config(_config_file(chosen.resume[0], is_run=True)).get("algo")
    if algo not in ALGORITHMS:
        raise RunError(f"{chosen.resume[0]} holds a run of {algo!r}: give a run of {', '.join(ALGORITHMS)}.")
    return ["train", str(algo), *words[1:]]


def _chosen(arguments: Sequence[str]) -> RunOptions:
    """The run options among the arguments."""
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):  # the real parse will report it
        return tyro.cli(RunOptions, args=list(arguments), return_unknown_args=True, add_help=False)[0]
    return RunOptions()


def _config_file(source: Path, is_run: bool) -> Path:
    """The config of a run's folder, or the file itself if it need not be a run."""
    file = source / "config.yaml" if source.is_dir() or is_run else source
    if not file.is_file():
        raise RunError(f"{file} does not exist: give the folder of a run{'' if is_run else ', or a config.yaml'}.")
    return file


def _defaults(algo: str, chosen: RunOptions) -> TrainCommand:
    """Run options and hyperparameters before the user's own are applied."""
    if chosen.resume is not None and not chosen.resume:
        raise ConfigError("--resume names no run: give its folder.")
    source = chosen.resume[0] if chosen.resume else chosen.config
    if source is None:
        preset = preset_for(algo, chosen.env, chosen.preset)
        budget = preset.values.get("total_steps", DEFAULT_STEPS)
        values = {name: value for name, value in preset.values.items() if name != "total_steps"}
        return TrainCommand(RunOptions(total_steps=budget), _unchecked(algo, values))
    return _saved_command(algo, source, is_run=chosen.resume is not None)


def _saved_command(algo: str, source: Path, is_run: bool) -> TrainCommand:
    """Run options and hyperparameters as a run, or a config.yaml, has them."""
    file = _config_file(source, is_run)
    saved = read_config(file)
    if saved.get("algo") != algo:
        raise ConfigError(
            f"{file} is the config of {saved.get('algo')}, not of {algo}: use minerva train {saved.get('algo')}."
        )
    try:
        return TrainCommand(_saved_options(saved), _unchecked(algo, saved.get("hyperparameters", {})))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _saved_options(saved: dict[str, Any]) -> RunOptions:
    """The run options that a config.yaml keeps, and the number of threads, which changes results in the last bits."""
    for name in saved:
        if name not in {*SAVED, *PROVENANCE, "algo", "hyperparameters"}:
            raise ConfigError(f"{name} is not a setting that a run's config has. {nearest(name, SAVED)}")
    versions = saved.get("versions")
    threads = versions.get("torch_threads", 1) if isinstance(versions, dict) else 1
    hints, values = get_type_hints(RunOptions), {**saved, "threads": threads}
    return RunOptions(
        **{name: checked(name, values[name], hints[name]) for name in (*SAVED, "threads") if name in values}
    )


def _folder(algo: str, options: RunOptions) -> Path:
    """The folder this run is written to."""
    if options.resume is None:
        return options.run_dir or options.out_dir / new_folder_name(algo, options.env, options.seed)
    _refuse_without_checkpoint(algo, options.resume[0])
    return options.resume[0]


def _refuse_without_checkpoint(algo: str, folder: Path) -> None:
    if not CheckpointStore(RunFolder(folder, algo)).exists():
        raise RunError(f"{folder} holds no checkpoint to go on from: start it again with --run-dir.")


def _unchecked(algo: str, values: Any) -> Any:
    """A config whose values are not checked against each other yet: the user's own may still replace some."""
    config: Any = config_class(algo)
    if not isinstance(values, dict):
        raise ConfigError(f"hyperparameters is {values!r}: it must be a list of names with values.")
    config.refuse_unknown(values)
    annotations = config.annotations()
    return _without_checks(config)(**{name: checked(name, value, annotations[name]) for name, value in values.items()})


@functools.cache
def _without_checks(config: Any) -> Any:
    body = {"__post_init__": lambda self: None, "__doc__": config.__doc__, "__module__": config.__module__}
    return dataclass(frozen=True)(type(config.__name__, (config,), body))


def _announce(
    console: Console,
    algo: str,
    options: RunOptions,
    config: Config,
    engine: str,
    processes: int = 1,
    seeds: Seeds | None = None,
) -> None:
    """What is about to happen, with every setting."""
    many = f" of {processes} processes" if processes > 1 else ""
    budget = f"{options.total_steps:,} steps on {options.device}{many}, stepped by {engine}"
    which = f"seed {options.seed}" if seeds is None else f"seeds {options.seeds or seeds} together"
    console.print(f"[bold]{algo}[/] on [bold]{escape(options.env)}[/], {which}, {budget}", soft_wrap=True)
    settings = config.to_dict()
    text = "  ".join(f"{name}={_short(value)}" for name, value in settings.items())
    console.print(f"[dim]{text}[/]")


def _short(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _conclude(console: Console, algo: str, env: str, result: Result) -> None:
    """Before and after, the picture, the folder, and what to type next. The last line is always `run: <folder>`."""
    say = functools.partial(console.print, markup=False, soft_wrap=True)  # paths and commands as they are written
    folder = RunFolder(result.folder, algo)
    quoted = shlex.quote(str(result.folder))
    if result.finished:
        _draw(folder, f"{algo} on {env}", result.random)
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        table.add_row("random policy", f"{result.random:,.1f}")
        table.add_row("before training", f"{result.before:,.1f}")
        table.add_row("after training", f"[bold]{result.after:,.1f}[/]", f"(best {result.best:,.1f})")
        say("\nmean return, deterministic evaluation")
        console.print(table)
        say(f"\nlearning curve: {folder.curve}")
        say("next:")
        say(f"  {_command('minerva')} evaluate {quoted} --episodes 100")
        say(f"  {_command('minerva')} video {quoted}")
        say(f"  {_command('tensorboard')} --logdir {quoted}")
        say(f"  {_command('python')} -c \"import minerva; print(minerva.load_policy('{result.folder}'))\"")
    else:
        say(f"stopped at step {result.step:,}; a checkpoint is written. To go on:")
        say(f"  {_resume_command(algo, result.folder)}")
    say(f"run: {result.folder}")


def _resume_command(algo: str, *folders: Path) -> str:
    return f"{_command('minerva')} train {algo} --resume {shlex.join(map(str, folders))}"


def _command(name: str) -> str:
    """How to call a command of this Python's environment from where the user is: it may not be activated."""
    here = Path(sys.executable).parent / name
    if not here.exists() or shutil.which(name) == str(here):
        return name
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


def _draw(folder: RunFolder, title: str, random_return: float) -> None:
    if folder.curve.exists():
        return  # a run that was finished before is left as it is
    from minerva.lab.analysis.curve import learning_curve  # matplotlib takes a second to import

    learning_curve(folder, title, random_return)
