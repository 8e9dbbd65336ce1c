"""What a trained agent does on every state of a grid-world: gate, disagreement, greedy action, beside the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbreak.gates.learned import LearnedGate
from symbreak.training.build import oracle_table
from symbreak.training.grid_record import write_grid_record

CHUNK = 4096  # states at a time


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
        minority=oracle_table(world, "oracle-minority"),
        strict=oracle_table(world, "oracle-strict"),
        greedy=over_states(lambda s: jnp.argmax(agent.values(state, s))),
        gate=gate,
        disagreement=disagreement,
    )
