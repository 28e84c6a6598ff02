"""Entry point: parse the command line, run the subcommand, turn errors into one message and an exit code."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import make_dataclass
from types import FrameType
from typing import Annotated, Any, Union

import tyro
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape

from minerva.cli.benchmark import Benchmark
from minerva.cli.docs import Docs
from minerva.cli.evaluate import Evaluate
from minerva.cli.export import ExportPolicy
from minerva.cli.presets import ShowPresets
from minerva.cli.report import Report
from minerva.cli.train import train_type, with_algorithm
from minerva.cli.tune import Tune
from minerva.cli.video import RecordVideo
from minerva.errors import MinervaError, TrainingError

DONE, FAILED, WRONG_INPUT, STOPPED = 0, 1, 2, 3

STOPPED_EARLY = "stopped before the first checkpoint was written: run the same command again."

DESCRIPTION = "Minerva: MPO, V-MPO and PPO for continuous control."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 2 wrong input, 3 stopped and resumable, 1 otherwise."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    errors = Console(stderr=True, highlight=False)
    logging.basicConfig(format="%(message)s", handlers=[RichHandler(console=errors, show_time=False, show_path=False)])
    try:
        with _sigterm_as_interrupt():
            return int(_parse(arguments).run())
    except MinervaError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return FAILED if isinstance(error, TrainingError) else WRONG_INPUT
    except KeyboardInterrupt:
        errors.print(STOPPED_EARLY)
        return STOPPED
    except SystemExit as exit_:  # from the parser: it printed help, or rejected the arguments
        return int(exit_.code or 0)
    except OSError as error:
        reason = f"{error.strerror or error} {error.filename or ''}".strip()
        errors.print(f"[bold red]error:[/] {escape(reason)}", soft_wrap=True)
        return FAILED


def entry() -> None:
    """Run `main` as this process's entry point and exit with its code.

    A stopped run exits at once: torch's compile workers take long to shut down.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit_at_once)
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if code == STOPPED:
        os._exit(code)
    sys.exit(code)


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    """Exit without unwinding: an exception raised while a C++ library is being imported aborts the process."""
    os.write(2, f"{STOPPED_EARLY}\n".encode())
    os._exit(STOPPED)


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C in a `with` block, until a run installs its own handlers for both."""
    handled_by_entry = signal.getsignal(signal.SIGTERM) is _exit_at_once
    if handled_by_entry or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parse(arguments: list[str]) -> Any:
    """Return the subcommand with its options. `train`'s defaults depend on the arguments, and so does its type."""
    arguments = with_algorithm(arguments)
    train: Any = make_dataclass("Train", [("command", train_type(arguments))], frozen=True)
    train.__doc__ = "Train an agent with one of the algorithms."
    types = {
        "train": train,
        "evaluate": Evaluate,
        "video": RecordVideo,
        "benchmark": Benchmark,
        "tune": Tune,
        "report": Report,
        "presets": ShowPresets,
        "export": ExportPolicy,
        "docs": Docs,
    }
    subcommands: Any = Union[tuple(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in types.items())]  # noqa: UP007
    markers = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    chosen = tyro.cli(subcommands, prog="minerva", description=DESCRIPTION, args=arguments, config=markers)
    return getattr(chosen, "command", chosen)


if __name__ == "__main__":
    entry()
