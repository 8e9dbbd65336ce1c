"""Environments of a user's own: what a newcomer would write to have them audited."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from symbreak.symmetry import C, Layout, Symmetry, Z


class SettablePendulum(gym.Wrapper):
    """Pendulum-v1 shows cosine, sine and rate of an angle; the three methods are all that the audit needs."""

    def get_state(self):
        return self.unwrapped.state.copy()

    def set_state(self, state):
        self.unwrapped.state = np.array(state)

    def state_from_observation(self, observation):
        cosine, sine, rate = observation
        return np.array([np.arctan2(sine, cosine), rate])


class SettableCartPole(gym.Wrapper):
    """CartPole-v1 shows its whole state, so two methods are enough."""

    def get_state(self):
        return np.array(self.unwrapped.state)

    def set_state(self, state):
        self.unwrapped.state = tuple(state)
        self.unwrapped.steps_beyond_terminated = None


class Room(gym.Env):
    """A walker in a square room of nine by nine places, shown by coordinates that start at `corner`.

    Moves into the walls, or onto a place in `blocked`, do nothing; the middle of the room ends the episode.
    """

    size = 9
    moves = ((0, 1), (-1, 0), (0, -1), (1, 0))  # up, left, down, right in (x, y)

    def __init__(self, corner=-4, blocked=(), slip=0.0):
        self.corner, self.blocked, self.slip = corner, set(blocked), slip
        self.observation_space = Box(corner, corner + self.size - 1, (2,), np.float64)
        self.action_space = Discrete(4)
        self.place = (0, 0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        while self.place == (4, 4) or self.place in self.blocked or options is None:
            self.place = tuple(int(i) for i in self.np_random.integers(self.size, size=2))
            options = {}
        return self._shown(), {}

    def step(self, action):
        slipped = self.slip and self.np_random.random() < self.slip
        x, y = np.add(self.place, self.moves[0 if slipped else action])
        if 0 <= x < self.size and 0 <= y < self.size and (x, y) not in self.blocked:
            self.place = (int(x), int(y))
        done = self.place == (4, 4)
        return self._shown(), 1.0 if done else -0.1, done, False, {}

    def get_state(self):
        return self.place

    def set_state(self, state):
        self.place = state

    def state_from_observation(self, observation):
        place = np.rint(observation - self.corner).astype(int)
        exact = np.abs(observation - self.corner - place).max() < 1e-6
        inside = exact and (place >= 0).all() and (place < self.size).all()
        return tuple(int(i) for i in place) if inside and tuple(place) not in self.blocked else None

    def _shown(self):
        return np.array(self.place, dtype=float) + self.corner


@pytest.fixture(scope="session")
def pendulum():
    return SettablePendulum(gym.make("Pendulum-v1", disable_env_checker=True).unwrapped)


@pytest.fixture(scope="session")
def cart_pole():
    return SettableCartPole(gym.make("CartPole-v1", disable_env_checker=True).unwrapped)


@pytest.fixture(scope="session")
def room():
    return Room


@pytest.fixture(scope="session")
def pendulum_mirror():
    mirror = Z(2)
    observation = Layout({"cosine": mirror.trivial, "sine": mirror.sign, "rate": mirror.sign})
    return Symmetry(observation, Layout({"torque": mirror.sign}), name="mirror")


@pytest.fixture(scope="session")
def cart_mirror():
    mirror = Z(2)
    names = ("cart.place", "cart.velocity", "pole.angle", "pole.rate")
    return Symmetry(Layout(dict.fromkeys(names, mirror.sign)), Layout({"push": mirror.vector}), discrete=True)


@pytest.fixture(scope="session")
def room_turn():
    turn = C(4)
    return Symmetry(Layout({"place": turn.rotation(1)}), Layout({"move": turn.vector}), discrete=True, name="turn")
