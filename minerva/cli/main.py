"""Entry point: parse the command line, run the subcommand, turn errors into one message and an exit code."""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import make_dataclass
from types import FrameType
from typing import Annotated, Any, Union

import tyro
from rich.logging import RichHandler
from rich.markup import escape

from minerva.cli.arguments import in_full, parsed
from minerva.cli.benchmark import Benchmark
from minerva.cli.docs import Docs
from minerva.cli.evaluate import Evaluate
from minerva.cli.export import ExportPolicy
from minerva.cli.presets import ShowPresets
from minerva.cli.push import Push
from minerva.cli.report import Report
from minerva.cli.train import parsed_train, train_types, with_algorithm
from minerva.cli.tune import Tune
from minerva.cli.video import RecordVideo
from minerva.errors import MinervaError, TrainingError, printable
from minerva.runs.output import make_console
from minerva.runs.signals import SIGNALS, STOPS, exit_status, raised_signals, status_of
from minerva.trainers.registry import ALGORITHMS
from minerva.version import __version__

DONE, FAILED, WRONG_INPUT = 0, 1, 2

STOPPED_EARLY = "stopped before the first checkpoint was written: run the same command again."

DESCRIPTION = f"""Minerva {__version__}: MPO, V-MPO, PPO and SAC for control.

minerva --version prints the version, minerva --tyro-print-completion bash (or zsh, tcsh) a script that completes
commands and options."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 done, 2 wrong input, 130 SIGINT, 143 SIGTERM, 1 otherwise."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"minerva {__version__}")
        return DONE
    errors = make_console(stderr=True)
    handler = RichHandler(console=errors, show_time=False, show_path=False)
    handler.setFormatter(_PrintableFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler])
    try:
        with contextlib.nullcontext() if _handled_by_entry() else raised_signals():
            return int(_parse(arguments).run())
    except MinervaError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return FAILED if isinstance(error, TrainingError) else WRONG_INPUT
    except STOPS as stop:
        errors.print(STOPPED_EARLY)
        return status_of(stop)
    except SystemExit as exit_:  # from the parser: it printed help, or rejected the arguments
        return int(exit_.code or 0)
    except OSError as error:
        reason = f"{error.strerror or error} {error.filename or ''}".strip()
        errors.print(f"[bold red]error:[/] {escape(printable(reason))}", soft_wrap=True)
        return FAILED


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def entry() -> None:
    """Run `main` as this process's entry point and exit with its code.

    A stopped run exits at once: torch's compile workers take long to shut down.
    """
    for number in SIGNALS:
        signal.signal(number, _exit_at_once)
    _prepare_streams()
    code = main()
    _flush_streams()
    if code in map(exit_status, SIGNALS):
        os._exit(code)
    sys.exit(code)


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    """Exit without unwinding: an exception raised while a C++ library is being imported aborts the process."""
    with contextlib.suppress(OSError):
        os.write(2, f"{STOPPED_EARLY}\n".encode())
    os._exit(exit_status(number))


def _prepare_streams() -> None:
    """Put the null device in the place of closed streams, and let the others replace characters that they lack.

    The next file that is opened would get a closed stream's number, and with it what libraries print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: Any = getattr(sys, name)
        if stream is None:
            null = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: the stream's
            os.set_inheritable(null, True)
            setattr(sys, name, os.fdopen(null, "w" if number else "r"))
        elif number and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _flush_streams() -> None:
    """Flush both outputs. One that fails becomes the null device, so that flushing at exit does not fail again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _handled_by_entry() -> bool:
    return signal.getsignal(signal.SIGTERM) is _exit_at_once


COMMANDS: dict[str, Any] = {
    "evaluate": Evaluate,
    "video": RecordVideo,
    "benchmark": Benchmark,
    "tune": Tune,
    "report": Report,
    "presets": ShowPresets,
    "export": ExportPolicy,
    "push": Push,
    "docs": Docs,
}
"""The subcommands beside `train`."""


def _parse(arguments: list[str]) -> Any:
    """Return the subcommand with its options.

    Its own parser is used if it is named, whose messages then name its own options and help page.
    """
    arguments = with_algorithm(in_full(arguments))
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        return parsed(COMMANDS[name], arguments[1:], f"minerva {name}")
    if name == "train" and arguments[1:2] and arguments[1] in ALGORITHMS:
        return parsed_train(arguments[1], arguments[2:])
    train: Any = make_dataclass("Train", [("command", Union[tuple(train_types().values())])], frozen=True)  # noqa: UP007
    train.__doc__ = "Train an agent with one of the algorithms."
    if name == "train":
        return parsed(train, arguments[1:], "minerva train").command
    types = {"train": train, **COMMANDS}
    subcommands: Any = Union[tuple(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in types.items())]  # noqa: UP007
    chosen = parsed(subcommands, arguments, "minerva", DESCRIPTION)
    return getattr(chosen, "command", chosen)


if __name__ == "__main__":
    entry()
