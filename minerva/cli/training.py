"""Train as `minerva train` was told: one run, several seeds together, or a share of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minerva.api import make_trainer
from minerva.cli.parent import require_saved_weights
from minerva.cli.seeds import Seeds
from minerva.cli.summary import print_settings, print_summary, resume_command
from minerva.cli.train import RunOptions, TrainCommand, saved_command
from minerva.cli.typed_networks import typed_networks
from minerva.compute.ranks import Ranks, init_from_torchrun
from minerva.config import Config
from minerva.envs.engines.registry import EngineName, engine_class
from minerva.envs.ids import env_name
from minerva.errors import ConfigError, RunError
from minerva.loop.collector import Collector
from minerva.loop.trainer import Trainer, usable_device
from minerva.runs.folder import RunFolder, new_folder_name
from minerva.runs.output import make_console
from minerva.runs.settings import Result
from minerva.runs.signals import exit_status, ignored_signals
from minerva.runs.store import CheckpointStore
from minerva.trainers.registry import ALGORITHMS, config_class


def run(command: TrainCommand) -> int:
    """Train, then print a summary. Return 0, or the signal's exit status if one stopped the run."""
    options = command.run_options
    algo = next(name for name in ALGORITHMS if isinstance(command.hyperparameters, config_class(name)))
    config = config_class(algo).from_dict(command.hyperparameters.to_dict())
    names = ("eval_every", "eval_episodes", "compile", "matmul", "threads", "wandb", "mlflow", "info_keys")
    settings = {name: getattr(options, name) for name in names} | {"resume": options.resume is not None}
    if options.seeds is not None or options.vary is not None:
        return _run_seeds(command, Seeds.parse(algo, config, options.seeds, options.seed, options.vary or ""), settings)
    if options.resume is not None and len(options.resume) > 1:
        return _run_seeds(command, _resumed_seeds(command, algo, options.resume), settings)
    ranks = init_from_torchrun(options.device)
    own_networks = typed_networks(options.own_networks)
    engine = _engine_or_collector(algo, config, options, ranks)
    trainer = make_trainer(
        *(algo, options.task, options.seed, options.device, config, options.init_from, engine, ranks),
        init_optimizer=options.init_optimizer,
        own_networks=own_networks,
    )
    require_saved_weights(options.config, options.init_from, trainer)
    if options.exact and not options.actors:
        _require_snapshots(trainer)
    folder = _run_folder(algo, options)
    console = make_console(quiet=ranks.rank > 0)
    print_settings(console, algo, options, config, trainer.envs, ranks.count)
    result = trainer.run(options.total_steps, folder, **settings)
    ranks.shutdown()
    with ignored_signals():  # the run is finished and saved: only the summary is left to print
        if ranks.rank == 0:
            print_summary(console, algo, options, result)
    return _exit_status([result])


def _run_seeds(command: TrainCommand, seeds: Seeds, settings: dict[str, Any]) -> int:
    """Train several seeds as one population, then print a summary. Return the exit status."""
    options = command.run_options
    if init_from_torchrun(options.device).count > 1:
        raise ConfigError("Several seeds are trained together in one process: start it without torchrun.")
    if options.actors:
        raise ConfigError("--actors serves a single learner: train the seeds one by one, or without --actors.")
    if options.resume is not None and (options.seeds is not None or options.vary is not None):
        raise ConfigError("--resume uses the saved seeds and settings of the runs: leave out --seeds and --vary.")
    start = options.init_from, options.init_optimizer
    own_networks = typed_networks(options.own_networks)
    population = seeds.population(options.task, options.device, *start, _engine(options), own_networks)
    require_saved_weights(options.config, options.init_from, population.trainers[0])
    if options.exact:
        _require_snapshots(population.trainers[0])
    folders = options.resume or seeds.folders(options.env, options.out_dir, options.run_dir)
    console = make_console()
    print_settings(console, seeds.algo, options, seeds.configs[0], population.trainers[0].envs, seeds=seeds)
    results = population.run(options.total_steps, folders, **settings)
    in_place = options.resume is not None or options.run_dir is not None
    with ignored_signals():
        resume = resume_command(seeds.algo, options, *folders)
        seeds.print_summary(console, results, None if in_place else resume)
    return _exit_status(results)


def _resumed_seeds(command: TrainCommand, algo: str, folders: Sequence[Path]) -> Seeds:
    """Return the seeds of runs to resume together, each with its saved config and the command line's changes."""
    saved = [saved_command(algo, folder, command.run_options) for folder in folders]
    for folder in folders:
        _refuse_without_checkpoint(algo, folder)
    hyperparameters = [other.hyperparameters.to_dict() for other in saved]
    given = command.hyperparameters.to_dict()
    overrides = {name: value for name, value in given.items() if value != hyperparameters[0][name]}
    configs = [config_class(algo).from_dict({**values, **overrides}) for values in hyperparameters]
    return Seeds(algo, [command.run_options.seed, *(other.run_options.seed for other in saved[1:])], configs)


def _exit_status(results: Sequence[Result]) -> int:
    """Return 0 if all runs finished, the status of the signal that stopped them, or 1 if a seed failed."""
    if all(result.finished for result in results):
        return 0
    number = results[0].signal
    return 1 if number is None else exit_status(number)


def _engine_or_collector(algo: str, config: Config, options: RunOptions, ranks: Ranks) -> EngineName | Collector:
    """Return the name of a local engine, or a collector of Ray actors."""
    engine = _engine(options)
    if not options.actors:
        return engine
    if options.own_networks is not None:
        raise ConfigError("--actors takes Minerva's own networks alone: leave out --actors, or --own-networks.")
    if ranks.count > 1:
        raise ConfigError("--actors serves a single learner: start it without torchrun.")
    from minerva.lab.cluster.actors import ray_collector  # Ray is an extra, and takes a second to import

    return ray_collector(algo, config, options.task, options.actors, engine, options.address)


def _engine(options: RunOptions) -> EngineName:
    """Return the engine that the options ask for; raise ConfigError if it cannot resume exactly and has to."""
    if not options.exact or options.engine == "auto":
        return "gymnasium" if options.exact else options.engine
    if not engine_class(options.engine).resumes_exactly:
        raise ConfigError(
            f"--exact: {options.engine} cannot be saved in mid-episode, so a resumed run would begin new episodes: "
            "leave out --exact, or use --engine gymnasium."
        )
    inexact = engine_class(options.engine).inexact_reason(usable_device(options.device))
    if inexact:
        raise ConfigError(f"--exact: {inexact}. Leave out --exact, or use --engine gymnasium.")
    return options.engine


def _require_snapshots(trainer: Trainer) -> None:
    """Raise ConfigError if the environments cannot be saved in mid-episode; training then resets them again."""
    trainer.envs.reset(trainer.env_seeds(0))
    if reason := trainer.envs.state_dict().get("unavailable_reason"):
        raise ConfigError(
            f"--exact: {env_name(trainer.env)} cannot be saved in mid-episode, so a resumed run would begin new "
            f"episodes: {reason}. Leave out --exact, or keep the environment's state in its attributes."
        )


def _run_folder(algo: str, options: RunOptions) -> Path:
    """Return the folder that this run is written to."""
    if options.resume is None:
        return options.run_dir or options.out_dir / new_folder_name(algo, options.env, options.seed)
    _refuse_without_checkpoint(algo, options.resume[0])
    return options.resume[0]


def _refuse_without_checkpoint(algo: str, folder: Path) -> None:
    if not CheckpointStore(RunFolder(folder, algo)).exists():
        raise RunError(f"{folder} has no checkpoint to resume from: start the run again with --run-dir.")
