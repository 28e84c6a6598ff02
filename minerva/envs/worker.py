"""A process that steps environments for another: `python -m minerva.envs.worker HANDLE PARENT`. See `processes`."""

import ctypes
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from minerva.envs.snapshot import NoSnapshotError
from minerva.envs.vector import GymnasiumEngine

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


def main(handle: int, parent: int) -> None:
    """Answer calls until the other end is closed. What a signal means, the parent decides."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":  # elsewhere the end of the connection is noticed, after the step under way
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        return
    connection = Connection(handle)
    engine: Any = None
    while True:
        try:
            name, arguments = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            if name == "make":
                engine = GymnasiumEngine(*arguments)
                connection.send(("done", None))
            elif name == "step":
                engine.send(*arguments)
                connection.send(("done", engine.recv()))
            else:
                connection.send(("done", getattr(engine, name)(*arguments)))
        except NoSnapshotError as reason:
            connection.send(("no snapshot", str(reason)))
        except Exception:  # whatever an environment raises, the parent is told
            connection.send(("raised", traceback.format_exc()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
