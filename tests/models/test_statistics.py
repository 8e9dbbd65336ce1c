"""Running statistics equal those of all values at once, and standardising with them commutes with the group."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.models.statistics import MANY, Running, symmetric_mean, symmetric_scale
from symbreak.symmetry import SO3, Field, Layout, Z

BATCHES, BATCH = 4_000, 250


def merged(values: np.ndarray) -> Running:
    """Statistics of rows of batches, in the order they come, in the precision training uses."""
    step = jax.jit(lambda start, rows: jax.lax.scan(lambda s, batch: (s.merge(batch), None), start, rows)[0])
    return step(Running.empty(values.shape[2:]), jnp.asarray(values, jnp.float32))


@pytest.fixture(scope="module")
def million() -> np.ndarray:
    """A drifting mean far from zero: what cancels in a sum of squares, and what a saturated count would lose."""
    drift = np.linspace(0, 3, BATCHES)[:, None]
    return (50 + drift + np.random.default_rng(0).gamma(0.5, size=(BATCHES, BATCH))).astype(np.float32)


def test_a_million_values_agree_with_float64(million):
    found, exact = merged(million), million.astype(np.float64)
    assert int(found.count) == exact.size == 1_000_000
    assert float(found.mean) == pytest.approx(exact.mean(), rel=1e-5)
    assert float(found.std) == pytest.approx(exact.std(), rel=1e-3)


def test_the_textbook_sum_of_squares_fails_on_the_same_values(million):
    total = squares = np.float32(0)
    for batch in million:
        total, squares = total + batch.sum(), squares + (batch**2).sum()
    naive = squares / million.size - (total / np.float32(million.size)) ** 2
    exact = million.astype(np.float64).var()
    assert abs(naive - exact) > 3e-3 * exact


def test_the_first_batch_counts_like_every_other():
    values = np.array([[[10.0], [14.0]], [[0.0], [0.0]]])
    after_one = Running.empty((1,)).merge(jnp.asarray(values[0], jnp.float32))
    assert (float(after_one.mean[0]), float(after_one.std[0])) == (12.0, 2.0)
    after_two = merged(values)
    assert float(after_two.mean[0]) == pytest.approx(6.0)
    assert float(after_two.variance[0]) == pytest.approx(np.var([10, 14, 0, 0]), rel=1e-6)
    without_first = Running.empty((1,)).merge(jnp.asarray(values[1], jnp.float32))
    assert float(without_first.variance[0]) != pytest.approx(np.var([10, 14, 0, 0]))


def test_a_count_never_runs_over():
    """A 32-bit count that goes on for ever becomes negative, and with it what divides by it."""
    full = Running(jnp.asarray(MANY, jnp.int32), jnp.zeros(1), jnp.ones(1)).merge(jnp.ones((1_000, 1)))
    later = full.merge(jnp.ones((1_000, 1)))
    assert int(later.count) == int(full.count) < 2**31 - 1_000_000
    assert float(later.mean[0]) > float(full.mean[0]) > 0  # it still follows what comes


@pytest.mark.parametrize("name", ["mirror", "turn", "space"])
def test_standardising_commutes_with_the_group(name):
    group = {"mirror": Z(2), "turn": Z(4), "space": SO3()}[name]
    fields = {
        "height": Field(group.trivial, (1,)),
        "place": Field(group.vector, tuple(range(2, 2 + group.vector.size))),
        "side": Field(group.trivial if name == "space" else group.sign, (0,)),
    }
    layout = Layout(fields)
    rng = np.random.default_rng(0)
    size = layout.size
    seen = 3 + rng.normal(size=(64, size)) * np.arange(1, size + 1)
    running = Running.empty((size,)).merge(jnp.asarray(seen, jnp.float32))
    mean, scale = np.asarray(symmetric_mean(running, layout)), np.asarray(symmetric_scale(running, layout))
    matrix = layout.matrix(group.sample(rng))
    x = rng.normal(size=size)

    def gap(mean, scale):
        return np.abs((matrix @ x - mean) / scale - matrix @ ((x - mean) / scale)).max()

    assert gap(mean, scale) < 1e-5
    assert mean[1] == pytest.approx(float(running.mean[1]))
    assert gap(np.asarray(running.mean), np.asarray(running.std)) > 1e-2  # each entry for itself does not commute
    # Unit size: the root mean square of what is standardised is one on average.
    standard = (seen - mean) / scale
    assert np.sqrt(np.mean(standard**2)) == pytest.approx(1, rel=0.01)


def test_nothing_seen_yet_leaves_an_observation_as_it_is():
    layout, running = Layout({"side": Z(2).sign, "height": Z(2).trivial}), Running.empty((2,))
    assert symmetric_mean(running, layout).tolist() == [0, 0]
    assert symmetric_scale(running, layout).tolist() == [1, 1]
    seen = running.merge(jnp.ones((4, 2)))
    assert symmetric_mean(seen, layout).tolist() == [0, 1]
