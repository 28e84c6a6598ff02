"""MuJoCo's warnings go to the log, once each, and to no file."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_envs import Unstable

from minerva.envs import mujoco_log
from minerva.envs.engines.registry import make_engine

mujoco: Any = pytest.importorskip("mujoco")


@pytest.fixture(autouse=True)
def unrouted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """MuJoCo without a handler, nothing warned of yet, in an empty working folder."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(None)
    monkeypatch.setattr(mujoco_log, "_seen", set())
    monkeypatch.chdir(tmp_path)
    yield
    mujoco.set_mju_user_warning(before)


def throw(num_envs: int = 3) -> None:
    """All environments make MuJoCo warn of the same thing."""
    envs = make_engine(Unstable, num_envs)
    envs.reset(list(range(num_envs)))
    envs.step(torch.zeros((num_envs, 1)))


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_a_warning_is_logged_once_and_no_file_appears(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    throw()
    (message,) = warned(caplog)
    assert message.startswith("MuJoCo: Nan, Inf or huge value in QVEL")
    assert list(tmp_path.iterdir()) == []


def test_left_alone_mujoco_writes_a_file(tmp_path: Path) -> None:
    """What the routing is for; if this ever fails, it is no longer needed."""
    Unstable().step(None)
    assert (tmp_path / "MUJOCO_LOG.TXT").exists()


def test_dm_controls_handler_gives_way(caplog: pytest.LogCaptureFixture) -> None:
    """Importing dm_control sets a handler that repeats itself for every environment."""
    core = pytest.importorskip("dm_control.mujoco.wrapper.core")
    mujoco.set_mju_user_warning(core._warning_callback)
    throw()
    (message,) = warned(caplog)
    assert message.startswith("MuJoCo: ")


def test_a_handler_of_the_users_own_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    mujoco.set_mju_user_warning(heard.append)
    throw(num_envs=2)
    assert len(heard) == 2
    assert warned(caplog) == []


def test_a_deprecated_attribute_of_a_model_file_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "minerva"):
        make_engine("HalfCheetah-v5", 2).close()
    deprecations = [record for record in caplog.records if "is deprecated" in record.message]
    assert {record.levelno for record in deprecations} <= {logging.DEBUG}
    assert len(deprecations) == len({record.message for record in deprecations})
    assert warned(caplog) == []
