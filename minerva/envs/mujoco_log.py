"""MuJoCo's warnings as log messages, each once.

Left alone, MuJoCo prints the same line for every environment that is made and writes a MUJOCO_LOG.TXT into the
working folder.
"""

import logging
import sys
from typing import Any

logger = logging.getLogger("minerva")

_seen: set[str] = set()


def route_warnings() -> None:
    """Send MuJoCo's warnings to the log, unless the user has a handler of their own or MuJoCo is not here."""
    try:
        import mujoco
    except ImportError:
        return
    if mujoco.get_mju_user_warning() in (None, _dm_control_handler()):
        mujoco.set_mju_user_warning(_log_once)


def _dm_control_handler() -> Any:
    """The handler that importing dm_control puts in place: it prints the same line for every environment."""
    return getattr(sys.modules.get("dm_control.mujoco.wrapper.core"), "_warning_callback", None)


def _log_once(message: str) -> None:
    if message not in _seen:
        _seen.add(message)
        # a model file's use of an old attribute is nothing the user can act on
        level = logging.DEBUG if "is deprecated" in message else logging.WARNING
        logger.log(level, "MuJoCo: %s", message)
