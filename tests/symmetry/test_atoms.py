"""Atoms and sums of atoms: how they act, add up, multiply and compare."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import ortho_group

from symbreak.symmetry import SO2, SO3, C, D, Group, Rep, Z

QUARTER = np.array([[0.0, -1.0], [1.0, 0.0]])
PLANE = Group("O(2)", [np.diag([1.0, -1.0])], lie=[QUARTER])


def test_permutation_says_where_each_entry_comes_from():
    atom = C(3).permutation("legs", [[2, 0, 1]], signs=[[1, 1, 1]])
    np.testing.assert_array_equal(atom.matrix(C(3).generators[0]) @ [10, 20, 30], [30, 10, 20])
    assert atom == C(3).vector
    # The sign belongs to the place where an entry arrives.
    signed = C(4).permutation("ankles", [[3, 0, 1, 2]], signs=[[1, -1, 1, -1]])
    np.testing.assert_array_equal(signed.matrix(C(4).generators[0]) @ [10, 20, 30, 40], [40, -10, 20, -30])


def test_what_an_atom_is():
    assert C(4).regular.is_permutation
    assert C(4).trivial.is_trivial
    signed = C(2).permutation("arms", [[1, 0]], signs=[[-1, -1]])
    assert signed.is_signed_permutation
    assert not signed.is_permutation
    assert C(4).rotation(1).is_signed_permutation  # a quarter turn moves axes to axes
    assert not C(3).rotation(1).is_signed_permutation
    assert not SO3().vector.is_signed_permutation
    assert SO3().trivial.is_permutation
    assert not C(4).regular.is_trivial
    almost = C(2).atom("typed", [[[1e-8, 1], [1, -1e-8]]])
    assert almost.is_permutation


def test_magnitudes():
    signed = C(2).permutation("arms", [[1, 0]], signs=[[-1, -1]])
    assert signed.magnitude == C(2).vector
    assert C(2).sign.magnitude == C(2).trivial
    assert SO3().vector.magnitude == SO3().trivial
    rep = C(3).rotation(1) + 2 * C(3).vector
    np.testing.assert_array_equal(rep.magnitude_index, [0, 0, 1, 2, 3, 4, 5, 6])
    assert rep.magnitude == C(3).trivial + 2 * C(3).vector
    # |ρx| = ρ_magnitude |x| where entries move to entries, and it is what the index says everywhere.
    x = np.random.default_rng(0).normal(size=2)
    g = C(2).generators[0]
    np.testing.assert_allclose(np.abs(signed.matrix(g) @ x), signed.magnitude.matrix(g) @ np.abs(x))


def test_tensor_products_act_on_pairs():
    rng = np.random.default_rng(0)
    for group in (SO3(), D(4)):
        g = group.sample(rng)
        a, b = rng.normal(size=(2, group.size))
        first, second = group.vector, group.pseudovector
        expected = np.kron(first.matrix(g) @ a, second.matrix(g) @ b)
        np.testing.assert_allclose((first * second).matrix(g) @ np.kron(a, b), expected, atol=1e-12)
        np.testing.assert_allclose((first**2).matrix(g), np.kron(first.matrix(g), first.matrix(g)), atol=1e-12)
    assert SO3().vector ** 0 == SO3().trivial
    assert SO3().vector ** 1 == SO3().vector
    assert str(SO3().vector ** 3) == "V⊗V⊗V"


def test_frequencies():
    rng = np.random.default_rng(0)
    for group in (SO2(), C(7), D(7), PLANE):
        g = group.sample(rng)
        turn, fast = group.rotation(1).matrix(g), group.rotation(3).matrix(g)
        if np.linalg.det(turn) > 0:
            np.testing.assert_allclose(fast, np.linalg.matrix_power(turn, 3), atol=1e-9)
        assert np.linalg.det(fast) == pytest.approx(np.linalg.det(turn))
    np.testing.assert_array_equal(C(4).rotation(1).matrices[0], QUARTER)  # whole numbers stay whole
    np.testing.assert_array_equal(C(8).rotation(6).matrices[0], -np.asarray(QUARTER))
    np.testing.assert_array_equal(D(4).rotation(1).matrices[0], QUARTER)
    np.testing.assert_array_equal(C(2).rotation(1).matrices[0], -np.eye(2))
    assert not np.any(np.signbit(C(4).rotation(2).matrices[0]) & (C(4).rotation(2).matrices[0] == 0))


def test_atoms_are_values():
    assert C(4).vector == C(4).regular  # equal matrices, whatever the name
    assert hash(C(4).vector) == hash(C(4).regular)
    assert C(4).rotation(1) != C(4).rotation(3)
    assert C(4).trivial != C(2).trivial
    assert len({C(4).vector, C(4).regular, C(4).trivial, C(4).sign}) == 3


# --- sums --------------------------------------------------------------------------------------------------------


def test_sums_stand_side_by_side():
    group = Z(2)
    rep = 2 * group.sign + group.vector + group.trivial
    g = group.generators[0]
    np.testing.assert_array_equal(rep.matrix(g), block_diag(-1, -1, group.vector.matrices[0], 1))
    assert rep.size == 5
    assert str(rep) == "2P + V + R"
    assert [atom.name for atom in rep.atoms()] == ["P", "P", "V", "R"]
    assert rep.distinct == (group.sign, group.vector, group.trivial)


def test_sums_are_values():
    sign, vector = Z(2).sign, Z(2).vector
    assert sign + sign + vector == 2 * sign + vector
    assert hash(sign + sign + vector) == hash(2 * sign + vector)
    assert sign + vector != vector + sign  # the order is that of the coordinates
    assert 2 * (sign + vector) == sign + vector + sign + vector
    assert sign * 3 == 3 * sign
    assert np.int64(3) * sign == 3 * sign
    assert Rep([(sign, 0), (vector, 1)]) == Rep([(vector, 1)])


def test_component_order():
    rep = 2 * Z(2).vector + 3 * Z(2).sign
    np.testing.assert_array_equal(rep.component_order, [0, 2, 1, 3, 4, 5, 6])
    assert rep.is_permutation is False
    assert (2 * Z(2).vector + Z(2).trivial).is_permutation
    # In component order the matrix is that of the atom on the rows of a (component, copy) array.
    g = Z(2).generators[0]
    x = np.arange(1.0, 8.0)
    moved = (rep.matrix(g) @ x)[rep.component_order][:4].reshape(2, 2)
    np.testing.assert_array_equal(moved, Z(2).vector.matrix(g) @ x[rep.component_order][:4].reshape(2, 2))


def test_rotation_matrices_and_six_numbers_are_vectors():
    """A 3×3 rotation matrix by columns is 3V and its first two columns 2V."""
    rng = np.random.default_rng(0)
    g = SO3().sample(rng)
    body = ortho_group.rvs(3, random_state=0)
    turned = SO3().vector.matrix(g) @ body
    np.testing.assert_allclose((3 * SO3().vector).matrix(g) @ body.T.ravel(), turned.T.ravel(), atol=1e-12)
    np.testing.assert_allclose((2 * SO3().vector).matrix(g) @ body.T.ravel()[:6], turned.T.ravel()[:6], atol=1e-12)
    assert np.abs((3 * SO3().vector).matrix(g) @ body.ravel() - turned.ravel()).max() > 0.1  # by rows it is not
