"""A task: an environment, the symmetries it can be seen through, and what a run on it needs to know by default.

The same simulator may show its state in different numbers to different symmetries (the Ant's torso as a quaternion or
as a matrix). A `View` is one such pair of environment and symmetry; a task has one or more, the first being the
default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, cast

import gymnasium as gym

from symbreak.errors import EnvironmentFault, InputError, SymbreakError
from symbreak.symmetry import Symmetry
from symbreak.tasks.check import check_environment, one_line
from symbreak.tasks.rendering import ensure_gl


@dataclass(frozen=True)
class View:
    """How to make the environment, and how its observations and actions transform."""

    environment: Callable[..., gym.Env]
    symmetry: Callable[[], Symmetry]
    broken: tuple[str, ...] = ()  # "reward", "termination": what an audit finds broken beside the dynamics


@dataclass(frozen=True, eq=False)
class Task:
    """Everything about a task that does not depend on the method that learns it."""

    name: str
    description: str
    views: Mapping[str, View]  # by name of the symmetry, default first
    algorithm: Literal["dqn", "sac"]
    horizon: int | None  # steps until truncation; None: no limit is known
    training_steps: int  # the budget of the paper's curves
    random_steps: int  # uniformly random actions before the first update
    threshold_deviations: float = 1.5  # κ: a pair is broken κ standard deviations above the mean disagreement
    quantile_level: float | None = None  # the paper labels above this quantile instead; None: κ is used
    paper_warm_up_steps: int = 20_000  # the gate of the `paper` preset is frozen until then
    discount: float = 0.99
    jax_env: Callable[..., Any] | None = None  # makes the pure-JAX environment of the compiled loop, where there is one

    @property
    def symmetries(self) -> tuple[str, ...]:
        return tuple(self.views)

    def symmetry(self, name: str | None = None) -> Symmetry:
        """The named symmetry, or the default one; built when first asked for."""
        return self._view(name).symmetry()

    def broken(self, name: str | None = None) -> tuple[str, ...]:
        """What is known to break the named symmetry beside the dynamics."""
        return self._view(name).broken

    def make(self, symmetry: str | None = None, render_mode: str | None = None, **kwargs: Any) -> gym.Env:
        """A new environment whose observations transform under the named symmetry."""
        if render_mode is not None:
            kwargs["render_mode"] = render_mode
        try:
            environment = self._view(symmetry).environment(**kwargs)
        except TypeError as problem:
            if not kwargs:
                raise
            options = ", ".join(kwargs)
            raise InputError(f"task {self.name!r} does not take these options ({options}): {problem}") from problem
        if render_mode == "rgb_array" and hasattr(environment.unwrapped, "mujoco_renderer"):
            ensure_gl()
        return environment

    def _view(self, name: str | None) -> View:
        if name is None:
            return next(iter(self.views.values()))
        if name not in self.views:
            raise InputError(f"task {self.name!r} has no symmetry {name!r}: choose one of {', '.join(self.views)}")
        return self.views[name]


def user_task(environment: str | gym.Env | Callable[..., gym.Env], symmetry: Symmetry, name: str | None = None) -> Task:
    """A user's own environment with the symmetry declared for it, checked before anything is compiled.

    The environment is a Gymnasium id, an environment made from one, or a function (or class) that makes it. Other facts
    of the task are ordinary values: change them with `dataclasses.replace`.
    """
    factory = _factory(environment)
    sample = _sample(factory)
    try:
        check_environment(sample, symmetry)
        horizon = sample.spec.max_episode_steps if sample.spec is not None else None
        label = name or (sample.spec.id if sample.spec is not None else type(sample.unwrapped).__name__)
    finally:
        sample.close()
    return Task(
        name=label,
        description=f"a user's environment under {symmetry.group}",
        views={symmetry.name: View(factory, lambda: symmetry)},
        algorithm="dqn" if symmetry.discrete else "sac",
        horizon=horizon,
        training_steps=100_000 if symmetry.discrete else 1_000_000,
        random_steps=1_000 if symmetry.discrete else 10_000,
    )


def _sample(factory: Callable[..., gym.Env]) -> gym.Env:
    """A first environment; what a user's constructor raises is the environment's fault."""
    try:
        return factory()
    except SymbreakError:
        raise
    except Exception as problem:
        raise EnvironmentFault(f"making the environment raised {one_line(problem)}; mend its constructor") from problem


def _factory(environment: Any) -> Callable[..., gym.Env]:
    """A run needs several copies (training, evaluation), so a way to make the environment rather than one of it."""
    if isinstance(environment, gym.Env):
        spec = environment.spec
        if spec is None:
            kind = type(environment.unwrapped).__name__
            raise InputError(f"this {kind} cannot be made a second time: pass the class or a function that makes it")
        unrecorded = [wrapper.name for wrapper in spec.additional_wrappers if wrapper.kwargs is None]
        if unrecorded:
            raise InputError(f"wrapper {unrecorded[0]} cannot be made a second time: pass a function that applies it")
        return lambda **kwargs: gym.make(spec, **kwargs)
    if isinstance(environment, str):
        try:
            gym.spec(environment)
        except (gym.error.Error, ImportError) as problem:
            nearest = get_close_matches(environment, gym.registry, n=3)
            hint = f"did you mean {' or '.join(nearest)}?" if nearest else "import the module that registers it first"
            raise InputError(f"no environment {environment!r} is registered with Gymnasium: {hint}") from problem
        return lambda **kwargs: gym.make(environment, **kwargs)
    if callable(environment):
        return cast(Callable[..., gym.Env], environment)
    raise InputError(f"{type(environment).__name__} is no environment: pass an id, an environment, or what makes one")
