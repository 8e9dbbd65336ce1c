"""Atoms and sums: valid representations are accepted in any coordinates, everything else is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag
from scipy.stats import ortho_group

from symbreak.errors import InputError
from symbreak.symmetry import SO2, SO3, Atom, C, D, Group, Rep, Z, product, relations

QUARTER = np.array([[0.0, -1.0], [1.0, 0.0]])
QUATERNIONS = Group("Q8", [np.kron(np.eye(2), QUARTER), np.kron(QUARTER, np.diag([1.0, -1.0]))])
PLANE = Group("O(2)", [np.diag([1.0, -1.0])], lie=[QUARTER])

GROUPS = [
    *(C(n) for n in range(2, 8)),
    *(D(n) for n in range(3, 7)),
    QUATERNIONS,
    PLANE,
    SO2(),
    SO3(),
    product(C(4), Z(2)),
    product(SO3(), Z(2)),
    product(SO2(), D(3)),
]
SEEDS = st.integers(0, 2**32 - 1)


def pool_of(group: Group) -> list[Atom]:
    """Small atoms of a group, the last ones faithful enough that a change of any generator is felt."""
    atoms = [group.trivial, group.sign]
    if group.is_finite and group.order <= 12:
        atoms.append(group.regular)
    if group.size == 2 or (group.is_finite and len(group.matrices) == 1):
        atoms += [group.rotation(2), group.rotation(1)]
    if group == SO3():
        atoms.append(group.vector**2)
    return [*atoms, group.pseudovector, group.vector]


POOLS = {group: pool_of(group) for group in GROUPS}


def random_images(rng, group, *, faithful=False):
    """Generator images of a random sum of atoms in random orthogonal coordinates."""
    pool = POOLS[group]
    chosen = [pool[i] for i in rng.integers(len(pool), size=rng.integers(1, 4))]
    if faithful or not chosen:
        chosen.append(group.vector)
    size = sum(atom.size for atom in chosen)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrices = [turn @ block_diag(*parts) @ turn.T for parts in zip(*(atom.matrices for atom in chosen), strict=True)]
    lie = [turn @ block_diag(*parts) @ turn.T for parts in zip(*(atom.lie for atom in chosen), strict=True)]
    return matrices, lie


@given(st.sampled_from(GROUPS), SEEDS)
@settings(max_examples=500)
def test_valid_representations_are_accepted(group, seed):
    matrices, lie = random_images(np.random.default_rng(seed), group)
    atom = group.atom("valid", matrices, lie)
    assert atom.size == len((*matrices, *lie)[0])


# --- five hundred that are none ----------------------------------------------------------------------------------
# Each takes a generator and returns a group with images that are no representation of it.


def scaled(rng):
    group = GROUPS[rng.integers(len(GROUPS))]
    matrices, lie = random_images(rng, group, faithful=True)
    factor = 1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-4, -1)
    return group, [factor * m for m in matrices], [factor * m for m in lie]


def noisy(rng):
    group = GROUPS[rng.integers(len(GROUPS))]
    matrices, lie = random_images(rng, group, faithful=True)
    images = [*matrices, *lie]
    which = rng.integers(len(images))
    noise = rng.uniform(-1, 1, size=images[which].shape)
    images[which] = images[which] + 10 ** rng.uniform(-4, 0) * noise / np.abs(noise).max()
    return group, images[: len(matrices)], images[len(matrices) :]


def plane_turn(angle):
    return np.cos(angle) * np.eye(2) + np.sin(angle) * QUARTER


def in_coordinates(rng, images):
    turn = np.linalg.qr(rng.normal(size=(len(images[0]), len(images[0]))))[0]
    return [turn @ image @ turn.T for image in images]


def wrong_order(rng):
    """An orthogonal matrix whose power is not the identity, like a third of a turn for C4."""
    n = int(rng.integers(2, 9))
    m = int(rng.choice([m for m in range(2, 12) if n % m]))
    k = int(rng.choice([k for k in range(1, m) if np.gcd(k, m) == 1]))
    return C(n), in_coordinates(rng, [block_diag(plane_turn(2 * np.pi * k / m), C(n).vector.matrices[0])]), []


def wrong_power(rng):
    """One generator raised to a power that the other does not follow."""
    n = int(rng.integers(3, 8))
    r, s = D(n).vector.matrices
    power = int(rng.choice([p for p in range(2, 2 * n) if (p * 2) % n]))
    return (
        D(n),
        in_coordinates(rng, [r, s @ np.linalg.matrix_power(r, power) @ plane_turn(np.pi / (2 * n + 1)) @ s]),
        [],
    )


def exchanged(rng):
    """The right matrices in the wrong order."""
    group = D(int(rng.integers(3, 8)))
    first, second = in_coordinates(rng, group.vector.matrices)
    return group, [second, first], []


def transposed(rng):
    """Lie generators of the inverse: minus signs turn the brackets around."""
    group = SO3() if rng.integers(2) else product(SO3(), Z(2))
    matrices, lie = random_images(rng, group, faithful=True)
    return group, matrices, [m.T for m in lie]


def wrong_frequency(rng):
    group = [SO2(), PLANE][rng.integers(2)]
    frequency = rng.integers(0, 4) + rng.choice([0.5, 0.25, 1 / 3, 0.01])
    mirror = [np.diag([1.0, -1.0])] if group.matrices else []
    images = in_coordinates(rng, [*mirror, frequency * QUARTER])
    return group, images[: len(mirror)], images[len(mirror) :]


def spin(rng):
    """Half the left multiplications by unit quaternions: the right brackets, but a full turn is minus one."""
    i, j = QUATERNIONS.matrices
    halves = [i / 2, j / 2, i @ j / 2]
    return SO3(), [], in_coordinates(rng, [block_diag(h, m) for h, m in zip(halves, SO3().lie, strict=True)])


def not_commuting(rng):
    group = product(C(4), Z(2))
    return group, in_coordinates(rng, [QUARTER, plane_turn(rng.uniform(0, np.pi)) @ np.diag([1.0, -1.0])]), []


def unfollowed(rng):
    """A reflection that does not reverse the turn."""
    return PLANE, [np.eye(2)], in_coordinates(rng, [int(rng.integers(1, 4)) * QUARTER])


WRONG = [
    scaled, noisy, wrong_order, wrong_power, exchanged, transposed, wrong_frequency, spin, not_commuting, unfollowed,
]  # fmt: skip


@given(st.sampled_from(WRONG), SEEDS)
@settings(max_examples=500)
def test_others_are_refused(perturbation, seed):
    group, matrices, lie = perturbation(np.random.default_rng(seed))
    with pytest.raises(InputError, match=r"residual \d") as refused:
        group.atom("wrong", matrices, lie)
    message = str(refused.value)
    assert "atom 'wrong'" in message
    assert group.name in message
    assert "\n" not in message


@pytest.mark.parametrize("perturbation", WRONG, ids=lambda f: f.__name__)
def test_it_is_the_check_that_refuses(perturbation, monkeypatch):
    group, matrices, lie = perturbation(np.random.default_rng(0))
    monkeypatch.setattr(relations, "TOLERANCE", np.inf)
    assert group.atom("wrong", matrices, lie).size == len((*matrices, *lie)[0])


# --- every refusal by its words ----------------------------------------------------------------------------------

REFUSALS = {
    "not orthogonal": (
        lambda: C(2).atom("lever", [np.array([[0, 2.0], [0.5, 0]])]),
        r"atom 'lever': generator 0 of C2 is not orthogonal \(residual 3\); rescale",
    ),
    "not skew": (
        lambda: SO2().atom("drift", lie=[np.eye(2)]),
        r"atom 'drift', Lie.*|atom 'drift': Lie generator 0 of SO\(2\) is not skew-symmetric \(residual 2\)",
    ),
    "relation": (
        lambda: C(3).atom("turn", [QUARTER]),
        r"atom 'turn' is no representation of C3: relation g0\^3 = 1 has residual 1",
    ),
    "two generators": (
        lambda: D(4).atom("swap", [np.diag([1.0, -1.0]), QUARTER]),
        r"relation g1\^2 = 1 has residual 2",
    ),
    "their order": (
        lambda: D(4).atom("same", [QUARTER, np.eye(2)]),
        r"relation g0·g1·g0·g1 = 1 has residual 2",
    ),
    "a user's own relation": (
        lambda: QUATERNIONS.atom("plane", [QUARTER, np.diag([1.0, -1.0])]),
        r"is no representation of Q8: relation .*g1.* = 1 has residual 2",
    ),
    "bracket": (lambda: SO3().atom("x", lie=[-m for m in SO3().lie]), r"relation \[A0,A1\] has residual 2"),
    "conjugation": (lambda: PLANE.atom("x", [np.eye(2)], [QUARTER]), r"relation g0·A0·g0\^-1 has residual 2"),
    "period": (lambda: SO2().atom("x", lie=[1.5 * QUARTER]), r"relation exp\(2π·A0\) = 1 has residual 2"),
    "frequency": (lambda: SO2().rotation(1.5), r"rotation\(1.5\).*exp\(2π·A0\)"),
    "shapes": (
        lambda: D(3).atom("x", [np.eye(2), np.eye(3)]),
        r"atom 'x': give matrices of one size.*\(2, 2\), \(3, 3\)",
    ),
    "not square": (lambda: C(2).atom("x", [np.ones((2, 3))]), r"atom 'x': matrix 0 must be a square one.*\(2, 3\)"),
    "a vector": (lambda: C(2).atom("x", [np.ones(3)]), r"matrix 0 must be a square one"),
    "a stack": (lambda: C(2).atom("x", [np.ones((2, 2, 2))]), r"matrix 0 must be a square one"),
    "ragged": (lambda: C(2).atom("x", [[[1, 0], [0]]]), r"matrix 0 has rows of different lengths"),
    "complex": (lambda: C(4).atom("x", [[[1j]]]), r"of real numbers, got shape \(1, 1\) of complex128"),
    "empty": (lambda: C(4).atom("x", [np.zeros((0, 0))]), r"matrix 0 must be a square one"),
    "not finite": (lambda: C(4).atom("x", [[[np.nan]]]), r"not orthogonal \(residual nan\)"),
    "count": (lambda: D(4).atom("x", [np.eye(2)]), r"got 1 generator and 0 Lie images, but D4 has 2 and 0"),
    "no Lie images": (
        lambda: PLANE.atom("x", [np.eye(2)]),
        r"got 1 generator and 0 Lie images, but O\(2\) has 1 and 1",
    ),
    "nothing": (lambda: C(4).atom("x"), r"atom 'x': give matrices of one size, one per generator"),
    "no permutation": (lambda: C(2).permutation("legs", [[0, 0]]), r"atom 'legs': \[0, 0\] is no permutation of 0..1"),
    "flat permutation": (lambda: C(2).permutation("legs", [1, 0]), r"atom 'legs': got 2 permutations"),
    "flat permutations": (lambda: D(3).permutation("legs", [1, 0]), r"atom 'legs': 1 is no list"),
    "too few": (
        lambda: D(3).permutation("legs", [[1, 0]]),
        r"got 1 permutations and no rows of signs for the 2 finite",
    ),
    "no finite generator": (lambda: SO3().permutation("legs", []), r"for the 0 finite generators of SO\(3\)"),
    "rows of signs": (lambda: C(2).permutation("legs", [[1, 0]], []), r"1 permutations and 0 rows of signs"),
    "signs": (
        lambda: C(2).permutation("legs", [[1, 0]], [[1, 2]]),
        r"signs \[1.0, 2.0\] must be 2 entries of \+1 or -1",
    ),
    "short signs": (lambda: C(2).permutation("legs", [[1, 0]], [[1]]), r"signs \[1.0\] must be 2 entries"),
    "order of a permutation": (lambda: C(2).permutation("legs", [[1, 2, 0]]), r"relation g0\^2 = 1 has residual 1"),
    "order of signs": (lambda: C(2).permutation("legs", [[1, 0]], [[1, -1]]), r"relation g0\^2 = 1 has residual 2"),
    "no plane": (lambda: SO3().rotation(1), r"group 'SO\(3\)' has no plane rotations"),
    "no plane in a product": (lambda: product(SO2(), Z(2)).rotation(1), r"has no plane rotations"),
    "power": (lambda: C(4).vector ** -1, r"V\*\*-1: a tensor power is not negative"),
    "tensor": (lambda: C(4).vector * C(2).vector, r"V ⊗ V: the groups C4 and C2 differ"),
    "sum": (lambda: C(4).vector + C(2).vector, r"different groups in one sum: \['C2', 'C4'\]"),
    "half": (lambda: 1.5 * C(4).vector, r"1.5 copies of V: a multiplicity is a whole number"),
    "negative": (lambda: -1 * C(4).vector, r"-1 copies of V"),
    "none": (lambda: 0 * C(4).vector, r"empty representation"),
    "group of nothing": (lambda: Group("void"), r"group 'void': give at least one generator"),
    "group of sizes": (lambda: Group("odd", [np.eye(2), np.eye(3)]), r"group 'odd'.*\(2, 2\), \(3, 3\)"),
    "group of stretches": (lambda: Group("odd", [2 * np.eye(2)]), r"group 'odd': generator 0 of odd is not orthogonal"),
    "group of open brackets": (lambda: Group("odd", lie=SO3().lie[:2]), r"relation \[A0,A1\] has residual 1"),
    "group of twins": (lambda: Group("odd", lie=[QUARTER, 2 * QUARTER]), r"zero or depend on each other"),
    "group of no motion": (lambda: Group("odd", lie=[np.zeros((2, 2))]), r"zero or depend on each other"),
    "group of wrong relations": (lambda: Group("odd", [QUARTER], relations=[((0, 3),)]), r"relation g0\^3 = 1"),
    "group of wrong circles": (
        lambda: Group("odd", lie=SO3().lie, circles=[(0, 1)]),
        r"each of the 3 Lie generators once",
    ),
    "C1": (lambda: C(1), r"C\(1\): a cyclic group needs n ≥ 2"),
    "D2": (lambda: D(2), r"D\(2\): a dihedral group needs n ≥ 3"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name):
    make, message = REFUSALS[name]
    with pytest.raises(InputError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_a_turn_that_is_also_a_finite_generator_must_be_the_same():
    """Half a turn is exp(πA): images in which the two differ satisfy every relation of either kind alone."""
    group = Group("half turn", [-np.eye(2)], lie=[QUARTER])
    assert group.rotation(3).size == 2
    with pytest.raises(InputError, match=r"relation g0 = exp\(1π·A0\) has residual 2"):
        group.atom("apart", [np.eye(2)], [QUARTER])
    with pytest.raises(InputError, match=r"relation g0 = exp\(1π·A0\)"):
        group.atom("apart", [-np.eye(2)], [2 * QUARTER])
    assert product(SO2(), Z(2)).crossings == ()


def test_a_fast_lie_generator_has_a_short_period():
    group = Group("fast", lie=[2 * QUARTER])
    with pytest.raises(InputError, match=r"relation exp\(1π·A0\) = 1 has residual 2"):
        group.atom("slow", lie=[QUARTER])
    assert group.atom("fine", lie=[4 * QUARTER]).size == 2


# --- atoms -------------------------------------------------------------------------------------------------------


def test_permutation_says_where_each_entry_comes_from():
    atom = C(3).permutation("legs", [[2, 0, 1]], signs=[[1, 1, 1]])
    np.testing.assert_array_equal(atom.matrix(C(3).generators[0]) @ [10, 20, 30], [30, 10, 20])
    assert atom == C(3).vector
    signed = C(2).permutation("arms", [[1, 0]], signs=[[-1, -1]])
    np.testing.assert_array_equal(signed.matrix(C(2).generators[0]) @ [10, 20], [-20, -10])


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
    np.testing.assert_allclose(C(4).rotation(1).matrices[0], QUARTER, atol=1e-12)
    np.testing.assert_allclose(C(2).rotation(1).matrices[0], -np.eye(2), atol=1e-12)


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
