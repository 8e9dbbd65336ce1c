"""Valid representations are accepted in any coordinates, and whatever is none is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag

from symbreak.errors import InputError
from symbreak.symmetry import SO2, SO3, Atom, C, D, Group, Z, product, relations

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
