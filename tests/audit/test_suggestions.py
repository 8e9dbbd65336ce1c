"""A wrong declaration is told from a broken symmetry, and what is suggested holds in every state looked at."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from symbreak.audit import audit
from symbreak.symmetry import SO2, C, Layout, Symmetry, Z

TURN, MIRROR = C(4), Z(2)


def moves(order) -> Layout:
    return Layout({"moves": TURN.permutation("moves", [order])})


RIGHT, SHUFFLED, BACKWARDS = [3, 0, 1, 2], [2, 0, 3, 1], [1, 2, 3, 0]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("blocked", [(), [(1, 1), (6, 2)]], ids=["free", "walls"])
def test_a_wrong_order_of_actions_is_no_local_breaking(room, room_turn, blocked, seed):
    """One action of four follows, so the declaration holds in a quarter of states; it is wrong all the same."""
    report = audit(room(blocked=blocked), Symmetry(room_turn.observation, moves(SHUFFLED), discrete=True), 300, seed)
    assert (report.verdict, report.exit_code) == ("not a symmetry", 2), str(report)
    assert report.dynamics_share < 0.9
    assert report.suggestions[0].startswith("moves needs the order (3 0 1 2) instead of (2 0 3 1)")
    well, badly = ("mostly", "hardly ever") if blocked else ("always", "never")
    assert f"by action: 0 {well} follows, 1, 2, 3 {badly}" in report.notes
    right = audit(room(blocked=blocked), Symmetry(room_turn.observation, moves(RIGHT), discrete=True), 300, seed)
    assert right.verdict == ("locally broken" if blocked else "exact")
    assert not any("by action" in note for note in right.notes)


class Errand(gym.Env):
    """A walker on a board and a goal that never moves: seldom does a reward tell where it is."""

    observation_space = gym.spaces.Box(-3.0, 3.0, (4,), np.float32)
    action_space = gym.spaces.Discrete(4)
    steps = np.array([[0, 1], [-1, 0], [0, -1], [1, 0]])

    def _shown(self):
        return self.state.astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = self.np_random.integers(-3, 4, 4), 0
        return self._shown(), {}

    def step(self, action):
        self.state[:2], self.time = np.clip(self.state[:2] + self.steps[action], -3, 3), self.time + 1
        done = bool((self.state[:2] == self.state[2:]).all())
        return self._shown(), 1.0 if done else -0.05, done, self.time >= 30, {}

    def get_state(self):
        return self._shown()

    def set_state(self, state):
        self.state = np.rint(state).astype(int)


def test_a_suggestion_is_called_exact_only_where_it_is_in_all_states():
    """The agent alone with the opposite sign is exact but where the goal is met, which is seldom."""
    places = Layout({"agent": TURN.rotation(1), "goal": TURN.rotation(1)})
    report = audit(Errand(), Symmetry(places, moves(BACKWARDS), discrete=True), states=200)
    assert report.suggestions == ("moves needs the order (3 0 1 2) instead of (1 2 3 0) (then it is exact)",)
    assert audit(Errand(), Symmetry(places, moves(RIGHT), discrete=True), states=200).verdict == "exact"


JOINTS = ["left_shoulder", "left_elbow", "right_shoulder", "right_elbow"]


def arms(flip=(), act=None, joints=JOINTS) -> Symmetry:
    both = MIRROR.mirrored(joints, swap={"left": "right"}, flip=flip)
    observation = Layout({"angles": both, "target": MIRROR.sign + MIRROR.trivial})
    return Symmetry(observation, Layout({"rates": both if act is None else act}))


class Arms(gym.Env):
    """Two arms whose joints turn as they are told; the reward looks at hands and target, which never moves."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
    middle = 0.0

    def _shown(self):
        return self.state + np.array([0.0, 0.0, 0.0, 0.0, self.middle, 0.0])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = self.np_random.uniform(-0.8, 0.8, 6), 0
        return self._shown(), {}

    def step(self, action):
        self.state[:4] += 0.1 * np.asarray(action, float)
        self.time += 1
        shoulders, elbows = self.state[[0, 2]], self.state[[1, 3]]
        ways = -np.sin(shoulders) - np.sin(shoulders + elbows) + np.array([-0.2, 0.2])
        heights = np.cos(shoulders) + np.cos(shoulders + elbows)
        far = np.hypot(ways - self.state[4], heights - self.state[5])
        return self._shown(), -float(far.min()), False, self.time >= 20, {}

    def get_state(self):
        return self.state.copy()

    def set_state(self, state):
        self.state = np.array(state)

    def state_from_observation(self, observation):
        return observation - np.array([0.0, 0.0, 0.0, 0.0, self.middle, 0.0])


def test_signs_that_are_forgotten_everywhere_are_one_change():
    assert audit(Arms(), arms(flip=["shoulder", "elbow"]), states=100).verdict == "exact"
    report = audit(Arms(), arms(), states=100)
    assert report.dynamics_share == 0.0
    assert report.reward.share_broken > 0.95
    assert (report.verdict, report.exit_code) == ("not a symmetry", 2), str(report)
    assert report.suggestions == ("angles and rates need the opposite sign (then it is exact)",)


def test_a_slip_shows_also_where_the_symmetry_is_broken_in_places():
    class Stuck(Arms):
        """One joint of one arm hardly moves where it is bent."""

        def step(self, action):
            bent = self.state[0] > 0.3
            return super().step(np.asarray(action, float) * np.array([0.1 if bent else 1.0, 1.0, 1.0, 1.0]))

    right = audit(Stuck(), arms(flip=["shoulder", "elbow"]), states=100)
    assert right.verdict == "locally broken"
    assert 0.2 < right.dynamics_share < 0.8
    report = audit(Stuck(), arms(), states=100)
    assert report.verdict == "not a symmetry", str(report)
    assert report.suggestions[0].startswith("angles and rates need the opposite sign (then the mean error falls")


def test_entries_are_called_by_their_names():
    report = audit(Arms(), arms(flip=["shoulder"]), states=100)
    (suggestion,) = report.suggestions
    assert suggestion == ("angles and rates need the opposite sign at left_elbow and right_elbow (then it is exact)")
    other = MIRROR.mirrored([JOINTS[i] for i in (0, 2, 1, 3)], swap={"left": "right"}, flip=["shoulder", "elbow"])
    report = audit(Arms(), arms(flip=["shoulder", "elbow"], act=other), states=100)
    assert "rates needs the order (left_elbow right_elbow left_shoulder right_shoulder)" in report.suggestions[0]


def test_names_of_entries_may_contain_braces():
    report = audit(Arms(), arms(flip=["shoulder"], joints=[f"{{{joint}}}" for joint in JOINTS]), states=60)
    assert "the opposite sign at {left_elbow} and {right_elbow}" in report.suggestions[0]


def test_a_reward_that_is_broken_in_every_state_is_nothing_local():
    """The target is shown about another point than the mirror's; all that moves follows."""
    report = audit(type("Off", (Arms,), {"middle": 1.0})(), arms(flip=["shoulder", "elbow"]), states=100)
    assert (report.verdict, report.exit_code) == ("not a symmetry", 2), str(report)
    assert "the reward is broken in every state" in report.headline
    assert "suspect the declaration" in report.headline
    (suggestion,) = report.suggestions
    assert suggestion.startswith("target is not centred, subtract (")
    assert ", 0)" in suggestion  # what the mirror leaves in place has no centre


def test_what_is_broken_in_every_state_is_said_in_the_headline():
    assert "in every state, so an approximation at best" in audit("hopper", states=40).headline
    assert audit("grid-20").headline == "locally broken"


class Puck(gym.Env):
    """Is pushed about a plane without a direction of its own; the wind blows from one side, if at all."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    wind = 0.0

    def __init__(self, low=-1.0, high=1.0):
        self.action_space = gym.spaces.Box(low, high, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = self.np_random.normal(size=4), 0
        return self.state.copy(), {}

    def step(self, action):
        wind = np.array([self.wind if self.state[0] > 0.5 else 0.0, 0.0])
        speed = 0.95 * self.state[2:] + 0.1 * np.asarray(action, float) + wind
        self.state, self.time = np.concatenate([self.state[:2] + 0.1 * speed, speed]), self.time + 1
        return self.state.copy(), -float(np.linalg.norm(self.state[:2])), False, self.time >= 20, {}

    def get_state(self):
        return self.state.copy()

    def set_state(self, state):
        self.state = np.array(state)


def rotations() -> Symmetry:
    circle = SO2()
    return Symmetry(Layout({"place": circle.vector, "speed": circle.vector}), Layout({"push": circle.vector}))


def test_actions_that_leave_their_box_are_told_apart_from_broken_dynamics():
    report = audit(Puck(), rotations(), states=200)
    assert report.broken_share == 0.0, str(report)
    assert report.verdict == "locally broken"
    assert "only where the image of an action leaves the action bounds" in report.headline
    (told,) = [note for note in report.notes if "leave the action bounds" in note]
    assert 0.05 < float(told.split(":")[1].split("%")[0]) / 100 < 0.3
    assert not any("could be made" in note for note in report.notes)
    windy = audit(type("Windy", (Puck,), {"wind": 0.1})(), rotations(), states=200)
    assert 0.1 < windy.dynamics_share < 0.6


def test_where_all_actions_leave_their_box_they_are_compared_at_its_edge():
    flipped = Symmetry(Layout({"place": 2 * MIRROR.sign, "speed": 2 * MIRROR.sign}), Layout({"push": 2 * MIRROR.sign}))
    assert audit(Puck(), flipped, states=60).verdict == "exact"
    report = audit(Puck(low=0.1, high=1.0), flipped, states=60)
    assert report.dynamics_share == 1.0
    assert not report.action_bounds_invariant
