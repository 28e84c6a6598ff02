"""Time contestants in separate processes, in turn, so that other load on the machine affects all of them alike.

A contestant is a function that works for ever and calls `gate(count)` after every iteration, with what it has done so
far: environment steps, or updates. The gate holds it back while others run.
"""

import functools
import importlib
import multiprocessing
import os
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Gate = Callable[[int], None]
Contestant = Callable[[Gate], None]

WARM_UP_ITERATIONS = 3
"""Iterations before timing starts: the first compiles, the second may compile again."""


@dataclass
class Entry:
    """A contestant: its name, the function that runs it, and its rate in each repeat."""

    name: str
    function: str
    """module:function; it gets `arguments` and a gate."""
    arguments: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    """PyTorch threads."""
    rates: list[float] = field(default_factory=list)
    """Rate per second of wall-clock time, in each repeat."""
    cpu_rates: list[float] = field(default_factory=list)
    """Rate per second of its CPU time, in each repeat: other programs disturb this less."""
    failure: str = ""
    """Reason for which it did not take part."""


def race(entries: Sequence[Entry], repeats: int, seconds: float, say: Callable[[str], None]) -> None:
    """Warm up all contestants, then time each for `seconds` in turn, `repeats` times, and record their rates."""
    runners = [_Runner(entry) for entry in entries]
    try:
        for runner in runners:
            runner.start()
            runner.lap(0.0)  # warming up, one after another
            runner.entry.rates.clear()
            runner.entry.cpu_rates.clear()
            say(f"  {runner.entry.name}: {runner.entry.failure or 'warm'}")
        for _ in range(repeats):
            for runner in runners:
                runner.lap(seconds)
    finally:
        for runner in runners:
            runner.stop()


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Format values as median [smallest, largest]."""
    return f"{statistics.median(values):{form}} [{min(values):{form}}, {max(values):{form}}]"


def ratios(rates: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return one contestant's rate divided by another's, per repeat."""
    return [mine / theirs for mine, theirs in zip(rates, others, strict=True)]


def machine() -> dict[str, Any]:
    """Return a description of the machine and its load."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": os.cpu_count(), "load_before": os.getloadavg()[0], "system": platform.platform()}


class _Runner:
    """Handle of one contestant's process."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._here, there = multiprocessing.Pipe()
        work = functools.partial(_work, entry.function, entry.arguments, entry.threads)
        self._process = multiprocessing.get_context("spawn").Process(target=work, args=(there,), daemon=True)
        self._there = there

    def start(self) -> None:
        self._process.start()
        self._there.close()

    def lap(self, seconds: float) -> None:
        """Let it run for that long, to the end of its iteration."""
        if self.entry.failure:
            return
        try:
            self._here.send(seconds)
            answer = self._here.recv()
        except (EOFError, OSError):
            answer = "its process ended"
        if isinstance(answer, str):
            self.entry.failure = answer
        else:
            count, clock, cpu = answer
            self.entry.rates.append(count / clock)
            self.entry.cpu_rates.append(count / cpu)

    def stop(self) -> None:
        """Close its gate, so that it exits; terminate it if it does not."""
        self._here.close()
        if self._process.pid is not None:
            self._process.join(timeout=20)
            self._process.terminate()
            self._process.join()


def _work(function: str, arguments: dict[str, Any], threads: int, pipe: Connection) -> None:
    """Run the contestant in its process, paced by the gate."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    for stream in (sys.stdout, sys.stderr):  # simulators and peers are talkative; what is wrong goes through the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    import torch

    torch.set_num_threads(threads)
    try:
        module, _, name = function.partition(":")
        contestant = getattr(importlib.import_module(module), name)
        contestant(**arguments, gate=_gate(pipe))
    except ModuleNotFoundError as error:
        pipe.send(f"{error.name} is not installed: pip install 'minerva[bench]'")
    except (EOFError, OSError, KeyboardInterrupt):
        pass  # the race is over
    except Exception:
        pipe.send(traceback.format_exc(limit=-3))


def _gate(pipe: Connection) -> Gate:
    seconds, calls, first = pipe.recv(), 0, 0
    started, started_cpu = time.perf_counter(), time.process_time()

    def gate(count: int) -> None:
        nonlocal seconds, calls, first, started, started_cpu
        calls += 1
        clock, cpu = time.perf_counter() - started, time.process_time() - started_cpu
        if calls < WARM_UP_ITERATIONS or clock < seconds:
            return
        pipe.send((count - first, clock, cpu))
        seconds, first = pipe.recv(), count
        started, started_cpu = time.perf_counter(), time.process_time()

    return gate
