"""Environments whose methods are wrong, that are random, or that are broken in places: none is called exact."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from symbreak.audit import audit
from symbreak.audit.grid import GridPairs
from symbreak.errors import InputError, NumericFault
from symbreak.symmetry import Layout, Symmetry, Z
from symbreak.tasks import get_task
from symbreak.tasks.gridworld_gym import GridWorldEnv

MIRROR = Z(2)
ACROSS = MIRROR.trivial + MIRROR.sign  # the second coordinate changes sign


def mirrored(velocity=ACROSS, goal=ACROSS) -> Symmetry:
    observation = Layout({"position": ACROSS, "velocity": velocity, "goal": goal})
    return Symmetry(observation, Layout({"push": ACROSS}))


class Puck(gym.Env):
    """A puck that is pushed about a plane, to a goal that stays for an episode."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    noise = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = self.np_random.uniform(-1.0, 1.0, 6), 0
        return self.state.copy(), {}

    def grip(self, position) -> float:
        return 1.0

    def step(self, action):
        position, velocity, goal = np.split(self.state, 3)
        push = np.asarray(action, float) + self.noise * self.np_random.normal(size=2)
        velocity = 0.9 * velocity + 0.1 * self.grip(position) * push
        self.state = np.concatenate([position + 0.1 * velocity, velocity, goal])
        self.time += 1
        return self.state.copy(), -float(np.linalg.norm(self.state[:2] - goal)), False, self.time >= 10, {}

    def get_state(self):
        return self.state.copy()

    def set_state(self, state):
        self.state = np.array(state)

    def state_from_observation(self, observation):
        return np.array(observation)


class Icy(Puck):
    def grip(self, position):
        return 0.3 if position[1] > 0.5 else 1.0


def test_the_mistakes_below_are_the_only_ones():
    assert audit(Puck(), mirrored(), states=40).verdict == "exact"
    assert audit(Puck(), mirrored(2 * MIRROR.trivial), states=40).verdict == "not a symmetry"


class Exchanged(Puck):
    def state_from_observation(self, observation):
        return np.array(observation)[[0, 1, 3, 2, 4, 5]]


class Resting(Puck):
    def state_from_observation(self, observation):
        return np.concatenate([observation[:2], np.zeros(2), observation[4:]])


class KeepsItsGoal(Puck):
    def set_state(self, state):
        self.state[:4] = state[:4]


@pytest.mark.parametrize("symmetry", [mirrored(), mirrored(2 * MIRROR.trivial)], ids=["right", "wrong"])
@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (Exchanged, r"state_from_observation does not lead back .* of a step's change \(entry [23] of"),
        (Resting, r"state_from_observation does not lead back"),
        (KeepsItsGoal, r"get_state must return, and set_state set, all that"),
    ],
)
def test_methods_that_do_not_lead_back_are_an_error(environment, says, symmetry):
    with pytest.raises(InputError, match=says):
        audit(environment(), symmetry, states=40)


def test_rounding_of_a_slow_entry_is_no_noise():
    class Far(Puck):
        """In single precision, a hundred metres away, at a millimetre a step."""

        observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state[[0, 2, 3]] = 100.0, 0.01, 0.01
            self.state = self.state.astype(np.float32)
            return self.state.copy(), {}

        def step(self, action):
            _, reward, *rest = super().step(0.01 * np.asarray(action))
            self.state = self.state.astype(np.float32)
            return self.state.copy(), reward, *rest

        def set_state(self, state):
            self.state = np.array(state, np.float32)

    assert audit(Far(), mirrored(), states=40).verdict == "exact"


@pytest.mark.parametrize("seed", range(6))
def test_rare_events_are_not_blamed_on_the_methods(seed):
    class Kicked(Puck):
        def step(self, action):
            if self.np_random.random() < 0.02:
                self.state[2:4] += 20.0
            return super().step(action)

    assert audit(Kicked(), mirrored(), states=60, seed=seed).exit_code == 0


def test_an_inverse_that_finds_nothing_is_an_error_also_where_nothing_else_says_where_it_stands():
    class Nowhere(Puck):
        get_state = None

        def set_state(self, state):
            pass

        def state_from_observation(self, observation):
            return None

    with pytest.raises(InputError, match="returned None for an observation"):
        audit(Nowhere(), mirrored(), states=10)


def test_an_environment_that_cannot_be_set_is_not_called_exact():
    class Stays(Puck):
        def set_state(self, state):
            pass

    report = audit(Stays(), mirrored(), states=40)
    assert report.verdict != "exact"
    assert any("set_state does not set everything" in note for note in report.notes)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_hides_neither_breaking_nor_a_wrong_sign_and_makes_nothing_exact(seed):
    class Noisy(Puck):
        noise = 0.05

    class NoisyIcy(Icy):
        noise = 0.05

    report = audit(Noisy(), mirrored(), states=100, seed=seed)
    assert (report.verdict, report.exit_code) == ("undecided", 0)
    assert "more than the environment does from itself, up to" in report.headline
    assert report.fields["velocity"].words == "off by no more than without a transformation"
    widths = [bar.get_width() for bar in report.plot().axes[0].patches]  # drawn as large as it is, unlike what is exact
    assert max(widths) == pytest.approx(report.fields["velocity"].error)
    assert not audit(Puck(), mirrored(), states=40).plot().axes[0].patches
    broken = audit(NoisyIcy(), mirrored(), states=100, seed=seed)
    assert broken.verdict == "locally broken"
    assert broken.fields["velocity"].share_broken > 0.1
    assert audit(Noisy(), mirrored(2 * MIRROR.trivial), states=100, seed=seed).verdict == "not a symmetry"


class IcyCart(gym.Env):
    """A cart on two wheels that drives anywhere; ice lies on one side, symmetric about another line."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _shown(self):
        x, y, angle, speed, turning = self.state
        return np.array([x, y, np.cos(angle), np.sin(angle), speed, turning])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.time = np.append(self.np_random.uniform(-1.0, 1.0, 2), self.np_random.uniform(-3, 3, 3)), 0
        return self._shown(), {}

    def step(self, action):
        x, y, angle, speed, turning = self.state
        left, right = np.asarray(action, float) * (0.3 if abs(x) < 1.0 and 0.2 < y < 0.8 else 1.0)
        speed, turning = 0.9 * speed + 0.1 * (left + right), 0.8 * turning + 0.5 * (right - left)
        angle += 0.1 * turning
        self.state = np.array([x + 0.1 * speed * np.cos(angle), y + 0.1 * speed * np.sin(angle), angle, speed, turning])
        self.time += 1
        return self._shown(), 0.0, False, self.time >= 5, {}

    def get_state(self):
        return self.state.copy()

    def set_state(self, state):
        self.state = np.array(state)

    def state_from_observation(self, observation):
        x, y, cosine, sine, speed, turning = observation
        return np.array([x, y, np.arctan2(sine, cosine), speed, turning])


def wheels(heading) -> Symmetry:
    parts = {"position": ACROSS, "heading": heading, "speed": MIRROR.trivial, "turning": MIRROR.sign}
    return Symmetry(Layout(parts), Layout({"wheels": MIRROR.permutation("wheels", [[1, 0]])}))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_another_symmetry_that_is_exact_does_not_make_a_broken_one_wrong(seed):
    """Ice on one side breaks the mirror across; the mirror along is exact, and told as such."""
    report = audit(IcyCart(), wheels(ACROSS), states=100, seed=seed)
    assert (report.verdict, report.exit_code) == ("locally broken", 0), str(report)
    assert 0.1 < report.dynamics_share < 0.9
    assert report.suggestions == ("position and heading need the opposite sign (then it is exact)",)
    assert not any("not a symmetry" in finding.words for finding in report.fields.values())
    assert audit(IcyCart(), wheels(2 * MIRROR.trivial), states=100, seed=seed).verdict == "not a symmetry"


class Box(Puck):
    """What stood for the goal is pushed along where the puck is near it, which is seldom."""

    def step(self, action):
        near = np.linalg.norm(self.state[:2] - self.state[4:]) < 0.5
        _, _, *rest = super().step(action)
        self.state[4:] += 0.1 * self.state[2:4] if near else 0.0
        return self.state.copy(), 0.0, *rest


@pytest.mark.parametrize("environment", [Icy, Box])
def test_a_wrong_sign_shows_also_where_dynamics_hold_in_most_places(environment):
    """Of a goal that never moves, in the reward; of a box that seldom does, where it does."""
    assert audit(environment(), mirrored(), states=150).exit_code == 0
    report = audit(environment(), mirrored(goal=2 * MIRROR.trivial), states=150)
    assert report.dynamics_share < 0.9
    assert report.verdict == "not a symmetry", str(report)
    assert any("goal" in suggestion for suggestion in report.suggestions)


def test_a_change_that_is_tried_may_lead_where_nothing_is_finite():
    class Root(Icy):
        """Defined where the first coordinate is positive, which a mirror across does not change."""

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state[0] += 3.0
            return self.state.copy(), {}

        def step(self, action):
            observation, _, *rest = super().step(action)
            with np.errstate(invalid="ignore"):
                return observation, float(np.sqrt(observation[0])), *rest

    assert audit(Root(), mirrored(), states=60).verdict == "locally broken"


@pytest.mark.parametrize("where", ["observation", "reward"])
def test_what_is_not_finite_is_a_numeric_fault(where):
    class Holed(Puck):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            hole = observation[0] > 0.3
            observation[3] = np.nan if hole and where == "observation" else observation[3]
            return observation, np.nan if hole and where == "reward" else reward, *rest

    with pytest.raises(NumericFault, match="is nan after") as fault:
        audit(Holed(), mirrored(), states=40)
    assert ("observation[3]" if where == "observation" else "reward") in str(fault.value)


def test_the_policy_may_be_the_predict_of_an_agent():
    def predict(observation):
        return -observation[:2].clip(-1.0, 1.0), None

    assert audit(Puck(), mirrored(), states=20, policy=predict).verdict == "exact"
    assert (
        audit(Puck(), mirrored(), states=20, policy=lambda _: (0.1, -0.2)).verdict == "exact"
    )  # an action, and no more


class Leftwards(gym.Wrapper):
    """Does something in `step`, as most wrappers of users do."""

    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, float(reward) + float(observation[0] < 0), *rest


class Twisted(GridWorldEnv):
    def step(self, action):
        return super().step(0)


def test_a_grid_world_that_somebody_changed_is_not_enumerated_as_if_nobody_had():
    bare = GridWorldEnv(obstacles=0)
    assert GridPairs.of(gym.wrappers.TimeLimit(bare, 50)) is not None
    for changed in (Leftwards(bare), Twisted(obstacles=0)):
        assert GridPairs.of(changed) is None
        with pytest.raises(InputError, match="state"):
            audit(changed, get_task("grid-0").symmetry("exact"))


class Walker(gym.Env):
    """A point in the plane that goes where it is pushed."""

    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    dtype, middle, gain = np.float64, 0.0, 0.5

    @property
    def observation_space(self):
        return gym.spaces.Box(-np.inf, np.inf, (2,), self.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = (self.middle + self.np_random.uniform(-5.0, 5.0, 2)).astype(self.dtype), 0
        return self.place.copy(), {}

    def pushed(self, action):
        return action

    def reward(self) -> float:
        return 0.0

    def step(self, action):
        self.place = (self.place + self.gain * self.pushed(np.asarray(action))).astype(self.dtype)
        self.time += 1
        return self.place.copy(), self.reward(), False, self.time >= 10, {}

    def get_state(self):
        return self.place.copy()

    def set_state(self, state):
        self.place = np.array(state, self.dtype)

    def state_from_observation(self, observation):
        return np.array(observation, self.dtype)


def planar(x, y, push) -> Symmetry:
    return Symmetry(Layout({"x": x, "y": y}), Layout({"x": push, "y": push}))


class Distant(Walker):
    """Is pushed one way only; far away in single precision, where rounding is as large as a step."""

    dtype, middle, gain = np.float32, 2e5, 0.05

    def pushed(self, action):
        return np.maximum(action, 0.0)


def test_what_rounding_hides_is_not_called_exact():
    indifferent = planar(MIRROR.trivial, MIRROR.trivial, MIRROR.sign)
    report = audit(Distant(), indifferent, states=60)
    assert report.verdict == "undecided"
    assert "x, y: numbers so large that rounding hides what a step changes" in report.headline
    near = type("Near", (Distant,), {"middle": 0.0})
    assert audit(near(), indifferent, states=60).verdict not in ("exact", "undecided")
    exact = planar(MIRROR.sign, MIRROR.sign, MIRROR.sign)
    assert audit(type("Single", (Walker,), {"dtype": np.float32})(), exact, states=60).verdict == "exact"


class Priced(Walker):
    """Half a turn changes nothing but the reward of a few places; a mirror changes nothing at all."""

    def reward(self):
        return float(abs(self.place[0]) < 2.0 and self.place[1] > 3.0)


def test_a_reward_that_breaks_in_one_place_is_no_slip_of_the_declaration():
    half_turn = planar(MIRROR.sign, MIRROR.sign, MIRROR.sign)
    report = audit(Priced(), half_turn, states=200)
    assert report.verdict == "locally broken"
    assert 0 < report.reward.share_broken < 0.5
    assert audit(Walker(), half_turn, states=60).verdict == "exact"


class Flickering(Puck):
    """Ends at random, and pays with noise."""

    price, chance = 0.0, 0.1

    def step(self, action):
        observation, reward, _, *rest = super().step(action)
        return observation, reward + self.price * self.np_random.normal(), self.np_random.random() < self.chance, *rest


def test_what_ends_or_pays_at_random_is_undecided():
    report = audit(Flickering(), mirrored(), states=100)
    assert report.verdict == "undecided"
    assert "ends the episode at one time and not at another" in report.headline
    paid = type("Paid", (Flickering,), {"price": 0.05, "chance": 0.0})
    assert audit(paid(), mirrored(), states=100).verdict == "undecided"
    steady = type("Steady", (Flickering,), {"chance": 0.0})
    assert audit(steady(), mirrored(), states=100).verdict == "exact"


def test_a_noisy_reward_hides_no_breaking_that_is_larger_than_the_noise():
    class OneSided(Flickering):
        price, chance = 0.1, 0.0

        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, reward + float(np.sign(observation[1])), *rest

    report = audit(OneSided(), mirrored(), states=150)
    assert report.reward.share_broken > 0.9
