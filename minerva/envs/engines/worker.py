"""A subprocess that steps environments for its parent: `python -m minerva.envs.engines.worker HANDLE PARENT`."""

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from minerva.envs.engines.gymnasium import GymnasiumEngine
from minerva.envs.snapshot import NoSnapshotError

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl: the signal to send when the parent dies."""


def main(handle: int, parent: int) -> None:
    """Reply to calls until the parent closes the connection. Signals are ignored: the parent handles them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":  # elsewhere the closed connection is detected after the current step
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        return
    with contextlib.suppress(EOFError, ConnectionError):  # the parent has closed the connection
        _serve(Connection(handle))


def _serve(connection: Any) -> None:
    engine: Any = None
    while True:
        name, arguments = pickle.loads(connection.recv_bytes())
        try:
            if name == "make":
                engine, answer = GymnasiumEngine(*arguments), None
            elif name == "step":
                engine.send_arrays(*arguments)
                answer = engine.recv_arrays()
            else:
                answer = getattr(engine, name)(*arguments)
            reply = ("done", answer)
        except NoSnapshotError as reason:
            reply = ("no snapshot", str(reason))
        except Exception:  # whatever an environment raises is reported to the parent
            reply = ("raised", traceback.format_exc())
        connection.send(reply)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
