"""What a trained agent thinks, for reports: on every state of a grid-world gate, disagreement and greedy action beside
the truth; elsewhere the gate on the pairs that were visited.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from symbreak.gates.learned import LearnedGate
from symbreak.training.gate_record import divide, write_gate_record
from symbreak.training.grid_record import write_grid_record
from symbreak.training.guarded import in_bounds
from symbreak.training.truth import oracle_table

CHUNK = 4096  # states at a time
VISITED_PAIRS = 8192  # stored pairs that a gate is asked about


@partial(jax.jit, static_argnums=0)
def gates_of(gate: Any, gate_state: Any, observations: Any, actions: Any) -> jax.Array:
    """The gate of every pair of a batch."""
    return jax.vmap(lambda s, a: gate.of_pair(gate_state, s, a))(observations, actions)


def write_gate_map(agent: Any, state: Any, replay: Any, space: gym.Space, directory: Path) -> None:
    """Write `gate.json`, in which a report shows where the gate opens. Without a learned gate there is none."""
    if not isinstance(agent.gate, LearnedGate):
        return
    visited, symmetry = replay.spread(VISITED_PAIRS), agent.symmetry
    gates = gates_of(agent.gate, state.gate, visited.observation, visited.action)
    actions = in_bounds(space, np.asarray(visited.action))
    names = ("number",) if symmetry.discrete else symmetry.action.entries
    columns = dict(zip(symmetry.observation.entries, np.asarray(visited.observation).T, strict=True))
    columns |= {f"{name} (action)": column for name, column in zip(names, np.atleast_2d(actions.T), strict=True)}
    write_gate_record(directory, divide(columns, np.asarray(gates)))


def write_grid_maps(agent: Any, state: Any, world: Any, directory: Path) -> Path:
    """Write `grid.json`, which the report shows as a map."""
    cells = world.cells
    observations = np.asarray(world.observe(*np.divmod(np.arange(cells**2), cells)), np.float32)

    def over_states(function: Any) -> np.ndarray:
        run = jax.jit(jax.vmap(function))
        parts = [run(jnp.asarray(part)) for part in np.array_split(observations, -(-len(observations) // CHUNK))]
        return np.concatenate([np.asarray(part) for part in parts])

    gate = disagreement = None
    if agent.method.heads.gated:
        gate = over_states(lambda s: agent.gate.of_actions(state.gate, s))
    if isinstance(agent.gate, LearnedGate):
        learned, actions = agent.gate, jnp.arange(agent.symmetry.action.size)
        key = jax.random.key(0)  # read by continuous groups only
        disagreement = over_states(lambda s: jax.vmap(lambda a: learned.disagreement(state.gate, s, a, key))(actions))
    floor = world.floor()
    return write_grid_record(
        directory,
        size=world.size,
        blocked=floor.blocked.ravel(),
        penalty=floor.penalty.ravel(),
        minority=oracle_table(world, agent.symmetry, "oracle-minority"),
        strict=oracle_table(world, agent.symmetry, "oracle-strict"),
        greedy=over_states(lambda s: jnp.argmax(agent.values(state, s))),
        gate=gate,
        disagreement=disagreement,
    )
