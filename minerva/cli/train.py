"""`minerva train`: train an agent, show its progress, and print the commands to try next."""

import contextlib
import functools
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import tyro

from minerva.cli.arguments import VALUES, parsed
from minerva.cli.env_kwargs import kwargs_words, parse_kwargs
from minerva.cli.typed_env import import_from_here
from minerva.cli.typed_networks import OwnWords, typed_names
from minerva.compute.modes import CompileMode, MatmulPrecision
from minerva.config import Config, checked, nearest
from minerva.envs.engines.registry import MANY_ENVS, EngineName
from minerva.errors import ConfigError, RunError, printable
from minerva.presets import DEFAULT_STEPS, NONE, preset_for
from minerva.runs.folder import PROVENANCE, read_config
from minerva.runs.origin import INIT_FROM
from minerva.trainers.registry import ALGORITHMS, config_class

if TYPE_CHECKING:
    from minerva.envs.ids import EnvLike

DEFAULT_ENV = "Pendulum-v1"
VERSIONED = re.compile(r"-v\d+$")

SAVED = ("env", "seed", "device", "engine", "total_steps", "eval_every", "eval_episodes", "compile", "matmul")
"""Run options stored in a run's config.yaml."""


@dataclass(frozen=True)
class RunOptions:
    """What to train on, for how long, and where to write."""

    env: str = DEFAULT_ENV
    """Environment: a Gymnasium id, dm_control/<domain>/<task>, or of your own module, which may lie in the working
    directory, your_module:YourEnv-v0, your_module:Class or your_module:function."""
    env_kwargs: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[NAME=VALUE ...]")] = None
    """Arguments of the environment, such as g=1.0 max_episode_steps=100. Values are JSON, or else text."""
    trust_env: bool = False
    """Allow an id of the form your_module:YourEnv-v0 that a run or config.yaml names to import its module."""
    own_networks: OwnWords = None
    """Networks of your own, encoder=module:name, policy=module:name or critic=module:name: a class or function, which
    may lie in the working directory, that makes a torch.nn.Module in place of this part."""
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
    raise, hang or crash); envpool (C++ threads); auto: envpool if it is installed and has the task, else gymnasium.
    envpool is several times as fast, but a run that was stopped begins new episodes when it is resumed, and the seeds
    give other episodes than gymnasium's. warp: MuJoCo Warp simulates thousands of environments on the learner's GPU;
    evaluations still step them on the CPU."""
    exact: bool = False
    """Refuse an engine or environment that cannot resume a run as if it had never been stopped; auto then takes
    gymnasium."""
    preset: str = "none"
    """Settings to start from instead of the defaults: a preset's name, auto (the one named after the environment, if
    there is one), or a TOML file."""
    config: Path | None = None
    """A run's config.yaml to start from instead of a preset."""
    out_dir: Path = Path("runs")
    """Folder in which the run's folder is created."""
    run_dir: Path | None = None
    """Exact folder of the run, instead of a new one with a generated name. An unfinished run of the same config in it
    is resumed."""
    resume: Annotated[tuple[Path, ...] | None, tyro.conf.arg(metavar="RUN [RUN ...]")] = None
    """Resume the run in this folder where it stopped, with its saved config. A larger number of steps extends it, and
    rates may be others. Several folders: resume them together."""
    init_from: Path | None = None
    """A run's folder or a checkpoint whose policy initialises this run's, of an environment with the same spaces."""
    init_optimizer: bool = False
    """Start with all that the agent of init_from has learned, not with its policy alone: critic, moments, duals."""
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
    mlflow: str | None = None
    """MLflow experiment to log to, where MLFLOW_TRACKING_URI says."""
    info_keys: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME ...]")] = ("is_success",)
    """Numbers in the environment's `info`, in the last step of each episode, whose means are logged."""

    @property
    def task(self) -> "EnvLike":
        """The environment: the id with its arguments."""
        from minerva.envs.saved import with_kwargs

        return with_kwargs(self.env, parse_kwargs(self.env_kwargs or ()))


@dataclass(frozen=True)
class TrainCommand:
    """A run to train: its options and the algorithm's hyperparameters."""

    run_options: RunOptions
    hyperparameters: Config

    def run(self) -> int:
        """Train, then print a summary. Return 0, or the signal's exit status if one stopped the run."""
        from minerva.cli.training import run  # PyTorch, which takes seconds to import, and reading options needs none

        return run(self)


def train_types() -> dict[str, Any]:
    """Return the type of `minerva train` for each algorithm, with the algorithm's own defaults."""
    return {
        name: Annotated[
            TrainCommand,
            tyro.conf.subcommand(
                name, default=TrainCommand(RunOptions(), _unchecked(name, {})), description=f"Train with {line.title}."
            ),
        ]
        for name, line in ALGORITHMS.items()
    }


def parsed_train(algo: str, arguments: Sequence[str]) -> TrainCommand:
    """Return the options of `minerva train <algo>`, with defaults from the preset, config file or run that they name.

    The defaults depend on the environment, so the run options are parsed first.
    """
    _refuse_names_of_others(algo, arguments)
    chosen = _parse_run_options(arguments)
    import_from_here(chosen.env)
    default, of = _defaults(algo, chosen, arguments)
    command: TrainCommand = parsed(
        TrainCommand,
        arguments,
        f"minerva train {algo}",
        f"Train with {ALGORITHMS[algo].title}. The defaults shown are {of}.",
        default,
    )
    hyperparameters = command.hyperparameters.to_dict()
    given = {
        name: value
        for name, value in hyperparameters.items()
        if value != default.hyperparameters.to_dict()[name] or f"--{name.replace('_', '-')}" in _options(arguments)
    }
    changed = config_class(algo).overridden(default.hyperparameters.to_dict(), given)
    options = command.run_options
    return TrainCommand(replace(options, env=_full_id(options.env)), _unchecked(algo, changed))


def _options(arguments: Sequence[str]) -> list[str]:
    """Return the names of the options among the arguments, as they are typed but with dashes for underscores."""
    return [word.partition("=")[0].replace("_", "-") for word in arguments if word.startswith("--")]


def _given_number(arguments: Sequence[str], option: str) -> int | None:
    """Return the number that follows an option, typed as `--option N` or `--option=N`; None if there is none."""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    dashed = [word.replace("_", "-") if word.startswith("--") else word for word in words]
    value = words[dashed.index(option) + 1 :][:1] if option in dashed else []
    return int(value[0]) if value and value[0].isdecimal() and int(value[0]) > 0 else None


def _refuse_names_of_others(algo: str, arguments: Sequence[str]) -> None:
    """Raise ConfigError for an option with the name that another library gives to a setting."""
    own = {*config_class(algo).annotations(), *(field.name for field in fields(RunOptions))}
    for option in _options(arguments):
        name = option.removeprefix("--").replace("-", "_")
        here = config_class(algo).names_here(name)
        if here and name not in own:
            options = " and ".join(f"--{word.replace('_', '-')}" for word in here.split(" and "))
            raise ConfigError(f"{option} is called {options} here: minerva train {algo} --help lists all options.")


def _full_id(env: str) -> str:
    """Return an id that lacks its version with the newest."""
    if VERSIONED.search(env) or ":" in env or env.startswith("dm_control/"):
        return env
    from minerva.envs.ids import full_id

    return full_id(env)


def with_algorithm(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `minerva train`, adding the algorithm of the run to resume if they name none."""
    words = list(arguments)
    if words[:1] != ["train"] or any(word in ALGORITHMS for word in words):
        return words
    chosen = _parse_run_options(words)
    if not chosen.resume:
        if words[1:2] and not {"-h", "--help"} & {*words}:
            raise ConfigError(
                f"{words[1]} stands where the algorithm is expected: write minerva train ppo, or another of "
                f"{', '.join(ALGORITHMS)}, before the options."
            )
        return words
    algo = read_config(_config_file(chosen.resume[0], is_run=True)).get("algo")
    if not isinstance(algo, str) or algo not in ALGORITHMS:
        raise RunError(f"{chosen.resume[0]} is a run of {algo!r}: give a run of {', '.join(ALGORITHMS)}.")
    return ["train", str(algo), *words[1:]]


def _parse_run_options(arguments: Sequence[str]) -> RunOptions:
    """Return the run options among the arguments, or the defaults if they cannot be parsed; not given, `env` is ""."""
    default = RunOptions(env="")
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):  # the full parse reports errors
        return tyro.cli(
            RunOptions, default=default, args=list(arguments), return_unknown_args=True, add_help=False, registry=VALUES
        )[0]
    return default


def _config_file(source: Path, is_run: bool) -> Path:
    """Return the config.yaml of a run's folder; unless `is_run`, `source` may be the file itself."""
    file = source / "config.yaml" if source.is_dir() or is_run else source
    if not file.is_file():
        raise RunError(f"{file} does not exist: give the folder of a run{'' if is_run else ', or a config.yaml'}.")
    return file


def _defaults(algo: str, chosen: RunOptions, arguments: Sequence[str]) -> tuple[TrainCommand, str]:
    """Return the default run options and hyperparameters, and in words whose they are."""
    if chosen.resume is not None and not chosen.resume:
        raise ConfigError("--resume needs a run: give its folder.")
    if chosen.resume and chosen.init_from:
        raise ConfigError("--resume goes on with the weights of the run: leave out --init-from.")
    source = chosen.resume[0] if chosen.resume else chosen.config
    if source is not None:
        return saved_command(algo, source, chosen), f"those of {printable(str(source))}"
    env = _full_id(chosen.env or DEFAULT_ENV)
    preset = preset_for(algo, env, chosen.preset)
    budget = preset.values.get("total_steps", DEFAULT_STEPS)
    values = {name: value for name, value in preset.values.items() if name != "total_steps"}
    many = chosen.engine in MANY_ENVS and preset is NONE
    if many:
        kind = config_class(algo)
        values = kind.at_scale(_given_number(arguments, "--num-envs") or kind.MANY_ENVS)
    command = TrainCommand(RunOptions(total_steps=budget), _unchecked(algo, values))
    if many:
        return command, f"the algorithm's own for thousands of environments of the engine {chosen.engine}"
    if preset is NONE:
        return command, "the algorithm's own"
    return command, f"those of the preset {preset.name}"


def saved_command(algo: str, source: Path, chosen: RunOptions) -> TrainCommand:
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
    from minerva.cli.parent import saved_parent
    from minerva.envs.saved import KWARGS, MADE_BY, made_again
    from minerva.runs.own_networks import NETWORKS, networks_for

    for name in saved:
        if name not in {
            *SAVED,
            KWARGS,
            MADE_BY,
            NETWORKS,
            INIT_FROM,
            *PROVENANCE,
            "algo",
            "derived",
            "history",
            "hyperparameters",
        }:
            raise ConfigError(f"{name} is not a setting of a run's config. {nearest(name, SAVED)}")
    networks_for(saved, typed_names(chosen.own_networks), "The run")
    versions = saved.get("versions")
    threads = versions.get("torch_threads", 1) if isinstance(versions, dict) else 1
    hints, values = get_type_hints(RunOptions), {**saved, "threads": threads}
    options = {name: checked(name, values[name], hints[name]) for name in (*SAVED, "threads") if name in values}
    if chosen.resume is None:
        options["init_from"], options["init_optimizer"] = saved_parent(saved, chosen.init_from, chosen.init_optimizer)
    if chosen.env in ("", options.get("env")):  # another id does not have the saved arguments
        options["env_kwargs"] = kwargs_words(saved.get(KWARGS) or {}) or None
        made_again({"env": DEFAULT_ENV, **saved}, chosen.env or None, chosen.trust_env)
    return RunOptions(**options)


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
