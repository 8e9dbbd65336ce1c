"""Networks of every family: equivariant where they promise it, not degenerate, and plain pytrees of trained arrays."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symbreak.errors import InputError
from symbreak.nn import Dense, Equivariant, Network, Relaxed, Residual, ensemble, hidden_rep, named_key
from symbreak.nn.activation import with_gates
from symbreak.symmetry import SO3, C, Z, product

KEY = jax.random.key(0)
FINITE = ["C4", "Z2", "D4", "product", "quaternion"]


def make(group, family, style, width=None, depth=2):
    source = 3 * group.vector + 2 * group.trivial + group.sign
    target = 2 * group.vector + 2 * group.trivial
    width = width or (128 if group.name == "SO(3)" else 48)
    network = jax.jit(lambda key: Network(family, source, target, key=key, width=width, depth=depth, style=style))(KEY)
    return network, source, target


def test_tensor_network_commutes_and_sees(group, tolerance, measure):
    network, source, target = make(group, Equivariant, "emlp")
    assert measure.error(network, source, target) < tolerance
    assert measure.spread(network, source) > 0.02


@pytest.mark.parametrize("group", FINITE, indirect=True)
def test_regular_network_commutes_and_sees(group, tolerance, measure):
    network, source, target = make(group, Equivariant, "regular")
    assert measure.error(network, source, target) < tolerance
    assert measure.spread(network, source) > 0.02


def test_dense_network_does_not_commute(group, measure):
    network, source, target = make(group, Dense, "plain")
    assert measure.error(network, source, target) > 0.05


@pytest.mark.parametrize("style", ["regular", "emlp"])
def test_relaxed_network_starts_equivariant_and_can_break(style, tolerance, measure):
    network, source, target = make(C(4), Relaxed, style)
    assert measure.error(network, source, target) < tolerance
    scales = jax.random.uniform(KEY, network.head.scales.shape, minval=0.5, maxval=1.5)
    bent = eqx.tree_at(lambda network: network.head.scales, network, scales)
    assert measure.error(bent, source, target) > 0.01


@pytest.mark.parametrize("group", ["Z2", "Z4", "SO2"], indirect=True)
def test_residual_network_is_nearly_equivariant_at_first(group, measure):
    network, source, target = make(group, Residual, "emlp")
    assert 1e-6 < measure.error(network, source, target) < 3e-2


def without_products(network):
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "bilinear" in jax.tree_util.keystr(path) else leaf, network
    )


def test_network_without_products_is_blind_to_rotations():
    """Linear and gated layers alone map vectors to the same invariants, whatever the vectors are."""
    group = SO3()
    make = lambda key: Network(Equivariant, 3 * group.vector, 4 * group.trivial, key=key, width=128, style="emlp")  # noqa: E731
    network = jax.jit(make)(KEY)
    run = jax.jit(lambda network, x: jax.vmap(network)(x))
    x = jax.random.normal(KEY, (8, 9))
    assert run(network, x).std(axis=0).max() > 1e-3
    assert run(without_products(network), x).std(axis=0).max() < 1e-6


def test_hidden_representations_at_width_256():
    z2, z4, so3 = Z(2), Z(4), SO3()
    assert hidden_rep(z2, 256, "emlp") == 126 * z2.trivial + 55 * z2.vector + 5 * z2.vector**2
    assert hidden_rep(z4, 256, "emlp") == 136 * z4.trivial + 30 * z4.vector
    assert hidden_rep(C(4), 256, "regular") == 64 * C(4).regular
    assert hidden_rep(C(4), 512, "regular") == 128 * C(4).regular
    rep = hidden_rep(so3, 256, "emlp")
    assert repr(rep) == "70R + 23V + 7V⊗V + 2V⊗V⊗V"
    assert rep.size == 256
    assert with_gates(rep).size == 256 + 32
    # The tensors are stored in another basis than V⊗V itself, so they are compared by their characters.
    tensors = 70 * so3.trivial + 23 * so3.vector + 7 * so3.vector**2 + 2 * so3.vector**3
    for _ in range(3):
        g = so3.sample(np.random.default_rng(0))
        assert np.trace(rep.matrix(g)) == pytest.approx(np.trace(tensors.matrix(g)), abs=1e-9)


def test_hidden_representations_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="divisible"):
        hidden_rep(C(4), 30, "regular")
    with pytest.raises(InputError, match="finite"):
        hidden_rep(SO3(), 64, "regular")
    with pytest.raises(InputError, match="too small"):
        hidden_rep(SO3(), 32, "emlp")


@pytest.mark.parametrize("width", [64, 128, 256])
def test_hidden_representations_have_the_width_asked_for(group, width):
    assert hidden_rep(group, width, "emlp").size == width
    assert hidden_rep(group, width, "plain").is_permutation


@pytest.mark.parametrize("family", [Dense, Equivariant, Residual, Relaxed])
@pytest.mark.parametrize("style", ["regular", "emlp"])
def test_every_leaf_is_a_trained_float_array(family, style):
    network, source, _ = make(Z(2), family, "plain" if family is Dense else style)
    for leaf in jax.tree.leaves(network):
        assert isinstance(leaf, jax.Array)
        assert jnp.issubdtype(leaf.dtype, jnp.floating)
    x = jax.random.normal(KEY, (8, source.size))
    loss = lambda network: jnp.sum(jax.vmap(network)(x) ** 2)  # noqa: E731
    gradient = jax.jit(jax.grad(loss))(network)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(gradient) if leaf.size)
    hash(jax.tree.structure(network))  # what is not trained is static, and static things are hashed by jit


def test_head_scale_scales_the_output():
    source, target = 3 * Z(4).vector, 2 * Z(4).trivial
    x = jax.random.normal(KEY, (source.size,))
    small, large = (
        Network(Equivariant, source, target, key=KEY, width=48, style="emlp", head_scale=scale)(x)
        for scale in (0.01, 1.0)
    )
    np.testing.assert_allclose(100 * small, large, rtol=1e-4)


def test_features_and_read_compose_to_the_network():
    network, source, _ = make(Z(4), Equivariant, "regular")
    x = jax.random.normal(KEY, (source.size,))
    assert network.features(x).shape == (48,)
    np.testing.assert_array_equal(network.read(network.features(x)), network(x))


def test_ensemble_members_differ_and_act_alone():
    network, source, _ = make(Z(2), Equivariant, "emlp")
    twins = ensemble(lambda key: Network(Equivariant, source, network.target, key=key, width=48, style="emlp"), 2, KEY)
    x = jax.random.normal(KEY, (source.size,))
    both = np.asarray(jax.vmap(lambda twin: twin(x))(twins))
    assert np.abs(both[0] - both[1]).max() > 1e-3
    for member in range(2):
        alone = jax.tree.map(lambda leaf, m=member: leaf[m], twins)
        np.testing.assert_allclose(np.asarray(alone(x)), both[member], rtol=1e-5, atol=1e-6)


def test_networks_of_two_keys_differ():
    source, target = 3 * Z(4).vector, 2 * Z(4).trivial
    x = jax.random.normal(KEY, (source.size,))
    outputs = [
        Network(Equivariant, source, target, key=jax.random.key(seed), width=48, style="emlp")(x) for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert float(jnp.abs(outputs[0] - outputs[2]).max()) > 1e-3


def test_keys_are_streams_by_name():
    draws = [float(jax.random.normal(named_key(KEY, *names))) for names in (("a",), ("b",), ("a", 0), ("a", 1))]
    assert len(set(draws)) == 4
    assert draws[0] == float(jax.random.normal(named_key(KEY, "a")))


# --- wider tiers ----------------------------------------------------------------------------------------------------


def trained(network, source, target, steps=1000):
    """The network after Adam steps toward a function that is not equivariant."""
    optimiser = optax.adam(3e-3)
    mixing = jax.random.normal(jax.random.key(5), (source.size, target.size))

    def step(carry, key):
        network, state = carry
        x = jax.random.normal(key, (32, source.size))
        wanted = jnp.tanh(x @ mixing)
        gradient = jax.grad(lambda network: jnp.mean((jax.vmap(network)(x) - wanted) ** 2))(network)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(network, updates), state), None

    run = jax.jit(lambda network: jax.lax.scan(step, (network, optimiser.init(network)), jax.random.split(KEY, steps)))
    return run(network)[0][0]


def check_after_training(group, family, style, tolerance, measure):
    network, source, target = make(group, family, style)
    after = trained(network, source, target)
    moved = max(float(jnp.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (network, after)), strict=True))
    assert moved > 0.01
    return measure.error(after, source, target)


def test_training_keeps_the_symmetry(measure):
    assert check_after_training(C(4), Equivariant, "regular", 1e-4, measure) < 1e-4


@pytest.mark.slow
def test_training_keeps_the_symmetry_of_every_group(group, tolerance, measure):
    styles = ["emlp", "regular"] if group.is_finite else ["emlp"]
    for style in styles:
        assert check_after_training(group, Equivariant, style, tolerance, measure) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize("family", [Dense, Relaxed, Residual])
def test_training_breaks_the_symmetry_of_the_other_families(family, measure):
    style = "plain" if family is Dense else "emlp"
    assert check_after_training(Z(4), family, style, 1e-4, measure) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("width", [96, 256])
def test_networks_of_other_shapes_commute_and_see(group, depth, width, tolerance, measure):
    for family in (Equivariant, Relaxed):
        network, source, target = make(group, family, "emlp", width, depth)
        assert measure.error(network, source, target) < tolerance
        assert measure.spread(network, source) > 0.01


@pytest.mark.slow
def test_network_of_a_continuous_product_commutes(tolerance, measure):
    group = product(SO3(), Z(2))
    network, source, target = make(group, Equivariant, "emlp", 128)
    assert measure.error(network, source, target) < tolerance
    assert measure.spread(network, source) > 0.01
