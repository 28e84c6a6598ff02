"""Rows of numbers as TensorBoard reads them.

torch's own writer hands rows to a thread, whose errors nobody hears in time, and may hold them back for minutes.
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
    """A new file in `folder`. Each row is in it when `write` returns."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._file = open(folder / f"{NAME}{_next_number(folder)}.{socket.gethostname()}.{os.getpid()}", "xb")  # noqa: SIM115  closed in `close`
        self._records = RecordWriter(self._file)
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def write(self, step: int, row: Mapping[str, float]) -> None:
        """One row."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def arrange(self, layout: dict[str, Any]) -> None:
        """How TensorBoard's tab "custom scalars" shows the rows."""
        self._add(Event(wall_time=time.time(), summary=custom_scalars(layout)))

    def close(self) -> None:
        """Nothing more will be written."""
        self._file.close()

    def _add(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        self._file.flush()


def _next_number(folder: Path) -> int:
    """Seconds since 1970, or more if a file has these already: TensorBoard reads files in the order of their names."""
    known = [re.match(rf"{NAME}(\d+)", path.name) for path in folder.iterdir()]
    return max([int(time.time()), *(int(found[1]) + 1 for found in known if found)])
