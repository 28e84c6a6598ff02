"""Measure training on the engine warp: environment steps a second with learning, and seconds to a score.

    python benchmarks/many_worlds.py rate --out rates.json --worlds 2048 4096 8192
    python benchmarks/many_worlds.py score --out scores.json --runs HalfCheetah-v5=8000 dm_control/cheetah/run=850
    python benchmarks/many_worlds.py score --algo mpo --worlds 1024 --runs HalfCheetah-v5=8000 --steps 20000000
    python benchmarks/many_worlds.py rate --device cpu --worlds 16 --seconds 3 --envs Reacher-v5     # without a GPU

Every measurement is a process of its own, and its seconds count from that process's start. A score is the mean of
`--episodes` deterministic episodes in MuJoCo on the CPU; steps a second of a run for a score include evaluations. The
file holds one JSON object a measurement, also of one that failed or reached `--limit`: then with what it had told.
A run is evaluated once its returns while training reach `--near` of the score, and then `--evaluations` times over
`--steps`: evaluating stops the training. `--eager` runs the simulator without graphs and `--compile off` the learner
without, to find errors. `--uncompiled` runs the learner as graphs of PyTorch's own kernels: they begin sooner than
compiled ones, and are slower.

With `--at-once 3` three processes run side by side: rates then wait until all three have compiled and take turns at the
seconds that are measured; runs for a score share the GPU, and are slower for it.
"""

import argparse
import fcntl
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from minerva import Callback
from minerva.compute import compiled
from minerva.envs.engines.warp import WarpEngine
from minerva.evaluation import Evaluator
from minerva.loop.trainer import Trainer
from minerva.trainers.registry import trainer_class

ENVS = ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5"]
NEVER = 10**12
TELL_EVERY = 5.0
"""Seconds between what a run prints, so that one that is killed has told what it had reached."""


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
    p.add_argument("--evaluations", type=int, default=20, help="of a whole run for a score")
    p.add_argument("--near", type=float, default=0.8, help="part of the score from which on a run is evaluated")
    p.add_argument("--episodes", type=int, default=20)
    p.add_argument("--set", nargs="*", default=[], help="hyperparameters, NAME=JSON ...")
    p.add_argument("--compile", default="auto")
    p.add_argument("--matmul", default="highest", choices=["highest", "high"])
    p.add_argument("--uncompiled", action="store_true", help="graphs without torch.compile")
    p.add_argument("--eager", action="store_true")
    p.add_argument("--limit", type=float, default=560, help="seconds of one measurement")
    p.add_argument("--at-once", type=int, default=1, help="measurements side by side")
    p.add_argument("--one", help=argparse.SUPPRESS)
    return p.parse_args()


def main() -> None:
    """Run every measurement as a process of its own."""
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
        wanted = [
            {"env": env, "worlds": worlds, "seed": seed}
            for env in args.envs
            for worlds in args.worlds
            for seed in args.seeds
        ]
    results = []
    at_once = min(args.at_once, len(wanted))
    wanted = [{**one, "at_once": at_once} for one in wanted]
    args.out.with_suffix(".turns").unlink(missing_ok=True)
    with ThreadPoolExecutor(at_once) as pool:
        measuring = [pool.submit(in_process, args, number, one) for number, one in enumerate(wanted)]
        for one, measurement in zip(wanted, measuring, strict=True):
            results.append({**one, **measurement.result()})
            print(json.dumps({name: value for name, value in results[-1].items() if name != "curve"}), flush=True)
            args.out.write_text(json.dumps(results, indent=1))


def in_process(args: argparse.Namespace, number: int, one: dict) -> dict:
    one = {**one, "began": time.time()}
    command = [sys.executable, __file__, *sys.argv[1:], "--one", json.dumps(one)]
    with args.out.with_suffix(f".{number}.log").open("w+") as log:  # also to be read meanwhile
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            process.wait(args.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.seek(0)
        lines = log.read().splitlines()
    found = [line.removeprefix("RESULT ") for line in lines if line.startswith("RESULT ")]
    said = [line for line in lines if not line.startswith("RESULT ")]
    told = {**(json.loads(found[-1]) if found else {}), "log": said[-25:]}
    return told if process.returncode == 0 else {**told, "failed": process.returncode}


class Clock(Callback):
    """The seconds, steps and training returns of reports, and the seconds, steps and scores of evaluations."""

    def __init__(self, args: argparse.Namespace, one: dict, about: dict, evaluator: Evaluator | None) -> None:
        self.args, self.one, self.about, self.evaluator = args, one, about, evaluator
        self.reports, self.curve = [], []
        self.told = 0.0
        self.turns = args.out.with_suffix(".turns").open("a")

    @property
    def now(self) -> float:
        """Seconds since the process was started."""
        return time.time() - self.one["began"]

    def on_update(self, step: int, metrics: dict, trainer: object) -> bool:
        """Note a report. A rate ends after its seconds, a run for a score at an evaluation that reaches it."""
        if self.args.what == "rate" and len(self.reports) == 3:
            self.wait_for_turn()
        self.reports.append((self.now, step, metrics.get("train/episode_return")))
        if self.args.what == "rate":
            return len(self.reports) > 4 and self.reports[-1][0] - self.reports[3][0] > self.args.seconds
        if self.evaluation_is_due(step):
            score = self.evaluator(trainer.greedy).mean
            self.curve.append((round(self.now, 1), step, score))
        if self.now - self.told > TELL_EVERY:
            self.told = self.now
            print("RESULT " + json.dumps(self.result()), flush=True)
        return bool(self.reached())

    def wait_for_turn(self) -> None:
        """Wait until all processes have compiled, at most two minutes, and then for those that measure."""
        self.turns.write("compiled\n")
        self.turns.flush()
        for _ in range(120):
            if len(Path(self.turns.name).read_text().split()) >= self.one["at_once"]:
                break
            time.sleep(1)
        fcntl.flock(self.turns, fcntl.LOCK_EX)  # until this process ends

    def evaluation_is_due(self, step: int) -> bool:
        """Return whether the returns while training are near the score, and the last evaluation is long ago."""
        last, every = self.curve[-1][1] if self.curve else -NEVER, self.args.steps // self.args.evaluations
        returned = self.reports[-1][2]
        return returned is not None and returned >= self.args.near * self.one["score"] and step - last >= every

    def reached(self) -> list[tuple[float, int, float]]:
        """Return the evaluations that reached the score."""
        return [row for row in self.curve if row[2] >= self.one["score"]]

    def result(self) -> dict:
        """Return the measurement so far, with every report that is the first in its `TELL_EVERY` seconds."""
        reports, reached = self.reports, self.reached()
        seconds, steps = (reports[-1][i] - reports[3][i] for i in (0, 1)) if len(reports) > 4 else (0.0, 0)
        ended = [
            (round(second, 1), step, round(returned, 1)) for second, step, returned in reports if returned is not None
        ]
        return {
            **self.about,
            "seconds_to_first_report": round(reports[0][0], 1) if reports else None,
            "seconds_to_fourth_report": round(reports[3][0], 1) if len(reports) > 3 else None,
            "steps_per_second": round(steps / seconds) if seconds else None,
            "seconds_to_score": reached[0][0] if reached else None,
            "steps_to_score": reached[0][1] if reached else None,
            "last_score": self.curve[-1][2] if self.curve else None,
            "curve": self.curve,
            "training": list({row[0] // TELL_EVERY: row for row in reversed(ended)}.values())[::-1],
        }


def measured(args: argparse.Namespace, one: dict) -> dict:
    """One measurement, in this process."""
    imported = time.time()
    WarpEngine.captures = not args.eager
    compiled.MIN_CALLS_TO_COMPILE = NEVER if args.uncompiled else compiled.MIN_CALLS_TO_COMPILE
    if args.what == "engine":
        return engine_alone(args, one)
    settings = {name: json.loads(value) for name, _, value in (word.partition("=") for word in args.set)}
    with ThreadPoolExecutor() as beside:  # the evaluator's processes start while the trainer is made, and end with it
        making = beside.submit(evaluator_for, args, one)
        trainer = trainer_class(args.algo)(
            one["env"], one["seed"], args.device, engine="warp", num_envs=one["worlds"], **settings
        )
        about = {
            "algo": args.algo,
            "config": trainer.config.to_dict(),
            "seconds_to_import": round(imported - one["began"], 1),
            "seconds_to_make": round(time.time() - imported, 1),
        }
        clock = Clock(args, one, about, making.result())
        train(args, trainer, clock)
    return clock.result()


def train(args: argparse.Namespace, trainer: Trainer, clock: Clock) -> None:
    """Train until the clock ends it, in a folder that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(
            NEVER if args.what == "rate" else args.steps,
            out_dir=folder,
            quiet=True,
            callbacks=[clock],
            compile=args.compile,
            matmul=args.matmul,
            eval_every=NEVER,
            eval_episodes=1,
        )
    if clock.evaluator is not None:
        clock.evaluator.close()


def evaluator_for(args: argparse.Namespace, one: dict) -> Evaluator | None:
    """Return what evaluates a run for a score, dm_control's tasks on all cores; None for a rate."""
    engine = "processes" if one["env"].startswith("dm_control/") else "auto"
    return Evaluator(one["env"], args.episodes, one["seed"], engine) if args.what == "score" else None


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
