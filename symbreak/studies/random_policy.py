"""What a uniformly random policy meets: transitions for gates to be screened on."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from symbreak.agents.agent import Transition
from symbreak.nn.keys import Key


def random_transitions(world: Any, discount: float, steps: int, key: Key) -> Transition:
    """What a uniformly random policy meets on a pure-JAX world, in order."""

    def move(carry: tuple[Any, Array], step_key: Key) -> tuple[tuple[Any, Array], Transition]:
        state, observation = carry
        action_key, world_key, reset_key = jax.random.split(step_key, 3)
        action = jax.random.randint(action_key, (), 0, 4)
        state, after, reward, terminated, truncated, _ = world.step(world_key, state, action)
        transition = Transition(observation, action, reward, after, jnp.where(terminated, 0.0, discount))
        fresh = world.reset(reset_key)
        going = jax.tree.map(lambda a, b: jnp.where(terminated | truncated, a, b), fresh, (state, after))
        return going, transition

    start_key, steps_key = jax.random.split(key)
    return jax.lax.scan(move, world.reset(start_key), jax.random.split(steps_key, steps))[1]


def random_quadrant(world: Any, discount: float, steps: int, key: Key) -> Transition:
    """The same where only one quadrant of the grid is ever seen: of no pair there is another of its orbit."""
    everywhere = random_transitions(world, discount, 6 * steps + 5_000, key)
    here = np.flatnonzero(np.all(np.asarray(everywhere.observation[:, :2]) > 0, axis=1))[:steps]
    assert len(here) == steps
    return jax.tree.map(lambda column: column[here], everywhere)


def random_episodes(environment: Any, discount: float, steps: int, seed: int) -> Transition:
    """The same on a Gymnasium environment with continuous actions in [−1, 1]."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    observation, _ = environment.reset(seed=seed)
    for _ in range(steps):
        action = rng.uniform(-1, 1, environment.action_space.shape).astype(np.float32)
        after, reward, terminated, truncated, _ = environment.step(action)
        rows.append((observation, action, reward, after, 0.0 if terminated else discount))
        observation = environment.reset()[0] if terminated or truncated else after
    return Transition(*(jnp.asarray(np.stack(column), jnp.float32) for column in zip(*rows, strict=True)))
