"""Predictions move as the group moves what they predict; their losses and distances are those of the definition."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.models.model import make_model
from symbreak.models.predictor import CellOutcome, IncrementOutcome
from symbreak.nn.linear import Dense, Equivariant
from symbreak.symmetry import Layout, Symmetry, Z
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.symmetries import grid

ONE = jnp.ones(())
NO = jnp.zeros(())


def places(outcome: CellOutcome) -> np.ndarray:
    """Where every cell of the grid stands in a prediction."""
    world = GridWorld(size=outcome.size)
    cells = np.arange(world.cells)
    return np.asarray(jax.vmap(outcome.place)(jnp.asarray(world.observe(cells, cells))))


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_a_prediction_turns_with_the_cells(size):
    outcome, world = CellOutcome(grid(), size), GridWorld(size=size)
    place = places(outcome)
    assert sorted(place) == list(range(size**2))
    for turns, element in enumerate(grid().group.elements()):
        matrix = outcome.layout.matrix(element)
        turned = world.cell_permutation(turns)
        np.testing.assert_array_equal(matrix[:, place], np.eye(size**2)[:, place[turned]])
        if turns % 2:
            backwards = world.cell_permutation(-turns)
            assert not np.array_equal(matrix[:, place], np.eye(size**2)[:, place[backwards]])


def test_the_large_grid_has_56_orbits_of_four_and_its_centre():
    layout = CellOutcome(grid(), 15).layout
    assert [(atom.size, count) for atom, count in layout.rep.blocks] == [(4, 56), (1, 1)]
    with_reward = CellOutcome(grid(), 15, "categorical", (-0.5, -0.01, 1.0)).layout
    assert with_reward.size == 225 + 3


@pytest.mark.parametrize("reward", ["none", "scalar", "categorical"])
def test_a_categorical_prediction_sums_to_one_and_an_equivariant_one_turns(filled, reward):
    symmetry = grid()
    outcome = CellOutcome(symmetry, 3, reward, (-0.01, 1.0))
    pair = symmetry.observation.beside(symmetry.action)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(8, 4)).astype(np.float32)
    actions = np.eye(4, dtype=np.float32)[rng.integers(4, size=8)]

    def predictions(model, observations, actions):
        return np.asarray(
            jax.jit(jax.vmap(lambda s, a: outcome.decode(model(jnp.concatenate([s, a])))))(observations, actions)
        )

    def model(family):
        key, style = jax.random.key(0), "plain" if family is Dense else "regular"
        return filled(lambda: make_model(family, pair, outcome.layout, key=key, style=style, width=16))

    element = symmetry.group.generators[0]
    turned = symmetry.observation.matrix(element), symmetry.action.matrix(element), outcome.layout.matrix(element)
    errors = {}
    for family in (Equivariant, Dense):
        straight = predictions(model(family), observations, actions)
        np.testing.assert_allclose(straight[:, :9].sum(axis=1), 1, rtol=1e-5)
        if reward == "categorical":
            np.testing.assert_allclose(straight[:, 9:].sum(axis=1), 1, rtol=1e-5)
        images = predictions(model(family), observations @ turned[0].T, actions @ turned[1].T)
        errors[family] = np.linalg.norm(images - straight @ turned[2].T) / np.linalg.norm(straight)
        assert np.ptp(straight, axis=0).max() > 0.01  # it does depend on the pair
    assert errors[Equivariant] < 1e-4
    assert errors[Dense] > 1e-2


def test_cells_are_stored_in_the_order_of_predictions(filled):
    """Bringing 225 logits into another order, as products with a matrix, took half of an update of the predictor."""
    symmetry, outcome = grid(), CellOutcome(grid(), 15)
    pair = symmetry.observation.beside(symmetry.action)
    key = jax.random.key(0)
    model = filled(lambda: make_model(Equivariant, pair, outcome.layout, key=key, style="regular", width=16))

    def squares(read):
        equations = jax.make_jaxpr(read)(jnp.zeros(16)).eqns
        return [eqn for eqn in equations if eqn.primitive.name == "dot_general" and eqn.invars[1].aval.size == 225**2]

    assert not squares(model.read)
    assert squares(model.network.read)  # in the order of copies, which nobody asks for
    features = jnp.arange(16.0)
    np.testing.assert_array_equal(model.read(features)[np.asarray(model.target)], model.network.read(features))


def test_cell_loss_and_distance_are_cross_entropy_and_total_variation():
    outcome = CellOutcome(grid(), 2)
    world = GridWorld(size=2)
    logits = jnp.log(jnp.array([0.1, 0.2, 0.3, 0.4]))
    for cell in range(4):
        seen = jnp.asarray(world.observe(cell, 0))
        expected = -np.log([0.1, 0.2, 0.3, 0.4][places(outcome)[cell]])
        assert float(outcome.loss(logits, seen, seen, NO, NO, ONE)) == pytest.approx(expected, rel=1e-5)
    first, second = jnp.array([1.0, 0, 0, 0]), jnp.array([0.25, 0.75, 0, 0])
    assert float(outcome.distance(first, second, ONE)) == pytest.approx(0.75)
    assert float(jnp.sum(jnp.abs(first - second))) == pytest.approx(1.5)  # not the plain sum


def test_reward_heads_add_an_absolute_error_or_take_the_larger_variation():
    scalar = CellOutcome(grid(), 2, "scalar")
    first = jnp.array([1.0, 0, 0, 0, -0.01])
    second = jnp.array([0.75, 0.25, 0, 0, -0.5])
    assert float(scalar.distance(first, second, ONE)) == pytest.approx(0.25 + 0.49)
    seen = jnp.asarray(GridWorld(size=2).observe(0, 1))
    output = jnp.array([0.0, 0, 0, 0, 0.2])
    assert float(scalar.loss(output, seen, seen, jnp.array(-0.3), NO, ONE)) == pytest.approx(np.log(4) + 0.25, rel=1e-5)

    categorical = CellOutcome(grid(), 2, "categorical", (-0.5, -0.01, 1.0))
    assert float(
        categorical.distance(jnp.array([1.0, 0, 0, 0, 1, 0, 0]), jnp.array([0.75, 0.25, 0, 0, 0.25, 0.75, 0]), ONE)
    ) == pytest.approx(0.75)
    output = jnp.concatenate([jnp.zeros(4), jnp.log(jnp.array([0.2, 0.3, 0.5]))])
    for reward, chance in ((-0.5, 0.2), (-0.01, 0.3), (1.0, 0.5)):
        loss = categorical.loss(output, seen, seen, jnp.array(reward), NO, ONE)
        assert float(loss) == pytest.approx(np.log(4) - np.log(chance), rel=1e-5)
    with pytest.raises(InputError, match="reward values"):
        CellOutcome(grid(), 2, "categorical")


def test_increments_are_squared_errors_in_units_of_the_scale():
    mirror = Z(2)
    symmetry = Symmetry(Layout({"x": mirror.sign, "y": mirror.trivial}), mirror.sign)
    before, after = jnp.array([0.5, 1.0]), jnp.array([0.7, 0.0])
    plain = IncrementOutcome(symmetry)
    scale = jnp.array([0.1, 2.0])
    loss = plain.loss(jnp.array([1.0, 0.0]), before, after, ONE, NO, scale)
    assert float(loss) == pytest.approx((1 - 2) ** 2 + 0.5**2, rel=1e-5)
    assert float(plain.distance(jnp.array([1.0, 0.0]), jnp.array([0.0, 2.0]), scale)) == pytest.approx(5)
    np.testing.assert_allclose(plain.target(before, after, ONE), [0.2, -1.0], rtol=1e-5)

    full = IncrementOutcome(symmetry, reward_head=True, termination_head=True)
    assert full.layout.size == 4
    output = jnp.array([2.0, -0.5, 0.3, 1.5])  # exact increments, reward 0.3 for 0.5, termination at logit 1.5
    scale = jnp.array([0.1, 2.0, 1.0])
    for terminated, log_chance in ((1.0, np.log1p(np.exp(-1.5))), (0.0, np.log1p(np.exp(1.5)))):
        loss = full.loss(output, before, after, jnp.array(0.5), jnp.array(terminated), scale)
        assert float(loss) == pytest.approx(0.04 + log_chance, rel=1e-4)
    np.testing.assert_allclose(full.decode(output)[-1], 1 / (1 + np.exp(-1.5)), rtol=1e-5)
    np.testing.assert_array_equal(full.decode(output)[:-1], output[:-1])
    np.testing.assert_array_equal(full.layout.matrix(mirror.generators[0]), np.diag([-1.0, 1, 1, 1]))


def test_an_outcome_names_what_it_does_not_predict():
    symmetry = Symmetry(Layout({"x": Z(2).sign}), Z(2).sign)
    assert CellOutcome(grid(), 3).unchecked == ("reward",)
    assert CellOutcome(grid(), 3, "scalar").unchecked == ()
    assert IncrementOutcome(symmetry).unchecked == ("reward", "termination")
    assert IncrementOutcome(symmetry, reward_head=True).unchecked == ("termination",)
    assert IncrementOutcome(symmetry, reward_head=True, termination_head=True).unchecked == ()
