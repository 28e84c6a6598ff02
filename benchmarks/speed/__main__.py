"""Compare Minerva's speed with that of other libraries, in one command:

    python -m benchmarks.speed                      # everything, about half an hour on a quiet machine
    python -m benchmarks.speed ppo --repeats 5      # PPO against its peers alone

The contestants run in turn, one at a time, one thread each, evaluation off (see `race`), so that what else the machine
does touches all alike. A ratio is taken within each repeat; printed are the median and the smallest and largest of
them, by the clock and by CPU time. The peers come with `pip install 'minerva[bench]'`.
"""

import importlib.metadata
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console

from benchmarks.speed.race import Entry, machine, race, ratios, spread
from minerva.envs.engines.envpool import EnvPoolEngine, cores
from minerva.runs.folder import provenance

CONTESTANTS = "benchmarks.speed.contestants"
PEERS = {"sb3": "stable-baselines3", "skrl": "skrl"}

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Options:
    """Cases, repeats and durations of the measurement."""

    cases: tyro.conf.Positional[tuple[Literal["ppo", "updates", "seeds", "envs", "width", "memory"], ...]] = ()
    """Cases to measure; none: all."""
    env: str = "HalfCheetah-v5"
    """Environment id."""
    repeats: int = 5
    """Timings per contestant."""
    seconds: float = 10.0
    """Shortest duration of a timing, in seconds."""
    out: Path | None = None
    """JSON file for all measurements."""


def ppo_against_peers(options: Options) -> list[dict[str, Any]]:
    """Time PPO on CleanRL's recipe, 1 and 8 environments: all on Gymnasium's, then Minerva by default, on EnvPool."""
    results = []
    engines = ["gymnasium"] if EnvPoolEngine.unavailable_reason(options.env) else ["gymnasium", "envpool"]
    for num_envs, engine in itertools.product((1, 8), engines):
        arguments = {"env": options.env, "num_envs": num_envs}
        minerva = Entry("minerva", f"{CONTESTANTS}:minerva_ppo", {**arguments, "engine": engine, "threads": 1})
        peers = [Entry(name, f"{CONTESTANTS}:{name}_ppo", arguments) for name in PEERS]
        what = f"PPO, {num_envs} env(s), Minerva on {engine}, environment steps/s"
        results.append(_raced(what, [minerva, *peers], options))
    return results


def compiled_against_eager(options: Options) -> list[dict[str, Any]]:
    """Time MPO's and V-MPO's update, compiled and eager, on one core and on all; MPO's with bfloat16 targets too."""
    results = []
    for algo, threads in itertools.product(("mpo", "vmpo"), sorted({1, cores()})):
        modes: dict[str, dict[str, Any]] = {"compiled": {"compile": "auto"}, "eager": {"compile": "off"}}
        if algo == "mpo":
            modes["bfloat16"] = {"compile": "auto", "bfloat16": True}
        entries = [Entry(name, f"{CONTESTANTS}:{algo}_update", mode, threads) for name, mode in modes.items()]
        results.append(_raced(f"{algo} update on {threads} thread(s), updates/s", entries, options))
    return results


def seeds_together(options: Options) -> list[dict[str, Any]]:
    """Time Minerva's PPO: four seeds in one process against one, steps of all seeds, on the engine of `auto`."""
    engine = "gymnasium" if EnvPoolEngine.unavailable_reason(options.env) else "envpool"
    results = []
    for num_envs in (1, 8):
        entries = [
            Entry(name, f"{CONTESTANTS}:minerva_ppo", {"num_envs": num_envs, "seeds": seeds, "engine": engine})
            for name, seeds in (("4 seeds", 4), ("1 seed", 1))
        ]
        what = f"PPO, {num_envs} env(s) each on {engine}, environment steps/s"
        results.append(_raced(what, _on(options.env, entries), options))
    return results


def more_environments(options: Options) -> list[dict[str, Any]]:
    """Time Minerva's PPO with 1 to 64 environments, on each engine that is installed."""
    entries = [
        Entry(f"{engine} {num_envs}", f"{CONTESTANTS}:minerva_ppo", {"num_envs": num_envs, "engine": engine})
        for engine in ("gymnasium", "envpool")
        for num_envs in (1, 4, 16, 64)
        if engine == "gymnasium" or not EnvPoolEngine.unavailable_reason(options.env)
    ]
    return [_raced("PPO, more environments, environment steps/s", _on(options.env, entries), options)]


def wider_networks(options: Options) -> list[dict[str, Any]]:
    """Time Minerva's PPO with 8 environments and layers of 64 to 512."""
    entries = [
        Entry(f"width {width}", f"{CONTESTANTS}:minerva_ppo", {"num_envs": 8, "width": width})
        for width in (64, 128, 256, 512)
    ]
    return [_raced("PPO, wider networks, environment steps/s", _on(options.env, entries), options)]


def replay_memory(options: Options) -> list[dict[str, Any]]:
    """Return the memory of a million HalfCheetah transitions in MPO's replay."""
    import torch

    from minerva.data.fields import Field, transition_fields
    from minerva.data.replay import Replay
    from minerva.spec import ObservationSpec

    fields = {**transition_fields(ObservationSpec((17,))), "actions_executed": Field((6,))}
    replay = Replay(1_000_000, 1, fields, torch.device("cpu"))
    megabytes = sum(rows.nbytes for rows in replay.state["storage"].values()) / 1e6
    console.print(f"\n[bold]Replay[/]: a million transitions of HalfCheetah in {megabytes:.0f} MB")
    return [{"what": "replay of a million HalfCheetah transitions, MB", "megabytes": megabytes}]


CASES: dict[str, Callable[[Options], list[dict[str, Any]]]] = {
    "ppo": ppo_against_peers,
    "updates": compiled_against_eager,
    "seeds": seeds_together,
    "envs": more_environments,
    "width": wider_networks,
    "memory": replay_memory,
}


def _on(env: str, entries: Sequence[Entry]) -> list[Entry]:
    for entry in entries:
        entry.arguments["env"] = env
    return list(entries)


def _raced(what: str, entries: list[Entry], options: Options) -> dict[str, Any]:
    """Time the contestants, print the ratios of the first to the others, and return all measurements."""
    console.print(f"\n[bold]{what}[/]")
    race(entries, options.repeats, options.seconds, console.print)
    first, *_ = entries
    found = {}
    for entry in entries:
        if entry.failure:
            console.print(f"  {entry.name}: {entry.failure}", markup=False)
            continue
        line = f"  {entry.name:<14} {spread(entry.rates, ',.0f' if min(entry.rates) > 100 else '.2f')}"
        if entry is not first and not first.failure:
            found[entry.name] = ratios(first.rates, entry.rates)
            line += f"   {first.name} / {entry.name}: {spread(found[entry.name], '.2f')}"
            line += f"   by CPU time: {spread(ratios(first.cpu_rates, entry.cpu_rates), '.2f')}"
        console.print(line, markup=False)
    return {"what": what, "contestants": [asdict(entry) for entry in entries], f"ratios of {first.name}": found}


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main() -> None:
    options = tyro.cli(Options, prog="python -m benchmarks.speed", description=__doc__)
    results: dict[str, Any] = {"options": {**asdict(options), "out": None}, "machine": machine(), **provenance()}
    results["versions"] |= {package: version(package) for package in PEERS.values()}
    results["results"] = [result for name in options.cases or CASES for result in CASES[name](options)]
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))
        console.print(f"\nwritten: {options.out}", markup=False)


if __name__ == "__main__":
    main()
