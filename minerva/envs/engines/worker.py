"""A subprocess that steps environments for its parent: `python -m minerva.envs.engines.worker HANDLE PARENT [PATH]`."""

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from minerva.compute.seeding import seed_global_generators
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
            _seed_generators(name, arguments)
            if name == "make":
                engine = GymnasiumEngine(*arguments)
                answer: Any = None
                engine.generators_saved = False
            elif name == "step":
                engine.send_arrays(*arguments)
                answer = engine.recv_arrays(), engine.ended_infos()
            else:
                answer = getattr(engine, name)(*arguments)
            reply = ("done", answer)
        except NoSnapshotError as reason:
            reply = ("no snapshot", str(reason))
        except Exception:  # whatever an environment raises is reported to the parent
            reply = ("raised", traceback.format_exc())
        connection.send(reply)


def _seed_generators(name: str, arguments: tuple[Any, ...]) -> None:
    """Seed the generators of this process, from which environments may draw, where a call begins anew.

    That is a reset with seeds. Before it, environments are made: in every run alike, as there is no seed yet.
    """
    if name == "make":
        _, _, first = arguments
        seed_global_generators(first)
    elif name == "reset_arrays" and arguments[1] is not None:
        seed_global_generators(arguments[1][0])


if __name__ == "__main__":
    sys.path += sys.argv[3:]  # "" if its parent imports from the working directory: last, after all packages
    main(int(sys.argv[1]), int(sys.argv[2]))
