"""Entry point: parses the command line, runs the verb, turns errors into one sentence and an exit code."""

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

TOO_EARLY = "stopped before there was a checkpoint: give the same command again."

DESCRIPTION = "Minerva: MPO, V-MPO and PPO for continuous control."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is returned.  0 done, 2 wrong input, 3 stopped and resumable, 1 the rest."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    errors = Console(stderr=True, highlight=False)
    logging.basicConfig(format="%(message)s", handlers=[RichHandler(console=errors, show_time=False, show_path=False)])
    try:
        with _termination():
            return int(_parse(arguments).run())
    except MinervaError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return FAILED if isinstance(error, TrainingError) else WRONG_INPUT
    except KeyboardInterrupt:
        errors.print(TOO_EARLY)
        return STOPPED
    except SystemExit as exit_:  # from the parser: help was shown, or the arguments were refused
        return int(exit_.code or 0)
    except OSError as error:
        reason = f"{error.strerror or error} {error.filename or ''}".strip()
        errors.print(f"[bold red]error:[/] {escape(reason)}", soft_wrap=True)
        return FAILED


def entry() -> None:
    """`main` for a process of its own. A stopped one ends at once: torch's compile helpers take long to leave."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if code == STOPPED:
        os._exit(code)
    sys.exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """End without unwinding: an exception that meets a C++ library at its import aborts the process."""
    os.write(2, f"{TOO_EARLY}\n".encode())
    os._exit(STOPPED)


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """Inside, SIGTERM is what Ctrl-C is, from the first moment on; a run has a handler of its own for both."""
    known = signal.getsignal(signal.SIGTERM) is _leave
    if known or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parse(arguments: list[str]) -> Any:
    """The verb with its options. `train`'s defaults depend on the arguments, so its type is made from them."""
    arguments = with_algorithm(arguments)
    train: Any = make_dataclass("Train", [("command", train_type(arguments))], frozen=True)
    train.__doc__ = "Train an agent."
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
    verbs: Any = Union[tuple(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in types.items())]  # noqa: UP007
    markers = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    verb = tyro.cli(verbs, prog="minerva", description=DESCRIPTION, args=arguments, config=markers)
    return getattr(verb, "command", verb)


if __name__ == "__main__":
    entry()
