"""PPO by Minerva and its peers on one recipe, Minerva's own updates and whole runs, each as a contestant of `race`.

The recipe is CleanRL's for continuous control: 2048 environment steps an update *over all environments* (with 8 of them
256 each), 10 epochs of minibatches of 64, tanh networks of 64x64, Adam at 3e-4. So everyone takes 320 gradient steps
for 2048 environment steps, whatever the number of environments. Minerva normalises observations and rewards, as the
recipe says; the peers are run without their normalisers, which makes them faster.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed.race import Gate

EVER = 10**9
STEPS, MINIBATCH, EPOCHS, RATE = 2048, 64, 10, 3e-4


class Unwatched:
    """Runs without folders, evaluations and checkpoints: the loop's reports go to the gate, steps of all seeds."""

    def __init__(self, gate: Gate, seeds: int = 1) -> None:
        from minerva.runs.settings import RunSettings

        self.gate, self.seeds, self.settings = gate, seeds, RunSettings(quiet=True)
        self.step, self.total_steps, self.eval_every, self.interrupted = 0, EVER, EVER, False

    def steps(self, by: int) -> Iterator[int]:
        while True:
            yield self.step + by

    def report(self, step: int, metrics: Any, episodes: Any) -> None:
        self.step = step
        self.gate(step * self.seeds)


def minerva_ppo(
    env: str,
    num_envs: int,
    gate: Gate,
    engine: Any = "gymnasium",
    width: int = 64,
    seeds: int = 1,
    threads: int | None = None,
) -> None:
    """Run Minerva's PPO. `threads` are EnvPool's; None: one per core."""
    from minerva.envs.engines.envpool import THREADS
    from minerva.loop.population import joined_collector
    from minerva.trainers.ppo.trainer import PPOTrainer

    if threads is not None:
        os.environ[THREADS] = str(threads)
    sizes = (width, width)
    settings = {"policy_lr": RATE, "minibatch_size": MINIBATCH, "update_epochs": EPOCHS, "target_kl": None}
    shape = (sizes, sizes, STEPS // num_envs)
    trainers = [
        PPOTrainer(env, seed, "cpu", *shape, engine=engine, num_envs=num_envs, **settings) for seed in range(seeds)
    ]
    for trainer in trainers:
        trainer.envs.reset(trainer.env_seeds(0))
    collector = joined_collector(trainers) if seeds > 1 else trainers[0].collector
    PPOTrainer.loop(trainers, collector, Unwatched(gate, seeds))  # type: ignore[arg-type]


def whole_run(
    algo: str,
    env: str,
    gate: Gate,
    period: int,
    evaluate: bool = True,
    checkout: str | None = None,
    numpy_function: bool = True,
    **changed: Any,
) -> None:
    """Train as a user does: `minerva.train` with the environment's preset, evaluations, logs and checkpoints.

    `period` are the steps between evaluations, and those after which the gate may close: every lap has as many
    evaluations as it has periods. `checkout` is the folder of another Minerva, of which public names alone are used.
    Without `numpy_function` small networks, too, act with PyTorch.
    """
    if checkout is not None:
        sys.path.insert(0, checkout)
    if not numpy_function:
        _without_numpy_function()
    import minerva

    if checkout is not None and not Path(minerva.__file__).is_relative_to(checkout):
        raise RuntimeError(f"{minerva.__file__} is not the Minerva of {checkout}")
    passed = 0

    def at_report(step: int, metrics: Any, trainer: Any) -> None:
        nonlocal passed
        if step // period > passed:
            passed = step // period
            gate(step)

    settings = {"quiet": True, "eval_every": period if evaluate else EVER, "callbacks": [at_report]}
    with tempfile.TemporaryDirectory() as folder:
        how: dict[str, Any] = {"total_steps": EVER, "engine": "gymnasium", "preset": "auto", **changed}
        minerva.train(algo, env, run_dir=folder, settings=settings, **how)


def _without_numpy_function() -> None:
    """Act with PyTorch instead of NumPy, compiled where that is faster."""
    from minerva.compute import numpy_function

    def refuse(self: Any, *arguments: Any) -> None:
        raise numpy_function.NotOnHostError("left out")

    numpy_function.HostFunction.__init__ = refuse  # type: ignore[method-assign]


def sb3_ppo(env: str, num_envs: int, gate: Gate) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class AtTheGate(BaseCallback):
        def _on_rollout_start(self) -> None:
            if self.num_timesteps:
                gate(self.num_timesteps)

        def _on_step(self) -> bool:
            return True

    # the library's defaults, written out
    model = PPO(
        "MlpPolicy",
        make_vec_env(env, num_envs, seed=0),
        learning_rate=RATE,
        n_steps=STEPS // num_envs,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
        device="cpu",
        seed=0,
    )
    model.learn(EVER, callback=AtTheGate())


def skrl_ppo(env: str, num_envs: int, gate: Gate) -> None:
    import gymnasium as gym
    import torch
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
    from skrl.trainers.torch import SequentialTrainer
    from torch import nn

    def layers(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))

    class Policy(GaussianMixin, Model):
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, device="cpu", **spaces)
            GaussianMixin.__init__(self)
            self.net = layers(self.num_observations, self.num_actions)
            self.log_std = nn.Parameter(torch.zeros(self.num_actions))

        def compute(self, inputs: Any, role: str) -> Any:
            return self.net(inputs["observations"]), {"log_std": self.log_std}

    class Value(DeterministicMixin, Model):
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, device="cpu", **spaces)
            DeterministicMixin.__init__(self)
            self.net = layers(self.num_observations, 1)

        def compute(self, inputs: Any, role: str) -> Any:
            return self.net(inputs["observations"]), {}

    class AtTheGate(PPO):
        def update(self, *, timestep: int, timesteps: int) -> None:
            super().update(timestep=timestep, timesteps=timesteps)
            gate((timestep + 1) * num_envs)

    config = PPO_CFG(
        rollouts=STEPS // num_envs,
        learning_epochs=EPOCHS,
        mini_batches=STEPS // MINIBATCH,
        learning_rate=RATE,
        grad_norm_clip=0.5,
        ratio_clip=0.2,
        value_loss_scale=0.5,
    )
    config.experiment.write_interval = config.experiment.checkpoint_interval = 0
    envs = wrap_env(gym.make_vec(env, num_envs, vectorization_mode="sync"), verbose=False)
    spaces = {"observation_space": envs.observation_space, "action_space": envs.action_space}
    agent = AtTheGate(
        models={"policy": Policy(**spaces), "value": Value(**spaces)},
        memory=RandomMemory(memory_size=STEPS // num_envs, num_envs=num_envs, device="cpu"),
        cfg=config,
        device="cpu",
        **spaces,
    )
    options = {"timesteps": EVER, "headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
    SequentialTrainer(env=envs, agents=agent, cfg=options).train()


def mpo_update(compile: Any, gate: Gate, bfloat16: bool = False) -> None:
    """Run MPO updates on batches of 256 with 20 actions a state, three layers of 256 (HalfCheetah's dimensions)."""
    import torch

    from minerva.trainers.mpo.agent import MPOAgent
    from minerva.trainers.mpo.config import MPOConfig

    sizes = (256, 256, 256)
    layers = {"policy_layer_sizes": sizes, "critic_layer_sizes": sizes}
    config = MPOConfig.from_dict({**layers, "action_samples": 20, "bfloat16_targets": bfloat16})
    agent = MPOAgent.from_config(17, 6, config)
    batch = {"obs": torch.randn(256, 17), "next_obs": torch.randn(256, 17), "actions_exec": torch.rand(256, 6)}
    batch |= {"rewards": torch.randn(256, 1), "dones": torch.zeros(256, 1), "truncated": torch.zeros(256, 1)}
    _learn(agent, agent.prepared(batch), compile, gate)


def vmpo_update(compile: Any, gate: Gate) -> None:
    """Run V-MPO updates on rollouts of 2048 steps, 16 full-batch steps each, three layers of 256."""
    import torch

    from minerva.trainers.vmpo.agent import VMPOAgent
    from minerva.trainers.vmpo.config import VMPOConfig

    sizes, shape = (256, 256, 256), (64, 32)
    config = VMPOConfig(
        policy_layer_sizes=sizes,
        value_layer_sizes=sizes,
        num_envs=shape[1],
        rollout_steps=shape[0],
        updates_per_rollout=16,
        advantage_estimator="gae",
    )
    rollout = {name: torch.zeros(shape) for name in ("terminated", "ended")}
    rollout |= {"obs": torch.randn(*shape, 17), "next_obs": torch.randn(*shape, 17), "rewards": torch.randn(shape)}
    rollout["actions_raw"] = torch.randn(*shape, 6)
    _learn(VMPOAgent.from_config(17, 6, config), rollout, compile, gate)


def _learn(agent: Any, data: Any, compile: Any, gate: Gate) -> None:
    """Run updates on the same data, with the metrics copied to the host every tenth time."""
    from minerva.loop.stacking import Stack

    stack = Stack([agent], compile, EVER)
    hyper = stack.hyper()
    for update in range(1, EVER):
        stack.learn(data, hyper)
        if update % 10 == 0:
            stack.metrics()
        gate(update)
