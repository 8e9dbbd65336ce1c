# pyright: reportAttributeAccessIssue=false
# (MuJoCo is a compiled module without type stubs.)
"""Pictures of a MuJoCo scene without a window.

OpenGL is touched when the first picture is taken, never on import: training needs none of it. EGL is tried first (it
uses a graphics card where there is one), then OSMesa. `MUJOCO_GL=egl|osmesa|glfw` overrides the choice.
"""

import functools
import importlib
import os
import subprocess
import sys

import mujoco
import numpy as np

from symbreak.errors import EnvironmentFault

_PROBE = "from mujoco.{name} import GLContext; context = GLContext(8, 8); context.make_current(); context.free()"
_MISSING = (
    "no off-screen OpenGL works here, needed for render_mode='rgb_array': install EGL or OSMesa "
    "(Debian, Ubuntu: apt-get install libegl1 libosmesa6)"
)


@functools.cache
def offscreen_backend() -> str:
    """Name of the MuJoCo package whose context works here: egl, osmesa, or what `MUJOCO_GL` asks for."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in ("egl", "osmesa", "glfw"):
        return asked
    if asked in ("disable", "disabled", "off", "false", "0"):
        raise EnvironmentFault(f"rendering is switched off by MUJOCO_GL={asked}: unset it or set it to egl or osmesa")
    if sys.platform == "darwin":
        return "cgl"
    if sys.platform != "linux":
        return "glfw"
    for name in ("egl", "osmesa"):
        if _works(name):
            return name
    raise EnvironmentFault(_MISSING)


def _works(name: str) -> bool:
    # In a process of its own: PyOpenGL binds to the first platform it meets, so a failed EGL would spoil OSMesa.
    environment = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"}
    environment["MUJOCO_GL"] = name
    command = [sys.executable, "-c", _PROBE.format(name=name)]
    try:
        return subprocess.run(command, env=environment, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class OffscreenCamera:
    """Takes pictures (height, width, 3) of uint8 with a named camera of the model; `close` frees the context."""

    def __init__(self, model: mujoco.MjModel, camera: str, width: int, height: int) -> None:
        backend = offscreen_backend()
        try:
            self._context = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
            self._context.make_current()
            self._renderer = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        except Exception as cause:  # each backend fails with its own kinds of exception
            raise EnvironmentFault(f"{_MISSING}; {backend} said: {' '.join(str(cause).split())[:200]}") from cause
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._renderer)
        self._model = model
        self._scene = mujoco.MjvScene(model, maxgeom=500)
        self._options = mujoco.MjvOption()
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
        self._camera.fixedcamid = model.camera(camera).id

    def picture(self, data: mujoco.MjData) -> np.ndarray:
        self._context.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, data, self._options, None, self._camera, everything, self._scene)
        mujoco.mjr_render(self._viewport, self._scene, self._renderer)
        pixels = np.empty((self._viewport.height, self._viewport.width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(pixels, None, self._viewport, self._renderer)
        return np.ascontiguousarray(pixels[::-1])  # OpenGL counts rows from below

    def close(self) -> None:
        self._renderer.free()
        self._context.free()
