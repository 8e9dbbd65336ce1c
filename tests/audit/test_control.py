"""States that cannot be set back hide nothing elsewhere; what a user's methods do wrong is told by name."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from symbreak.audit import audit
from symbreak.errors import EnvironmentFault, InputError
from symbreak.symmetry import Layout, Symmetry, Z

MIRROR = Z(2)
ACROSS = MIRROR.trivial + MIRROR.sign
LEFT_RIGHT = Symmetry(Layout({"place": ACROSS, "speed": ACROSS}), Layout({"push": ACROSS}))


class Sledge(gym.Env):
    """Is pushed about a plane, half as fast where there is sand, if there is."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    sand = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = self.np_random.uniform(-1.0, 1.0, 4), 0
        return self.state.copy(), {}

    def step(self, action):
        place, speed = np.split(self.state, 2)
        grip = 0.5 if self.sand and place[1] > 0.3 else 1.0
        speed = 0.9 * speed + 0.1 * grip * np.asarray(action, float)
        self.state, self.time = np.concatenate([place + 0.1 * speed, speed]), self.time + 1
        return self.state.copy(), -float(np.linalg.norm(self.state[:2])), False, self.time >= 20, {}

    def get_state(self):
        return self.state.copy()

    def set_state(self, state):
        self.state = np.array(state)

    def state_from_observation(self, observation):
        return np.array(observation)


class Forgetful(Sledge):
    """The inverse forgets the speed in a few places, where that makes much of a difference."""

    forgotten = 0.95

    def state_from_observation(self, observation):
        remembered = abs(observation[0]) < self.forgotten
        return np.concatenate([observation[:2], observation[2:] if remembered else [30.0, 30.0]])


def test_a_few_states_that_cannot_be_set_back_hide_no_breaking():
    plain = audit(type("Sand", (Sledge,), {"sand": True})(), LEFT_RIGHT, states=100)
    report = audit(type("Forgotten", (Forgetful,), {"sand": True})(), LEFT_RIGHT, states=100)
    assert plain.dynamics_share > 0.2
    assert report.verdict == "locally broken"
    assert report.dynamics_share == pytest.approx(plain.dynamics_share, abs=0.05)
    assert report.fields["speed"].error == pytest.approx(plain.fields["speed"].error, rel=0.3)


def test_states_that_cannot_be_set_back_are_left_out_and_counted():
    report = audit(Forgetful(), LEFT_RIGHT, states=100)
    assert report.verdict == "exact", str(report)
    left_out = 100 - report.pairs
    assert 0 < left_out <= 10
    assert any(note.startswith(f"{left_out} of 100 states cannot be set back") for note in report.notes)
    assert not any("cannot be set back" in note for note in audit(Sledge(), LEFT_RIGHT, states=100).notes)


def test_many_states_that_cannot_be_set_back_are_an_error():
    with pytest.raises(InputError, match="state_from_observation does not lead back"):
        audit(type("Often", (Forgetful,), {"forgotten": 0.6})(), LEFT_RIGHT, states=100)


def test_one_state_that_ends_otherwise_when_set_back_does_not_hide_that_ends_are_broken():
    class Edge(Sledge):
        """Ends on one side; the inverse puts a few states beyond it."""

        def step(self, action):
            observation, reward, _, *rest = super().step(action)
            return observation, reward, bool(abs(observation[1] - 0.5) < 0.2 or self.lost), *rest

        lost = False

        def set_state(self, state):
            self.state, self.lost = np.array(state[:4]), len(state) > 4

        def state_from_observation(self, observation):
            return np.append(observation, [1.0] if observation[0] > 0.97 else [])

    report = audit(Edge(), LEFT_RIGHT, states=200)
    assert report.termination.share_broken > 0.1, str(report)


class Chess(gym.Env):
    """A piece on a board of whole numbers about zero; the state is the observation."""

    observation_space = gym.spaces.Box(-3.0, 3.0, (2,), np.float64)
    action_space = gym.spaces.Discrete(4)
    moves = np.array([[0, 1], [-1, 0], [0, -1], [1, 0]])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.integers(-3, 4, 2)
        return self.place.astype(float), {}

    def step(self, action):
        self.place = np.clip(self.place + self.moves[action], -3, 3)
        return self.place.astype(float), 0.0, False, bool(self.np_random.random() < 0.2), {}

    def get_state(self):
        return self.place.astype(float)

    def set_state(self, state):
        self.place = np.rint(state).astype(int)


class Truncating(Chess):
    def set_state(self, state):
        self.place = np.array(state, int)


class TruncatingInverse(Chess):
    def state_from_observation(self, observation):
        return np.array(observation, int)


def test_whole_numbers_that_are_cut_off_are_told_by_name(room_turn):
    assert audit(Chess(), room_turn, states=60).verdict == "exact"
    with pytest.raises(InputError, match=r"set_state leads elsewhere when an observation is off by rounding.*np\.rint"):
        audit(Truncating(), room_turn, states=60)
    with pytest.raises(InputError, match=r"state_from_observation leads elsewhere .* \(entry [01] of the observation"):
        audit(TruncatingInverse(), room_turn, states=60)


def test_an_image_that_is_set_otherwise_is_told_by_name():
    class Half(Sledge):
        """Stays on one side of a line, wherever it is put."""

        state_from_observation = None

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state[1] = 1.0 + abs(self.state[1])
            return self.state.copy(), {}

        def set_state(self, state):
            self.state = np.array(state)
            self.state[1] = max(self.state[1], 0.0)

    with pytest.raises(InputError, match=r"set_state was given -.* as entry 1 .* and get_state then returns 0\.0"):
        audit(Half(), LEFT_RIGHT, states=30)


def test_a_state_may_be_the_array_the_environment_works_in():
    class InPlace(Sledge):
        state_from_observation = None

        def get_state(self):
            return self.state

        def set_state(self, state):
            self.state = state

        def step(self, action):
            array = self.state
            observation, *rest = super().step(action)
            array[:] = observation
            self.state = array
            return observation, *rest

    class Nested(InPlace):
        def get_state(self):
            return {"numbers": self.state}

        def set_state(self, state):
            self.state = state["numbers"]

        def state_from_observation(self, observation):
            return {"numbers": observation}

    for environment in (InPlace(), Nested()):
        assert audit(environment, LEFT_RIGHT, states=40).verdict == "exact"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_are_of_the_precision_of_their_space(dtype):
    class Strict(Sledge):
        action_space = gym.spaces.Box(-5.0, 5.0, (2,), dtype)

        def step(self, action):
            assert self.action_space.contains(action), action.dtype
            return super().step(action)

    assert audit(Strict(), LEFT_RIGHT, states=20).verdict == "exact"
    doubled = audit(Strict(), LEFT_RIGHT, states=20, policy=lambda _: np.array([0.3, 0.1], np.float64))
    assert doubled.verdict == "exact"


@pytest.mark.parametrize("method", ["get_state", "set_state", "state_from_observation", "reset"])
def test_what_a_users_method_raises_is_an_environment_fault(method):
    def fail(*_, **__):
        raise ValueError("out\nof reach")

    with pytest.raises(EnvironmentFault, match=f"^{method} raised ValueError: out of reach"):
        audit(type("Failing", (Sledge,), {method: fail})(), LEFT_RIGHT, states=20)


def test_what_only_a_tried_change_asks_for_may_be_refused():
    """A user may refuse states that the declared symmetry never leads to."""

    class OneSided(Sledge):
        sand = True

        def set_state(self, state):
            if state[0] < -1.5:
                raise ValueError("there is a wall")
            super().set_state(state)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state[0] += 3.0
            return self.state.copy(), {}

    assert audit(OneSided(), LEFT_RIGHT, states=60).verdict == "locally broken"
