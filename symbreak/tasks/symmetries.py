"""How the observations and actions of every task transform.

`paper` is the symmetry that the paper declares; `exact`, where it exists, is one under which a step of the simulator
from the image of a state is the image of the step. Two facts about the Ant decide its layouts: positions interleave
hip and ankle per leg 1-4, while torques start with leg 4; and ankles 2 and 3 bend the other way, so a leg that takes
over the pose of its neighbour does so with a sign.
"""

from __future__ import annotations

from functools import cache

from symbreak.symmetry import SO3, C, Field, Layout, Symmetry, Z

# Indices of legs 1-4 among the eight joints and the eight torques. A layout adds the offset of the first joint.
HIPS, ANKLES = (0, 2, 4, 6), (1, 3, 5, 7)
HIP_TORQUES, ANKLE_TORQUES = (2, 4, 6, 0), (3, 5, 7, 1)
LEG_BEFORE = (3, 0, 1, 2)
ANKLE_SIGNS = (1.0, -1.0, 1.0, -1.0)  # -1 where the ankle axes of a leg and the leg before point in opposite senses


@cache
def grid(name: str = "paper") -> Symmetry:
    """Quarter turns counter-clockwise of agent and goal; up, left, down, right follow each other."""
    turn = C(4)
    observation = Layout({"agent": turn.rotation(1), "goal": turn.rotation(1)})
    return Symmetry(observation=observation, action=Layout({"direction": turn.vector}), discrete=True, name=name)


@cache
def hopper_paper() -> Symmetry:
    """Front-back mirror. The feet, the joint limits and the forward reward all break it."""
    mirror = Z(2)
    observation = Layout(
        {
            "torso.height": mirror.trivial,
            "torso.angle": mirror.sign,
            "joints.angle": 3 * mirror.sign,
            "torso.velocity.x": mirror.sign,
            "torso.velocity.z": mirror.trivial,
            "torso.rate": mirror.sign,
            "joints.rate": 3 * mirror.sign,
        }
    )
    return Symmetry(observation=observation, action=Layout({"joints.torque": 3 * mirror.sign}), name="paper")


def _swimmer(name: str, *, sideways_flips: bool) -> Symmetry:
    mirror = Z(2)
    observation = Layout(
        {
            "tip.angle": mirror.sign,
            "joints.angle": 2 * mirror.sign,
            "tip.velocity.x": mirror.trivial,
            "tip.velocity.y": mirror.sign if sideways_flips else mirror.trivial,
            "tip.rate": mirror.sign,
            "joints.rate": 2 * mirror.sign,
        }
    )
    return Symmetry(observation=observation, action=Layout({"joints.torque": 2 * mirror.sign}), name=name)


@cache
def swimmer_paper() -> Symmetry:
    """Left-right mirror that leaves the sideways velocity as it is, which no mirror does."""
    return _swimmer("paper", sideways_flips=False)


@cache
def swimmer_exact() -> Symmetry:
    """Left-right mirror; the sideways velocity changes sign."""
    return _swimmer("exact", sideways_flips=True)


def _after(indices: tuple[int, ...], first: int) -> tuple[int, ...]:
    return tuple(first + index for index in indices)


@cache
def ant_paper() -> Symmetry:
    """Quarter turn that rolls the legs and forgets the torso and the ankles' signs, on 27 numbers."""
    turn = Z(4)
    legs = turn.vector
    observation = Layout(
        {
            "torso.height": turn.trivial,
            "torso.quaternion": 4 * turn.trivial,
            "hips.angle": Field(legs, indices=_after(HIPS, 5)),
            "ankles.angle": Field(legs, indices=_after(ANKLES, 5)),
            "torso.velocity": Field(3 * turn.trivial, indices=(13, 14, 15)),
            "torso.rate": Field(3 * turn.trivial, indices=(16, 17, 18)),
            "hips.rate": Field(legs, indices=_after(HIPS, 19)),
            "ankles.rate": Field(legs, indices=_after(ANKLES, 19)),
        }
    )
    action = Layout(
        {"hips.torque": Field(legs, indices=HIP_TORQUES), "ankles.torque": Field(legs, indices=ANKLE_TORQUES)}
    )
    return Symmetry(observation=observation, action=action, name="paper")


@cache
def ant_exact() -> Symmetry:
    """Relabelling of the legs: each takes the pose of the one before it while the torso turns back a quarter.

    On the 32 numbers of `RotationMatrixObservation`. The body occupies the same space before and after, so height and
    world velocity stay; the torso's own axes turn, (c₁, c₂, c₃) ← (−c₂, c₁, c₃), and with them what is measured along
    them.
    """
    turn = Z(4)
    hips = turn.vector
    ankles = turn.permutation("ankles", [LEG_BEFORE], signs=[ANKLE_SIGNS])
    axes = turn.rotation(1)
    observation = Layout(
        {
            "torso.height": turn.trivial,
            # The matrix lies row by row: its first two columns turn into each other in every row.
            "torso.rotation.sides": Field(3 * axes, indices=(1, 2, 4, 5, 7, 8)),
            "torso.rotation.up": Field(3 * turn.trivial, indices=(3, 6, 9)),
            "hips.angle": Field(hips, indices=_after(HIPS, 10)),
            "ankles.angle": Field(ankles, indices=_after(ANKLES, 10)),
            "torso.velocity": Field(3 * turn.trivial, indices=(18, 19, 20)),
            "torso.rate.sides": Field(axes, indices=(21, 22)),
            "torso.rate.up": Field(turn.trivial, indices=(23,)),
            "hips.rate": Field(hips, indices=_after(HIPS, 24)),
            "ankles.rate": Field(ankles, indices=_after(ANKLES, 24)),
        }
    )
    action = Layout(
        {"hips.torque": Field(hips, indices=HIP_TORQUES), "ankles.torque": Field(ankles, indices=ANKLE_TORQUES)}
    )
    return Symmetry(observation=observation, action=action, name="exact")


@cache
def fetch_paper() -> Symmetry:
    """Rotations about the gripper's start. The table and the cube of allowed actions break them."""
    space = SO3()
    observation = Layout({"position": space.vector, "velocity": space.vector, "goal_position": space.vector})
    action = Layout({"translation": space.vector, "fingers": space.trivial})
    return Symmetry(observation=observation, action=action, name="paper")


@cache
def ur5e(name: str = "paper") -> Symmetry:
    """Rotations about the end effector's start.

    Actions in its own axes do not change (`paper`); in the axes of the world they turn along (`world`).
    """
    space = SO3()
    observation = Layout(
        {
            "position": space.vector,
            "rotation": 2 * space.vector,
            "velocity": space.vector,
            "angular_velocity": space.vector,
            "goal_position": space.vector,
            "goal_rotation": 2 * space.vector,
        }
    )
    part = space.vector if name == "world" else 3 * space.trivial
    return Symmetry(observation=observation, action=Layout({"translation": part, "turn": part}), name=name)
