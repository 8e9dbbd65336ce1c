"""Layouts and symmetries: the flat vector in the user's order, joints by name, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import block_diag

from symbreak.errors import InputError
from symbreak.symmetry import SO3, C, D, Field, Group, Layout, Symmetry, Z, product

JOINTS = [f"{leg}_{joint}" for leg in ("FL", "FR", "RL", "RR") for joint in ("hip", "thigh", "knee")]


def quadruped(**changes):
    mirror = Z(2)
    fields = {
        "height": mirror.trivial,
        "gravity": mirror.trivial + mirror.sign + mirror.trivial,
        "angles": mirror.mirrored(JOINTS, swap={"FL": "FR", "RL": "RR"}, flip=["hip"]),
    }
    action = {"targets": fields["angles"]}
    return Symmetry(Layout({**fields, **changes}), Layout(action), name="left-right")


# --- layouts -----------------------------------------------------------------------------------------------------


def test_fields_follow_each_other():
    group = Z(2)
    layout = Layout({"a": group.sign, "b": 2 * group.vector, "c": group.trivial})
    assert layout.size == 6
    assert layout.names == ("a", "b", "c")
    assert {name: field.indices for name, field in layout.fields.items()} == {"a": (0,), "b": (1, 2, 3, 4), "c": (5,)}
    assert str(layout) == "a: P, b: 2V, c: R"


def test_every_entry_has_a_name():
    names = quadruped().observation.entries
    assert names[:6] == ("height", "gravity[0]", "gravity[1]", "gravity[2]", "angles[FL_hip]", "angles[FL_thigh]")
    assert len(set(names)) == quadruped().observation.size
    mirror = Z(2)
    hips, knees = (mirror.mirrored([f"L_{joint}", f"R_{joint}"], {"L_": "R_"}) for joint in ("hip", "knee"))
    assert hips == knees  # the names are no part of the representation
    swapped = Layout({"legs": Field(hips, (1, 0)), "still": Field(mirror.trivial, (2,))})
    assert swapped.entries == ("legs[R_hip]", "legs[L_hip]", "still")
    mixed = Layout({"legs": hips + mirror.trivial, "both": hips + knees})  # equal atoms were put together
    assert mixed.entries == ("legs[L_hip]", "legs[R_hip]", "legs[2]", "both[0]", "both[1]", "both[2]", "both[3]")


def test_matrix_acts_in_the_order_of_the_vector():
    turn = Z(4)
    layout = Layout(
        {
            "height": turn.trivial,
            "hips": Field(turn.vector, indices=(1, 3, 5, 7)),
            "ankles": Field(turn.vector, indices=(8, 2, 4, 6)),
        }
    )
    g = turn.generators[0]
    moved = layout.matrix(g) @ np.arange(9)
    np.testing.assert_array_equal(moved[[1, 3, 5, 7]], [7, 1, 3, 5])
    np.testing.assert_array_equal(moved[[8, 2, 4, 6]], [6, 8, 2, 4])
    assert moved[0] == 0
    np.testing.assert_array_equal(moved[list(layout.order)], layout.rep.matrix(g) @ np.arange(9)[list(layout.order)])
    assert layout.order != tuple(range(9))


@pytest.mark.parametrize("group", [D(4), SO3(), product(C(3), Z(2))], ids=str)
def test_layouts_are_representations(group):
    rng = np.random.default_rng(0)
    size = 2 * group.size + 1
    order = rng.permutation(size).tolist()
    layout = Layout({"pair": Field(2 * group.vector, order[1:]), "one": Field(group.trivial, order[:1])})
    first, second = group.sample(rng), group.sample(rng)
    matrix = layout.matrix(first @ second)
    np.testing.assert_allclose(matrix, layout.matrix(first) @ layout.matrix(second), atol=1e-12)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-12)
    sorted_matrix = block_diag(1, (2 * group.vector).matrix(first))
    np.testing.assert_allclose(layout.matrix(first)[np.ix_(order, order)], sorted_matrix, atol=1e-12)


def test_a_field_without_indices_comes_after_the_largest_so_far():
    group = Z(2)
    layout = Layout({"swapped": Field(group.vector, indices=(1, 0)), "next": group.sign})
    assert layout.fields["next"].indices == (2,)
    layout = Layout(
        {"a": Field(group.vector, indices=(4, 1)), "b": Field(3 * group.sign, indices=(0, 2, 3)), "c": group.sign}
    )
    assert layout.fields["c"].indices == (5,)


def test_indices_may_be_any_sequence_of_whole_numbers():
    group = Z(2)
    for indices in (np.array([1, 0]), [1, 0], range(1, -1, -1)):
        assert Layout({"a": Field(group.vector, tuple(int(i) for i in indices))}).order == (1, 0)


def test_layouts_side_by_side():
    group = Z(2)
    state = Layout({"pair": Field(group.vector, indices=(1, 0)), "height": group.trivial})
    action = Layout({"pair": group.vector})
    both = state.beside(action)
    assert both.names == ("pair", "height", "pair'")
    g = group.generators[0]
    np.testing.assert_array_equal(both.matrix(g), block_diag(state.matrix(g), action.matrix(g)))
    assert both.beside(action).names == ("pair", "height", "pair'", "pair''")
    with pytest.raises(InputError, match="different groups"):
        state.beside(Layout({"other": C(3).vector}))


def test_layouts_are_values():
    group = Z(2)
    first, second = Field(group.sign, indices=(0,)), Field(group.sign, indices=(1,))
    assert Layout({"a": first, "b": second}) == Layout({"a": group.sign, "b": group.sign})
    assert hash(Layout({"a": first, "b": second})) == hash(Layout({"a": group.sign, "b": group.sign}))
    assert Layout({"a": first, "b": second}) != Layout({"b": second, "a": first})  # networks see another order
    assert Layout({"a": first, "b": second}) != Layout({"a": second, "b": first})
    assert Layout({"a": group.sign}) != Layout({"b": group.sign})


LAYOUTS = {
    "twice": (
        lambda g: Layout({"hips": Field(g.vector, (0, 1)), "knees": Field(g.vector, (1, 2))}),
        r"field 'knees': index 1 already belongs to field 'hips'",
    ),
    "twice in one": (lambda g: Layout({"hips": Field(g.vector, (0, 0))}), r"field 'hips': index 0 already belongs"),
    "missing": (
        lambda g: Layout({"hips": Field(g.vector, (0, 3))}),
        r"layout of size 4: indices \[1, 2\] belong to no field of \['hips'\]",
    ),
    "missing at the end": (lambda g: Layout({"hips": g.vector}, size=4), r"indices \[2, 3\] belong to no field"),
    "outside": (
        lambda g: Layout({"hips": g.vector, "knees": g.vector}, size=3),
        r"layout of size 3: indices \{3: 'knees'\} lie outside",
    ),
    "negative": (lambda g: Layout({"hips": Field(g.vector, (0, -1))}), r"field 'hips': index -1 is negative"),
    "too few": (
        lambda g: Layout({"hips": Field(2 * g.vector, (0, 1, 2))}),
        r"field 'hips' has 3 indices \(0, 1, 2\) but its representation 2V has size 4",
    ),
    "groups": (
        lambda g: Layout({"hips": g.vector, "knees": C(3).vector}),
        r"different groups, \{'hips': C2, 'knees': C3\}",
    ),
    "empty": (lambda g: Layout({}), r"a layout needs at least one field"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_refuses(name):
    make, message = LAYOUTS[name]
    with pytest.raises(InputError, match=message) as refused:
        make(Z(2))
    assert "\n" not in str(refused.value)


# --- joints by name ----------------------------------------------------------------------------------------------


def test_mirrored_joints_change_sides_and_signs():
    atom = Z(2).mirrored(JOINTS, swap={"FL": "FR", "RL": "RR"}, flip=["hip"])
    values = dict(zip(JOINTS, np.random.default_rng(0).normal(size=12), strict=True))
    moved = dict(zip(JOINTS, atom.matrix(Z(2).generators[0]) @ list(values.values()), strict=True))
    assert moved["FL_hip"] == -values["FR_hip"]
    assert moved["RR_thigh"] == values["RL_thigh"]
    assert moved["RL_knee"] == values["RR_knee"]
    plain = Z(2).mirrored(JOINTS, swap={"FL": "FR", "RL": "RR"})
    assert plain != atom  # the signs matter


def test_mirrored_leaves_the_spine_alone():
    atom = Z(2).mirrored(["spine_yaw", "L_arm", "spine_pitch", "R_arm"], swap={"L_": "R_"}, flip=["yaw"])
    np.testing.assert_array_equal(atom.matrix(Z(2).generators[0]) @ [1, 2, 3, 4], [-1, 4, 3, 2])


def test_one_part_may_stand_without_a_list():
    joints = ["L_hip", "R_hip"]
    assert Z(2).mirrored(joints, {"L_": "R_"}, "hip") == Z(2).mirrored(joints, {"L_": "R_"}, ["hip"])


MIRRORS = {
    "missing joint": (
        (["L_hip", "R_hip", "L_knee"], {"L_": "R_"}),
        r"joint 'L_knee' should be mirrored to 'R_knee', which is not among",
    ),
    "one-sided sign": (
        (["L_hip", "R_hip"], {"L_": "R_"}, ["L_hip"]),
        r"atom 'joints' is no representation of C2: relation g0\^2 = 1 has residual 2",
    ),
    "misspelled flip": ((["L_hip", "R_hip"], {"L_": "R_"}, ["hop"]), r"'hop' occurs in none of the joints"),
    "misspelled swap": ((["L_hip", "R_hip"], {"left": "right"}), r"'left' occurs in none of the joints"),
    "twice": ((["L_hip", "L_hip", "R_hip"], {"L_": "R_"}), r"a joint is named twice"),
}


@pytest.mark.parametrize("name", MIRRORS)
def test_mirrored_refuses(name):
    arguments, message = MIRRORS[name]
    with pytest.raises(InputError, match=message):
        Z(2).mirrored(*arguments)


# --- symmetries --------------------------------------------------------------------------------------------------


def test_a_symmetry_from_representations_alone():
    symmetry = Symmetry(observation=2 * C(4).rotation(1), action=C(4).vector, discrete=True)
    assert symmetry.group == C(4)
    assert symmetry.observation.names == ("observation",)
    assert symmetry.action.size == 4


def test_discrete_actions_are_permuted():
    """Up, left, down, right: a quarter turn sends each to the next."""
    symmetry = Symmetry(observation=C(4).rotation(1), action=C(4).vector, discrete=True)
    g = C(4).generators[0]
    np.testing.assert_array_equal(symmetry.action_permutation(g), [1, 2, 3, 0])
    np.testing.assert_array_equal(symmetry.action_permutation(g @ g), [2, 3, 0, 1])
    directions = np.array([[0, 1], [-1, 0], [0, -1], [1, 0]])
    turned = directions @ symmetry.observation.matrix(g).T
    np.testing.assert_allclose(turned, directions[symmetry.action_permutation(g)], atol=1e-12)
    backwards = Symmetry(observation=C(4).rotation(1), action=C(4).permutation("back", [[1, 2, 3, 0]]), discrete=True)
    assert np.abs(turned - directions[backwards.action_permutation(g)]).max() > 0.5
    for first in C(4).elements():
        for second in C(4).elements():
            both = symmetry.action_permutation(first)[symmetry.action_permutation(second)]
            np.testing.assert_array_equal(symmetry.action_permutation(first @ second), both)


def test_what_a_symmetry_refuses():
    with pytest.raises(InputError, match=r"symmetry 'odd': observation is under C4, action under C2"):
        Symmetry(observation=C(4).vector, action=C(2).vector, name="odd")
    with pytest.raises(InputError, match=r"discrete actions need permutations, but the action is action: 2P"):
        Symmetry(observation=C(4).vector, action=2 * C(4).sign, discrete=True)
    with pytest.raises(InputError, match=r"has continuous actions"):
        Symmetry(observation=C(4).vector, action=C(4).vector).action_permutation(C(4).generators[0])


def test_require_shows_both_sides():
    symmetry = quadruped()
    symmetry.require(16, 12, discrete=False)
    with pytest.raises(InputError) as refused:
        symmetry.require(17, 11, discrete=False)
    message = str(refused.value)
    assert message.startswith("symmetry 'left-right' does not fit the environment: ")
    assert "the observation has 17 entries, the symmetry 16 (height 1, gravity 3, angles 12)" in message
    assert "the action has 11 entries, the symmetry 12 (targets 12)" in message
    assert "\n" not in message
    with pytest.raises(InputError, match=r"discrete, the symmetry's continuous: declare it with .*discrete=True\)$"):
        symmetry.require(16, 12, discrete=True)
    grid = Symmetry(observation=2 * C(4).rotation(1), action=C(4).vector, discrete=True, name="grid")
    grid.require(4, 4, discrete=True)
    with pytest.raises(InputError, match=r"there are 5 actions, the symmetry 4 \(action 4\)$"):
        grid.require(4, 5, discrete=True)
    with pytest.raises(
        InputError, match=r"the actions are continuous, the symmetry's discrete; the action has 2 entries"
    ):
        grid.require(4, 2, discrete=False)


def test_digest_says_whether_two_symmetries_are_the_same():
    assert quadruped().digest == quadruped().digest
    assert quadruped() == quadruped()
    assert hash(quadruped()) == hash(quadruped())
    assert len(quadruped().digest) == 64
    mirror = Z(2)
    renamed = Symmetry(quadruped().observation, quadruped().action, name="other")
    assert renamed == quadruped()  # the name of the whole is no part of what it says
    changed = [
        quadruped(height=mirror.sign),
        quadruped(gravity=3 * mirror.trivial),
        quadruped(angles=mirror.mirrored(JOINTS, swap={"FL": "FR", "RL": "RR"})),
        quadruped(extra=mirror.trivial),
        Symmetry(quadruped().observation, 12 * mirror.trivial),
        Symmetry(quadruped().observation, 12 * mirror.trivial, discrete=True),
    ]
    assert len({symmetry.digest for symmetry in [quadruped(), *changed]}) == 1 + len(changed)
    assert all(symmetry != quadruped() for symmetry in changed)


def test_digest_sees_the_order_of_atoms_with_one_name():
    group = Z(2)
    same, flip = group.atom("x", [[[1.0]]]), group.atom("x", [[[-1.0]]])
    first, second = (Symmetry(rep, group.sign) for rep in (same + flip + same, 2 * same + flip))
    assert str(first.observation) == str(second.observation).replace("2x", "x + x")
    assert first.digest != second.digest
    once, twice = (Symmetry(rep, group.sign) for rep in (same + 2 * flip, 2 * same + flip))
    assert once.digest != twice.digest


def test_digest_does_not_depend_on_the_last_digit():
    exact = C(5).rotation(1)
    other = C(5).atom("rotation(1)", [exact.matrices[0] + 1e-15])
    assert other != exact
    assert Symmetry(other, C(5).vector).digest == Symmetry(exact, C(5).vector).digest
    coarser = C(5).atom("rotation(1)", [exact.matrices[0] + 5e-8])
    assert Symmetry(coarser, C(5).vector).digest != Symmetry(exact, C(5).vector).digest


def test_digest_sees_the_group():
    quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    one, two = Group("own", [quarter]), Group("own", [block_diag(quarter, 1)])
    assert Symmetry(one.trivial, one.trivial).digest != Symmetry(two.trivial, two.trivial).digest


def test_a_symmetry_prints_what_it_says():
    text = str(Symmetry(observation=2 * C(4).rotation(1), action=C(4).vector, discrete=True, name="grid"))
    assert text == "Symmetry(grid: C4; observation observation: 2rotation(1); action action: V)"
