"""Train and evaluate in one call, as the command line does."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from minerva.compute.ranks import SINGLE, Ranks
from minerva.config import OF_A_RUN, TENSOR, Config
from minerva.envs.engine import Engine
from minerva.envs.engines.registry import EngineName, engine_like, make_engine
from minerva.envs.ids import EnvLike, VectorEnv, env_name, full_id
from minerva.envs.saved import made_again
from minerva.errors import CheckpointError, ConfigError, with_short_traceback
from minerva.evaluation import Evaluation, Evaluator
from minerva.loop.collector import Collector
from minerva.loop.population import Population
from minerva.loop.trainer import usable_device
from minerva.networks.own import OwnNetworks
from minerva.policy import load_policy
from minerva.presets import DEFAULT_STEPS, preset_for
from minerva.runs.callbacks import Callback, Function, check_callbacks
from minerva.runs.folder import new_folder_name
from minerva.runs.settings import Result, RunSettings
from minerva.trainers.registry import config_class, trainer_class

logger = logging.getLogger("minerva")

IN_SETTINGS = {"verbose": "quiet", "progress_bar": "quiet"}
"""Names of a run's settings in other libraries, of those that the command line has no option for."""


@with_short_traceback
def train(
    algo: str,
    env: EnvLike,
    *,
    total_steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    out_dir: str | Path = "runs",
    run_dir: str | Path | None = None,
    preset: str = "none",
    init_from: str | Path | None = None,
    init_optimizer: bool = False,
    engine: EngineName = "auto",
    eval_env: EnvLike | None = None,
    own_networks: OwnNetworks | None = None,
    callbacks: Sequence[Callback | Function] = (),
    settings: dict[str, Any] | None = None,
    **hyperparameters: Any,
) -> Result:
    """Train an algorithm on an environment, with its defaults, or those of a preset; `hyperparameters` override both.

    `env` is an id, a function that makes an environment, an environment, or a vector environment, which is stepped as
    it is. It is evaluated on separate copies, or on `eval_env`. `own_networks` names classes or functions that make
    a `torch.nn.Module` in place of the "encoder" of observations, or of the hidden layers of "policy" or "critic".

    The run gets a new folder in `out_dir`, or is written to `run_dir`. It starts with the policy of the run or
    checkpoint `init_from`, of an environment with the same spaces; with `init_optimizer`, with all that its agent has
    learned. `settings` are fields of `RunSettings`; `callbacks` are functions `(step, metrics, trainer)` called after
    every report, or objects like `minerva.Callback`.
    """
    env = full_id(env) if isinstance(env, str) else env
    budget, values = tuned(algo, env, preset, total_steps, hyperparameters)
    config = config_class(algo).from_dict(values)
    how: dict[str, Any] = {"init_optimizer": init_optimizer, "own_networks": own_networks}
    trainer = make_trainer(algo, env, seed, device, config, init_from, engine, **how)
    trainer.eval_env = eval_env
    folder = Path(run_dir) if run_dir else Path(out_dir) / new_folder_name(algo, env_name(env), seed)
    result: Result = trainer.train(budget, folder, **_settings(settings, callbacks))
    return result


@with_short_traceback
def train_seeds(
    algo: str,
    env: EnvLike,
    seeds: Sequence[int],
    *,
    total_steps: int | None = None,
    device: str = "cpu",
    out_dir: str | Path = "runs",
    run_dir: str | Path | None = None,
    preset: str = "none",
    init_from: str | Path | None = None,
    init_optimizer: bool = False,
    engine: EngineName = "auto",
    own_networks: OwnNetworks | None = None,
    callbacks: Sequence[Callback | Function] = (),
    settings: dict[str, Any] | None = None,
    **hyperparameters: Any,
) -> list[Result]:
    """Train several seeds together: their agents learn in one batched call, each as it would alone.

    Every seed gets its own folder, in `out_dir` or in `run_dir`. A number among the hyperparameters may be a list with
    one value per seed. Each callback hears of every seed's run; `trainer.seed` tells them apart.
    """
    env = full_id(env) if isinstance(env, str) else env
    budget, values = tuned(algo, env, preset, total_steps, hyperparameters)
    configs = each_config(algo, values, len(seeds))
    population = make_population(algo, env, seeds, device, configs, init_from, engine, init_optimizer, own_networks)
    folders = seed_folders(algo, env_name(env), seeds, Path(out_dir), Path(run_dir) if run_dir else None)
    return population.train(budget, folders, **_settings(settings, callbacks))


def _settings(settings: dict[str, Any] | None, callbacks: Sequence[Callback | Function]) -> dict[str, Any]:
    """Return the settings of a run with all callbacks, those among the settings first."""
    given = dict(settings or {})
    check_callbacks(callbacks)
    return {**given, "callbacks": [*given.get("callbacks", ()), *callbacks]}


def tuned(
    algo: str, env: EnvLike, preset: str, total_steps: int | None, hyperparameters: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Return the number of training steps, and the preset's values changed as `hyperparameters` say."""
    _refuse_settings(hyperparameters)
    values = preset_for(algo, env_name(env), preset).values
    budget: int = values.get("total_steps", DEFAULT_STEPS) if total_steps is None else total_steps
    tuned = {name: value for name, value in values.items() if name != "total_steps"}
    given = {"num_envs": env.num_envs} if isinstance(env, VectorEnv) else {}
    return budget, config_class(algo).overridden(tuned, {**given, **hyperparameters})


def _refuse_settings(hyperparameters: Mapping[str, Any]) -> None:
    """Raise ConfigError for a setting of the run, or its name in another library, among the hyperparameters."""
    known = {field.name for field in fields(RunSettings)}
    for name in hyperparameters:
        here = {**OF_A_RUN, **IN_SETTINGS}.get(name, name)
        if here in known:
            words = "" if here == name else f", called {here} here"
            raise ConfigError(f"{name} is a setting of the run{words}: write settings={{{here!r}: ...}}.")


def each_config(algo: str, hyperparameters: dict[str, Any], count: int) -> list[Config]:
    """Return one config per seed; a number given as a list has one value per seed."""
    kind = config_class(algo)
    listed = {
        name: value
        for name, value in hyperparameters.items()
        if name in kind.fields_with(TENSOR) and isinstance(value, (list, tuple))
    }
    for name, values in listed.items():
        if len(values) != count:
            raise ConfigError(f"{name} lists {len(values)} values for {count} seeds: give one for each.")
    return [
        kind.from_dict({**hyperparameters, **{name: values[n] for name, values in listed.items()}})
        for n in range(count)
    ]


def make_population(
    algo: str,
    env: EnvLike,
    seeds: Sequence[int],
    device: str,
    configs: Sequence[Config],
    init_from: str | Path | None = None,
    engine: EngineName = "auto",
    init_optimizer: bool = False,
    own_networks: OwnNetworks | None = None,
) -> Population:
    """Return a population with one trainer per seed, to be trained together."""
    if isinstance(env, VectorEnv):
        raise ConfigError(f"{env_name(env)} is one vector environment, and seeds need one each: give an id instead.")
    trainers = []
    for seed, config in zip(seeds, configs, strict=True):
        envs = make_engine(env, config.to_dict()["num_envs"], engine, len(seeds), usable_device(device))
        trainers.append(trainer_class(algo)(env, seed, device, engine=envs, config=config, own_networks=own_networks))
        if init_from is not None:
            trainers[-1].init_from(init_from, init_optimizer)
    return Population(trainers)


def seed_folders(algo: str, env: str, seeds: Sequence[int], out_dir: Path, run_dir: Path | None) -> list[Path]:
    """Return one run folder per seed; repeated seeds get a number appended."""
    folders = []
    for n, seed in enumerate(seeds):
        times = list(seeds[:n]).count(seed)
        mark = f"_{times + 1}" if times else ""
        home = run_dir / f"seed{seed}" if run_dir else out_dir / new_folder_name(algo, env, seed)
        folders.append(home.with_name(home.name + mark))
    return folders


def make_trainer(
    algo: str,
    env: EnvLike,
    seed: int,
    device: str,
    config: Config,
    init_from: str | Path | None = None,
    engine: EngineName | Engine | Collector = "auto",
    ranks: Ranks = SINGLE,
    init_optimizer: bool = False,
    own_networks: OwnNetworks | None = None,
) -> Any:
    """Return a trainer with this config, on one of the data-parallel `ranks`."""
    how: dict[str, Any] = {"config": config, "own_networks": own_networks}
    trainer = trainer_class(algo)(env, seed, device, engine=engine, ranks=ranks, **how)
    if init_from is not None:
        trainer.init_from(init_from, init_optimizer)
    return trainer


@with_short_traceback
def evaluate(
    path: str | Path,
    *,
    episodes: int = 100,
    which: str = "best",
    env: EnvLike | None = None,
    seed: int | None = None,
    engine: EngineName | None = None,
    trust_env: bool = False,
    own_networks: OwnNetworks | None = None,
) -> Evaluation:
    """Evaluate the policy of a run or checkpoint, on the task it was trained on or on `env`.

    Give `env` if it was trained on an environment that its id and arguments do not describe: a function, or an object
    in wrappers. `trust_env` allows an id of the form `module:Id`, saved with the policy, to import its module. The
    default engine is the one it was trained with, or gymnasium if that one is unavailable. `own_networks` are as for
    `load_policy`.
    """
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}: it must be at least 1.")
    if seed is not None and seed < 0:
        raise ConfigError(f"seed is {seed}: it must be 0 or more.")
    policy = load_policy(path, which, own_networks=own_networks)
    env = made_again(policy.about, env, trust_env)
    if engine is None:
        engine, reason = engine_like(policy.about["engine"], env)
        if reason:
            trained = policy.about["engine"]
            logger.warning("Trained with %s and evaluated with %s, whose episodes differ: %s.", trained, engine, reason)
    evaluator = Evaluator(env, episodes, policy.about["seed"] if seed is None else seed, engine)
    if evaluator.envs.observation != policy.observation or not policy.action.fits(evaluator.envs.action):
        raise CheckpointError(
            f"{path} was trained on {policy.about['env']}, and {evaluator.envs.env_name} has other observations or "
            "actions: give an environment like the one it was trained on."
        )
    try:
        return evaluator(lambda obs: policy.agent.policy_action(obs).to(obs.device))
    finally:
        evaluator.close()
