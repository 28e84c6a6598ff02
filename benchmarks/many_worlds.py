"""Measure training on the engine warp: environment steps a second with learning, and seconds to a score.

    python benchmarks/many_worlds.py rate --out rates.json --worlds 2048 4096 8192
    python benchmarks/many_worlds.py score --out scores.json --runs HalfCheetah-v5=8000 dm_control/cheetah/run=850
    python benchmarks/many_worlds.py score --algo mpo --worlds 1024 --runs HalfCheetah-v5=8000 --steps 20000000
    python benchmarks/many_worlds.py rate --device cpu --worlds 16 --seconds 3 --envs Reacher-v5     # without a GPU

Every measurement is a process of its own, and its seconds count from that process's start. A score is the mean of
`--episodes` deterministic episodes in MuJoCo on the CPU; steps a second of a run for a score include evaluations. The
file holds one JSON object a measurement, also of one that failed or reached `--limit`: then with what it had told.
`--eager` runs the simulator without graphs and `--compile off` the learner without, to find errors. `--uncompiled` runs
the learner as graphs of PyTorch's own kernels: they begin sooner than compiled ones, and are slower.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from minerva import Callback
from minerva.compute import compiled
from minerva.envs.engines.warp import WarpEngine
from minerva.trainers.registry import trainer_class

ENVS = ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5"]
NEVER = 10**12


def parsed() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["rate", "score", "engine"])
    p.add_argument("--out", type=Path, default=Path("many_worlds.json"))
    p.add_argument("--algo", default="ppo", choices=["ppo", "vmpo", "mpo", "sac"])
    p.add_argument("--device", default="cuda")
    p.add_argument("--envs", nargs="+", default=ENVS)
    p.add_argument("--worlds", nargs="+", type=int, default=[2048, 4096, 8192])
    p.add_argument("--seconds", type=float, default=8, help="of a rate, after warming up")
    p.add_argument("--runs", nargs="+", default=["HalfCheetah-v5=8000"], help="ENV=SCORE ...")
    p.add_argument("--seeds", nargs="+", type=int, default=[0])
    p.add_argument("--steps", type=int, default=100_000_000, help="most environment steps of a run for a score")
    p.add_argument("--evaluations", type=int, default=20, help="of a run for a score")
    p.add_argument("--episodes", type=int, default=20)
    p.add_argument("--set", nargs="*", default=[], help="hyperparameters, NAME=JSON ...")
    p.add_argument("--compile", default="auto")
    p.add_argument("--matmul", default="highest", choices=["highest", "high"])
    p.add_argument("--uncompiled", action="store_true", help="graphs without torch.compile")
    p.add_argument("--eager", action="store_true")
    p.add_argument("--limit", type=float, default=560, help="seconds of one measurement")
    p.add_argument("--one", help=argparse.SUPPRESS)
    return p.parse_args()


def main() -> None:
    """Run every measurement as a process of its own, one after the other."""
    args = parsed()
    if args.one:
        print("RESULT " + json.dumps(measured(args, json.loads(args.one))), flush=True)
        return
    if args.what == "score":
        pairs = [run.rpartition("=") for run in args.runs]
        wanted = [
            {"env": env, "score": float(score), "worlds": worlds, "seed": seed}
            for env, _, score in pairs
            for worlds in args.worlds
            for seed in args.seeds
        ]
    else:
        wanted = [{"env": env, "worlds": worlds, "seed": 0} for env in args.envs for worlds in args.worlds]
    results = []
    for one in wanted:
        results.append({**one, **in_process(args, one)})
        print(json.dumps({name: value for name, value in results[-1].items() if name != "curve"}), flush=True)
        args.out.write_text(json.dumps(results, indent=1))


def in_process(args: argparse.Namespace, one: dict) -> dict:
    one = {**one, "began": time.time()}
    command = [sys.executable, __file__, *sys.argv[1:], "--one", json.dumps(one)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            process.wait(args.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.seek(0)
        lines = log.read().splitlines()
    found = [line.removeprefix("RESULT ") for line in lines if line.startswith("RESULT ")]
    told = json.loads(found[-1]) if found else {}
    return told if process.returncode == 0 else {**told, "failed": process.returncode, "log": lines[-25:]}


class Clock(Callback):
    """The seconds, steps and training returns of reports, and the seconds, steps and scores of evaluations."""

    def __init__(self, args: argparse.Namespace, one: dict, about: dict) -> None:
        self.args, self.one, self.about = args, one, about
        self.reports, self.curve = [], []

    @property
    def now(self) -> float:
        """Seconds since the process was started."""
        return time.time() - self.one["began"]

    def on_update(self, step: int, metrics: dict, trainer: object) -> bool:
        """Note a report; a rate has been measured once it had its seconds."""
        self.reports.append((self.now, step, metrics.get("train/episode_return")))
        long = len(self.reports) > 4 and self.reports[-1][0] - self.reports[3][0] > self.args.seconds
        return self.args.what == "rate" and long

    def on_evaluation(self, step: int, metrics: dict, trainer: object) -> bool:
        """Note a score and print what is known, so that a run that is killed has told it; stop at the score."""
        self.curve.append((round(self.now, 1), step, metrics["eval/return_mean"]))
        print("RESULT " + json.dumps(self.result()), flush=True)
        return bool(self.reached())

    def reached(self) -> list[tuple[float, int, float]]:
        """Return the evaluations that reached the score."""
        return [row for row in self.curve if self.args.what == "score" and row[2] >= self.one["score"]]

    def result(self) -> dict:
        """Return the measurement so far."""
        reports, reached = self.reports, self.reached()
        returns = [row[2] for row in reports if row[2] is not None]
        seconds, steps = (reports[-1][i] - reports[3][i] for i in (0, 1)) if len(reports) > 4 else (0.0, 0)
        return {
            **self.about,
            "seconds_to_first_report": round(reports[0][0], 1) if reports else None,
            "steps_per_second": round(steps / seconds) if seconds else None,
            "seconds_to_score": reached[0][0] if reached else None,
            "steps_to_score": reached[0][1] if reached else None,
            "last_score": self.curve[-1][2] if self.curve else None,
            "last_train_return": returns[-1] if returns else None,
            "curve": self.curve,
        }


def measured(args: argparse.Namespace, one: dict) -> dict:
    """One measurement, in this process."""
    imported = time.time()
    WarpEngine.captures = not args.eager
    compiled.MIN_CALLS_TO_COMPILE = NEVER if args.uncompiled else compiled.MIN_CALLS_TO_COMPILE
    if args.what == "engine":
        return engine_alone(args, one)
    settings = {name: json.loads(value) for name, _, value in (word.partition("=") for word in args.set)}
    trainer = trainer_class(args.algo)(
        one["env"], one["seed"], args.device, engine="warp", num_envs=one["worlds"], **settings
    )
    about = {
        "algo": args.algo,
        "config": trainer.config.to_dict(),
        "seconds_to_import": round(imported - one["began"], 1),
        "seconds_to_make": round(time.time() - imported, 1),
    }
    clock, rate = Clock(args, one, about), args.what == "rate"
    steps = NEVER if rate else args.steps
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(
            steps,
            out_dir=folder,
            quiet=True,
            callbacks=[clock],
            compile=args.compile,
            matmul=args.matmul,
            eval_every=NEVER if rate else max(steps // args.evaluations, 1),
            eval_episodes=1 if rate else args.episodes,
        )
    return clock.result()


def engine_alone(args: argparse.Namespace, one: dict) -> dict:
    """Steps a second of the engine with random actions, without an agent."""
    import torch

    from minerva.envs.engines.registry import make_engine

    engine = make_engine(one["env"], one["worlds"], "warp", device=torch.device(args.device))
    engine.reset(range(one["worlds"]))
    actions = 2 * torch.rand(16, one["worlds"], engine.action.size, device=args.device) - 1
    wait = torch.cuda.synchronize if args.device != "cpu" else lambda: None
    for n in range(4):
        engine.step(actions[n])
    wait()
    first, begin, steps = time.time() - one["began"], time.time(), 0
    while time.time() - begin < args.seconds:
        for n in range(16):
            engine.step(actions[n])
        engine.take_episodes()
        steps += 16
    wait()
    return {
        "seconds_to_first_steps": round(first, 1),
        "steps_per_second": round(steps * one["worlds"] / (time.time() - begin)),
    }


if __name__ == "__main__":
    main()
