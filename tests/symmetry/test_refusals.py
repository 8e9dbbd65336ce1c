"""Every refusal of a group or an atom by its words: what, where, which relation, by how much."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.symmetry import SO2, SO3, C, D, Group, Z, product
from symbreak.symmetry.group import turn

QUARTER = np.array([[0.0, -1.0], [1.0, 0.0]])
QUATERNIONS = Group("Q8", [np.kron(np.eye(2), QUARTER), np.kron(QUARTER, np.diag([1.0, -1.0]))])
PLANE = Group("O(2)", [np.diag([1.0, -1.0])], lie=[QUARTER])

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
    "negative": (lambda: -1 * C(4).vector, r"-1 copies of V"),
    "none": (lambda: 0 * C(4).vector, r"empty representation"),
    "group of nothing": (lambda: Group("void"), r"group 'void': give at least one generator"),
    "group of sizes": (lambda: Group("odd", [np.eye(2), np.eye(3)]), r"group 'odd'.*\(2, 2\), \(3, 3\)"),
    "group of stretches": (lambda: Group("odd", [2 * np.eye(2)]), r"group 'odd': generator 0 of odd is not orthogonal"),
    "group of open brackets": (lambda: Group("odd", lie=SO3().lie[:2]), r"relation \[A0,A1\] has residual 1"),
    "group of twins": (lambda: Group("odd", lie=[QUARTER, 2 * QUARTER]), r"zero or depend on each other"),
    "group of no motion": (lambda: Group("odd", lie=[np.zeros((2, 2))]), r"zero or depend on each other"),
    "relations that are not enough": (
        lambda: Group("C4", [QUARTER], relations=[((0, 8),)]).atom("half", [turn(np.pi / 4)]),
        r"relation g0\^4 = 1 has residual 2",
    ),
    "group of wrong relations": (lambda: Group("odd", [QUARTER], relations=[((0, 3),)]), r"relation g0\^3 = 1"),
    "group of wrong circles": (
        lambda: Group("odd", lie=SO3().lie, circles=[(0, 1)]),
        r"each of the 3 Lie generators once",
    ),
    "C1": (lambda: C(1), r"C\(1\): a cyclic group needs a whole number n ≥ 2"),
    "D2": (lambda: D(2), r"D\(2\): a dihedral group needs a whole number n ≥ 3"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name):
    make, message = REFUSALS[name]
    with pytest.raises(InputError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


WRONG_TYPES = {
    "SO2().rotation(1.5)": "relation exp(2π·A0) = 1 has residual 2",
    "1.5 * C(4).vector": "1.5 copies of V: a multiplicity is a whole number",
    "C(2).permutation('legs', [1, 0])": "atom 'legs': got 2 permutations",
    "D(3).permutation('legs', [1, 0])": "atom 'legs': 1 is no list of whole numbers",
    "C(2).permutation('legs', [[1.0, 0.0]])": "atom 'legs': [1.0, 0.0] is no list of whole numbers",
    "Layout({'x': 'V'})": "field 'x' is 'V': give an atom",
    "Layout({'x': Field(C(2).vector, (0.0, 1.0))})": "field 'x': (0.0, 1.0) is no list of whole numbers",
    "C(2).atom('x', [[['a']]])": "matrix 0 must be a square one of real numbers",
}


def test_wrong_types_are_refused_in_words():
    """In a process of its own, because here the types would be refused first."""
    script = f"""
from symbreak.errors import InputError
from symbreak.symmetry import *
for source in {list(WRONG_TYPES)}:
    try:
        eval(source)
        print()
    except InputError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, encoding="utf-8")
    for (source, message), printed in zip(WRONG_TYPES.items(), done.stdout.splitlines(), strict=True):
        assert message in printed, source


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
