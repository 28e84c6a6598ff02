"""TensorBoard event files, written synchronously.

torch's writer passes rows to a thread, whose errors surface too late, and may buffer them for minutes.
"""

import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.summary import custom_scalars

NAME = "events.out.tfevents."


class EventsFile:
    """A new event file in `folder`, as a logger. Each row is in the file when `log` returns."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._file = open(folder / f"{NAME}{_next_number(folder)}.{socket.gethostname()}.{os.getpid()}", "xb")  # noqa: SIM115  closed in `close`
        self._records = RecordWriter(self._file)
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row of scalars."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def arrange(self, layout: dict[str, Any]) -> None:
        """Write the layout of TensorBoard's tab "custom scalars"."""
        self._add(Event(wall_time=time.time(), summary=custom_scalars(layout)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        self._file.flush()


def _next_number(folder: Path) -> int:
    """Return the Unix time, or more if a file has that already: TensorBoard reads files in the order of their names."""
    known = [re.match(rf"{NAME}(\d+)", path.name) for path in folder.iterdir()]
    return max([int(time.time()), *(int(found[1]) + 1 for found in known if found)])
