"""Networks of every family: equivariant where they promise it, not degenerate, and plain pytrees of trained arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.nn import Dense, Equivariant, Network, Relaxed, Residual, ensemble, hidden_rep, named_key
from symbreak.nn.activation import with_gates
from symbreak.symmetry import SO3, C, Z, intertwiners

KEY = jax.random.key(0)


def make(group, family, style, width=None):
    source = 3 * group.vector + 2 * group.trivial + group.sign
    target = 2 * group.vector + 2 * group.trivial
    width = width or (128 if group.name == "SO(3)" else 48)
    return Network(family, source, target, key=KEY, width=width, style=style), source, target


def check_tensor_network(group, tolerance, measure):
    network, source, target = make(group, Equivariant, "emlp")
    assert measure.error(network, source, target) < tolerance
    assert measure.spread(network, source) > 0.02


@pytest.mark.parametrize("group", ["Z2", "Z4", "SO3"], indirect=True)
def test_tensor_network_commutes_and_sees(group, measure):
    check_tensor_network(group, 1e-4, measure)


@pytest.mark.slow
def test_tensor_network_commutes_and_sees_on_every_group(group, tolerance, measure):
    check_tensor_network(group, tolerance, measure)


@pytest.mark.parametrize("group", ["C4", "Z2", "D4", "product", "quaternion"], indirect=True)
def test_regular_network_commutes_and_sees(group, tolerance, measure):
    network, source, target = make(group, Equivariant, "regular")
    assert measure.error(network, source, target) < tolerance
    assert measure.spread(network, source) > 0.02


def test_dense_network_does_not_commute(group, measure):
    network, source, target = make(group, Dense, "plain")
    assert measure.error(network, source, target) > 0.05


@pytest.mark.parametrize(("family", "style"), [(Relaxed, "regular"), (Relaxed, "emlp")])
def test_relaxed_network_starts_equivariant(family, style, tolerance, measure):
    network, source, target = make(C(4), family, style)
    assert measure.error(network, source, target) < tolerance


@pytest.mark.parametrize("group", ["Z4"], indirect=True)
def test_residual_network_is_nearly_equivariant_at_first(group, measure):
    network, source, target = make(group, Residual, "emlp")
    assert 1e-6 < measure.error(network, source, target) < 3e-2


def test_network_without_products_is_blind_to_rotations():
    """Linear and gated layers alone map vectors to the same invariants, whatever the vectors are."""
    group = SO3()
    network = Network(Equivariant, 3 * group.vector, 4 * group.trivial, key=KEY, width=128, style="emlp")
    leaves = jax.tree.map(lambda leaf: leaf, network)
    blind = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "bilinear" in jax.tree_util.keystr(path) else leaf, leaves
    )
    x = jax.random.normal(KEY, (8, 9))
    seen, unseen = (np.asarray(jax.vmap(model)(x)) for model in (network, blind))
    assert seen.std(axis=0).max() > 1e-3
    assert unseen.std(axis=0).max() < 1e-6


def test_hidden_representations_at_width_256():
    z2, z4, so3 = Z(2), Z(4), SO3()
    assert hidden_rep(z2, 256, "emlp") == 126 * z2.trivial + 55 * z2.vector + 5 * z2.vector**2
    assert hidden_rep(z4, 256, "emlp") == 136 * z4.trivial + 30 * z4.vector
    # The tensors may be given in other orthogonal coordinates: what counts is how many invariant maps lead to and fro.
    found = hidden_rep(so3, 256, "emlp").blocks
    expected = (70 * so3.trivial + 23 * so3.vector + 7 * so3.vector**2 + 2 * so3.vector**3).blocks
    assert [count for _, count in found] == [count for _, count in expected]
    for (atom, _), (tensor, _) in zip(found, expected, strict=True):
        assert atom.size == tensor.size
        assert len(intertwiners(atom, tensor)) == len(intertwiners(tensor, tensor))
    assert with_gates(hidden_rep(so3, 256, "emlp")).size == 256 + 32
    assert hidden_rep(C(4), 256, "regular") == 64 * C(4).regular
    with pytest.raises(InputError, match="divisible"):
        hidden_rep(C(4), 30, "regular")


@pytest.mark.parametrize("family", [Dense, Equivariant, Residual, Relaxed])
def test_every_leaf_is_a_trained_float_array(family):
    network, source, _ = make(Z(2), family, "plain" if family is Dense else "emlp")
    for leaf in jax.tree.leaves(network):
        assert isinstance(leaf, jax.Array)
        assert jnp.issubdtype(leaf.dtype, jnp.floating)
    x = jax.random.normal(KEY, (source.size,))
    gradient = jax.grad(lambda model: jnp.sum(model(x) ** 2))(network)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))
    head = jax.tree.leaves(gradient.head)
    assert max(float(jnp.abs(leaf).max()) for leaf in head) > 0


def test_ensemble_members_differ_and_act_alone():
    group = C(4)
    source, target = 2 * group.rotation(), 1 * group.regular
    twins = ensemble(lambda key: Network(Equivariant, source, target, key=key, width=16, style="regular"), 2, KEY)
    x = jax.random.normal(KEY, (source.size,))
    run = jax.jit(lambda model: model(x))
    both = np.asarray(jax.jit(jax.vmap(lambda twin: twin(x)))(twins))
    assert np.abs(both[0] - both[1]).max() > 1e-3
    for member in range(2):
        alone = jax.tree.map(lambda leaf, m=member: leaf[m], twins)
        np.testing.assert_allclose(np.asarray(run(alone)), both[member], rtol=1e-5, atol=1e-6)


def test_keys_are_streams_by_name():
    draws = [float(jax.random.normal(named_key(KEY, *names))) for names in (("a",), ("b",), ("a", 0), ("a", 1))]
    assert len(set(draws)) == 4
    assert draws[0] == float(jax.random.normal(named_key(KEY, "a")))
