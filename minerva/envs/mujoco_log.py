"""Log MuJoCo's warnings, each once.

By default MuJoCo prints the same line for every environment that is made and writes MUJOCO_LOG.TXT into the working
folder.
"""

import logging
import sys
from typing import Any

logger = logging.getLogger("minerva")

_seen: set[str] = set()


def route_warnings() -> None:
    """Send MuJoCo's warnings to the log, unless the user has set a handler or MuJoCo is not installed."""
    try:
        import mujoco
    except ImportError:
        return
    if mujoco.get_mju_user_warning() in (None, _dm_control_handler()):
        mujoco.set_mju_user_warning(_log_once)


def _dm_control_handler() -> Any:
    """Return the handler that importing dm_control sets, which prints the same line for every environment."""
    return getattr(sys.modules.get("dm_control.mujoco.wrapper.core"), "_warning_callback", None)


def _log_once(message: str) -> None:
    if message not in _seen:
        _seen.add(message)
        # the user cannot fix a deprecated attribute in a model file
        level = logging.DEBUG if "is deprecated" in message else logging.WARNING
        logger.log(level, "MuJoCo: %s", message)
