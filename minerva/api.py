"""Training and evaluating in one call, as the command line does it."""

import logging
from pathlib import Path
from typing import Any

from minerva.config import Config
from minerva.envs.envpool import obstacle
from minerva.envs.ids import EnvLike, env_name
from minerva.envs.vector import EngineName
from minerva.errors import CheckpointError, ConfigError
from minerva.evaluation import Evaluation, Evaluator
from minerva.policy import load_policy
from minerva.presets import preset_for
from minerva.runs.folder import new_folder_name
from minerva.runs.run import Result
from minerva.trainers.registry import config_class, trainer_class

logger = logging.getLogger("minerva")

DEFAULT_STEPS = 1_000_000


def train(
    algo: str,
    env: EnvLike,
    *,
    total_steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    out_dir: str | Path = "runs",
    run_dir: str | Path | None = None,
    preset: str = "auto",
    init_from: str | Path | None = None,
    engine: EngineName = "auto",
    settings: dict[str, Any] | None = None,
    **hyperparameters: Any,
) -> Result:
    """Train with the environment's preset; `hyperparameters` override it.

    The run gets a new folder in `out_dir`, or is written to `run_dir` itself. `settings` are fields of RunSettings.
    """
    values = preset_for(algo, env_name(env), preset).values
    budget = values.get("total_steps", DEFAULT_STEPS) if total_steps is None else total_steps
    tuned = {name: value for name, value in values.items() if name != "total_steps"}
    config = config_class(algo).from_dict({**tuned, **hyperparameters})
    trainer = make_trainer(algo, env, seed, device, config, init_from, engine)
    folder = Path(run_dir) if run_dir else Path(out_dir) / new_folder_name(algo, env_name(env), seed)
    return trainer.train(budget, folder, **(settings or {}))


def make_trainer(
    algo: str,
    env: EnvLike,
    seed: int,
    device: str,
    config: Config,
    init_from: str | Path | None = None,
    engine: EngineName = "auto",
) -> Any:
    """A trainer from a whole config object."""
    trainer = trainer_class(algo)(env, seed, device, engine=engine, **config.to_dict())
    if init_from is not None:
        trainer.init_from(init_from)
    return trainer


def evaluate(
    path: str | Path,
    *,
    episodes: int = 100,
    which: str = "best",
    env: EnvLike | None = None,
    seed: int | None = None,
    engine: EngineName | None = None,
) -> Evaluation:
    """Evaluate the policy of a run or checkpoint. Environments that are not known by id have to be given as `env`.

    `engine` None is the one it was trained with, or gymnasium where that is EnvPool and cannot be had.
    """
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}: it must be at least 1.")
    if seed is not None and seed < 0:
        raise ConfigError(f"seed is {seed}: it must be 0 or more.")
    policy = load_policy(path, which)
    env = env or policy.about["env"]
    engine = engine or _engine_like(policy.about["engine"], env)
    evaluator = Evaluator(env, episodes, policy.about["seed"] if seed is None else seed, engine)
    if evaluator.envs.obs_dim != policy.about["obs_dim"] or evaluator.envs.act_dim != policy.about["act_dim"]:
        raise CheckpointError(
            f"{path} was trained on {policy.about['env']}, and {evaluator.envs.name} has other observations or "
            "actions: give an environment like the one it was trained on."
        )
    try:
        return evaluator(lambda obs: policy.agent.policy_action(obs).cpu().numpy())
    finally:
        evaluator.close()


def _engine_like(trained: EngineName, env: EnvLike) -> EngineName:
    """The engine that a policy was trained with, as far as it can be had here."""
    found = obstacle(env) if trained == "envpool" else None
    if found is None:
        return trained
    logger.warning("Trained with EnvPool and evaluated with gymnasium, whose episodes are others: %s.", found)
    return "gymnasium"
