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
from symbreak.symmetry import SO2, SO3, C, Z, product

KEY = jax.random.key(0)
FINITE = ["C4", "Z2", "D4", "product", "quaternion"]


def ends(group):
    return 3 * group.vector + 2 * group.trivial + group.sign, 2 * group.vector + 2 * group.trivial


def shape(group, style, **other):
    return {"width": 128 if group.name == "SO(3)" else 48, "style": style} | other


def at_start(group, family, style):
    return Network(family, *ends(group), key=KEY, **shape(group, style))


def test_tensor_network_commutes_and_sees(group, tolerance, measure, drawn):
    network = drawn(Network, Equivariant, *ends(group), **shape(group, "emlp"))
    assert measure.error(network, *ends(group)) < tolerance
    assert measure.spread(network, network.source) > 0.02


@pytest.mark.parametrize("group", FINITE, indirect=True)
def test_regular_network_commutes_and_sees(group, tolerance, measure, drawn):
    network = drawn(Network, Equivariant, *ends(group), **shape(group, "regular"))
    assert measure.error(network, *ends(group)) < tolerance
    assert measure.spread(network, network.source) > 0.02


def test_dense_network_does_not_commute(group, measure, drawn):
    network = drawn(Network, Dense, *ends(group), **shape(group, "plain"))
    assert measure.error(network, *ends(group)) > 0.05


@pytest.mark.parametrize("style", ["regular", "emlp"])
def test_relaxed_network_starts_equivariant_and_can_break(style, measure):
    group = C(4)
    network = at_start(group, Relaxed, style)
    assert measure.error(network, *ends(group)) < 1e-4
    scales = jax.random.uniform(KEY, network.head.scales.shape, minval=0.5, maxval=1.5)
    bent = eqx.tree_at(lambda network: network.head.scales, network, scales)
    assert measure.error(bent, *ends(group)) > 0.01


def test_relaxed_scales_are_shared_by_a_network_s_style_and_not_by_its_target():
    """Four legs under a quarter turn are the regular representation, in an EMLP network too."""
    legs = Z(4).vector
    scales = {
        style: Network(Relaxed, 1 * legs, 4 * legs, key=KEY, width=32, style=style).head.scales.shape
        for style in ("regular", "emlp")
    }
    assert scales == {"regular": (1, 4), "emlp": (1, 16)}


@pytest.mark.parametrize("group", ["Z4", pytest.param("SO2", marks=pytest.mark.slow)], indirect=True)
def test_residual_network_is_nearly_equivariant_at_first(group, measure):
    assert 1e-6 < measure.error(at_start(group, Residual, "emlp"), *ends(group)) < 3e-2


def without_products(network):
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "bilinear" in jax.tree_util.keystr(path) else leaf, network
    )


def test_network_without_products_is_blind_to_rotations(drawn):
    """Linear and gated layers alone map vectors to the same invariants, whatever the vectors are."""
    group = SO3()
    network = drawn(Network, Equivariant, 3 * group.vector, 4 * group.trivial, width=128, style="emlp")
    run = jax.jit(lambda network, x: jax.vmap(network)(x))
    x = np.random.default_rng(0).normal(size=(8, 9)).astype(np.float32)
    assert run(network, x).std(axis=0).max() > 1e-3
    assert run(without_products(network), x).std(axis=0).max() < 1e-6


def _so3_and_mirror():
    group = product(SO3(), Z(2))
    flipping = group.lift(0, SO3().vector) * group.lift(1, Z(2).sign)
    return 2 * flipping, 1 * flipping


BEYOND_TENSORS = {  # parts that neither V nor V⊗V contain
    "sign of a product": lambda: (3 * product(C(4), Z(2)).sign, 2 * product(C(4), Z(2)).sign),
    "invariants of it": lambda: (3 * product(C(4), Z(2)).sign, 2 * product(C(4), Z(2)).trivial),
    "three mirrors": lambda: (2 * product(product(Z(2), Z(2)), Z(2)).sign, 1 * product(product(Z(2), Z(2)), Z(2)).sign),
    "third multiple of a turn": lambda: (2 * SO2().vector, 1 * SO2().rotation(3)),
    "read": lambda: (2 * SO2().rotation(3), 1 * SO2().trivial),
    "vectors that a mirror turns round": _so3_and_mirror,
    "rare sign": lambda: (2 * product(Z(2), Z(2)).sign, 1 * product(Z(2), Z(2)).sign),
}


@pytest.mark.parametrize("case", BEYOND_TENSORS)
def test_a_network_sees_and_moves_what_the_tensors_of_its_group_lack(case, measure, drawn):
    source, target = BEYOND_TENSORS[case]()
    network = drawn(Network, Equivariant, source, target, width=64, style="emlp")
    assert network.blocks[0].hidden.size == 64
    assert measure.error(network, source, target) < 1e-4
    assert measure.spread(network, source) > 0.005  # of a blind one 1e-7


@pytest.mark.parametrize(
    ("source", "target"),
    [(2 * SO2().vector, 1 * SO2().rotation(5)), (2 * SO2().trivial, 1 * SO2().vector)],
)
def test_a_network_that_could_only_say_zero_is_refused(source, target):
    with pytest.raises(InputError, match="always 0"):
        Network(Equivariant, source, target, key=KEY, width=64, style="emlp")
    Network(Residual, source, target, key=KEY, width=64, style="emlp")  # its free part sees


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
    # The tensors are kept in a basis other than that of V⊗V itself, so they are compared by their characters.
    tensors = 70 * so3.trivial + 23 * so3.vector + 7 * so3.vector**2 + 2 * so3.vector**3
    rng = np.random.default_rng(0)
    for g in [so3.sample(rng) for _ in range(3)]:
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


@pytest.mark.parametrize(
    ("family", "style"), [(Dense, "plain"), (Equivariant, "emlp"), (Residual, "regular"), (Relaxed, "regular")]
)
def test_every_leaf_is_a_trained_float_array(family, style):
    network = at_start(Z(2), family, style)
    for leaf in jax.tree.leaves(network):
        assert isinstance(leaf, jax.Array)
        assert jnp.issubdtype(leaf.dtype, jnp.floating)
    x = np.random.default_rng(0).normal(size=(8, network.source.size)).astype(np.float32)
    gradient = jax.jit(jax.grad(lambda network: jnp.sum(jax.vmap(network)(x) ** 2)))(network)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(gradient) if leaf.size)
    hash(jax.tree.structure(network))  # what is not trained is static, and jit hashes what is static


def test_head_scale_scales_the_output():
    source, target = ends(Z(4))
    x = jnp.arange(1.0, 1.0 + source.size)

    def output(scale):
        return Network(Equivariant, source, target, key=KEY, width=48, style="regular", head_scale=scale)(x)

    np.testing.assert_allclose(100 * output(0.01), output(1.0), rtol=1e-4)


def test_features_and_read_compose_to_the_network(drawn):
    network = drawn(Network, Equivariant, *ends(Z(4)), **shape(Z(4), "regular"))
    x = jnp.ones(network.source.size)
    assert network.features(x).shape == (48,)
    np.testing.assert_array_equal(network.read(network.features(x)), network(x))


def test_ensemble_members_differ_and_act_alone():
    group = Z(2)
    twins = ensemble(lambda key: Network(Equivariant, *ends(group), key=key, **shape(group, "regular")), 2, KEY)
    x = jnp.ones(ends(group)[0].size)
    both = np.asarray(jax.jit(jax.vmap(lambda twin: twin(x)))(twins))
    assert np.abs(both[0] - both[1]).max() > 1e-3
    run = jax.jit(lambda network: network(x))
    for i in range(2):
        alone = jax.tree.map(lambda leaf, i=i: leaf[i], twins)
        np.testing.assert_allclose(np.asarray(run(alone)), both[i], rtol=1e-5, atol=1e-6)


def test_networks_of_two_keys_differ():
    source, target = ends(Z(4))
    x = jnp.ones(source.size)
    run = jax.jit(lambda key: Network(Equivariant, source, target, key=key, width=48, style="regular")(x))
    outputs = [run(jax.random.key(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert float(jnp.abs(outputs[0] - outputs[2]).max()) > 1e-3


def test_keys_are_streams_by_name():
    draws = [float(jax.random.normal(named_key(KEY, *names))) for names in (("a",), ("b",), ("a", 0), ("a", 1))]
    assert len(set(draws)) == 4
    assert draws[0] == float(jax.random.normal(named_key(KEY, "a")))


# --- training and wider tiers ---------------------------------------------------------------------------------------


def trained(network, steps=1000):
    """The network after Adam steps toward a function that is not equivariant."""
    optimiser = optax.adam(3e-3)
    source, target = network.source.size, network.target.size
    mixing = np.random.default_rng(5).normal(size=(source, target))

    def step(carry, key):
        network, state = carry
        x = jax.random.normal(key, (32, source))
        wanted = jnp.tanh(x @ mixing)
        gradient = jax.grad(lambda network: jnp.mean((jax.vmap(network)(x) - wanted) ** 2))(network)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(network, updates), state), None

    def run(network):
        return jax.lax.scan(step, (network, optimiser.init(network)), jax.random.split(KEY, steps))[0][0]

    # Compiles in a third of the time, and tiny networks run as fast.
    after = jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})(network)
    assert max(float(jnp.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (network, after)), strict=True)) > 0.01
    return after


def test_training_keeps_the_symmetry(measure):
    assert measure.error(trained(at_start(C(4), Equivariant, "regular")), *ends(C(4))) < 1e-4


@pytest.mark.slow
def test_training_keeps_the_symmetry_of_every_group(group, tolerance, measure):
    for style in ["emlp", "regular"] if group.is_finite else ["emlp"]:
        assert measure.error(trained(at_start(group, Equivariant, style)), *ends(group)) < tolerance


@pytest.mark.slow
@pytest.mark.parametrize(("family", "style"), [(Dense, "plain"), (Relaxed, "emlp"), (Residual, "emlp")])
def test_training_breaks_the_symmetry_of_the_other_families(family, style, measure):
    assert measure.error(trained(at_start(Z(4), family, style)), *ends(Z(4))) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize(("family", "depth", "width"), [(Equivariant, 1, 256), (Equivariant, 3, 96), (Relaxed, 3, 96)])
def test_networks_of_other_shapes_commute_and_see(group, family, depth, width, measure, drawn):
    network = drawn(Network, family, *ends(group), width=width, depth=depth, style="emlp")
    equal = lambda path, leaf: jnp.ones_like(leaf) if "scales" in jax.tree_util.keystr(path) else leaf  # noqa: E731
    network = jax.tree_util.tree_map_with_path(equal, network)
    assert measure.error(network, *ends(group)) < 1e-4
    assert measure.spread(network, network.source) > 0.01


@pytest.mark.slow
def test_network_of_a_continuous_product_commutes_and_sees(tolerance, measure):
    group = product(SO3(), Z(2))
    network = Network(Equivariant, *ends(group), key=KEY, width=128, style="emlp")
    assert measure.error(network, *ends(group)) < tolerance
    assert measure.spread(network, network.source) > 0.01
