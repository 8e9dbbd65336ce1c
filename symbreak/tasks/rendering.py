"""One picture of every task, and off-screen OpenGL for the MuJoCo environments that others wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symbreak.tasks.task import Task


def ensure_gl() -> None:
    """Make Gymnasium's MuJoCo renderer draw without a window; refused with advice where no off-screen OpenGL works.

    It reads `MUJOCO_GL` with its first picture and, unset, would try a window first.
    """
    from symbreak.tasks.offscreen import offscreen_backend

    backend = offscreen_backend()
    if backend in ("egl", "osmesa"):
        os.environ["MUJOCO_GL"] = backend


def draw_task(task: Task, path: Path, *, seed: int = 0, steps: int = 20) -> Path:
    """Write a PNG of the task after a few random steps."""
    from matplotlib.image import imsave

    environment = task.make(render_mode="rgb_array")
    try:
        environment.action_space.seed(seed)
        environment.reset(seed=seed)
        for _ in range(steps):
            _, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
            if terminated or truncated:
                break
        picture = environment.render()
    finally:
        environment.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    imsave(path, picture)  # pyright: ignore[reportArgumentType]
    return path


def draw_tasks(directory: str | Path, names: tuple[str, ...] = ()) -> list[Path]:
    """Write `NAME.png` for every named task (default: all that are listed) and return the files."""
    from symbreak.tasks.registry import TASK_NAMES, get_task

    return [draw_task(get_task(name), Path(directory) / f"{name}.png") for name in names or TASK_NAMES]
