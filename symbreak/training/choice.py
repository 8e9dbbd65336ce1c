"""Which task a run is about: one of ours by name, or a user's own environment with the symmetry declared for it.

A run's configuration holds names only. Whoever continues or evaluates a run on an environment of one's own gives
environment and symmetry again; nothing is imported because a file says so.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from symbreak.errors import InputError
from symbreak.symmetry import Symmetry
from symbreak.tasks import TASK_NAMES, Task, View, get_task, user_task
from symbreak.tasks.registry import GRID_PATTERN
from symbreak.training.settings import RunConfig


def choose_task(environment: Any, symmetry: Any = None, steps: int | None = None) -> Task:
    """The task for an environment (a task or its name, a Gymnasium id, an environment or what makes one).

    `steps` is the budget of a run on it: a user's environment is explored at random for a tenth of it at most.
    """
    if isinstance(environment, str) and _is_ours(environment):
        return _seen_through(get_task(environment), symmetry)
    if isinstance(environment, Task):
        task = _seen_through(environment, symmetry)
    elif isinstance(symmetry, Symmetry):
        task = user_task(_single(environment), symmetry)
    else:
        raise _undeclared(environment, symmetry)
    if _is_ours(task.name):
        return task
    budget = task.training_steps if steps is None else steps
    return replace(task, random_steps=min(task.random_steps, max(1, budget // 10)))


def _require_named(symmetry: Symmetry | str, config: RunConfig, directory: Path) -> None:
    name = view_name(symmetry)
    started = config.symmetry or (next(iter(get_task(config.task).symmetries)) if _is_ours(config.task) else None)
    if name != started:
        raise InputError(
            f"the run in {directory} was started under symmetry {started!r} and not under {name!r}; give that one"
        )


def needs_own_symmetry(config: RunConfig) -> bool:
    """Whether a run's symmetry is none that a task of ours has by name."""
    return not _is_ours(config.task) or config.symmetry not in (None, *get_task(config.task).symmetries)


def task_of_run(config: RunConfig, directory: Path, environment: Any = None, symmetry: Any = None) -> Task:
    """The task that a stored run was started on; one of a user's own has to be given again."""
    if _is_ours(config.task):
        task = get_task(config.task)
        if not isinstance(symmetry, Symmetry) and needs_own_symmetry(config):
            raise InputError(
                f"the run in {directory} uses a symmetry of your own, {config.symmetry!r}, and a run never stores what "
                "to import; give it again: --symmetry file.py:NAME, or symmetry= in Python"
            )
        if symmetry is not None:
            _require_named(symmetry, config, directory)
        return _seen_through(task, symmetry if isinstance(symmetry, Symmetry) else None)
    if isinstance(symmetry, Symmetry) and environment is None and config.task not in gym.registry:
        raise InputError(
            f"the run in {directory} is about your own environment {config.task}, which nothing registered; give what "
            "does: --env-import PACKAGE, or env= in Python"
        )
    if not isinstance(symmetry, Symmetry):
        raise InputError(
            f"the run in {directory} is about your own environment {config.task}, and a run never stores what to "
            "import; give it again: --symmetry file.py:NAME --env-import PACKAGE, or env= and symmetry= in Python"
        )
    task = choose_task(config.task if environment is None else environment, symmetry, config.steps)
    if task.name != config.task:
        raise InputError(f"the run in {directory} is about {config.task}, not {task.name}; give that environment")
    _require_named(symmetry, config, directory)
    return task


def view_name(symmetry: Any) -> str | None:
    """What a configuration calls the symmetry: names of ours as they are, declared ones by their own name."""
    return symmetry.name if isinstance(symmetry, Symmetry) else symmetry


def _is_ours(name: str) -> bool:
    return name in TASK_NAMES or GRID_PATTERN.fullmatch(name) is not None


def _seen_through(task: Task, symmetry: Any) -> Task:
    """The task with a declared symmetry in the place of its own ones."""
    if not isinstance(symmetry, Symmetry):
        task.symmetry(symmetry)  # refuses a name that it does not have
        return task
    shown = {name: task.symmetry(name) for name in task.symmetries}
    fits = (name for name, own in shown.items() if own.observation.size == symmetry.observation.size)
    view = next(fits, next(iter(shown)))
    own = shown[view]
    symmetry.require(own.observation.size, own.action.size, own.discrete)
    return replace(task, views={symmetry.name: View(task.views[view].environment, lambda: symmetry)})


def copies_in(environment: Any) -> int:
    """How many environments it is."""
    return environment.num_envs if isinstance(environment, gym.vector.VectorEnv) else 1


def _single(environment: Any) -> Any:
    """What makes one environment. Of a vector environment: what makes one like those in it, which are all alike."""
    if not isinstance(environment, gym.vector.VectorEnv):
        return environment
    makers = getattr(environment.unwrapped, "env_fns", None)
    if environment.spec is not None and not environment.spec.kwargs:
        return environment.spec.id
    if not makers:
        raise InputError("this vector environment does not say what it is made of: pass an id, or what makes one")
    return makers[0]


def _undeclared(environment: Any, symmetry: Any) -> Exception:
    known = not isinstance(environment, str) or environment in gym.registry
    if not known:
        try:
            get_task(environment)
        except InputError as problem:
            return InputError(f"{problem} (for an environment of your own also give its symmetry: file.py:NAME)")
    name = environment if isinstance(environment, str) else type(environment).__name__
    given = "no symmetry is declared" if symmetry is None else f"symmetry {symmetry!r} is none of ours"
    return InputError(
        f"{name} is an environment of your own and {given}: give a Symmetry (--symmetry file.py:NAME); "
        "docs/declaring-a-symmetry.md shows how to write one"
    )
