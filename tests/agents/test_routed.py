"""Asking an expert only where it counts changes nothing: values and gradients are those of asking everywhere."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents import routing
from symbreak.agents.routing import answers, routed

BATCH, INPUTS, WIDTH = 32, 5, 8


def network(model, rows):
    first, second = model
    return {"values": jnp.tanh(rows @ first) @ second, "sizes": jnp.sum(rows**2, axis=1)}


def problem(seed: int = 0):
    rng = np.random.default_rng(seed)
    model = tuple(jnp.asarray(rng.normal(size=shape)) for shape in ((INPUTS, WIDTH), (WIDTH, 2)))
    return model, jnp.asarray(rng.normal(size=(BATCH, INPUTS))), jnp.asarray(rng.normal(size=(BATCH, 2)))


def asked(wanted, *, route: bool):
    """A loss that reads the model in the wanted rows only, with its gradients in model and inputs."""
    model, inputs, weights = problem()
    wanted = jnp.asarray(wanted)

    def loss(model, inputs):
        zero = jax.tree.map(jnp.zeros_like, model)
        _, free = answers(network, (zero, model), inputs, wanted, route=route)
        values = jnp.where(wanted[:, None], free["values"], 0)
        return jnp.sum(weights * values) + jnp.sum(jnp.where(wanted, free["sizes"], 0) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1))(model, inputs)


def rows_of(count: int) -> np.ndarray:
    return np.isin(np.arange(BATCH), np.random.default_rng(count).permutation(BATCH)[:count])


def largest_difference(first, second) -> float:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b)) / (1 + np.abs(np.asarray(b))))) for a, b in pairs)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 8, 20, 21, BATCH])
def test_routed_equals_unrouted_in_double_precision(x64, count):
    wanted = rows_of(count)
    assert largest_difference(asked(wanted, route=True), asked(wanted, route=False)) < 1e-12


@pytest.mark.parametrize("count", [0, 5, BATCH])
def test_routed_equals_unrouted_in_single_precision(count):
    wanted = rows_of(count)
    assert largest_difference(asked(wanted, route=True), asked(wanted, route=False)) < 1e-6


def test_rows_that_are_not_wanted_are_zero_even_where_they_were_computed():
    model, inputs, _ = problem()
    wanted = rows_of(5)
    values = routed(network, model, inputs, jnp.asarray(wanted))["values"]
    assert not np.any(values[~wanted])
    assert np.all(np.any(np.asarray(values)[wanted] != 0, axis=1))


def test_a_size_that_holds_too_few_rows_is_noticed(x64, monkeypatch):
    """Negative control: were the next smaller program taken, rows would be lost."""
    wanted = rows_of(21)
    right = asked(wanted, route=True)
    monkeypatch.setattr(routing.jnp, "searchsorted", lambda sizes, count: np.searchsorted(sizes, int(count)) - 1)
    assert largest_difference(asked(wanted, route=True), right) > 1e-3


def test_the_largest_program_holds_every_batch():
    assert routing.SHARES[0] == 0
    assert routing.SHARES[-1] == 1
    assert list(routing.SHARES) == sorted(set(routing.SHARES))
