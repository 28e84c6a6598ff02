"""Updates that two processes make together and one makes on the joined batch, in double precision.

As a program, `torchrun --nproc-per-node 2 parallel_cases.py FOLDER [compiled]`, it makes all of them, or those with
compiled updates, and saves what came of it.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minerva import MPOAgent, PPOAgent, PPOConfig, VMPOAgent
from minerva.compute.compiled import MIN_CALLS_TO_COMPILE
from minerva.compute.cuda_graph import InPlace
from minerva.compute.modes import CompileMode
from minerva.compute.ranks import Ranks, init_from_torchrun
from minerva.compute.tree import leaves, mapped
from minerva.data.normalizers import RewardNorm
from minerva.loop.agent import metrics_to_host
from minerva.loop.stacking import Stack

PROCESSES = 2
UPDATES = 3
STEPS, ENVS, OBS, ACTIONS = 12, 6, 5, 2
ENVS_EACH = ENVS // PROCESSES
BATCH = 8

Result = dict[str, Any]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rollout(update: int) -> dict[str, Tensor]:
    """A rollout of all environments. The last ones fare much worse: V-MPO selects none of their rows."""
    steps = (STEPS, ENVS)
    ended = (normal(*steps, seed=update) > 1.3).double()
    rewards = normal(*steps, seed=10 + update)
    rewards[:, ENVS_EACH:] -= 50.0 * (update == 1)
    return {
        "obs": 1 + 2 * normal(*steps, OBS, seed=20 + update),
        "next_obs": 1 + 2 * normal(*steps, OBS, seed=30 + update),
        "actions_raw": normal(*steps, ACTIONS, seed=40 + update),
        "rewards": rewards,
        "terminated": ended,
        "ended": torch.maximum(ended, (normal(*steps, seed=50 + update) > 1.5).double()),
    }


def outcome(agent: Any, metrics: list[dict[str, float]]) -> Result:
    return {"state": [leaf.double().clone() for leaf in leaves(agent.state)], "metrics": metrics}


def learned(
    agent: Any, function: Any, inputs: Callable[[int], tuple[Any, ...]], compile: CompileMode = "off"
) -> Result:
    """The agent after its updates, and what it reported of them; compiled as a trainer does it, or plain."""
    stack = Stack([agent], compile, MIN_CALLS_TO_COMPILE)
    update = InPlace(function, agent.state, "off") if compile == "off" else stack._update
    return outcome(agent, [metrics_to_host(update(*inputs(n)), agent.ranks, agent.METRICS)[0] for n in range(UPDATES)])


# --- PPO ----------------------------------------------------------------------------------------------------------


def ppo(ranks: Ranks, **settings: Any) -> Result:
    sizes = {"num_envs": ENVS, "rollout_steps": STEPS, "minibatch_size": 20, "update_epochs": 3}
    config = PPOConfig.from_dict({**sizes, "policy_layer_sizes": [8], "critic_layer_sizes": [8], **settings})
    config = config.share(ranks.count)
    agent = PPOAgent(OBS, ACTIONS, config=config, seed=3, ranks=ranks)

    def inputs(update: int) -> tuple[Any, ...]:
        own = {name: ranks.local_shard(rows, 1) for name, rows in rollout(update).items()}
        each = [_orders(update, rank, config.update_epochs) for rank in range(PROCESSES)]
        return own, each[ranks.rank] if ranks.count > 1 else _union(each), agent.hyper()

    return learned(agent, agent.updated, inputs)


def _orders(update: int, rank: int, epochs: int) -> Tensor:
    return normal(epochs, STEPS * ENVS_EACH, seed=1000 * update + rank).argsort(-1)


def _union(each: list[Tensor]) -> Tensor:
    """Orders of the joined rows whose minibatches are those of the processes together."""
    minibatches = []
    for parts in zip(*(order.split(20 // PROCESSES, -1) for order in each), strict=True):
        for rank, part in enumerate(parts):
            minibatches.append(part // ENVS_EACH * ENVS + rank * ENVS_EACH + part % ENVS_EACH)
    return torch.cat(minibatches, -1)


# --- V-MPO --------------------------------------------------------------------------------------------------------


def vmpo(ranks: Ranks, compile: CompileMode = "off", **settings: Any) -> Result:
    agent = _vmpo_agent(ranks, normalize_observations=True, **settings)
    config = agent.config

    def inputs(update: int) -> tuple[Any, ...]:
        own = {name: ranks.local_shard(rows, 1) for name, rows in rollout(update).items()}
        each = [_orders(update, rank, config.updates_per_rollout * config.m_steps) for rank in range(PROCESSES)]
        orders = (each[ranks.rank] if ranks.count > 1 else _union(each)).unflatten(0, (-1, config.m_steps))
        return own, {"orders": orders} if config.minibatch_size else {}, agent.hyper()

    return learned(agent, agent.updated, inputs, compile)


def vmpo_ties(ranks: Ranks) -> Result:
    """Batches most of whose advantages are equal, of which some rows restart an episode and all weigh differently."""
    agent = _vmpo_agent(ranks, topk_fraction=0.45, normalize_advantages=False)
    rows = STEPS * ENVS

    def inputs(update: int) -> tuple[Any, ...]:
        batch = {
            "obs": normal(rows, OBS, seed=60 + update),
            "actions_raw": normal(rows, ACTIONS, seed=70 + update),
            "old": {
                "mean": 0.1 * normal(rows, ACTIONS, seed=80 + update),
                "log_std": 0.1 * normal(rows, ACTIONS, seed=90 + update),
            },
            "returns": normal(rows, seed=100 + update),
            "advantages": normal(rows, seed=110 + update).round(),
            "restarting_weights": (normal(rows, seed=120 + update) > -1).double(),
            "importance_weights": torch.exp(normal(rows, seed=130 + update)),
        }
        return mapped(ranks.local_shard, batch), {}, agent.hyper()

    return learned(agent, agent.update_on_batch, inputs)


def _vmpo_agent(ranks: Ranks, **settings: Any) -> VMPOAgent:
    sizes = {"policy_layer_sizes": [8], "value_layer_sizes": [8], "alpha_lr": 0.05, "temperature_lr": 0.05}
    return VMPOAgent(OBS, ACTIONS, seed=3, ranks=ranks, **{**sizes, **settings})


# --- MPO ----------------------------------------------------------------------------------------------------------


def mpo(
    ranks: Ranks,
    length: int = 1,
    broken: int | None = None,
    compile: CompileMode = "off",
    **settings: Any,
) -> Result:
    """`broken` is an update whose batch holds a number that is not finite, in a row of the last process."""
    sizes = {"policy_layer_sizes": [8], "critic_layer_sizes": [8], "action_samples": 6, "m_steps": 2}
    rates = {"temperature_lr": 0.05, "lambda_lr": 0.05, "target_networks_update_period": 2}
    agent = MPOAgent(OBS, ACTIONS, -1.0, 1.0, seed=3, ranks=ranks, **{**sizes, **rates, **settings})

    def inputs(update: int) -> tuple[Any, ...]:
        batch = {
            "obs": normal(BATCH, length, OBS, seed=200 + update),
            "next_obs": normal(BATCH, length, OBS, seed=210 + update),
            "actions_exec": normal(BATCH, length, ACTIONS, seed=220 + update).tanh(),
            "actions_raw": normal(BATCH, length, ACTIONS, seed=230 + update),
            "behaviour_logp": normal(BATCH, length, 1, seed=240 + update),
            "rewards": normal(BATCH, length, 1, seed=250 + update),
            "dones": (normal(BATCH, length, 1, seed=260 + update) > 1).double(),
        }
        if update == broken:
            batch["rewards"][-1, 0, 0] = torch.nan
        batch = {name: rows if length > 1 else rows[:, 0] for name, rows in batch.items()}
        rows = agent.prepared(batch)
        noise = MPOAgent(OBS, ACTIONS, -1.0, 1.0, seed=update, **{**sizes, **settings}).draw_update(rows)
        own = mapped(lambda values: ranks.local_shard(values, 1), (rows, noise))
        return (*own, agent.hyper())

    return learned(agent, agent.updated, inputs, compile)


# --- rewards ------------------------------------------------------------------------------------------------------


def reward_norm(ranks: Ranks) -> Result:
    norm = RewardNorm(ENVS // ranks.count, 0.9)
    scaled = []
    for n in range(UPDATES):
        rewards, ended = (ranks.local_shard(rollout(n)[name], 1) for name in ("rewards", "ended"))
        norm.state, rows = norm.scaled(norm.state, rewards, ended, ranks=ranks)
        scaled.append(ranks.all_gathered(rows, 1))
    statistics = [norm.state[name] for name in ("mean", "var", "count")]
    return {"state": [*statistics, ranks.all_gathered(norm.state["running"]), *scaled], "metrics": []}


CASES: dict[str, Callable[[Ranks], Result]] = {
    "ppo": ppo,
    "ppo stopped by its KL": lambda ranks: ppo(ranks, target_kl=0.002, clip_vloss=True),
    "ppo returns": lambda ranks: ppo(ranks, advantage_estimator="returns", norm_adv=False),
    "vmpo": vmpo,
    "vmpo solved, old policy by KL": lambda ranks: vmpo(
        ranks,
        temperature="solved",
        old_policy="kl",
        m_steps=3,
        updates_per_rollout=2,
        alpha_update="multiplicative",
    ),
    "vmpo minibatches": lambda ranks: vmpo(ranks, minibatch_size=20 // ranks.count, m_steps=3, updates_per_rollout=2),
    "vmpo centered": lambda ranks: vmpo(
        ranks, minibatch_size=20 // ranks.count, m_steps=2, m_step_loss="centered", topk_fraction=1.0
    ),
    "vmpo control variate": lambda ranks: vmpo(
        ranks, minibatch_size=20 // ranks.count, m_steps=2, m_step_loss="control_variate", topk_fraction=1.0
    ),
    "vmpo ties": vmpo_ties,
    "mpo": mpo,
    "mpo solved, penalty": lambda ranks: mpo(ranks, temperature="solved", epsilon_penalty=0.1),
    "mpo retrace": lambda ranks: mpo(ranks, length=3, use_retrace=True, retrace_steps=3),
    "mpo categorical": lambda ranks: mpo(ranks, critic="categorical", critic_range=10.0, critic_atoms=11),
    "mpo skipped": lambda ranks: mpo(ranks, broken=1),
    "reward normaliser": reward_norm,
}


SHORTEST: dict[str, Callable[..., Result]] = {"vmpo": vmpo, "mpo": functools.partial(mpo, m_steps=1)}
"""Updates with every kind of exchange between processes, and few gradient steps: each adds kernels to compile."""

COMPILED: dict[str, Callable[[Ranks], Result]] = {
    name: functools.partial(case, compile="auto") for name, case in SHORTEST.items()
}


def results(ranks: Ranks, cases: dict[str, Callable[[Ranks], Result]] = CASES) -> dict[str, Result]:
    torch.set_default_dtype(torch.float64)
    try:
        return {name: case(ranks) for name, case in cases.items()}
    finally:
        torch.set_default_dtype(torch.float32)


if __name__ == "__main__":
    torch.set_num_threads(1)
    together = init_from_torchrun("cpu")
    compiling = "compiled" in sys.argv
    made = results(together, COMPILED if compiling else CASES)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] if compiling else 0  # imports the whole compiler
    torch.save({**made, "graphs": graphs}, Path(sys.argv[1]) / f"{together.rank}.pt")
