"""`minerva train`: train an agent, show its progress, and print the commands to try next."""

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
from minerva.cli.env_kwargs import kwargs_words, parse_kwargs
from minerva.cli.parent import require_saved_weights, saved_parent
from minerva.cli.seeds import Seeds
from minerva.compute.compiled import CompileMode, MatmulPrecision
from minerva.compute.ranks import Ranks, init_from_torchrun
from minerva.config import Config, checked, nearest
from minerva.envs.engines.registry import EngineName
from minerva.envs.ids import EnvLike
from minerva.envs.saved import KWARGS, MADE_BY, made_again, with_kwargs
from minerva.errors import ConfigError, RunError, printable
from minerva.loop.collector import Collector
from minerva.presets import NONE, preset_for
from minerva.runs.folder import PROVENANCE, RunFolder, new_folder_name, read_config
from minerva.runs.origin import INIT_FROM
from minerva.runs.output import make_console
from minerva.runs.settings import Result
from minerva.runs.signals import exit_status, ignored_signals
from minerva.runs.store import CheckpointStore
from minerva.trainers.registry import ALGORITHMS, config_class

DEFAULT_ENV = "Pendulum-v1"

SAVED = ("env", "seed", "device", "engine", "total_steps", "eval_every", "eval_episodes", "compile", "matmul")
"""Run options stored in a run's config.yaml."""


@dataclass(frozen=True)
class RunOptions:
    """What to train on, for how long, and where to write."""

    env: str = DEFAULT_ENV
    """Environment id: a Gymnasium id, dm_control/<domain>/<task>, or your_module:YourEnv-v0."""
    env_kwargs: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[NAME=VALUE ...]")] = None
    """Arguments of the environment, such as g=1.0 max_episode_steps=100. Values are JSON, or else text."""
    trust_env: bool = False
    """Allow an id of the form your_module:YourEnv-v0 that a run or config.yaml names to import its module."""
    seed: int = 0
    """Random seed; training environment i gets seed + i, evaluation episode i seed + 10000 + i."""
    seeds: str | None = None
    """Train several seeds in one process instead, each in its own run folder: 0:8 (0 to 7), or a list such as 0,1,5."""
    vary: str | None = None
    """One value of a hyperparameter per seed: policy_lr=1e-4,3e-4 (separate several hyperparameters by spaces)."""
    total_steps: int = DEFAULT_STEPS
    """Environment steps to train for."""
    device: str = "cpu"
    """cpu, cuda or cuda:0."""
    actors: int = 0
    """Ray actors that collect the data, each with an equal share of the environments; 0: collect in this process.
    Needs the extra cluster."""
    address: str | None = None
    """Address of the Ray cluster that hosts the actors; None: start Ray on this machine."""
    engine: EngineName = "auto"
    """Engine that steps the environments: gymnasium; processes (Gymnasium environments in subprocesses, which may
    raise, hang or crash); envpool (C++ threads); auto: envpool if it is installed and has the task, else gymnasium."""
    preset: str = "auto"
    """Tuned settings to start from: auto (the environment's preset, if there is one), none, a preset's name, or a TOML
    file."""
    config: Path | None = None
    """A run's config.yaml to start from instead of a preset."""
    out_dir: Path = Path("runs")
    """Folder in which the run's folder is created."""
    run_dir: Path | None = None
    """Exact folder of the run, instead of a new one with a generated name. An unfinished run of the same config in it
    is resumed."""
    resume: Annotated[tuple[Path, ...] | None, tyro.conf.arg(metavar="RUN [RUN ...]")] = None
    """Resume the run in this folder where it stopped, with its saved config. Several folders: resume them together."""
    init_from: Path | None = None
    """A run's folder or a checkpoint whose policy initialises this run's."""
    eval_every: int | None = None
    """Environment steps between evaluations; None: 20 evaluations per run."""
    eval_episodes: int = 15
    """Episodes per evaluation."""
    compile: CompileMode = "auto"
    """auto: compile the update with torch.compile where that is faster; off: never."""
    matmul: MatmulPrecision = "highest"
    """Precision of float32 matrix products on a GPU: highest (float32) or high (TF32: faster, 10-bit mantissas)."""
    threads: int = 1
    """PyTorch CPU threads; 1 is fastest for small networks. The number changes the last bits of the results."""
    wandb: str | None = None
    """Weights & Biases project to log to, besides TensorBoard."""

    @property
    def task(self) -> EnvLike:
        """The environment: the id with its arguments."""
        return with_kwargs(self.env, parse_kwargs(self.env_kwargs or ()))


@dataclass(frozen=True)
class TrainCommand:
    """Train an agent. The defaults shown below include the environment's preset."""

    run_options: RunOptions
    hyperparameters: Config

    def run(self) -> int:
        """Train, then print a summary. Return 0, or the signal's exit status if one stopped the run."""
        options = self.run_options
        algo = next(name for name in ALGORITHMS if isinstance(self.hyperparameters, config_class(name)))
        if options.threads < 1:
            raise ConfigError(f"threads is {options.threads}: it must be at least 1.")
        torch.set_num_threads(options.threads)
        config = config_class(algo).from_dict(self.hyperparameters.to_dict())
        settings = {
            name: getattr(options, name) for name in ("eval_every", "eval_episodes", "compile", "matmul", "wandb")
        }
        settings["resume"] = options.resume is not None
        if options.seeds is not None or options.vary is not None:
            return self._run_seeds(Seeds.parse(algo, config, options.seeds, options.seed, options.vary or ""), settings)
        if options.resume is not None and len(options.resume) > 1:
            return self._run_seeds(self._resumed_seeds(algo, options.resume), settings)
        ranks = init_from_torchrun(options.device)
        engine = _engine_or_collector(algo, config, options, ranks)
        trainer = make_trainer(
            algo, options.task, options.seed, options.device, config, options.init_from, engine, ranks
        )
        require_saved_weights(options.config, options.init_from, trainer)
        folder = _run_folder(algo, options)
        console = make_console(quiet=ranks.rank > 0)
        _print_settings(console, algo, options, config, trainer.envs, ranks.count)
        result = trainer.run(options.total_steps, folder, **settings)
        ranks.shutdown()
        with ignored_signals():  # the run is finished and saved: only the summary is left to print
            if ranks.rank == 0:
                _print_summary(console, algo, options.env, result)
        return _exit_status([result])

    def _run_seeds(self, seeds: Seeds, settings: dict[str, Any]) -> int:
        """Train several seeds as one population, then print a summary. Return the exit status."""
        options = self.run_options
        if init_from_torchrun(options.device).count > 1:
            raise ConfigError("Several seeds are trained together in one process: start it without torchrun.")
        if options.actors:
            raise ConfigError("--actors serves a single learner: train the seeds one by one, or without --actors.")
        if options.resume is not None and (options.seeds is not None or options.vary is not None):
            raise ConfigError("--resume uses the saved seeds and settings of the runs: leave out --seeds and --vary.")
        population = seeds.population(options.task, options.device, options.init_from, options.engine)
        require_saved_weights(options.config, options.init_from, population.trainers[0])
        folders = options.resume or seeds.folders(options.env, options.out_dir, options.run_dir)
        console = make_console()
        _print_settings(console, seeds.algo, options, seeds.configs[0], population.trainers[0].envs, seeds=seeds)
        results = population.run(options.total_steps, folders, **settings)
        in_place = options.resume is not None or options.run_dir is not None
        with ignored_signals():
            resume = _resume_command(seeds.algo, options.env, *folders)
            seeds.print_summary(console, results, None if in_place else resume)
        return _exit_status(results)

    def _resumed_seeds(self, algo: str, folders: Sequence[Path]) -> Seeds:
        """Return the seeds of runs to resume together, each with its saved config and the command line's changes."""
        saved = [_saved_command(algo, folder, self.run_options) for folder in folders]
        for folder in folders:
            _refuse_without_checkpoint(algo, folder)
        hyperparameters = [command.hyperparameters.to_dict() for command in saved]
        given = self.hyperparameters.to_dict()
        overrides = {name: value for name, value in given.items() if value != hyperparameters[0][name]}
        configs = [config_class(algo).from_dict({**values, **overrides}) for values in hyperparameters]
        return Seeds(algo, [self.run_options.seed, *(command.run_options.seed for command in saved[1:])], configs)


def _exit_status(results: Sequence[Result]) -> int:
    """Return 0 if all runs finished, the status of the signal that stopped them, or 1 if a seed failed."""
    if all(result.finished for result in results):
        return 0
    number = results[0].signal
    return 1 if number is None else exit_status(number)


def _engine_or_collector(algo: str, config: Config, options: RunOptions, ranks: Ranks) -> EngineName | Collector:
    """Return the name of a local engine, or a collector of Ray actors."""
    if not options.actors:
        return options.engine
    if ranks.count > 1:
        raise ConfigError("--actors serves a single learner: start it without torchrun.")
    from minerva.lab.cluster.actors import ray_collector  # Ray is an extra, and takes a second to import

    return ray_collector(algo, config, options.task, options.actors, options.engine, options.address)


def train_type(arguments: Sequence[str]) -> Any:
    """Return the type of `minerva train`, with defaults from the preset, config file or run that the arguments name.

    The defaults depend on the environment, so the run options are parsed first.
    """
    chosen = _parse_run_options(arguments)
    algo = next((word for word in arguments if word in ALGORITHMS), None)
    members = []
    for name in ALGORITHMS:
        default = _defaults(name, chosen) if name == algo else TrainCommand(RunOptions(), _unchecked(name, NONE.values))
        members.append(Annotated[TrainCommand, tyro.conf.subcommand(name, default=default)])
    return Union[tuple(members)]  # noqa: UP007  built at run time


def with_algorithm(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `minerva train`, adding the algorithm of the run to resume if they name none."""
    words = list(arguments)
    chosen = _parse_run_options(words)
    if not chosen.resume or words[:1] != ["train"] or any(word in ALGORITHMS for word in words):
        return words
    algo = read_config(_config_file(chosen.resume[0], is_run=True)).get("algo")
    if not isinstance(algo, str) or algo not in ALGORITHMS:
        raise RunError(f"{chosen.resume[0]} is a run of {algo!r}: give a run of {', '.join(ALGORITHMS)}.")
    return ["train", str(algo), *words[1:]]


def _parse_run_options(arguments: Sequence[str]) -> RunOptions:
    """Return the run options among the arguments, or the defaults if they cannot be parsed; not given, `env` is ""."""
    default = RunOptions(env="")
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):  # the full parse reports errors
        return tyro.cli(RunOptions, default=default, args=list(arguments), return_unknown_args=True, add_help=False)[0]
    return default


def _config_file(source: Path, is_run: bool) -> Path:
    """Return the config.yaml of a run's folder; unless `is_run`, `source` may be the file itself."""
    file = source / "config.yaml" if source.is_dir() or is_run else source
    if not file.is_file():
        raise RunError(f"{file} does not exist: give the folder of a run{'' if is_run else ', or a config.yaml'}.")
    return file


def _defaults(algo: str, chosen: RunOptions) -> TrainCommand:
    """Return the default run options and hyperparameters: those of a run, of a config file, or of a preset."""
    if chosen.resume is not None and not chosen.resume:
        raise ConfigError("--resume needs a run: give its folder.")
    if chosen.resume and chosen.init_from:
        raise ConfigError("--resume goes on with the weights of the run: leave out --init-from.")
    source = chosen.resume[0] if chosen.resume else chosen.config
    if source is None:
        preset = preset_for(algo, chosen.env or DEFAULT_ENV, chosen.preset)
        budget = preset.values.get("total_steps", DEFAULT_STEPS)
        values = {name: value for name, value in preset.values.items() if name != "total_steps"}
        return TrainCommand(RunOptions(total_steps=budget), _unchecked(algo, values))
    return _saved_command(algo, source, chosen)


def _saved_command(algo: str, source: Path, chosen: RunOptions) -> TrainCommand:
    """Return the run options and hyperparameters saved in a run or a config.yaml, with the `chosen` environment."""
    is_run = chosen.resume is not None
    file = _config_file(source, is_run)
    saved = read_config(file)
    if saved.get("algo") != algo:
        raise ConfigError(
            f"{file} is the config of {saved.get('algo')}, not of {algo}: use minerva train {saved.get('algo')}."
        )
    try:
        return TrainCommand(_saved_options(saved, chosen), _unchecked(algo, saved.get("hyperparameters", {})))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _saved_options(saved: dict[str, Any], chosen: RunOptions) -> RunOptions:
    """Return the run options of a config.yaml, and the number of threads, which changes the last bits of results."""
    for name in saved:
        if name not in {*SAVED, KWARGS, MADE_BY, INIT_FROM, *PROVENANCE, "algo", "derived", "hyperparameters"}:
            raise ConfigError(f"{name} is not a setting of a run's config. {nearest(name, SAVED)}")
    versions = saved.get("versions")
    threads = versions.get("torch_threads", 1) if isinstance(versions, dict) else 1
    hints, values = get_type_hints(RunOptions), {**saved, "threads": threads}
    options = {name: checked(name, values[name], hints[name]) for name in (*SAVED, "threads") if name in values}
    if chosen.resume is None:
        options[INIT_FROM] = saved_parent(saved, chosen.init_from)
    if chosen.env in ("", options.get("env")):  # another id does not have the saved arguments
        options["env_kwargs"] = kwargs_words(saved.get(KWARGS) or {}) or None
        made_again({"env": DEFAULT_ENV, **saved}, chosen.env or None, chosen.trust_env)
    return RunOptions(**options)


def _run_folder(algo: str, options: RunOptions) -> Path:
    """Return the folder that this run is written to."""
    if options.resume is None:
        return options.run_dir or options.out_dir / new_folder_name(algo, options.env, options.seed)
    _refuse_without_checkpoint(algo, options.resume[0])
    return options.resume[0]


def _refuse_without_checkpoint(algo: str, folder: Path) -> None:
    if not CheckpointStore(RunFolder(folder, algo)).exists():
        raise RunError(f"{folder} has no checkpoint to resume from: start the run again with --run-dir.")


def _unchecked(algo: str, values: Any) -> Any:
    """Return a config whose values are not checked against each other yet: the command line may still replace some."""
    config: Any = config_class(algo)
    if not isinstance(values, dict):
        raise ConfigError(f"hyperparameters is {values!r}: it must be a mapping of names to values.")
    config.refuse_unknown(values)
    annotations = config.annotations()
    return _without_checks(config)(**{name: checked(name, value, annotations[name]) for name, value in values.items()})


@functools.cache
def _without_checks(config: Any) -> Any:
    body = {"__post_init__": lambda self: None, "__doc__": config.__doc__, "__module__": config.__module__}
    return dataclass(frozen=True)(type(config.__name__, (config,), body))


def _print_settings(
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
    settings = config.to_dict()
    text = "  ".join(f"{name}={_format_value(value)}" for name, value in settings.items())
    console.print(f"[dim]{text}[/]")
    rules = "; ".join(f"{name}: {rule}" for name, rule in config.derived(envs.action.size).items())
    if rules:
        console.print(f"derived from the task: {rules}", soft_wrap=True)


def _format_value(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _print_summary(console: Console, algo: str, env: str, result: Result) -> None:
    """Print returns before and after training, and the commands to try next. The last line is `run: <folder>`."""

    def say(line: str) -> None:  # paths and commands verbatim
        console.print(printable(line), markup=False, soft_wrap=True)

    folder = RunFolder(result.folder, algo)
    quoted = shlex.quote(str(result.folder))
    program = shlex.quote(f"import minerva; print(minerva.load_policy({str(result.folder)!r}))")
    if result.finished:
        _draw_learning_curve(folder, f"{algo} on {env}", result.random)
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        table.add_row("random policy", f"{result.random:,.1f}")
        table.add_row("before training", f"{result.before:,.1f}")
        table.add_row("after training", f"[bold]{result.after:,.1f}[/]", f"(best {result.best:,.1f})")
        say("\nmean return of deterministic evaluation episodes")
        console.print(table)
        say(f"\nlearning curve: {folder.curve}")
        say("next steps:")
        say(f"  {_command('minerva')} evaluate {quoted} --episodes 100{_trust(env)}")
        say(f"  {_command('minerva')} video {quoted}{_trust(env)}")
        say(f"  {_command('tensorboard')} --logdir {quoted}")
        say(f"  {_command('python')} -c {program}")
    else:
        say(f"stopped at step {result.step:,}; a checkpoint is written. To resume, run:")
        say(f"  {_resume_command(algo, env, result.folder)}")
    say(f"run: {result.folder}")


def _resume_command(algo: str, env: str, *folders: Path) -> str:
    return f"{_command('minerva')} train {algo} --resume {shlex.join(map(str, folders))}{_trust(env)}"


def _trust(env: str) -> str:
    """Return the option that a command needs to read the id of this environment from a run."""
    return " --trust-env" if ":" in env else ""


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
