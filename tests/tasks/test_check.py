"""The check finds what is wrong with an environment, names the field, and leaves sound environments alone."""

import time
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from symbreak.errors import EnvironmentFault, InputError, NumericFault
from symbreak.symmetry import Field, Layout, Symmetry, Z
from symbreak.tasks import TASK_NAMES, check_environment, get_task, require_finite


class Sound(gym.Env):
    """A point that is pushed about, with nothing wrong; the faulty ones below change one thing each."""

    observation_space = Box(-10.0, 10.0, (3,), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.place = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.place.copy(), {}

    def step(self, action):
        self.time += 1
        self.place[:2] += np.float32(0.1) * action
        return self.place.copy(), -float(np.abs(self.place).sum()), False, self.time >= 100, {}


def sound_with(**members) -> type[Sound]:
    return type("Faulty", (Sound,), members)


def step_returning(change) -> type[Sound]:
    """Steps whose five results are passed through `change`, from the third on."""

    def step(self, action):
        result = Sound.step(self, action)
        return change(result) if self.time >= 3 else result

    return sound_with(step=step)


def replaced(index, value):
    def change(result):
        new = value(result[index]) if callable(value) else value
        return (*result[:index], new, *result[index + 1 :])

    return step_returning(change)


class Resets(Sound):
    """Reset gives whatever `first` says."""

    def __init__(self, first):
        self.first = first

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.first


class Unseeded(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset()


class NoiseFromElsewhere(Sound):
    noise = np.random.default_rng(0)

    def step(self, action):
        observation, *rest = super().step(action)
        return observation + self.noise.normal(size=3).astype(np.float32) * np.float32(0.1), *rest


class LeavesSpeed(Sound):
    """All randomness is seeded; what is left over is not."""

    speed = 0.0

    def step(self, action):
        self.speed += 0.001
        self.place[2] += np.float32(self.speed)
        return super().step(action)


class LeavesTime(Sound):
    total = 0

    def step(self, action):
        self.total += 1
        return *super().step(action)[:3], self.total == 60, {}


class NoisyReward(NoiseFromElsewhere):
    def step(self, action):
        observation, reward, *rest = Sound.step(self, action)
        return observation, reward + self.noise.normal(), *rest


class Reusing(Sound):
    def step(self, action):
        _, *rest = super().step(action)
        return self.place, *rest


class ReusingAtRest(Sound):
    """What is reused has not changed yet, but it will."""

    def step(self, action):
        _, *rest = super().step(np.zeros_like(action))
        return self.place, *rest


class ReusingFromReset(Sound):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.place, {}


class ChangesAction(Sound):
    def step(self, action):
        action *= 0.5
        return super().step(action)


class Raises(Sound):
    def step(self, action):
        if self.time == 4:
            raise RuntimeError("the motor\nis on fire")
        return super().step(action)


class NoSeedArgument(Sound):
    def reset(self):
        return super().reset()


class Hangs(Sound):
    def step(self, action):
        time.sleep(5)
        return super().step(action)


def with_value(index, value):
    def change(observation):
        observation[index] = value
        return observation

    return change


point = np.zeros(3, np.float32)
FAULTS = [
    # what is declared
    ("observation_space is NoneType", sound_with(observation_space=None)),
    ("observation_space is Dict", sound_with(observation_space=Dict(place=Sound.observation_space))),
    (
        "FlattenObservation, which orders the keys alphabetically: goal, place",
        sound_with(observation_space=Dict({"place": Sound.observation_space, "goal": Sound.observation_space})),
    ),
    (
        "FlattenObservation, which orders the keys: place, goal",
        sound_with(observation_space=Dict([("place", Sound.observation_space), ("goal", Sound.observation_space)])),
    ),
    ("observation_space is Discrete", sound_with(observation_space=Discrete(5))),
    ("observation_space has shape (3, 1)", sound_with(observation_space=Box(-1.0, 1.0, (3, 1), np.float32))),
    ("observation_space has dtype uint8", sound_with(observation_space=Box(0, 255, (3,), np.uint8))),
    ("action_space is MultiDiscrete", sound_with(action_space=MultiDiscrete([2, 2]))),
    ("action_space is Discrete(3, start=1)", sound_with(action_space=Discrete(3, start=1))),
    ("action_space[0] is unbounded", sound_with(action_space=Box(-np.inf, np.inf, (2,), np.float32))),
    ("action_space[1] is unbounded", sound_with(action_space=Box(np.float32([-1, -1]), np.float32([1, np.inf])))),
    ("action_space[1] has low", sound_with(action_space=Box(np.float32([-1, 1]), np.float32([1, 1])))),
    ("action_space has shape (2, 2)", sound_with(action_space=Box(-1.0, 1.0, (2, 2), np.float32))),
    ("action_space has dtype int64", sound_with(action_space=Box(-1, 1, (2,), np.int64))),
    # what reset gives
    ("reset returned an array", lambda: Resets(point)),
    ("reset returned a tuple of 2", lambda: Resets((point, None))),
    ("observation of reset is list", lambda: Resets(([0.0, 0.0, 0.0], {}))),
    ("observation of reset has shape (2,)", lambda: Resets((point[:2], {}))),
    ("observation of reset has dtype float64", lambda: Resets((point.astype(np.float64), {}))),
    ("reset(seed=0) raised TypeError", NoSeedArgument),
    # what step gives
    ("step returned 4 values", sound_with(step=lambda self, action: Sound.step(self, action)[1:])),
    ("step returned list", sound_with(step=lambda self, action: list(Sound.step(self, action)))),
    ("observation of step 3 has shape (4,)", replaced(0, lambda seen: np.append(seen, seen[:1]))),
    ("observation of step 3 has dtype float64", replaced(0, lambda seen: seen.astype(np.float64))),
    ("observation of step 3: entry 1 is 11.0, outside", replaced(0, with_value(1, 11.0))),
    ("reward of step 3 is NoneType", replaced(1, None)),
    ("reward of step 3 is an array", replaced(1, np.zeros(1))),
    ("terminated of step 3 is int", replaced(2, 0)),
    ("truncated of step 3 is NoneType", replaced(3, None)),
    ("info of step 3 is NoneType", replaced(4, None)),
    # how it behaves
    ("step 5 raised RuntimeError: the motor is on fire", Raises),
    ("observation of reset differs between two runs", Unseeded),
    ("observation of step 1 differs between two runs", NoiseFromElsewhere),
    ("reward of step 1 differs between two runs", NoisyReward),
    ("or reset() leaves something over from the last episode", LeavesSpeed),
    ("end at different steps: the environment ignores its seed, or reset() leaves something over", LeavesTime),
    ("observation of step 2 reuses the buffer", Reusing),
    ("observation of step 2 reuses the buffer of the one before", ReusingAtRest),
    ("observation of step 1 reuses the buffer", ReusingFromReset),
    ("action was changed by step 1", ChangesAction),
]
NOT_FINITE = [
    ("observation[2] is nan after step 3", replaced(0, with_value(2, np.nan))),
    ("observation[0] is -inf after step 3", replaced(0, with_value(0, -np.inf))),
    ("observation[1] is inf after reset", lambda: Resets((np.array([0, np.inf, 0], np.float32), {}))),
    ("reward is nan after step 3", replaced(1, np.nan)),
    ("reward is inf after step 3", replaced(1, np.float32(np.inf))),
]


def test_a_sound_environment_passes():
    check_environment(Sound())


@pytest.mark.parametrize(("message", "make"), FAULTS, ids=[message for message, _ in FAULTS])
def test_a_fault_is_named_in_one_line(message, make):
    with pytest.raises(EnvironmentFault) as caught:
        check_environment(make())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("message", "make"), NOT_FINITE, ids=[message for message, _ in NOT_FINITE])
def test_what_is_not_finite_is_named_in_one_line(message, make):
    with pytest.raises(NumericFault) as caught:
        check_environment(make())
    assert message in str(caught.value)


def test_a_missing_value_is_named_also_behind_wrappers():
    """Gymnasium's own wrappers would fail first, with a message about unpacking."""
    faulty = dict((message, make) for message, make in FAULTS)["step returned 4 values"]
    with pytest.raises(EnvironmentFault, match="step returned 4 values"):
        check_environment(gym.wrappers.TimeLimit(faulty(), 10))


def test_an_environment_that_hangs_is_reported():
    with pytest.raises(EnvironmentFault, match=r"within 0\.2 s"):
        check_environment(Hangs(), patience=0.2)


def test_a_field_of_the_symmetry_is_named():
    mirror = Z(2)
    layout = Layout({"across": mirror.sign, "along": Field(2 * mirror.trivial, (1, 2))})
    with pytest.raises(NumericFault, match=r"observation\[2\] \(along\) is nan after step 7"):
        require_finite(np.array([0, 0, np.nan]), 0.0, 7, layout)
    require_finite(np.zeros(3), 0.0, 7, layout)


def mirrored(observation=3, action=2, discrete=False):
    mirror = Z(2)
    acting = mirror.permutation("moves", [range(action)]) if discrete else action * mirror.sign
    return Symmetry(observation * mirror.sign, acting, discrete=discrete)


@pytest.mark.parametrize(
    ("wrong", "both_sides"),
    [
        ({"observation": 4}, ("observation has 3", "symmetry 4")),
        ({"observation": 2}, ("observation has 3", "symmetry 2")),
        ({"action": 1}, ("action has 2", "symmetry 1")),
        ({"action": 3}, ("action has 2", "symmetry 3")),
        ({"discrete": True}, ("actions are continuous", "symmetry's discrete")),
        ({"observation": 5, "action": 4}, ("observation has 3", "symmetry 5", "action has 2", "symmetry 4")),
    ],
)
def test_a_symmetry_of_the_wrong_size_is_refused_with_both_sides(wrong, both_sides):
    check_environment(Sound(), mirrored())
    with pytest.raises(InputError) as caught:
        check_environment(Sound(), mirrored(**wrong))
    for side in both_sides:
        assert side in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_stepped_when_the_sizes_do_not_fit():
    class Untouched(Sound):
        def reset(self, **_):
            raise AssertionError("stepped")

    with pytest.raises(InputError):
        check_environment(Untouched(), mirrored(observation=4))


def test_an_environment_that_declares_chance_may_differ_between_runs():
    env = gym.wrappers.TimeLimit(NoiseFromElsewhere(), 10)
    env.unwrapped.spec = gym.envs.registration.EnvSpec(
        "Chance-v0", entry_point=NoiseFromElsewhere, nondeterministic=True
    )
    check_environment(env)


@pytest.mark.parametrize(("task", "view"), [(name, view) for name in TASK_NAMES for view in get_task(name).symmetries])
def test_no_alarm_on_our_tasks(task, view):
    env = get_task(task).make(view)
    check_environment(env, get_task(task).symmetry(view))
    env.close()


@pytest.mark.parametrize(
    "name",
    [
        *("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"),
        *("HalfCheetah-v5", "Walker2d-v5", "Hopper-v5", "InvertedPendulum-v5", "InvertedDoublePendulum-v5"),
        *("Reacher-v5", "Pusher-v5", "Ant-v5", "Humanoid-v5", "HumanoidStandup-v5", "Swimmer-v5"),
    ],
)
def test_no_alarm_on_what_gymnasium_ships(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the environments themselves
        env = gym.make(name)
        check_environment(env)
    env.close()
