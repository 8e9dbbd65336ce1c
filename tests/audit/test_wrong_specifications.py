"""Wrong declarations are flagged, right ones are not."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from symbreak.audit import audit
from symbreak.errors import InputError
from symbreak.symmetry import C, D, Field, Layout, Symmetry, Z
from symbreak.tasks.symmetries import (
    ANKLE_SIGNS,
    ANKLES,
    HIP_TORQUES,
    HIPS,
    LEG_BEFORE,
    ant_exact,
    grid,
    swimmer_exact,
)


def with_fields(symmetry: Symmetry, observation=None, action=None) -> Symmetry:
    """The symmetry with some of its fields declared otherwise, on the same indices."""

    def changed(layout, fields):
        return Layout(
            {n: Field(fields[n], f.indices) if n in (fields or {}) else f for n, f in layout.fields.items()},
            layout.size,
        )

    return Symmetry(
        changed(symmetry.observation, observation),
        changed(symmetry.action, action),
        discrete=symmetry.discrete,
        name="declared",
    )


def placed(layout: Layout, **indices) -> Layout:
    """The layout with some fields (dots written as underscores) on other indices."""
    fields = {}
    for name, field in layout.fields.items():
        fields[name] = Field(field.rep, indices.get(name.replace(".", "_"), field.indices))
    return Layout(fields, layout.size)


MIRROR, TURN = Z(2), Z(4)
LEGS = TURN.vector
ANKLES_SIGNED = TURN.permutation("ankles", [LEG_BEFORE], signs=[ANKLE_SIGNS])
BACKWARDS = TURN.permutation("backwards", [[1, 2, 3, 0]])


def swapped_legs(symmetry: Symmetry) -> Symmetry:
    """Legs 3 and 4 of the hips exchanged, in angles, rates and torques."""
    order = (HIPS[0], HIPS[1], HIPS[3], HIPS[2])
    observation = placed(
        symmetry.observation, hips_angle=tuple(10 + i for i in order), hips_rate=tuple(24 + i for i in order)
    )
    torques = (HIP_TORQUES[0], HIP_TORQUES[1], HIP_TORQUES[3], HIP_TORQUES[2])
    return Symmetry(observation, placed(symmetry.action, hips_torque=torques))


def actuators_in_the_order_of_joints(symmetry: Symmetry) -> Symmetry:
    return Symmetry(symmetry.observation, placed(symmetry.action, hips_torque=HIPS, ankles_torque=ANKLES))


def fields_for(names, rep):
    return {name: rep for name in names}


WRONG = {
    # name: environment, symmetry, field that must be named
    "swimmer, sign of a velocity": lambda: (
        "swimmer",
        with_fields(swimmer_exact(), {"tip.velocity.y": MIRROR.trivial}),
        "tip.velocity.y",
    ),
    "swimmer, sign of the torques": lambda: (
        "swimmer",
        with_fields(swimmer_exact(), action={"joints.torque": 2 * MIRROR.trivial}),
        "joints.torque",
    ),
    "swimmer, sign of one joint of two": lambda: (
        "swimmer",
        with_fields(swimmer_exact(), {"joints.angle": MIRROR.sign + MIRROR.trivial}),
        "joints.angle",
    ),
    "swimmer, order of the joints": lambda: (
        "swimmer",
        with_fields(
            swimmer_exact(),
            fields_for(("joints.angle", "joints.rate"), MIRROR.permutation("swap", [[1, 0]], [[-1.0, -1.0]])),
            {"joints.torque": MIRROR.permutation("swap", [[1, 0]], [[-1.0, -1.0]])},
        ),
        "joints",
    ),
    "ant, ankles without signs": lambda: (
        "ant",
        with_fields(ant_exact(), fields_for(("ankles.angle", "ankles.rate"), LEGS), {"ankles.torque": LEGS}),
        "ankles",
    ),
    "ant, swapped legs": lambda: ("ant", swapped_legs(ant_exact()), "hips"),
    "ant, hips roll backwards": lambda: (
        "ant",
        with_fields(ant_exact(), fields_for(("hips.angle", "hips.rate"), BACKWARDS), {"hips.torque": BACKWARDS}),
        "hips",
    ),
    "ant, inverted rotation of the torso": lambda: (
        "ant",
        with_fields(ant_exact(), {"torso.rotation.sides": 3 * TURN.rotation(3), "torso.rate.sides": TURN.rotation(3)}),
        "torso",
    ),
    "ant, torso's rate forgotten": lambda: (
        "ant",
        with_fields(ant_exact(), {"torso.rate.sides": 2 * TURN.trivial}),
        "torso.rate.sides",
    ),
    "ant, actuators in the order of the joints": lambda: (
        "ant",
        actuators_in_the_order_of_joints(ant_exact()),
        "torque",
    ),
    "grid, inverted order of the moves": lambda: (
        "grid-0",
        with_fields(grid(), action={"direction": C(4).permutation("back", [[1, 2, 3, 0]])}),
        "direction",
    ),
    "grid, inverted rotation of the agent": lambda: (
        "grid-0",
        with_fields(grid(), {"agent": C(4).rotation(3)}),
        "agent",
    ),
    "grid, goal forgotten": lambda: ("grid-0", with_fields(grid(), {"goal": 2 * C(4).trivial}), "goal"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_declaration_is_flagged(name):
    task, symmetry, field = WRONG[name]()
    report = audit(task, symmetry, states=24)
    assert report.verdict == "not a symmetry", str(report)
    assert report.exit_code == 2
    told = " ".join([report.headline, *report.suggestions])
    assert field in told, str(report)
    if "actuators" not in name:  # an order across two fields is more than one slip
        assert report.suggestions[-1].endswith("(then it is exact)"), str(report)


@pytest.mark.parametrize("corner", [0, -3])
def test_positions_that_are_not_centred_are_flagged(room, room_turn, corner):
    report = audit(room(corner=corner), room_turn, states=60)
    assert report.verdict == "not a symmetry"
    middle = corner + 4
    assert report.suggestions == (f"place is not centred, subtract ({middle}, {middle}) (then it is exact)",)
    assert audit(room(corner=-4), room_turn, states=60).verdict == "exact"


def test_wrong_signs_of_a_users_environments_are_flagged(pendulum, cart_pole, cart_mirror):
    observation = Layout({"cosine": MIRROR.trivial, "sine": MIRROR.trivial, "rate": MIRROR.sign})
    report = audit(pendulum, Symmetry(observation, Layout({"torque": MIRROR.sign})), states=60)
    assert report.verdict == "not a symmetry"
    assert report.suggestions == ("sine should flip (then it is exact)",)
    assert audit(cart_pole, cart_mirror, states=60).verdict == "exact"
    pushed = Layout({"push": 2 * MIRROR.trivial})
    report = audit(cart_pole, Symmetry(cart_mirror.observation, pushed, discrete=True), states=60)
    assert report.verdict == "not a symmetry"
    assert report.exit_code == 2


def test_right_declarations_are_not_flagged(pendulum, pendulum_mirror, cart_pole, cart_mirror, room, room_turn):
    half_turn = C(2)
    right = [
        ("swimmer", swimmer_exact()),
        ("ant", ant_exact()),
        ("grid-0", grid()),
        (pendulum, pendulum_mirror),
        (cart_pole, cart_mirror),
        (room(), room_turn),
        # A subgroup of a symmetry is one.
        (
            "grid-0",
            Symmetry(
                Layout({"agent": 2 * half_turn.sign, "goal": 2 * half_turn.sign}),
                Layout({"direction": half_turn.permutation("opposite", [[2, 3, 0, 1]])}),
                discrete=True,
            ),
        ),
    ]
    for environment, symmetry in right:
        report = audit(environment, symmetry, states=40)
        assert report.verdict == "exact", str(report)
        assert report.exit_code == 0
        assert report.suggestions == ()


def test_local_breaking_is_not_a_wrong_declaration(room, room_turn):
    report = audit(room(blocked=[(1, 1), (6, 2)]), room_turn, states=300)
    assert report.verdict == "locally broken", str(report)
    assert 0.0 < report.broken_share < 0.5
    assert report.reachable_share < 1.0
    assert report.suggestions == ()


@pytest.mark.slow
def test_a_wrong_kind_of_action_is_found_on_an_arm():
    """Declaring actions in the axes of the world as unchanged is a slip even where nothing is exact."""
    world = gym.make("symbreak/UR5eReach-v0", frame="world", disable_env_checker=True)
    from symbreak.tasks.symmetries import ur5e

    wrong = Symmetry(ur5e("world").observation, ur5e("paper").action)
    report = audit(world, wrong, states=8)
    assert report.verdict == "not a symmetry", str(report)
    assert any("translation" in suggestion and "vector" in suggestion for suggestion in report.suggestions)
    assert audit(world, ur5e("world"), states=8).verdict == "locally broken"


@pytest.mark.parametrize("generator", [0, 1])
def test_a_slip_in_one_generator_of_two_is_found(generator):
    square = D(4)
    moves = [[3, 0, 1, 2], [2, 1, 0, 3]]
    wrong = [list(order) for order in moves]
    wrong[generator] = [[1, 2, 3, 0], [0, 3, 2, 1]][generator]
    layout = Layout({"agent": square.vector, "goal": square.vector})
    report = audit("grid-0", Symmetry(layout, Layout({"direction": square.permutation("m", wrong)}), discrete=True))
    assert report.verdict == "not a symmetry"


class Thrust(gym.Env):
    """A point that is pushed along its velocity: it may turn by any angle, and the push stays what it is."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (4,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    state = np.zeros(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=4)
        return self.state.copy(), {}

    def step(self, action):
        velocity = self.state[2:] * (1.0 + 0.1 * float(action[0]))
        self.state = np.concatenate([self.state[:2] + 0.1 * velocity, velocity])
        return self.state.copy(), -float(np.linalg.norm(self.state[:2])), False, False, {}

    def get_state(self):
        return self.state.copy()

    def set_state(self, state):
        self.state = state.copy()

    def state_from_observation(self, observation):
        return observation.copy()


def turned(velocity) -> Symmetry:
    return Symmetry(
        Layout({"position": velocity.group.rotation(), "velocity": velocity}), Layout({"push": velocity.group.trivial})
    )


def test_a_field_is_recast_where_actions_stay_and_turns_are_no_quarters():
    """Neither an action that nothing moves nor the rounding of cosines keeps a suggestion from being found."""
    eighth = C(8)
    assert audit(Thrust, turned(eighth.rotation()), states=20).verdict == "exact"
    report = audit(Thrust, turned(2 * eighth.trivial), states=20)
    assert report.verdict == "not a symmetry"
    assert report.suggestions == ("velocity should turn like a vector of the plane (then it is exact)",)


def test_an_environment_is_given_as_itself_by_its_id_or_by_what_makes_it():
    gym.register("Thrust-v0", Thrust, max_episode_steps=50)
    symmetry = turned(C(8).rotation())
    for environment in (Thrust(), "Thrust-v0", Thrust):
        assert audit(environment, symmetry, states=5).verdict == "exact"
    with pytest.raises(InputError, match="give a Symmetry"):
        audit(Thrust)
