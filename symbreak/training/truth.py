"""What is broken on a grid-world, by its own tables and under the symmetry that is in use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from symbreak.errors import InputError
from symbreak.symmetry.layout import Symmetry
from symbreak.theory import PermutationAction, TabularMDP, minority_gate, strict_gate

DISCOUNT = 0.99  # of the tables; what is broken does not depend on it


@dataclass(frozen=True)
class StateIndex:
    """The index of a grid-world's observation in its tables."""

    world: Any

    def __call__(self, observation: Array) -> Array:
        agent, goal = self.world.locate(observation)
        return jnp.asarray(agent * self.world.cells + goal)


@lru_cache(maxsize=32)
def action_on(world: Any, symmetry: Symmetry) -> PermutationAction:
    """How a declared symmetry moves the states and actions of the tables; one that leaves the cells is refused."""
    if not symmetry.group.is_finite:
        raise InputError(f"symmetry {symmetry.name!r} has all turns, and a grid-world at most quarter turns: use C(4)")
    shown = np.asarray(world.observe(*np.divmod(np.arange(world.cells**2), world.cells)), np.float64)
    states = []
    for element in symmetry.group.elements():
        image = shown @ symmetry.observation.matrix(element).T
        agent, goal = world.locate(image)
        inside = (np.abs(image) <= 1 + 1e-6).all()
        if not inside or not np.allclose(world.observe(agent, goal), image, atol=1e-6):
            raise InputError(
                f"symmetry {symmetry.name!r} does not send cells of the grid-world to cells; declare another"
            )
        states.append(agent * world.cells + goal)
    actions = [symmetry.action_permutation(element) for element in symmetry.group.elements()]
    return PermutationAction(np.array(states, np.int32), np.array(actions, np.int32))


@lru_cache(maxsize=32)
def oracle_table(world: Any, symmetry: Symmetry, kind: str) -> np.ndarray:
    """1 where the pair is broken, for every state (agent × goal) and action of a grid-world."""
    tables = world.tabular()
    gate = {"oracle-strict": strict_gate, "oracle-minority": minority_gate}[kind]
    mdp = TabularMDP.from_tables(tables, DISCOUNT)
    return gate(mdp, action_on(world, symmetry), tables.free).astype(np.float32)
