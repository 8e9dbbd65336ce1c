"""Groups: enumeration, multiplication, uniform sampling, products, and groups given as matrices."""

from __future__ import annotations

import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.symmetry import SO2, SO3, C, D, Element, Group, Z, product
from symbreak.symmetry.elements import evaluate, period

QUARTER = np.array([[0.0, -1.0], [1.0, 0.0]])


def turn(angle):
    return np.cos(angle) * np.eye(2) + np.sin(angle) * QUARTER


def quaternion_group():
    i = np.kron(np.eye(2), QUARTER)
    j = np.kron(QUARTER, np.diag([1.0, -1.0]))
    return Group("Q8", [i, j])


def octahedral_group():
    """Rotations of the cube, by quarter turns about x and z."""
    about_x = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
    about_z = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    return Group("octahedral", [about_x, about_z])


FINITE = {
    "C2": (C(2), 2),
    "C5": (C(5), 5),
    "D4": (D(4), 8),
    "D5": (D(5), 10),
    "Q8": (quaternion_group(), 8),
    "octahedral": (octahedral_group(), 24),
    "C4×C2": (product(C(4), Z(2)), 8),
    "D3×C2": (product(D(3), C(2)), 12),
}


@pytest.mark.parametrize("name", FINITE)
def test_all_elements_once_identity_first(name):
    group, order = FINITE[name]
    matrices = [group.vector.matrix(g) for g in group.elements()]
    assert group.is_finite
    assert group.order == len(matrices) == order
    np.testing.assert_array_equal(matrices[0], np.eye(group.size))
    distances = [np.abs(a - b).max() for i, a in enumerate(matrices) for b in matrices[:i]]
    assert min(distances) > 0.1


@pytest.mark.parametrize("name", FINITE)
def test_table_is_multiplication_in_every_representation(name):
    group, order = FINITE[name]
    table = group.table()
    for atom in (group.vector, group.regular, group.sign):
        images = np.array([atom.matrix(g) for g in group.elements()])
        np.testing.assert_allclose(np.einsum("aij,bjk->abik", images, images), images[table], atol=1e-12)
    # A table that multiplied the other way round would be noticed where the order matters.
    commutes = np.array_equal(table, table.T)
    assert commutes == name.startswith("C")
    assert all(sorted(row) == list(range(order)) for row in table.tolist())


def test_cyclic_shift_moves_each_coordinate_up():
    shift = C(4).vector.matrix(C(4).generators[0])
    np.testing.assert_array_equal(shift @ np.array([10, 20, 30, 40]), [40, 10, 20, 30])
    assert Z(4) == C(4)
    assert Z(4) is C(4)
    assert C(4).regular == C(4).vector  # the elements are the powers of the generator, in order


def test_elements_compose_like_matrices():
    rng = np.random.default_rng(0)
    for group in (D(5), SO3(), product(SO3(), Z(2)), quaternion_group()):
        first, second = group.sample(rng), group.sample(rng)
        atom = group.vector
        np.testing.assert_allclose(atom.matrix(first @ second), atom.matrix(first) @ atom.matrix(second), atol=1e-12)
        np.testing.assert_array_equal(atom.matrix(Element()), np.eye(atom.size))
    group = D(5)
    first, second = group.generators
    assert np.abs(group.vector.matrix(first @ second) - group.vector.matrix(second @ first)).max() > 0.5


def test_generators_of_continuous_groups_are_turns_by_one_radian():
    (about,) = SO2().generators
    np.testing.assert_allclose(SO2().vector.matrix(about), turn(1.0), atol=1e-12)
    about_z = SO3().generators[2]
    np.testing.assert_allclose(SO3().vector.matrix(about_z)[:2, :2], turn(1.0), atol=1e-12)
    both = product(SO3(), Z(2))
    assert len(both.generators) == 4
    np.testing.assert_allclose(both.sign.matrix(both.generators[0]), [[-1]])


# --- sampling ----------------------------------------------------------------------------------------------------


def moments(group, atom, count=2000):
    rng = np.random.default_rng(1)
    matrices = np.array([atom.matrix(group.sample(rng)) for _ in range(count)])
    np.testing.assert_allclose(np.einsum("nij,nkj->nik", matrices, matrices) - np.eye(atom.size), 0, atol=1e-9)
    return matrices.mean(axis=0), (matrices**2).mean(axis=0), matrices


@pytest.mark.parametrize("group", [SO3(), SO2(), C(5), D(4), octahedral_group()], ids=str)
def test_samples_are_uniform(group):
    """Means of matrix entries under the uniform distribution are those of the invariants, by the dimension formula."""
    atom = group.rotation(1) if group.is_finite and group.size == 5 else group.vector
    mean, square, _ = moments(group, atom)
    np.testing.assert_allclose(mean, 0, atol=0.05)
    np.testing.assert_allclose(square, 1 / atom.size, atol=0.05)


def test_turn_by_uniform_angles_about_three_axes_is_not_uniform():
    """The check above would notice the usual mistake, and a group that does not say how its circles belong together."""
    mistaken = Group("Euler angles", lie=SO3().lie)
    mean, square, _ = moments(mistaken, mistaken.vector)
    assert np.abs(square - 1 / 3).max() > 0.1
    assert np.abs(mean).max() < 0.1


def test_angle_of_a_random_rotation_has_the_right_density():
    _, _, matrices = moments(SO3(), SO3().vector)
    angles = np.arccos(np.clip((np.trace(matrices, axis1=1, axis2=2) - 1) / 2, -1, 1))
    # The density is (1 − cos θ)/π, so P(θ < t) = (t − sin t)/π.
    for t in (0.5, 1.0, 2.0, 3.0):
        assert abs((angles < t).mean() - (t - np.sin(t)) / np.pi) < 0.03


def test_a_product_draws_both_factors():
    rng = np.random.default_rng(2)
    group = product(SO2(), Z(2))
    sign, vector = group.lift(1, Z(2).sign), group.lift(0, SO2().vector)
    drawn = [group.sample(rng) for _ in range(400)]
    signs = np.array([sign.matrix(g)[0, 0] for g in drawn])
    turns = np.array([vector.matrix(g)[0, 0] for g in drawn])
    assert abs(signs.mean()) < 0.15
    assert abs(turns.mean()) < 0.15
    assert abs(np.corrcoef(signs, turns)[0, 1]) < 0.15


def test_sampling_depends_on_the_generator_alone():
    first, second = (SO3().sample(np.random.default_rng(3)) for _ in range(2))
    assert first == second
    assert first != SO3().sample(np.random.default_rng(4))


# --- a user's own groups -----------------------------------------------------------------------------------------


def test_a_slow_circle_is_drawn_all_around():
    """A Lie generator of half the usual speed has twice the period."""
    group = Group("slow", lie=[QUARTER / 2])
    assert group.periods == (pytest.approx(4 * np.pi),)
    mean, square, _ = moments(group, group.vector)
    np.testing.assert_allclose(mean, 0, atol=0.05)
    np.testing.assert_allclose(square, 0.5, atol=0.05)


@pytest.mark.parametrize(
    ("frequencies", "expected"),
    [((1,), 1), ((2,), 0.5), ((2, 3), 1), ((4, 6), 0.5), ((0.5, 1), 2), ((1, np.sqrt(2)), None)],
)
def test_period(frequencies, expected):
    generator = np.zeros((2 * len(frequencies), 2 * len(frequencies)))
    for i, frequency in enumerate(frequencies):
        generator[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = frequency * QUARTER
    found = period(generator)
    assert found == (None if expected is None else pytest.approx(2 * np.pi * expected))


def test_groups_with_finite_and_continuous_generators():
    plane = Group("O(2)", [np.diag([1.0, -1.0])], lie=[QUARTER])
    assert not plane.is_finite
    assert plane.rotation(3).size == 2  # reflections and turns three times as fast
    space = Group("O(3)", [-np.eye(3)], lie=SO3().lie, circles=[(0, 1, 2)])
    mean, _, _ = moments(space, space.vector)
    np.testing.assert_allclose(mean, 0, atol=0.05)
    mirror, about_x, *_ = space.generators
    np.testing.assert_array_equal(space.vector.matrix(mirror), -np.eye(3))
    np.testing.assert_array_equal(space.pseudovector.matrix(mirror), np.eye(3))  # angular velocities survive inversion
    np.testing.assert_allclose(space.pseudovector.matrix(about_x), space.vector.matrix(about_x))


def test_seven_typed_digits_are_enough():
    eighth = np.array([[0.7071068, -0.7071068], [0.7071068, 0.7071068]])
    assert Group("typed", [eighth]).order == 8
    fifth = np.round(turn(2 * np.pi / 5), 7)
    group = Group("typed", [fifth, np.diag([1.0, -1.0])])
    assert group.order == 10
    assert group.regular.size == 10


def test_large_groups_stay_affordable():
    assert D(256).order == 512
    assert Group("turns", [turn(2 * np.pi / 1024)]).order == 1024
    permuted = Group("S5", [np.eye(5)[[1, 0, 2, 3, 4]], np.eye(5)[[1, 2, 3, 4, 0]]])
    assert permuted.order == 120


def test_infinite_finite_generators_are_refused():
    with pytest.raises(InputError, match=r"group 'endless': the generators give more than 1024 elements"):
        Group("endless", [turn(1.0)])


def test_enumeration_of_a_continuous_group_is_refused():
    for ask in (lambda: SO3().elements(), lambda: SO3().order, lambda: SO3().table(), lambda: SO3().regular):
        with pytest.raises(InputError, match=r"'SO\(3\)' is continuous"):
            ask()


# --- products ----------------------------------------------------------------------------------------------------


def test_factors_of_a_product_act_alone_and_commute():
    group = product(D(3), C(4))
    first, second = group.lift(0, D(3).vector), group.lift(1, C(4).vector)
    r, s, shift = group.generators
    np.testing.assert_array_equal(second.matrix(r), np.eye(4))
    np.testing.assert_array_equal(first.matrix(shift), np.eye(2))
    np.testing.assert_allclose(first.matrix(r @ s), D(3).vector.matrix(D(3).generators[0] @ D(3).generators[1]))
    for atom in (first, second, first * second, group.regular):
        np.testing.assert_allclose(atom.matrix(r @ shift), atom.matrix(shift @ r), atol=1e-12)
    with pytest.raises(InputError, match="not factor 1"):
        group.lift(1, D(3).vector)
    with pytest.raises(InputError, match="not factor 0"):
        C(4).lift(0, C(4).vector)


def test_images_that_do_not_commute_are_no_representation_of_a_product():
    group = product(C(4), Z(2))
    mirror = np.diag([1.0, -1.0])
    with pytest.raises(InputError, match=r"relation g0·g1·g0\^-1·g1\^-1 = 1 has residual 2"):
        group.atom("clash", [QUARTER, mirror])
    assert group.atom("fine", [QUARTER, -np.eye(2)]).size == 2


def test_products_nest():
    group = product(product(C(2), C(3)), SO2())
    assert len(group.discrete) == 6
    assert group.lift(0, product(C(2), C(3)).lift(1, C(3).vector)).size == 3


# --- values ------------------------------------------------------------------------------------------------------


def test_groups_are_values():
    assert Group("one", [QUARTER]) == Group("other", [QUARTER])
    assert hash(Group("one", [QUARTER])) == hash(Group("other", [QUARTER]))
    assert C(4) != C(5)
    assert Group("turn", [QUARTER]) != Group("spin", lie=[QUARTER])
    assert len({C(4), Z(4), D(4), product(C(2), C(2))}) == 3
    assert str(product(SO3(), Z(2))) == "SO(3)×C2"


def test_matrices_cannot_be_changed_afterwards():
    matrix = np.eye(2)[::-1].copy()
    group = Group("swap", [matrix])
    matrix[:] = 0
    np.testing.assert_array_equal(group.matrices[0], np.eye(2)[::-1])
    with pytest.raises(ValueError, match="read-only"):
        group.matrices[0][0, 0] = 1


def test_sign_and_trivial_of_the_usual_groups():
    assert C(2).sign.matrices[0] == -1
    assert C(4).sign.matrices[0] == -1
    assert C(3).sign == C(3).trivial  # three cannot alternate
    assert [m[0, 0] for m in D(4).sign.matrices] == [1, -1]
    assert SO3().sign == SO3().trivial
    assert evaluate(D(4).sign.matrices, (), D(4).generators[1], 1) == -1
