"""Drawing without a screen: which of MuJoCo's OpenGL backends works here.

MuJoCo and dm_control read MUJOCO_GL once, when they are imported, and a backend that does not work may end the
process. So each is tried in a process of its own, before either library is imported in this one.
"""

import functools
import os
import subprocess
import sys

from minerva.errors import EnvError

GL_BACKENDS = ("egl", "osmesa") if sys.platform == "linux" else ("glfw",)
"""EGL draws on the GPU where there is one, OSMesa on any processor."""

LONGEST_TRIAL = 60
"""Seconds; a driver may hang."""

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

NOTHING_WORKS = (
    "MuJoCo cannot draw here without a screen: neither EGL nor OSMesa works. On Debian, apt-get install libosmesa6 "
    "draws on any machine; EGL (libegl1) needs the driver of a GPU."
)


def select_gl_backend() -> str:
    """Set MUJOCO_GL to the first backend that works, unless the user has set it, and return it; or raise EnvError."""
    wanted = os.environ.get("MUJOCO_GL")
    if wanted:
        if not gl_backend_works(wanted):
            raise EnvError(f"MUJOCO_GL is {wanted}, which does not work here: unset it, and Minerva finds what does.")
        return wanted
    backend = next(filter(gl_backend_works, GL_BACKENDS), None)
    if backend is None:
        raise EnvError(NOTHING_WORKS)
    os.environ["MUJOCO_GL"] = backend
    return backend


@functools.cache
def gl_backend_works(backend: str) -> bool:
    """Return whether a picture can be drawn with this backend, tried in a process of its own."""
    environment = {**os.environ, "MUJOCO_GL": backend}
    try:
        trial = subprocess.run(
            [sys.executable, "-c", TRIAL], env=environment, capture_output=True, text=True, timeout=LONGEST_TRIAL
        )
    except subprocess.TimeoutExpired:
        return False
    return "drawn" in trial.stdout  # a driver may still fail on its way out
