"""Equivariant maps between atoms: known dimensions, two ways of solving, and a basis that the space alone decides."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ortho_group

from symbreak.errors import InputError
from symbreak.symmetry import SO2, SO3, C, D, Group, Z, intertwiners, product
from symbreak.symmetry.basis import RANK_TOLERANCE, canonical_basis, group_mean, solve_intertwiners

QUATERNIONS = Group("Q8", [np.kron(np.eye(2), [[0, -1], [1, 0]]), np.kron([[0, -1], [1, 0]], np.diag([1.0, -1.0]))])


def projector(basis):
    flat = basis.reshape(len(basis), basis[0].size if len(basis) else 0)
    return flat.T @ flat


def conjugate(atom, seed):
    """The same representation in other coordinates."""
    rotation = ortho_group.rvs(atom.size, random_state=seed) if atom.size > 1 else np.eye(1)
    matrices = [rotation @ m @ rotation.T for m in atom.matrices]
    return rotation, atom.group.atom(f"{atom.name}'", matrices, [rotation @ m @ rotation.T for m in atom.lie])


# --- the table of known dimensions -------------------------------------------------------------------------------


@pytest.mark.parametrize(("power", "count"), list(enumerate([1, 0, 1, 1, 3, 6, 15])))
def test_invariants_of_tensor_powers_of_space(power, count):
    assert len(intertwiners(SO3().trivial, SO3().vector ** power)) == count


def test_maps_from_vectors_of_space():
    vector = SO3().vector
    (scale,) = intertwiners(vector, vector)
    np.testing.assert_allclose(np.abs(scale), np.eye(3) / np.sqrt(3), atol=1e-12)
    (cross,) = intertwiners(vector**2, vector)  # the cross product is the one bilinear map
    a, b = np.random.default_rng(0).normal(size=(2, 3))
    image = cross @ np.kron(a, b)
    np.testing.assert_allclose(np.abs(image), np.abs(np.cross(a, b)) / np.sqrt(6), atol=1e-12)
    assert len(intertwiners(vector, vector**2)) == 1
    assert len(intertwiners(vector, SO3().trivial)) == 0  # why linear layers alone are blind


def test_regular_to_regular():
    assert len(intertwiners(Z(4).regular, Z(4).regular)) == 4
    assert len(intertwiners(D(4).regular, D(4).regular)) == 8


def test_grid_state_to_regular():
    state = 2 * C(4).rotation(1)
    assert sum(len(intertwiners(atom, C(4).regular)) for atom in state.atoms()) == 4


def test_cells_of_the_grid():
    """A quarter turn of 15×15 cells has 56 orbits of four and the centre."""
    cells = np.arange(225).reshape(15, 15)
    atom = C(4).permutation("cells", [np.rot90(cells).ravel().tolist()])
    basis = intertwiners(C(4).trivial, atom)
    assert len(basis) == 57
    sizes = sorted(np.count_nonzero(np.abs(row) > 1e-9) for row in basis[:, :, 0])
    assert sizes == [1] + 56 * [4]
    assert len(intertwiners(C(4).trivial, C(4).permutation("still", [range(225)]))) == 225  # nothing is averaged


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("second", range(4))
def test_frequencies_of_the_plane(first, second):
    """Turns of different speed have no map; of equal speed one and its quarter turn, and for speed 0 all four."""
    expected = 0 if first != second else (4 if first == 0 else 2)
    assert len(intertwiners(SO2().rotation(first), SO2().rotation(second))) == expected


def test_reflections_remove_the_quarter_turn():
    assert len(intertwiners(C(5).rotation(1), C(5).rotation(1))) == 2
    assert len(intertwiners(D(5).rotation(1), D(5).rotation(1))) == 1
    assert len(intertwiners(C(5).rotation(1), C(5).rotation(4))) == 2  # the same turn seen from below
    assert len(intertwiners(C(5).rotation(1), C(5).rotation(2))) == 0


# --- laws --------------------------------------------------------------------------------------------------------


def some_atoms(group):
    atoms = [group.trivial, group.sign, group.vector, conjugate(group.vector, 0)[1], group.vector**2]
    return atoms + ([group.regular] if group.is_finite else [])


GROUPS = [C(2), C(4), D(3), D(4), QUATERNIONS, product(C(3), Z(2)), SO2(), SO3(), product(SO3(), Z(2))]


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_maps_commute_with_every_element_and_are_orthonormal(group):
    rng = np.random.default_rng(0)
    elements = [group.sample(rng) for _ in range(5)]
    for source in some_atoms(group)[1:5]:
        target = group.vector
        basis = intertwiners(source, target)
        np.testing.assert_allclose(np.einsum("aij,bij->ab", basis, basis), np.eye(len(basis)), atol=1e-12)
        for g in elements:
            difference = target.matrix(g) @ basis - basis @ source.matrix(g)
            np.testing.assert_allclose(difference, 0, atol=1e-12)
    random = rng.normal(size=(group.size, group.size))
    g = group.generators[0]
    assert np.abs(group.vector.matrix(g) @ random - random @ group.vector.matrix(g)).max() > 1e-2


@pytest.mark.parametrize("group", [group for group in GROUPS if group.is_finite], ids=str)
def test_null_space_and_group_mean_agree(group):
    for source in some_atoms(group):
        for target in some_atoms(group):
            if source.size * target.size <= 256:
                solved, averaged = intertwiners(source, target), group_mean(source, target)
                assert len(solved) == len(averaged)
                np.testing.assert_allclose(projector(solved), projector(averaged), atol=1e-10)


def test_a_mean_without_the_inverse_is_another_space():
    """Averaging K·W·L instead of K⁻¹·W·L reverses the turn: the comparison above would notice."""
    source, target = C(4).rotation(1), C(4).regular
    start = np.random.default_rng(0).normal(size=(4, 2))
    wrong = np.mean([target.matrix(g) @ start @ source.matrix(g) for g in C(4).elements()], axis=0)
    right = np.mean([target.matrix(g) @ start @ source.matrix(g).T for g in C(4).elements()], axis=0)
    space = projector(intertwiners(source, target))
    np.testing.assert_allclose(space @ right.ravel(), right.ravel(), atol=1e-12)
    assert np.abs(space @ wrong.ravel() - wrong.ravel()).max() > 0.1


@pytest.mark.parametrize("group", [SO3(), D(4), QUATERNIONS, product(C(3), Z(2))], ids=str)
def test_dimension_does_not_depend_on_coordinates(group):
    source, target = group.vector**2, group.vector
    expected = intertwiners(source, target)
    for seed in range(3):
        left, moved_source = conjugate(source, seed)
        right, moved_target = conjugate(target, seed + 10)
        moved = intertwiners(moved_source, moved_target)
        back = np.einsum("ji,kjl,lm->kim", right, moved, left)
        assert len(moved) == len(expected)
        np.testing.assert_allclose(projector(back), projector(expected), atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_canonical_basis_depends_on_the_space_alone(seed):
    rng = np.random.default_rng(seed)
    rank, size = int(rng.integers(1, 6)), int(rng.integers(6, 20))
    rows = np.linalg.qr(rng.normal(size=(size, rank)))[0].T
    expected = canonical_basis(rows)
    for _ in range(5):
        turned = np.linalg.qr(rng.normal(size=(rank, rank)))[0] @ rows
        np.testing.assert_allclose(canonical_basis(turned), expected, atol=1e-10)
        assert rank == 1 or np.abs(turned - rows).max() > 1e-3  # the input did change
    np.testing.assert_allclose(projector(expected), projector(rows), atol=1e-12)
    np.testing.assert_allclose(expected @ expected.T, np.eye(rank), atol=1e-10)


def test_canonical_basis_of_ties_takes_the_first():
    """All coordinates of a permutation representation weigh alike: rounding must not choose among them."""
    rows = np.array([[1, 0, -1, 0], [0, 1, 0, -1]]) / np.sqrt(2)
    rng = np.random.default_rng(0)
    for _ in range(20):
        turned = np.linalg.qr(rng.normal(size=(2, 2)))[0] @ rows + 1e-12 * rng.normal(size=(2, 4))
        np.testing.assert_allclose(canonical_basis(turned), rows, atol=1e-10)


def test_matrices_with_seven_digits_give_the_same_dimensions():
    """Rounded input must not empty the space; the same rounding defeats a tolerance at machine precision."""
    for group in (D(5), C(7), SO3()):
        exact = group.rotation(2) if group.size == 2 else group.vector
        _, moved = conjugate(exact if group.size != 7 else group.rotation(2), 3)
        typed = group.atom("typed", [np.round(m, 7) for m in moved.matrices], [np.round(m, 7) for m in moved.lie])
        assert len(intertwiners(typed, typed)) == len(intertwiners(moved, moved)) > 0
        assert len(intertwiners(typed, group.vector)) == len(intertwiners(moved, group.vector))
    rounded, exact = np.round(moved.lie, 7), moved.lie
    constraints = [np.kron(a, np.eye(3)) - np.kron(np.eye(3), b.T) for a, b in zip(rounded, exact, strict=True)]
    smallest = np.linalg.svd(np.concatenate(constraints), compute_uv=False)[-1]
    assert 1e-9 < smallest < RANK_TOLERANCE


def test_results_are_cached_and_read_only():
    basis = intertwiners(C(4).regular, C(4).rotation(1))
    assert intertwiners(C(4).regular, C(4).rotation(1)) is basis
    with pytest.raises(ValueError, match="read-only"):
        basis[0, 0, 0] = 1


def test_atoms_of_different_groups_have_no_maps():
    for solve in (intertwiners, group_mean):
        with pytest.raises(InputError, match=r"different groups \(V of C4, R of C2\)"):
            solve(C(4).vector, C(2).trivial)


def test_no_map_is_an_empty_array_of_the_right_shape():
    assert intertwiners(SO3().vector, SO3().trivial).shape == (0, 1, 3)
    assert solve_intertwiners((np.eye(2),), (-np.eye(3),)).shape == (0, 3, 2)
