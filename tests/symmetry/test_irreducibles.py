"""Splitting into irreducible parts: types, multiplicities, equal blocks, and a result that is always the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import ortho_group

from symbreak.errors import InputError
from symbreak.symmetry import SO2, SO3, C, D, Group, Z, basis, intertwiners, product, split_into_irreducibles
from symbreak.symmetry.basis import couplings, irreducible_subspaces
from symbreak.symmetry.elements import evaluate

QUATERNIONS = Group("Q8", [np.kron(np.eye(2), [[0, -1], [1, 0]]), np.kron([[0, -1], [1, 0]], np.diag([1.0, -1.0]))])
OCTAHEDRAL = Group(
    "octahedral", [[[1, 0, 0], [0, 0, -1], [0, 1, 0]], [[0, -1, 0], [1, 0, 0], [0, 0, 1]]]
)  # fmt: skip
DIVISION = {"real": 1, "complex": 2, "quaternionic": 4}

# Sizes and types of all real irreducible representations, and how often the regular one contains each.
REGULAR = {
    "C2": (C(2), [(1, "real", 1), (1, "real", 1)]),
    "C4": (C(4), [(1, "real", 1), (1, "real", 1), (2, "complex", 1)]),
    "C5": (C(5), [(1, "real", 1), (2, "complex", 1), (2, "complex", 1)]),
    "D4": (D(4), 4 * [(1, "real", 1)] + [(2, "real", 2)]),
    "D5": (D(5), 2 * [(1, "real", 1)] + 2 * [(2, "real", 2)]),
    "Q8": (QUATERNIONS, 4 * [(1, "real", 1)] + [(4, "quaternionic", 1)]),
    "octahedral": (OCTAHEDRAL, [(1, "real", 1)] * 2 + [(2, "real", 2)] + 2 * [(3, "real", 3)]),
    "C4×C2": (product(C(4), Z(2)), 4 * [(1, "real", 1)] + 2 * [(2, "complex", 1)]),
    "C3×D3": (
        product(C(3), D(3)),
        2 * [(1, "real", 1)] + [(2, "complex", 1)] * 2 + [(2, "real", 2), (4, "complex", 2)],
    ),
}


def blocks(atom, irreps, splitting, element):
    """What the atom's matrix must be in irreducible coordinates."""
    finite = len(atom.matrices)
    parts = [
        evaluate(irreps[i].images[:finite], irreps[i].images[finite:], element, irreps[i].size)
        for i, _ in splitting.pieces
    ]
    return block_diag(*parts)


def assert_split(atoms, elements):
    irreps, splittings = split_into_irreducibles(atoms)
    for atom in atoms:
        splitting = splittings[atom]
        np.testing.assert_allclose(splitting.transform @ splitting.transform.T, np.eye(atom.size), atol=1e-9)
        starts = [start for _, start in splitting.pieces]
        assert starts == np.cumsum([0] + [irreps[i].size for i, _ in splitting.pieces])[:-1].tolist()
        for g in elements:
            found = splitting.transform @ atom.matrix(g) @ splitting.transform.T
            np.testing.assert_allclose(found, blocks(atom, irreps, splitting, g), atol=1e-9)
    return irreps, splittings


@pytest.mark.parametrize("name", REGULAR)
def test_regular_representation_holds_every_irreducible_one(name):
    group, expected = REGULAR[name]
    irreps, splittings = assert_split((group.regular,), group.generators)
    counts = [0] * len(irreps)
    for index, _ in splittings[group.regular].pieces:
        counts[index] += 1
    found = sorted((irrep.size, irrep.type, count) for irrep, count in zip(irreps, counts, strict=True))
    assert found == sorted(expected)
    assert sum(irrep.size**2 // DIVISION[irrep.type] for irrep in irreps) == group.order
    assert all(c == irrep.size // DIVISION[irrep.type] for c, irrep in zip(counts, irreps, strict=True))
    assert [irrep.is_trivial for irrep in irreps].count(True) == 1


@pytest.mark.parametrize("name", REGULAR)
def test_endomorphisms_are_the_division_algebra(name):
    group, _ = REGULAR[name]
    irreps, _ = split_into_irreducibles((group.regular,))
    for irrep in irreps:
        units = irrep.endomorphisms
        assert len(units) == DIVISION[irrep.type]
        np.testing.assert_allclose(units[0], np.eye(irrep.size), atol=1e-12)
        for unit in units[1:]:  # the imaginary units
            np.testing.assert_allclose(unit @ unit, -np.eye(irrep.size), atol=1e-9)
            np.testing.assert_allclose(unit.T, -unit, atol=1e-9)
        for i, first in enumerate(units[1:]):
            for second in units[1 : i + 1]:
                np.testing.assert_allclose(first @ second, -second @ first, atol=1e-9)
        for image in irrep.images:
            np.testing.assert_allclose(units @ image, image @ units, atol=1e-9)


def test_different_irreps_have_no_maps_between_them():
    for group, _ in REGULAR.values():
        irreps, _ = split_into_irreducibles((group.regular,))
        for i, first in enumerate(irreps):
            for second in irreps[:i]:
                assert len(basis.solve_intertwiners(first.images, second.images)) == 0


def test_tensors_of_space():
    vector = SO3().vector
    atoms = (SO3().trivial, vector, vector**2, vector**3)
    elements = [*SO3().generators, SO3().sample(np.random.default_rng(0))]
    irreps, splittings = assert_split(atoms, elements)
    assert [(irrep.size, irrep.type) for irrep in irreps] == [(1, "real"), (3, "real"), (5, "real"), (7, "real")]
    pieces = {atom: sorted(irreps[i].size for i, _ in splittings[atom].pieces) for atom in atoms}
    assert pieces[vector**2] == [1, 3, 5]
    assert pieces[vector**3] == [1, 3, 3, 3, 5, 5, 7]


def test_the_trivial_part_of_a_tensor_is_known_as_trivial():
    """Also when it is met inside another atom first, where its Lie images are zero only up to rounding."""
    for atom in (SO3().vector ** 2, SO2().vector ** 2, product(SO3(), Z(2)).vector ** 2):
        irreps, splittings = split_into_irreducibles((atom,))
        count = sum(irreps[i].is_trivial for i, _ in splittings[atom].pieces)
        assert count == len(intertwiners(atom.group.trivial, atom)) > 0
        assert all(irrep.size == 1 for irrep in irreps if irrep.is_trivial)


def test_frequencies_of_the_plane():
    atoms = tuple(SO2().rotation(k) for k in range(1, 4))
    irreps, _ = assert_split(atoms, SO2().generators)
    assert [(irrep.size, irrep.type) for irrep in irreps] == 3 * [(2, "complex")]
    tensor = SO2().rotation(1) * SO2().rotation(2)
    irreps, splittings = assert_split((*atoms, tensor), SO2().generators)
    assert sorted(i for i, _ in splittings[tensor].pieces) == [0, 2]  # sum and difference of the frequencies
    still, fast = SO2().rotation(0), SO2().rotation(-3)
    irreps, splittings = assert_split((*atoms, still, fast), SO2().generators)
    assert [irreps[i].is_trivial for i, _ in splittings[still].pieces] == [True, True]
    assert splittings[fast].pieces == ((2, 0),)  # the same turn seen from below


def test_products_split_into_tensor_products():
    group = product(SO3(), Z(2))
    atoms = (group.vector, group.vector**2)
    rng = np.random.default_rng(0)
    irreps, splittings = assert_split(atoms, [*group.generators, group.sample(rng)])
    assert sorted(irreps[i].size for i, _ in splittings[group.vector].pieces) == [1, 1, 3]
    assert {irrep.type for irrep in irreps} == {"real"}


@pytest.mark.parametrize("name", REGULAR)
@pytest.mark.parametrize("seed", range(2))
def test_equivalent_pieces_get_equal_blocks_in_any_coordinates(name, seed):
    group, _ = REGULAR[name]
    rotation = ortho_group.rvs(group.order, random_state=seed)
    moved = group.atom("moved", [rotation @ m @ rotation.T for m in group.regular.matrices])
    irreps, splittings = assert_split((group.regular, moved), group.elements())
    counts = [sorted(i for i, _ in splittings[atom].pieces) for atom in (group.regular, moved)]
    assert counts[0] == counts[1]
    assert len(irreps) == len(split_into_irreducibles((group.regular,))[0])
    # Without the alignment, pieces with reflections or of more than two dimensions would be equivalent but not equal.
    subspaces = irreducible_subspaces(moved)
    unaligned = block_diag(*(s.T @ moved.matrices[0] @ s for s in subspaces))
    aligned = blocks(moved, irreps, splittings[moved], group.generators[0])
    assert name in {"C2", "C4", "C5", "C4×C2"} or np.abs(unaligned - aligned).max() > 1e-3


def test_the_first_atom_sets_the_blocks():
    first, second = C(5).rotation(1), C(5).rotation(4)
    irreps, splittings = split_into_irreducibles((first, second))
    assert len(irreps) == 1
    np.testing.assert_allclose(irreps[0].images[0], first.matrices[0], atol=1e-12)
    turned, _ = split_into_irreducibles((second, first))
    np.testing.assert_allclose(turned[0].images[0], second.matrices[0], atol=1e-12)
    assert splittings[second].pieces == ((0, 0),)


def test_the_result_is_the_same_every_time():
    atoms = (D(4).regular, D(4).vector ** 2)
    irreps, splittings = split_into_irreducibles(atoms)
    split_into_irreducibles.cache_clear()
    irreducible_subspaces.cache_clear()
    np.random.default_rng().normal()
    again, splittings_again = split_into_irreducibles(atoms)
    assert again is not irreps
    for atom in atoms:
        np.testing.assert_array_equal(splittings[atom].transform, splittings_again[atom].transform)


def test_pieces_that_share_an_eigenvalue_by_chance_are_drawn_again(monkeypatch):
    """The first draw is replaced by the identity, whose one eigenspace is everything."""
    draw = basis._commuting_symmetric
    drawn = []

    def unlucky(atom, seed):
        drawn.append(seed)
        return np.eye(atom.size) if seed == 0 else draw(atom, seed)

    monkeypatch.setattr(basis, "_commuting_symmetric", unlucky)
    irreducible_subspaces.cache_clear()
    assert sorted(s.shape[1] for s in irreducible_subspaces(C(4).regular)) == [1, 1, 2]
    assert drawn == [0, 1, 2, 3]
    monkeypatch.setattr(
        basis, "_commuting_symmetric", lambda atom, seed: np.diag(np.arange(4.0))
    )  # commutes with nothing
    irreducible_subspaces.cache_clear()
    with pytest.raises(InputError, match="cannot be split"):
        irreducible_subspaces(C(4).regular)
    irreducible_subspaces.cache_clear()


def test_matrices_with_seven_digits_split_the_same_way():
    rotation = ortho_group.rvs(8, random_state=0)
    typed = D(4).atom("typed", [np.round(rotation @ m @ rotation.T, 7) for m in D(4).regular.matrices])
    irreps, splittings = split_into_irreducibles((typed,))
    assert sorted(irreps[i].size for i, _ in splittings[typed].pieces) == [1, 1, 1, 1, 2, 2]
    assert {irrep.type for irrep in irreps} == {"real"}


def test_many_cells_split():
    cells = np.arange(49).reshape(7, 7)
    atom = C(4).permutation("cells", [np.rot90(cells).ravel().tolist()])
    irreps, splittings = assert_split((C(4).trivial, atom), C(4).generators)
    kinds = [(irreps[i].size, irreps[i].is_trivial) for i, _ in splittings[atom].pieces]
    assert kinds.count((1, True)) == 13
    assert kinds.count((1, False)) == kinds.count((2, False)) == 12


def test_couplings_are_bilinear_maps_that_commute():
    vector = SO3().vector
    irreps, _ = split_into_irreducibles((SO3().trivial, vector, vector**2))
    scalar, three, five = irreps
    counts = [len(couplings(three, three, target, 0)) for target in irreps]
    assert counts == [1, 1, 1]
    assert len(couplings(scalar, three, five, 0)) == 0
    (map_,) = couplings(three, three, five, 0)
    g = SO3().sample(np.random.default_rng(0))
    matrices = [evaluate((), irrep.images, g, irrep.size) for irrep in (three, five)]
    moved = np.einsum("tab,ai,bj->tij", map_, matrices[0], matrices[0])
    np.testing.assert_allclose(np.einsum("ts,sij->tij", matrices[1], map_), moved, atol=1e-12)


def test_atoms_of_different_groups_are_not_split_together():
    with pytest.raises(InputError, match="different groups"):
        split_into_irreducibles((C(4).vector, C(2).vector))
