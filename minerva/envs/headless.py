"""Headless rendering: find an OpenGL backend of MuJoCo that works on this machine.

MuJoCo and dm_control read MUJOCO_GL once, when they are imported, and a backend that does not work may kill the
process. So each is tried in a subprocess, before either library is imported here.
"""

import functools
import os
import subprocess
import sys

from minerva.compute.python import PYTHON, search_path
from minerva.errors import EnvError

GL_BACKENDS = ("egl", "osmesa") if sys.platform == "linux" else ("glfw",)
"""EGL renders on the GPU where there is one, OSMesa on any CPU."""

TRIAL_TIMEOUT = 60
"""Seconds that a backend may take to render; a driver may hang."""

TRIAL = """
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 9"/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 16, 16)
renderer.update_scene(data)
assert renderer.render().any()
print("drawn", flush=True)
"""

NO_GL_BACKEND = (
    "MuJoCo cannot render here without a display: neither EGL nor OSMesa works. On Debian, apt-get install libosmesa6 "
    "renders on any machine; EGL (libegl1) needs the driver of a GPU."
)


def select_gl_backend() -> str:
    """Set MUJOCO_GL to the first backend that works, unless it is set, and return it; raise EnvError if none works."""
    wanted = os.environ.get("MUJOCO_GL")
    if wanted:
        if not gl_backend_works(wanted):
            raise EnvError(
                f"MUJOCO_GL is {wanted}, which does not work here: unset it, and Minerva selects one that does."
            )
        return wanted
    backend = next(filter(gl_backend_works, GL_BACKENDS), None)
    if backend is None:
        raise EnvError(NO_GL_BACKEND)
    os.environ["MUJOCO_GL"] = backend
    return backend


@functools.cache
def gl_backend_works(backend: str) -> bool:
    """Return whether this backend renders a frame, tried in a subprocess."""
    environment = {**search_path(), "MUJOCO_GL": backend}
    try:
        trial = subprocess.run(
            [*PYTHON, "-c", TRIAL], env=environment, capture_output=True, text=True, timeout=TRIAL_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return False
    return "drawn" in trial.stdout  # a driver may still fail at exit
