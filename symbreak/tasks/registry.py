"""The tasks by name, and the Gymnasium ids of their environments.

`grid-N` is a grid-world with N obstacles for any N, `grid-N-reward` makes half of them passable at a penalty and
`grid-N-slip` lets the agent slip; the listed ones are those of the paper. With `-floorK` after any of them the
obstacles lie elsewhere: K seeds their places, which is 0 without it.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache, partial
from typing import Any

import gymnasium as gym

from symbreak.errors import InputError
from symbreak.tasks import symmetries
from symbreak.tasks.locomotion import ANT_OPTIONS, RotationMatrixObservation
from symbreak.tasks.task import Task, View

GRID_NAMES = (
    *(f"grid-{obstacles}" for obstacles in (0, 10, 20, 30, 40)),
    *("grid-10-reward", "grid-30-reward", "grid-40-slip"),
)
GRID_PATTERN = re.compile(r"grid-(0|[1-9]\d*)(?:-(reward|slip))?(?:-floor([1-9]\d*))?")
GRID_VARIANTS: dict[str | None, dict[str, Any]] = {
    None: {},
    "reward": {"passable_penalty": True},
    "slip": {"slip": 0.35},
}


def register_environments() -> None:
    """Make `symbreak/…` known to `gymnasium.make`; done when this module is imported."""
    ant = {"entry_point": "gymnasium.envs.mujoco.ant_v5:AntEnv", "max_episode_steps": 1000, "kwargs": ANT_OPTIONS}
    environments: dict[str, dict[str, Any]] = {
        # The grid-world ends its episodes itself, at its own `horizon`.
        "symbreak/GridWorld-v0": {"entry_point": "symbreak.tasks.gridworld_gym:GridWorldEnv"},
        "symbreak/UR5eReach-v0": {"entry_point": "symbreak.tasks.ur5e:UR5eReachEnv", "max_episode_steps": 100},
        "symbreak/Ant-v0": ant,
        "symbreak/AntRotation-v0": ant | {"additional_wrappers": (RotationMatrixObservation.wrapper_spec(),)},
        "symbreak/FetchReach-v0": {"entry_point": "symbreak.tasks.fetch:FetchReachEnv", "max_episode_steps": 50},
    }
    for identifier, facts in environments.items():
        if identifier not in gym.registry:
            gym.register(identifier, **facts)


def _made(identifier: str, **options: Any) -> partial[gym.Env]:
    # Gymnasium's own checker stays off: these environments are checked by the tests.
    return partial(gym.make, identifier, disable_env_checker=True, **options)


def _grid(name: str, obstacles: int, variant: str | None, floor: int) -> Task:
    options: dict[str, Any] = {"obstacles": obstacles, "layout_seed": floor} | GRID_VARIANTS[variant]
    environment = _made("symbreak/GridWorld-v0", **options)
    views = {"paper": View(environment, symmetries.grid)}
    if obstacles == 0:
        views["exact"] = View(environment, partial(symmetries.grid, "exact"))

    def jax_env(**changes: Any) -> Any:
        from symbreak.tasks.gridworld import GridWorld  # imports JAX

        return GridWorld(**options | changes)

    kinds = {None: "", "reward": ", half of them passable at a penalty", "slip": ", with slipping moves"}
    return Task(
        name=name,
        description=f"walk to a goal on a 15×15 grid with {obstacles} obstacles{kinds[variant]}"
        + (f", on floor {floor}" if floor else ""),
        views=views,
        algorithm="dqn",
        horizon=100,
        training_steps=100_000,
        random_steps=1_000,
        # The paper gives levels at 30 and at 40 obstacles, and fewer labels none.
        quantile_level=None if obstacles < 30 else 0.6 if obstacles < 40 else 0.3,
        paper_warm_up_steps=20_000 if obstacles < 40 else 40_000,
        jax_env=jax_env,
    )


def _locomotion(name: str, description: str, views: dict[str, View], threshold_deviations: float) -> Task:
    return Task(
        name=name,
        description=description,
        views=views,
        algorithm="sac",
        horizon=1000,
        training_steps=1_000_000,
        random_steps=10_000,
        threshold_deviations=threshold_deviations,
    )


ROBOT_TASKS = {
    task.name: task
    for task in (
        _locomotion(
            "hopper",
            "a one-legged robot hops forward (Hopper-v5)",
            {"paper": View(_made("Hopper-v5"), symmetries.hopper_paper, ("reward", "termination"))},
            threshold_deviations=1.0,
        ),
        _locomotion(
            "swimmer",
            "a chain of three links swims forward (Swimmer-v5)",
            {
                "paper": View(_made("Swimmer-v5"), symmetries.swimmer_paper),
                "exact": View(_made("Swimmer-v5"), symmetries.swimmer_exact),
            },
            threshold_deviations=1.5,
        ),
        _locomotion(
            "ant",
            "a four-legged robot walks forward (Ant-v5 without contact forces)",
            {
                "paper": View(_made("symbreak/Ant-v0"), symmetries.ant_paper, ("reward", "termination")),
                "exact": View(_made("symbreak/AntRotation-v0"), symmetries.ant_exact),
            },
            threshold_deviations=1.5,
        ),
        Task(
            name="fetch-reach",
            description="the Fetch arm brings its gripper to a point (FetchReachDense-v4)",
            views={"paper": View(_made("symbreak/FetchReach-v0"), symmetries.fetch_paper)},
            algorithm="sac",
            horizon=50,
            training_steps=30_000,
            random_steps=1_000,
            threshold_deviations=-0.5,
            paper_warm_up_steps=3_000,
        ),
        Task(
            name="ur5e-reach",
            description="a UR5e arm brings its end effector to a position and orientation",
            views={
                "paper": View(_made("symbreak/UR5eReach-v0"), symmetries.ur5e),
                "world": View(_made("symbreak/UR5eReach-v0", frame="world"), partial(symmetries.ur5e, "world")),
            },
            algorithm="sac",
            horizon=100,
            training_steps=500_000,
            random_steps=10_000,
            threshold_deviations=-0.5,
        ),
    )
}

TASK_NAMES = (*GRID_NAMES, *ROBOT_TASKS)


@cache
def get_task(name: str) -> Task:
    """The task of that name; one that does not exist is refused with the nearest that do."""
    if name in ROBOT_TASKS:
        return ROBOT_TASKS[name]
    grid = GRID_PATTERN.fullmatch(name)
    if grid:
        return _grid(name, int(grid[1]), grid[2], int(grid[3] or 0))
    nearest = get_close_matches(name, TASK_NAMES, n=3)
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else f"choose one of {', '.join(TASK_NAMES)}"
    raise InputError(f"there is no task {name!r}: {hint}")


def describe_tasks() -> list[dict[str, Any]]:
    """One row per listed task: spaces, horizon, symmetries (what acts on how many numbers) and algorithm."""
    return [_describe(get_task(name)) for name in TASK_NAMES]


def _describe(task: Task) -> dict[str, Any]:
    environment = task.make()
    spaces = {"observation": environment.observation_space, "action": environment.action_space}
    environment.close()
    acting = {name: task.symmetry(name) for name in task.symmetries}
    return {
        "name": task.name,
        "description": task.description,
        **{kind: _space(space) for kind, space in spaces.items()},
        "horizon": task.horizon,
        "training steps": task.training_steps,
        "symmetries": {name: f"{s.group} on {s.observation.size} numbers" for name, s in acting.items()},
        "algorithm": task.algorithm,
    }


def _space(space: gym.Space) -> str:
    return f"Discrete({space.n})" if isinstance(space, gym.spaces.Discrete) else f"Box{space.shape}"


register_environments()
