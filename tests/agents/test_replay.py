"""The ring of transitions equals a plain list that forgets its oldest entries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from symbreak.agents.agent import Transition
from symbreak.storage.replay import Replay

CAPACITY = 7


class ListReplay:
    """The reference: a list."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.rows = capacity, []

    def insert(self, row: dict) -> None:
        self.rows.append(row)
        self.rows = self.rows[-self.capacity :]

    def arrays(self) -> list[tuple]:
        return sorted(tuple(np.concatenate([np.ravel(value) for value in row.values()])) for row in self.rows)


def row_of(number: int, rng) -> dict:
    """A transition whose entries name it."""
    return {
        "observation": np.array([number, rng.normal()], np.float32),
        "action": np.int32(rng.integers(4)),
        "reward": np.float32(rng.normal()),
        "next_observation": np.array([number + 1, rng.normal()], np.float32),
        "discount": np.float32(rng.choice([0.0, 0.99])),
    }


def stored(replay: Replay) -> list[tuple]:
    count = min(int(replay.inserted), replay.capacity)
    leaves = [np.asarray(leaf)[:count].reshape(count, int(leaf[0].size)) for leaf in jax.tree.leaves(replay.data)]
    return sorted(map(tuple, np.concatenate(leaves, axis=1)))


insert = jax.jit(lambda replay, row: replay.insert(Transition(**row)))
sample = jax.jit(lambda replay, key: replay.sample(key, 32))


def empty(capacity: int) -> Replay:
    return Replay.empty(capacity, Transition(**row_of(0, np.random.default_rng(0))))


def test_a_thousand_random_sequences_equal_a_list():
    """Sequences shorter than, as long as, and many times longer than the ring, episodes ending anywhere in it."""
    rng = np.random.default_rng(0)
    lengths = [*range(2 * CAPACITY + 2), *rng.integers(0, 3 * CAPACITY, size=984)]
    assert len(lengths) == 1_000
    for length in lengths:
        ring, reference = empty(CAPACITY), ListReplay(CAPACITY)
        for number in range(length):
            row = row_of(number, rng)
            ring = insert(ring, row)
            reference.insert(row)
        assert int(ring.inserted) == length
        assert stored(ring) == reference.arrays()
        if length:
            known = set(reference.arrays())
            drawn = sample(ring, jax.random.key(int(rng.integers(2**31))))
            rows = np.concatenate([np.asarray(leaf).reshape(32, -1) for leaf in jax.tree.leaves(drawn)], axis=1)
            assert {tuple(row) for row in rows} <= known


def test_a_list_that_forgets_its_newest_entries_is_told_apart():
    rng = np.random.default_rng(0)
    ring, rows = empty(CAPACITY), [row_of(number, rng) for number in range(CAPACITY + 3)]
    for row in rows:
        ring = insert(ring, row)
    keeps_oldest = ListReplay(CAPACITY)
    for row in rows[:CAPACITY]:
        keeps_oldest.insert(row)
    assert stored(ring) != keeps_oldest.arrays()


def test_a_capacity_of_one_keeps_the_last():
    rng = np.random.default_rng(0)
    ring = empty(1)
    for number in range(5):
        ring = insert(ring, row_of(number, rng))
        assert float(ring.data.observation[0, 0]) == number
        assert set(np.asarray(sample(ring, jax.random.key(number)).observation[:, 0])) == {number}


@pytest.mark.parametrize("filled", [3, CAPACITY, 3 * CAPACITY])
def test_what_is_stored_is_drawn_uniformly_and_nothing_else(filled):
    rng = np.random.default_rng(0)
    ring = empty(CAPACITY)
    for number in range(filled):
        ring = insert(ring, row_of(number, rng))
    drawn = np.concatenate([sample(ring, jax.random.key(seed)).observation[:, 0] for seed in range(200)]).astype(int)
    expected = np.arange(max(0, filled - CAPACITY), filled)
    assert set(drawn) == set(expected)
    assert chisquare([np.sum(drawn == number) for number in expected]).pvalue > 1e-3


def test_equal_keys_draw_equal_batches():
    rng = np.random.default_rng(0)
    ring = empty(CAPACITY)
    for number in range(CAPACITY):
        ring = insert(ring, row_of(number, rng))
    first, again, other = (sample(ring, jax.random.key(seed)) for seed in (0, 0, 1))
    assert jnp.array_equal(first.observation, again.observation)
    assert not jnp.array_equal(first.observation, other.observation)
