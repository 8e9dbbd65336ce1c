"""The gate of a state is an upper expectile of the gates of its actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from symbreak.gates.state_gate import expectile_loss


def best(values, level: float) -> float:
    """The estimate with the smallest loss."""
    loss = jax.jit(lambda estimate: expectile_loss(jnp.asarray(values), estimate[None], level))
    return float(minimize_scalar(lambda e: float(loss(jnp.asarray(e))), bounds=(0, 1), options={"xatol": 1e-8}).x)


@pytest.mark.usefixtures("x64")
def test_the_upper_expectile_of_one_open_action_in_four():
    # Σ|level − 1[u<0]|·u = 0 has the solution level / (level + 3(1 − level)).
    assert best([0.0, 0, 0, 1], 0.8) == pytest.approx(0.8 / (0.8 + 3 * 0.2), abs=1e-5)
    assert best([0.0, 0, 0, 1], 0.8) == pytest.approx(0.571, abs=5e-4)
    assert best([0.0, 0, 0, 1], 0.5) == pytest.approx(0.25, abs=1e-5)  # one half is the mean
    assert best([0.0, 0, 0, 1], 0.2) == pytest.approx(
        0.2 / (0.2 + 3 * 0.8), abs=1e-5
    )  # the mirror image is no upper one
    assert best([0.1, 0.3, 0.3, 0.9], 0.999) == pytest.approx(0.9, abs=0.01)  # near one, the largest


def test_the_loss_averages_over_states_and_candidates_and_leaves_the_candidates_alone():
    target, estimate = jnp.array([[0.0, 1.0], [0.5, 0.5]]), jnp.array([[0.5], [0.25]])
    wanted = np.mean([0.2 * 0.25, 0.8 * 0.25, 0.8 * 0.0625, 0.8 * 0.0625])
    assert float(expectile_loss(target, estimate, 0.8)) == pytest.approx(wanted)
    into_target, into_estimate = jax.grad(expectile_loss, argnums=(0, 1))(target, estimate, 0.8)
    assert not np.any(into_target)
    assert np.all(np.asarray(into_estimate) != 0)
