"""Is an environment fit to learn in? Found out in a second, before anything is compiled.

Each fault is one line that names the field and what to do. What is declared (the spaces) is read first; then a few
steps are taken, twice with the same seed, and everything returned is compared with what was declared. The environment
runs in a thread, so that one that hangs is reported as well.
"""

from __future__ import annotations

import threading
from numbers import Real
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from symbreak.errors import EnvironmentFault, NumericFault
from symbreak.symmetry import Layout, Symmetry

STEPS = 50
PATIENCE = 120.0  # seconds for the whole check
STEP_RESULT = "(observation, reward, terminated, truncated, info)"
SAME = 1e-6  # a rerun may differ in the last bits and still be the same run


def check_environment(
    environment: gym.Env,
    symmetry: Symmetry | None = None,
    *,
    seed: int = 0,
    steps: int = STEPS,
    patience: float = PATIENCE,
) -> None:
    """Return quietly where the environment can be learned in, under the symmetry if one is given; else raise."""
    observation_space, action_space = check_spaces(environment)
    if symmetry is not None:
        discrete = isinstance(action_space, Discrete)
        size = int(action_space.n) if isinstance(action_space, Discrete) else action_space.shape[0]
        symmetry.require(observation_space.shape[0], size, discrete)
    layout = symmetry.observation if symmetry is not None else None
    _within(patience, lambda: _check_behaviour(environment, observation_space, layout, seed, steps))


def check_spaces(environment: gym.Env) -> tuple[Box, Box | Discrete]:
    """The declared spaces, refused unless flat real observations and bounded or numbered actions."""
    spaces = []
    for name in ("observation_space", "action_space"):
        space = getattr(environment, name, None)
        if not isinstance(space, gym.Space):
            raise EnvironmentFault(f"{name} is {_kind(space)}: declare a gymnasium.spaces.Box")
        spaces.append(space)
    observation, action = spaces
    if not isinstance(observation, Box):
        wrap = "wrap the environment in gymnasium.wrappers.FlattenObservation"
        if isinstance(observation, Dict):  # Gymnasium has sorted them by now, unless told not to
            names = [str(key) for key in observation.spaces]
            alphabetical = " alphabetically" if names == sorted(names) else ""
            wrap += f", which orders the keys{alphabetical}: {', '.join(names)}"
        raise EnvironmentFault(f"observation_space is {_kind(observation)}, only a flat Box can be used: {wrap}")
    _check_flat_box("observation_space", observation)
    if isinstance(action, Discrete):
        if action.start != 0:
            raise EnvironmentFault(f"action_space is {action}, numbered from {action.start}: number actions from 0")
    elif isinstance(action, Box):
        _check_flat_box("action_space", action)
        unbounded = np.flatnonzero(~(np.isfinite(action.low) & np.isfinite(action.high)))
        if unbounded.size:
            raise EnvironmentFault(f"action_space[{unbounded[0]}] is unbounded: give finite low and high")
        empty = np.flatnonzero(action.low >= action.high)
        if empty.size:
            raise EnvironmentFault(f"action_space[{empty[0]}] has low ≥ high: remove the entry or widen its bounds")
    else:
        raise EnvironmentFault(f"action_space is {_kind(action)}, only a flat Box or Discrete can be used")
    return observation, action


def require_finite(
    observation: np.ndarray, reward: Any, step: int, layout: Layout | None = None, source: str = "step"
) -> None:
    """Refuse NaN and infinities with the step, the field and the index where they came in."""
    wrong = np.flatnonzero(~np.isfinite(observation))
    if wrong.size:
        index = int(wrong[0])
        field = f" ({layout.owner(index)})" if layout is not None else ""
        value = f"observation[{index}]{field} is {observation[index]}"
        raise NumericFault(f"{value} after {source} {step}: make the environment return finite numbers")
    if not np.isfinite(reward):
        raise NumericFault(f"reward is {reward} after {source} {step}: make the environment return finite rewards")


def _check_flat_box(name: str, space: Box) -> None:
    if len(space.shape) != 1 or space.shape[0] == 0:
        raise EnvironmentFault(f"{name} has shape {space.shape}: one flat axis (n,) with n ≥ 1 is needed, flatten it")
    if not np.issubdtype(space.dtype, np.floating):
        raise EnvironmentFault(f"{name} has dtype {space.dtype}: declare float32 or float64")
    if np.isnan(space.low).any() or np.isnan(space.high).any():
        raise EnvironmentFault(f"{name} has NaN bounds: give numbers, or -inf and inf")


def _check_behaviour(environment: gym.Env, space: Box, layout: Layout | None, seed: int, steps: int) -> None:
    _check_protocol(environment.unwrapped, seed)
    first = _rollout(environment, space, layout, seed, steps)
    if environment.spec is not None and environment.spec.nondeterministic:
        return  # declared, so seeds are not expected to repeat anything
    second = _rollout(environment, space, layout, seed, steps)
    for time, (one, two) in enumerate(zip(first, second, strict=False)):
        if not np.allclose(one, two, rtol=SAME, atol=SAME):
            place = "reset" if time == 0 else f"step {time}"
            field = "reward" if np.allclose(one[:-1], two[:-1], rtol=SAME, atol=SAME) else "observation"
            raise EnvironmentFault(
                f"{field} of {place} differs between two runs with seed {seed}: the environment ignores its seed, "
                "draw all randomness from self.np_random after super().reset(seed=seed); or reset() leaves something "
                "over from the last episode"
            )
    if len(first) != len(second):
        raise EnvironmentFault(
            f"episodes of two runs with seed {seed} end at different steps: the environment ignores its seed, or "
            "reset() leaves something over from the last episode"
        )


def _check_protocol(bare: gym.Env, seed: int) -> None:
    """The numbers of values returned; on the bare environment, since wrappers unpack them and fail less clearly."""
    bare.action_space.seed(seed)
    _reset(bare, seed)
    _step(bare, bare.action_space.sample(), 1)


def _rollout(environment: gym.Env, space: Box, layout: Layout | None, seed: int, steps: int) -> list[np.ndarray]:
    """Everything observed (rewards appended) in a few steps with seeded actions; each value checked on the way."""
    environment.action_space.seed(seed)
    previous = _reset(environment, seed)
    _check_observation(previous, space, layout, 0, "reset")
    seen = [np.append(previous, 0.0)]
    for time in range(1, steps + 1):
        kept = previous.copy()
        action = environment.action_space.sample()
        given = np.copy(action)
        observation, reward, terminated, truncated, info = _step(environment, action, time)
        _check_observation(observation, space, layout, time, "step")
        _check_scalars(reward, terminated, truncated, info, time)
        require_finite(observation, reward, time, layout)
        if not np.array_equal(action, given):
            raise EnvironmentFault(f"action was changed by step {time}: copy it before working on it")
        if np.shares_memory(previous, observation) or not np.array_equal(previous, kept):
            raise EnvironmentFault(f"observation of step {time} reuses the buffer of the one before: return a copy")
        seen.append(np.append(observation, float(reward)))
        previous = observation
        if terminated or truncated:
            break
    return seen


def _reset(environment: gym.Env, seed: int) -> Any:
    try:
        result = environment.reset(seed=seed)
    except Exception as problem:
        raise EnvironmentFault(f"reset(seed={seed}) raised {one_line(problem)}") from problem
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        raise EnvironmentFault(f"reset returned {_kind(result)}: return (observation, info) with a dict info")
    return result[0]


def _step(environment: gym.Env, action: Any, time: int) -> tuple[Any, Any, Any, Any, Any]:
    try:
        result = environment.step(action)
    except Exception as problem:
        raise EnvironmentFault(f"step {time} raised {one_line(problem)}") from problem
    if not isinstance(result, tuple) or len(result) != 5:
        count = f"{len(result)} values" if isinstance(result, tuple) else _kind(result)
        raise EnvironmentFault(f"step returned {count}: return the five values {STEP_RESULT}")
    return result


def _check_observation(observation: Any, space: Box, layout: Layout | None, time: int, source: str) -> None:
    where = f"observation of {source} {time}" if time else f"observation of {source}"
    if not isinstance(observation, np.ndarray):
        raise EnvironmentFault(f"{where} is {_kind(observation)}: return a NumPy array")
    if observation.shape != space.shape:
        raise EnvironmentFault(
            f"{where} has shape {observation.shape}, observation_space {space.shape}: make them agree"
        )
    if observation.dtype != space.dtype:
        raise EnvironmentFault(
            f"{where} has dtype {observation.dtype}, observation_space {space.dtype}: make them agree"
        )
    require_finite(observation, 0.0, time, layout, source)
    slack = 1e-5 * np.maximum(1.0, np.abs(observation))
    outside = np.flatnonzero((observation < space.low - slack) | (observation > space.high + slack))
    if outside.size:
        index = outside[0]
        bounds = f"[{space.low[index]}, {space.high[index]}]"
        raise EnvironmentFault(f"{where}: entry {index} is {observation[index]}, outside the declared {bounds}")


def _check_scalars(reward: Any, terminated: Any, truncated: Any, info: Any, time: int) -> None:
    if not isinstance(reward, Real | np.number) or isinstance(reward, bool):
        raise EnvironmentFault(f"reward of step {time} is {_kind(reward)}: return a float")
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            raise EnvironmentFault(f"{name} of step {time} is {_kind(value)}: return a bool")
    if not isinstance(info, dict):
        raise EnvironmentFault(f"info of step {time} is {_kind(info)}: return a dict")


def _within(seconds: float, work: Any) -> None:
    """Run the work in a thread; what it raises is raised here, and so is a fault when it takes too long."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as problem:
            raised.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise EnvironmentFault(
            f"the environment did not finish a few steps within {seconds:g} s: does reset or step hang?"
        )
    if raised:
        raise raised[0]


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"{type(value).__name__}"


def one_line(problem: BaseException) -> str:
    """What was raised, its kind first, short enough for a message of ours."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text[:200]}" if text else type(problem).__name__
