"""Small changes of a declaration are again symmetries, and the slips people make are among them."""

from __future__ import annotations

import numpy as np
import pytest

from symbreak.audit.declaration import Acting, Declaration
from symbreak.audit.neighbours import neighbours, units
from symbreak.symmetry import SO3, C, D, Field, Layout, Symmetry, Z, product
from symbreak.tasks.symmetries import ant_exact, fetch_paper, grid, hopper_paper, swimmer_exact, ur5e

SHIPPED = {
    "ant": ant_exact,
    "grid": grid,
    "hopper": hopper_paper,
    "swimmer": swimmer_exact,
    "fetch": fetch_paper,
    "ur5e": ur5e,
}


def twice_mirrored() -> Symmetry:
    both = product(Z(2), Z(2))
    left, right = both.lift(0, Z(2).sign), both.lift(1, Z(2).sign)
    return Symmetry(Layout({"x": left, "y": right, "joints": both.lift(0, Z(2).vector)}), Layout({"push": 2 * left}))


def plane() -> Symmetry:
    square = D(4)
    return Symmetry(Layout({"place": square.vector, "speed": square.vector}), Layout({"push": square.vector}))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_declaration_acts_like_its_symmetry(name):
    symmetry = SHIPPED[name]()
    acting = Declaration.of(symmetry).acting()
    reference = Acting.of(symmetry, symmetry.group.generators)
    assert acting.fields == reference.fields
    for side in ("observation", "action"):
        for mine, theirs in zip(getattr(acting, side), getattr(reference, side), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-12)


@pytest.mark.parametrize("make", [*SHIPPED.values(), twice_mirrored, plane])
def test_neighbours_are_representations_that_differ_and_still_act(make):
    symmetry = make()
    declaration = Declaration.of(symmetry)
    own = declaration.acting()
    count = 0
    for neighbour in neighbours(declaration):
        acting = neighbour.declaration.acting()
        count += 1
        changed = False
        for side in ("observation", "action"):
            matrices, before = getattr(acting, side), getattr(own, side)
            changed = changed or any(np.abs(m - b).max() > 1e-6 for m, b in zip(matrices, before, strict=True))
            moves, moved = (any(np.abs(m - np.eye(len(m))).max() > 1e-6 for m in some) for some in (matrices, before))
            assert moves or not moved
            for matrix in matrices:
                np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=1e-9)
            for word in symmetry.group.relations:
                power = np.eye(len(matrices[0]))
                for generator, exponent in word:
                    power = power @ np.linalg.matrix_power(matrices[generator], exponent)
                np.testing.assert_allclose(power, np.eye(len(power)), atol=1e-6)
        assert changed
        assert neighbour.words
        assert "{" not in neighbour.words.format(s="s")
    assert count >= 2


def test_discrete_actions_stay_permutations():
    for neighbour in neighbours(Declaration.of(grid())):
        for matrix in neighbour.declaration.acting().action:
            assert np.all(matrix >= 0)
            np.testing.assert_array_equal(np.sort(matrix.argmax(axis=0)), np.arange(4))


SLIPS = {
    "a sign": lambda: Symmetry(Layout({"x": Z(2).sign, "v": Z(2).trivial}), Layout({"a": Z(2).sign})),
    "an order": lambda: Symmetry(
        Layout({"x": Z(2).sign, "v": Z(2).permutation("swap", [[1, 0]])}), Layout({"a": Z(2).sign})
    ),
    "a direction": lambda: Symmetry(Layout({"x": C(4).rotation(1), "v": C(4).rotation(3)}), Layout({"a": C(4).vector})),
    "a kind": lambda: Symmetry(Layout({"x": SO3().vector, "v": 3 * SO3().trivial}), Layout({"a": SO3().vector})),
}
RIGHT = {
    "a sign": lambda: Z(2).sign,
    "an order": lambda: 2 * Z(2).trivial,
    "a direction": lambda: C(4).rotation(1),
    "a kind": lambda: SO3().vector,
}


@pytest.mark.parametrize("slip", SLIPS)
def test_the_slips_people_make_are_one_change_away(slip):
    symmetry = SLIPS[slip]()
    fields = {
        name: (Field(RIGHT[slip](), f.indices) if name == "v" else f) for name, f in symmetry.observation.fields.items()
    }
    right = Declaration.of(Symmetry(Layout(fields), symmetry.action)).acting().observation
    found = [
        neighbour
        for neighbour in neighbours(Declaration.of(symmetry))
        if all(np.allclose(m, r) for m, r in zip(neighbour.declaration.acting().observation, right, strict=True))
        and neighbour.fields == ("v",)
    ]
    assert found


def test_fields_of_one_name_change_together():
    symmetry = ant_exact()
    together = [tuple(name for _, name in unit) for unit in units(Declaration.of(symmetry))]
    assert ("ankles.angle", "ankles.rate", "ankles.torque") in together
    assert ("hips.angle",) in together
    assert not any("hips.angle" in unit and "ankles.angle" in unit for unit in together)


def test_freezing_is_marked():
    marked = {n.words for n in neighbours(Declaration.of(fetch_paper())) if n.freezes}
    assert marked == {"should stay unchanged"}
    assert not any(n.freezes for n in neighbours(Declaration.of(swimmer_exact())) if n.words == "should flip")
