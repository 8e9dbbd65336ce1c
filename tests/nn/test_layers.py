"""Every layer commutes with the group, is not blind, and equals its slow reference."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.nn import Dense, Equivariant, Relaxed, Residual, hidden_rep
from symbreak.nn.activation import gated, require_pointwise, with_gates
from symbreak.nn.bilinear import Bilinear
from symbreak.nn.isotypic import isotypic, storage_order
from symbreak.nn.linear import reference_matrix
from symbreak.nn.mlp import Block
from symbreak.symmetry import SO3, C, D, Z

KEY = jax.random.key(0)


def reps(group):
    source = 3 * group.vector + 2 * group.trivial + group.sign
    return source, 2 * group.vector + 2 * group.trivial


def hidden(group):
    return hidden_rep(group, 128 if group.name == "SO(3)" else 64, "emlp")


# --- linear maps -------------------------------------------------------------------------------------------------


def test_equivariant_layer_commutes_and_sees(group, tolerance, measure, drawn):
    source, target = reps(group)
    layer = drawn(Equivariant, source, target)
    assert measure.error(layer, source, target, stored=True) < tolerance
    assert measure.spread(layer, source) > 0.05


def test_dense_layer_does_not_commute(group, measure, drawn):
    source, target = reps(group)
    assert measure.error(drawn(Dense, source, target), source, target, stored=True) > 0.05


def wide_and_narrow_pairs():
    """Representations that between them take every way a layer has to be computed."""
    c4, d4, so3 = C(4), D(4), SO3()
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(9, 9)))[0]
    turned = so3.atom("turned", lie=[turn @ m @ turn.T for m in (so3.vector**2).lie])
    return {
        "complex, three products": (50 * c4.regular, 50 * c4.regular),
        "complex, one product": (20 * c4.regular + 3 * c4.trivial, 20 * c4.regular + c4.rotation()),
        "real, row by row": (40 * d4.regular, 30 * d4.vector + 5 * d4.trivial),
        "narrow blocks": (2 * d4.regular + 20 * d4.vector + d4.sign, 3 * d4.vector**2 + 3 * d4.trivial),
        "irreducible storage": (hidden_rep(so3, 128, "emlp"), with_gates(hidden_rep(so3, 128, "emlp"))),
        "other basis than stored": (2 * turned, hidden_rep(so3, 128, "emlp")),
        "nothing in common": (2 * so3.vector, 3 * so3.trivial),
    }


def with_visible_bias(layer):
    return eqx.tree_at(lambda layer: layer.bias, layer, layer.bias + 0.5)


@pytest.mark.parametrize("name", wide_and_narrow_pairs())
def test_every_way_of_computing_a_layer_equals_the_reference(name, x64, drawn):
    source, target = wide_and_narrow_pairs()[name]
    layer = with_visible_bias(drawn(Equivariant, source, target))
    matrix, bias = reference_matrix(layer)
    x, back = (np.random.default_rng(0).normal(size=rep.size) for rep in (source, target))
    output, pull = jax.vjp(layer, jnp.asarray(x[storage_order(source)]))
    (gradient,) = pull(jnp.asarray(back[storage_order(target)]))
    np.testing.assert_allclose(output, (matrix @ x + bias)[storage_order(target)], atol=1e-12)
    np.testing.assert_allclose(gradient, (matrix.T @ back)[storage_order(source)], atol=1e-12)
    g = source.group.generators[0]
    np.testing.assert_allclose(target.matrix(g) @ matrix, matrix @ source.matrix(g), atol=1e-10)


def test_the_pairs_reach_both_storages_and_the_detour():
    pairs = wide_and_narrow_pairs()
    stored = {name: isotypic(target)[0].stored is not None for name, (_, target) in pairs.items()}
    assert stored["irreducible storage"]
    assert not stored["narrow blocks"]
    assert isotypic(*pairs["other basis than stored"])[1].detour is not None


def test_storage_order_is_a_permutation(group):
    for rep in (*reps(group), hidden(group)):
        assert sorted(storage_order(rep)) == list(range(rep.size))


def test_layer_equals_its_reference_which_commutes(group, x64, drawn):
    source, target = reps(group)
    layer = with_visible_bias(drawn(Equivariant, source, target))
    matrix, bias = reference_matrix(layer)
    x = np.random.default_rng(0).normal(size=source.size)
    output = layer(jnp.asarray(x[storage_order(source)]))
    np.testing.assert_allclose(output, (matrix @ x + bias)[storage_order(target)], atol=1e-12)
    noise = matrix + 0.1 * np.random.default_rng(2).normal(size=matrix.shape)
    for g in group.generators:
        moved_in, moved_out = source.matrix(g), target.matrix(g)
        np.testing.assert_allclose(moved_out @ matrix, matrix @ moved_in, atol=1e-9)
        np.testing.assert_allclose(moved_out @ bias, bias, atol=1e-9)
    assert np.abs(moved_out @ noise - noise @ moved_in).max() > 1e-3


@pytest.mark.parametrize("group", ["C4", "D4", "product", "quaternion"], indirect=True)
def test_layer_spans_every_group_average(group, x64, drawn):
    """K_g⁻¹ W L_g averaged over the group is reachable; without the inverse it is not."""
    source = target = 1 * group.vector + 1 * group.regular
    layer = drawn(Equivariant, source, target)
    leaves, structure = jax.tree.flatten(layer)
    sizes = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def dense(flat):
        parts = [p.reshape(leaf.shape) for p, leaf in zip(np.split(flat, sizes), leaves, strict=True)]
        return reference_matrix(jax.tree.unflatten(structure, parts))[0].ravel()

    span = np.stack([dense(row) for row in np.eye(sum(leaf.size for leaf in leaves))], axis=1)
    weight = np.random.default_rng(0).normal(size=(target.size, source.size))
    matrices = [source.matrix(g) for g in group.elements()]

    def residual(average):
        solution, *_ = np.linalg.lstsq(span, average.ravel(), rcond=None)
        return np.abs(span @ solution - average.ravel()).max()

    assert residual(sum(m.T @ weight @ m for m in matrices) / len(matrices)) < 1e-9
    assert residual(sum(m @ weight @ m for m in matrices) / len(matrices)) > 1e-2


@pytest.mark.parametrize("group", [C(4), SO3()], ids=str)
def test_biases_start_with_the_mean_square_of_a_dense_layer(group):
    """Without, units of a few inputs all bend at the origin, and values ran away."""
    source = 3 * group.vector
    target = 60 * (group.regular if group.is_finite else group.vector + group.trivial)
    _, bias = reference_matrix(Equivariant(source, target, key=KEY))
    for found in (bias, np.asarray(Dense(source, target, key=KEY).bias)):
        assert np.mean(found**2) * source.size == pytest.approx(1, rel=0.5)


def test_permuted_coordinates_gate_themselves_by_a_sigmoid():
    x = jnp.linspace(-30, 30, 240).reshape(-1, 24)
    for row in x:
        np.testing.assert_allclose(gated(6 * C(4).regular, row), jax.nn.silu(row), rtol=1e-5, atol=1e-5)


def test_bias_lies_on_invariants_only(drawn):
    group = SO3()
    assert drawn(Equivariant, 2 * group.vector, 3 * group.vector + 2 * group.trivial).bias.shape == (2,)
    assert drawn(Equivariant, 2 * group.vector, 3 * group.vector).bias.shape == (0,)
    regular = 5 * C(4).regular
    assert drawn(Equivariant, regular, regular).bias.shape == (5,)  # one invariant in each copy


@pytest.mark.parametrize("make", [Equivariant, Dense])
@pytest.mark.parametrize("group", ["C4", "D4", "SO3"], indirect=True)
def test_initialisation_keeps_the_variance(group, make):
    rep = hidden_rep(group, 256, "emlp")
    x = np.random.default_rng(1).normal(size=(64, rep.size)).astype(np.float32)
    for scale in (1.0, 2.0):
        layer = make(rep, rep, key=KEY, scale=scale)
        assert 0.8 < float(jnp.std(jax.jit(jax.vmap(layer))(x))) / scale < 1.2


@pytest.mark.parametrize("make", [Equivariant, Dense, Residual, Relaxed])
def test_keys_decide_the_weights(make):
    source, target = reps(Z(4))
    one, same, other = (jax.tree.leaves(make(source, target, key=jax.random.key(seed))) for seed in (0, 0, 1))
    assert all(bool(jnp.array_equal(a, b)) for a, b in zip(one, same, strict=True))
    drawn = [i for i, leaf in enumerate(one) if leaf.size and float(jnp.std(leaf)) > 0]
    assert drawn
    assert all(float(jnp.abs(one[i] - other[i]).max()) > 1e-3 * float(jnp.std(one[i])) for i in drawn)


# --- layers that bend the symmetry ----------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["Z4", "SO3"], indirect=True)
def test_residual_layer_is_nearly_equivariant_at_first(group, measure):
    source, target = reps(group)
    layer = Residual(source, target, key=KEY)
    assert 1e-5 < measure.error(layer, source, target, stored=True) < 2e-2
    exact = measure.error(layer.equivariant, source, target, stored=True)
    assert exact < 1e-4 * measure.error(layer.free, source, target, stored=True)


def test_free_path_of_a_residual_layer_starts_a_thousand_times_smaller():
    rep = hidden_rep(Z(4), 256, "emlp")
    layer = Residual(rep, rep, key=KEY)
    x = jax.random.normal(KEY, (64, rep.size))
    free, equivariant = (float(jnp.std(jax.jit(jax.vmap(path))(x))) for path in (layer.free, layer.equivariant))
    assert 0.8e-3 < free / equivariant < 1.2e-3


def test_relaxed_layer_with_equal_scales_commutes_and_breaks_with_others(group, tolerance, measure, drawn):
    source, target = reps(group)
    layer = drawn(Relaxed, source, target, banks=2)
    layer = eqx.tree_at(lambda layer: layer.scales, layer, jnp.ones_like(layer.scales))
    assert measure.error(layer, source, target, stored=True) < tolerance
    scales = jax.random.uniform(KEY, layer.scales.shape, minval=0.5, maxval=1.5)
    bent = eqx.tree_at(lambda layer: layer.scales, layer, scales)
    assert measure.error(bent, source, target, stored=True) > 0.01


def test_relaxed_scales_of_regular_representations_are_per_group_element(measure, drawn):
    regular = 6 * C(4).regular
    layer = drawn(Relaxed, regular, regular, banks=3)
    assert layer.scales.shape == (3, 4)
    np.testing.assert_array_equal(Relaxed(regular, regular, key=KEY).scales, np.ones((1, 4)))  # equal at the start
    scales = jax.random.uniform(KEY, (3, 4), minval=0.5, maxval=1.5)
    bent = eqx.tree_at(lambda layer: layer.scales, layer, scales)
    x = np.random.default_rng(0).normal(size=(2, regular.size))
    banks = [measure.run(bank, regular, regular, x, stored=True).reshape(2, 6, 4) for bank in layer.banks]
    expected = sum(np.asarray(scale) * bank for scale, bank in zip(scales, banks, strict=True))
    np.testing.assert_allclose(measure.run(bent, regular, regular, x, stored=True), expected.reshape(2, -1), rtol=1e-4)
    vectors = 2 * SO3().vector
    assert drawn(Relaxed, vectors, vectors).scales.shape == (1, 6)


# --- products and nonlinearities --------------------------------------------------------------------------------------


def test_bilinear_layer_commutes_and_is_quadratic(group, tolerance, measure, drawn):
    rep = with_gates(hidden(group))
    layer = drawn(Bilinear, rep)
    assert measure.error(layer, rep, rep, stored=True) < tolerance
    x = np.random.default_rng(0).normal(size=(4, rep.size))
    once, twice = (measure.run(layer, rep, rep, scale * x, stored=True) - scale * x for scale in (1, 2))
    assert np.abs(once).max() > 1e-2
    np.testing.assert_allclose(twice, 4 * once, rtol=1e-3, atol=1e-3)


def test_bilinear_layer_sees_angles_between_vectors(measure, drawn):
    """What no linear SO(3) layer can: an invariant that changes when one of two vectors turns and keeps its length."""
    group = SO3()
    rep = 4 * group.trivial + 4 * group.vector
    x = np.random.default_rng(0).normal(size=(2, rep.size))
    x[1] = x[0]
    x[1, 4:7] = np.linalg.norm(x[0, 4:7]) * np.array([0.0, 0.0, 1.0])
    seen = measure.run(drawn(Bilinear, rep), rep, rep, x, stored=True)[:, :4]
    unseen = measure.run(drawn(Equivariant, rep, 4 * group.trivial), rep, 4 * group.trivial, x, stored=True)
    assert np.abs(seen[0] - seen[1]).max() > 1e-3
    assert np.abs(unseen[0] - unseen[1]).max() < 1e-6


@pytest.mark.parametrize("group", ["D4", "SO2", "SO3", "quaternion"], indirect=True)
def test_products_of_vectors_reach_every_irrep(group, drawn):
    """Otherwise hidden tensors stay zero for ever: inputs are vectors and invariants."""
    rep = with_gates(hidden(group))
    side, vector = isotypic(rep, 1 * group.vector)
    layer = jax.jit(drawn(Bilinear, rep).__call__)
    parts = side.split(jax.random.normal(KEY, (rep.size,)))
    given = [count > 0 or irrep.is_trivial for count, irrep in zip(vector.multiplicity, side.irreps, strict=True)]
    x = side.join([[row * keep for row in rows] for rows, keep in zip(parts, given, strict=True)])
    assert not all(given)
    assert all(float(jnp.abs(row).max()) > 0 for rows in side.split(layer(layer(x))) for row in rows)


def test_gated_nonlinearity_commutes_and_bends(group, tolerance, measure):
    rep = hidden(group)
    source = with_gates(rep)
    function = lambda x: gated(rep, x)  # noqa: E731
    assert measure.error(function, source, rep, stored=True) < tolerance
    x = np.random.default_rng(0).normal(size=(4, source.size))
    once, twice = (measure.run(function, source, rep, scale * x, stored=True) for scale in (1, 2))
    assert np.abs(twice - 2 * once).max() > 1e-2


def test_gated_nonlinearity_of_permutations_beside_vectors(measure):
    """Such a representation is kept component after component, unlike hidden layers of one kind."""
    group = D(4)
    rep = 2 * group.regular + 3 * group.vector
    assert isotypic(rep)[0].stored is None
    assert measure.error(lambda x: gated(rep, x), with_gates(rep), rep, stored=True) < 1e-4
    assert measure.error(jax.nn.silu, rep, rep) > 0.05  # what gates itself must be permuted


def test_gated_nonlinearity_by_hand(measure):
    """Invariants are multiplied by their own sigmoid, each vector by that of its gate."""
    group = SO3()
    rep = 2 * group.trivial + 2 * group.vector
    x = np.random.default_rng(0).normal(size=(1, 2 + 6 + 2))
    sigmoid = 1 / (1 + np.exp(-x[0]))
    factors = np.concatenate([sigmoid[:2], np.repeat(sigmoid[8:], 3)])
    output = measure.run(lambda x: gated(rep, x), with_gates(rep), rep, x, stored=True)
    np.testing.assert_allclose(output[0], x[0, :8] * factors, rtol=1e-5)


def test_pointwise_nonlinearity_is_refused_where_it_breaks_the_symmetry():
    require_pointwise(3 * C(4).regular + Z(4).vector)
    for rep in (1 * SO3().vector, 2 * Z(2).sign, 1 * C(4).rotation()):
        with pytest.raises(InputError, match="pointwise"):
            require_pointwise(rep)
        with pytest.raises(InputError, match="pointwise"):
            Block(Equivariant, rep, rep, "regular", key=KEY)


def test_pointwise_nonlinearity_would_break_the_symmetry(measure):
    rep = 4 * SO3().vector
    assert measure.error(jax.nn.relu, rep, rep) > 0.05
    permuted = 4 * C(4).regular
    assert measure.error(jax.nn.relu, permuted, permuted) < 1e-6
