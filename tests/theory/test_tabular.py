"""The padded sparse kernel means what the dense one means."""

import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.theory import TabularMDP, mixture, total_variation
from symbreak.theory.mdp import merge_successors


def random_rows(rng, states=7, actions=3, slots=5):
    """Successors that repeat and slots that are not used."""
    next_state = rng.integers(0, states, size=(states, actions, slots)).astype(np.int32)
    probability = rng.dirichlet(np.ones(slots), size=(states, actions)) * (rng.random((states, actions, slots)) < 0.7)
    probability[..., 0] += 0.1
    return next_state, probability / probability.sum(axis=-1, keepdims=True)


def dense(next_state, probability):
    kernel = np.zeros((*next_state.shape[:2], next_state.shape[0]))
    for (s, a, slot), successor in np.ndenumerate(next_state):
        kernel[s, a, successor] += probability[s, a, slot]
    return kernel


@pytest.fixture
def mdps():
    rng = np.random.default_rng(0)
    return [TabularMDP(*random_rows(rng), rng.normal(size=(7, 3)), 0.9) for _ in range(3)]


def test_merging_keeps_the_measure_and_lists_each_successor_once(mdps):
    for mdp in mdps:
        successors, weights = merge_successors(mdp.next_state, mdp.probability)
        kernel = dense(mdp.next_state, mdp.probability)
        np.testing.assert_allclose(dense(successors, weights), kernel, atol=1e-15)
        assert successors.shape[-1] == (kernel > 0).sum(axis=-1).max()
        for pair in np.ndindex(mdp.reward.shape):
            used = successors[pair][weights[pair] > 0]
            assert len(set(used)) == len(used)
            assert (np.diff(used) > 0).all()


def test_dense_kernel_and_expectation(mdps):
    for mdp in mdps:
        kernel = dense(mdp.next_state, mdp.probability)
        np.testing.assert_allclose(mdp.dense_kernel, kernel, atol=1e-15)
        values = np.random.default_rng(1).normal(size=7)
        np.testing.assert_allclose(mdp.expectation(values), kernel @ values, atol=1e-14)
        again = TabularMDP.from_dense(kernel, mdp.reward, mdp.gamma)
        np.testing.assert_allclose(again.dense_kernel, kernel, atol=1e-15)


def test_total_variation_is_half_the_absolute_difference(mdps):
    first, second, _ = mdps
    expected = 0.5 * np.abs(first.dense_kernel - second.dense_kernel).sum(axis=-1)
    np.testing.assert_allclose(total_variation(first, second), expected, atol=1e-15)
    assert total_variation(first, first).max() < 1e-15


def test_mixture_is_the_convex_combination(mdps):
    weights = np.random.default_rng(2).dirichlet(np.ones(3), size=(7, 3))
    mixed = mixture(list(np.moveaxis(weights, -1, 0)), mdps)
    kernel = sum(weights[..., [i]] * mdp.dense_kernel for i, mdp in enumerate(mdps))
    np.testing.assert_allclose(mixed.dense_kernel, kernel, atol=1e-15)
    np.testing.assert_allclose(mixed.reward, sum(weights[..., i] * mdp.reward for i, mdp in enumerate(mdps)))


def test_absorbing_states_stay_and_pay_nothing():
    kernel = np.zeros((3, 2, 3))
    kernel[:, :, 2] = 1.0
    kernel[1] = np.eye(3)[1]
    mdp = TabularMDP.from_dense(kernel, [[0.0, 0.0], [0.0, -1.0], [0.0, 0.0]], 0.5)
    assert mdp.absorbing.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"gamma": 1.0}, "gamma"),
        ({"probability": np.full((2, 1, 1), 0.5)}, "probability"),
        ({"next_state": np.full((2, 1, 1), 2, np.int32)}, "next_state"),
        ({"next_state": np.zeros((2, 2, 1), np.int32)}, "next_state"),
        ({"reward": np.array([[np.nan], [0.0]])}, "reward"),
    ],
)
def test_what_is_no_mdp_is_refused_by_name(change, named):
    good = {
        "next_state": np.zeros((2, 1, 1), np.int32),
        "probability": np.ones((2, 1, 1)),
        "reward": np.zeros((2, 1)),
        "gamma": 0.9,
    }
    TabularMDP(**good)
    with pytest.raises(InputError, match=named):
        TabularMDP(**(good | change))
