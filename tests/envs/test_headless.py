"""Which way of drawing is chosen, and what is said when none works."""

import os
import subprocess
import sys
from collections.abc import Iterator

import needs
import pytest

from minerva.envs import headless
from minerva.errors import EnvError

gl_backend_works = headless.gl_backend_works


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(headless, "GL_BACKENDS", ("egl", "osmesa"))
    monkeypatch.setenv("MUJOCO_GL", "")  # so that what is chosen is taken back
    monkeypatch.delenv("MUJOCO_GL")
    gl_backend_works.cache_clear()
    yield
    gl_backend_works.cache_clear()


def working(monkeypatch: pytest.MonkeyPatch, *ways: str) -> None:
    monkeypatch.setattr(headless, "gl_backend_works", lambda way: way in ways)


@pytest.mark.parametrize(
    ("ways", "chosen"), [(("egl", "osmesa"), "egl"), (("osmesa",), "osmesa"), (("egl", "glfw"), "egl")]
)
def test_the_gpu_is_preferred_to_the_processor(
    ways: tuple[str, ...], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    working(monkeypatch, *ways)
    assert headless.select_gl_backend() == chosen
    assert os.environ["MUJOCO_GL"] == chosen


def test_where_nothing_draws_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    working(monkeypatch)
    with pytest.raises(EnvError, match=r"neither EGL nor OSMesa works.*apt-get install libosmesa6"):
        headless.select_gl_backend()
    assert "MUJOCO_GL" not in os.environ


def test_what_the_user_has_set_is_used_or_refused_and_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    working(monkeypatch, "osmesa", "glfw")
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert headless.select_gl_backend() == "glfw"
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(EnvError, match="MUJOCO_GL is egl, which does not work here: unset it"):
        headless.select_gl_backend()


def test_a_way_works_if_a_process_of_its_own_draws_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headless, "TRIAL", "import os; print('drawn' if os.environ['MUJOCO_GL'] == 'egl' else 'no')")
    assert headless.gl_backend_works("egl")
    assert not headless.gl_backend_works("osmesa")
    monkeypatch.setattr(headless, "TRIAL", "import os; os.abort()")
    assert not headless.gl_backend_works("glfw")


def test_a_driver_that_hangs_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headless, "TRIAL_TIMEOUT", 0.5)
    monkeypatch.setattr(headless, "TRIAL", "import time; time.sleep(60)")
    assert not headless.gl_backend_works("egl")


@needs.offscreen_rendering
def test_the_trial_itself_draws_with_what_this_machine_has() -> None:
    environment = {**os.environ, "MUJOCO_GL": "osmesa"}
    done = subprocess.run([sys.executable, "-c", headless.TRIAL], env=environment, capture_output=True, text=True)
    assert done.stdout == "drawn\n", done.stderr
