"""States are set exactly, images show what they should, and what cannot be set is refused in one line."""

from __future__ import annotations

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from symbreak.audit import audit
from symbreak.audit.declaration import Acting
from symbreak.audit.integration import IntegrationState
from symbreak.audit.mujoco_state import MujocoSimulator
from symbreak.audit.simulators import StatefulSimulator, simulator_for
from symbreak.audit.visited import VisitedStates
from symbreak.errors import EnvironmentFault, InputError
from symbreak.symmetry import Symmetry
from symbreak.tasks import get_task

MUJOCO = [("hopper", "paper"), ("swimmer", "exact"), ("ant", "paper"), ("ant", "exact")]


def made(name: str, view: str, steps: int = 15, seed: int = 3):
    """A simulator after a few random steps."""
    simulator = simulator_for(get_task(name).make(view))
    rng = np.random.default_rng(seed)
    simulator.reset(seed=seed)
    space = simulator.env.action_space
    for _ in range(steps):
        if simulator.step(rng.uniform(space.low, space.high)).terminated:
            simulator.reset()
    return simulator, rng.uniform(space.low, space.high)


@pytest.mark.parametrize(("name", "view"), [*MUJOCO, ("fetch-reach", "paper"), ("ur5e-reach", "paper")])
def test_a_captured_state_is_restored_bit_for_bit(name, view):
    simulator, action = made(name, view)
    state = simulator.capture()
    simulator.place(state)
    first = simulator.step(action)
    simulator.reset()  # elsewhere
    simulator.step(action)
    simulator.place(state)
    again = simulator.step(action)
    np.testing.assert_array_equal(first.observation, again.observation)
    assert first.reward == again.reward
    simulator.place(state)
    assert np.any(simulator.step(0.5 * action).observation != first.observation)


def test_without_clearing_the_warm_start_a_step_depends_on_the_past():
    """The negative control of the test above: the state is more than positions and velocities."""
    simulator, action = made("ant", "paper", steps=30)
    bare = simulator.env.unwrapped
    whole = IntegrationState(bare.model, bare.data)
    state = whole.read()

    def stepped(warm: float) -> np.ndarray:
        whole.write(state)
        bare.data.qacc_warmstart[:] = warm
        return simulator.step(action).observation

    np.testing.assert_array_equal(stepped(0.0), stepped(0.0))
    assert np.abs(stepped(0.0) - stepped(50.0)).max() > 0.0


@pytest.mark.parametrize("name", ["ant", "fetch-reach", "ur5e-reach"])
def test_positions_and_velocities_stand_where_they_are_written(name):
    simulator, _ = made(name, get_task(name).symmetries[0])
    bare = simulator.env.unwrapped
    whole = IntegrationState(bare.model, bare.data)
    before = whole.read()
    positions, velocities = bare.data.qpos + 0.01, bare.data.qvel - 0.01
    moved = whole.moved(before, positions, velocities)
    mujoco.mj_setState(bare.model, bare.data, moved, mujoco.mjtState.mjSTATE_INTEGRATION.value)
    np.testing.assert_array_equal(bare.data.qpos, positions)
    np.testing.assert_array_equal(bare.data.qvel, velocities)
    others = np.flatnonzero(moved != before)
    assert others.min() >= 1
    assert others.max() < 1 + bare.model.nq + bare.model.nv


@pytest.mark.parametrize(("name", "view"), MUJOCO)
def test_an_image_shows_the_transformed_observation(name, view):
    simulator, _ = made(name, view)
    symmetry = get_task(name).symmetry(view)
    matrix = symmetry.observation.matrix(symmetry.group.generators[0])
    state, seen = simulator.capture(), simulator.observation()
    image = simulator.image(state, matrix @ seen)
    simulator.place(image)
    np.testing.assert_allclose(simulator.observation(), matrix @ seen, atol=1e-12)
    back = simulator.image(image, matrix.T @ simulator.observation())
    simulator.place(back)
    np.testing.assert_allclose(simulator.observation(), seen, atol=1e-12)
    # The place on the floor is not shown and stays.
    skipped = simulator.env.unwrapped.observation_structure["skipped_qpos"]
    floor = simulator.env.unwrapped.data.qpos[:skipped].copy()
    simulator.place(state)
    np.testing.assert_array_equal(simulator.env.unwrapped.data.qpos[:skipped], floor)


def test_a_matrix_that_is_no_rotation_has_no_image():
    simulator, _ = made("ant", "exact")
    observation = simulator.observation()
    mirrored = observation.copy()
    mirrored[1:4] *= -1.0  # one row of the rotation matrix
    assert simulator.image(simulator.capture(), observation) is not None
    assert simulator.image(simulator.capture(), mirrored) is None


def test_the_fetch_arm_reaches_rotated_positions_and_velocities():
    simulator, _ = made("fetch-reach", "paper", steps=8)
    symmetry = get_task("fetch-reach").symmetry()
    state, seen = simulator.capture(), simulator.observation()
    unmoved = simulator.image(state, seen)
    same = simulator._whole.moved(state[0], *_positions(simulator, state))
    np.testing.assert_allclose(unmoved[0], same, rtol=0, atol=1e-13)
    reached = 0
    for element in symmetry.group.generators:
        target = symmetry.observation.matrix(element) @ seen
        image = simulator.image(state, target)
        if image is None:
            continue
        reached += 1
        simulator.place(image)
        np.testing.assert_allclose(_gripper(simulator.env.unwrapped), target, atol=1e-8)
    assert reached >= 1
    assert simulator.image(state, seen + np.array([5.0, *np.zeros(8)])) is None  # five metres away


def _positions(simulator, state):
    simulator.place(state)
    data = simulator.env.unwrapped.data
    return data.qpos.copy(), data.qvel.copy()


def _gripper(bare) -> np.ndarray:
    """The nine numbers, computed from the simulator's own."""
    site = bare.model.site("robot0:grip").id
    jacobian = np.zeros((3, bare.model.nv))
    mujoco.mj_jacSite(bare.model, bare.data, jacobian, None, site)
    position, velocity = bare.data.site_xpos[site] - bare.centre, jacobian @ bare.data.qvel * bare.dt
    return np.concatenate([position, velocity, bare.goal - bare.centre])


def test_joint_limits_hinder_images_but_never_the_state_itself():
    simulator, _ = made("hopper", "paper", steps=5)
    state, seen = simulator.capture(), simulator.observation()
    assert simulator.hindrance(state, state) == ""
    bent = seen.copy()
    bent[3] = 1.0  # the leg bends backwards only
    assert simulator.hindrance(state, simulator.image(state, bent)) == "leg_joint beyond its limit"
    sunk = seen.copy()
    sunk[0] -= 0.3
    assert simulator.hindrance(state, simulator.image(state, sunk)) == "bodies inside one another"


def test_mujoco_states_are_set_by_what_the_environment_shows():
    structured = MujocoSimulator(gym.make("InvertedPendulum-v5", disable_env_checker=True))
    structured.reset(seed=0)
    seen = structured.observation()
    structured.place(structured.image(structured.capture(), -seen))
    np.testing.assert_allclose(structured.observation(), -seen)
    with pytest.raises(InputError, match="cfrc_ext"):
        simulator_for(gym.make("Ant-v5", disable_env_checker=True))

    class Doubled(gym.ObservationWrapper):
        def observation(self, observation):
            return 2.0 * observation

    with pytest.raises(InputError, match="a wrapper around SwimmerEnv changes the observation"):
        simulator_for(Doubled(gym.make("Swimmer-v5", disable_env_checker=True)))


def test_a_users_methods_win_over_what_is_known(pendulum):
    class Own(gym.Wrapper):
        def state_from_observation(self, observation):
            return observation

        def set_state(self, state):
            pass

    assert isinstance(simulator_for(Own(gym.make("Swimmer-v5", disable_env_checker=True))), StatefulSimulator)
    assert isinstance(simulator_for(pendulum), StatefulSimulator)


def test_an_environment_that_cannot_be_set_is_refused(pendulum_mirror):
    with pytest.raises(InputError, match=r"PendulumEnv cannot be put into a state: it has no set_state"):
        audit(gym.make("Pendulum-v1", disable_env_checker=True), pendulum_mirror)

    class OnlySet(gym.Wrapper):
        def set_state(self, state):
            self.unwrapped.state = state

    with pytest.raises(InputError, match="it has no get_state and state_from_observation"):
        audit(OnlySet(gym.make("Pendulum-v1", disable_env_checker=True)), pendulum_mirror)

    class NoInverse(OnlySet):
        def get_state(self):
            return self.unwrapped.state

    with pytest.raises(InputError, match=r"get_state\(\) returns \(2,\), not the observation \(3,\)"):
        audit(NoInverse(gym.make("Pendulum-v1", disable_env_checker=True)), pendulum_mirror)


def test_without_get_state_states_come_from_observations(pendulum_mirror):
    class FromObservation(gym.Wrapper):
        def set_state(self, state):
            self.unwrapped.state = state

        def state_from_observation(self, observation):
            return np.array([np.arctan2(observation[1], observation[0]), observation[2]], dtype=float)

    report = audit(FromObservation(gym.make("Pendulum-v1", disable_env_checker=True)), pendulum_mirror, states=40)
    assert report.verdict == "exact"


def test_an_inverse_that_fails_on_what_was_shown_is_an_error(room, room_turn):
    class Forgetful(room):
        def state_from_observation(self, observation):
            return None

    with pytest.raises(InputError, match="returned None for an observation the environment had just shown"):
        audit(Forgetful(), room_turn, states=20)


def test_a_random_environment_shows_in_the_control(room, room_turn):
    report = audit(room(slip=0.4), room_turn, states=60)
    assert any("even without a transformation" in note for note in report.notes)
    assert not any("even without" in note for note in audit(room(), room_turn, states=60).notes)


def test_hidden_state_that_the_inverse_forgets_is_an_error(pendulum_mirror, pendulum):
    class Drifting(gym.Wrapper):
        """A second clock that the observation does not show."""

        def get_state(self):
            return self.unwrapped.state.copy(), self.unwrapped.g

        def set_state(self, state):
            self.unwrapped.state, self.unwrapped.g = state[0].copy(), state[1]

        def state_from_observation(self, observation):
            return np.array([np.arctan2(observation[1], observation[0]), observation[2]]), 10.0

        def step(self, action):
            self.unwrapped.g += 0.5
            return self.env.step(action)

    env = Drifting(gym.make("Pendulum-v1", disable_env_checker=True).unwrapped)
    with pytest.raises(InputError, match="state_from_observation does not lead back"):
        audit(env, pendulum_mirror, states=30)
    assert not any("determine" in note for note in audit(pendulum, pendulum_mirror, states=30).notes)


def test_a_step_that_raises_is_an_environment_fault(room, room_turn):
    class Fragile(room):
        def step(self, action):
            if self.place == (0, 0):
                raise RuntimeError("fell\nover")
            return super().step(action)

    with pytest.raises(EnvironmentFault, match="step raised RuntimeError: fell over"):
        audit(Fragile(), room_turn, states=300)


def test_symmetries_of_the_wrong_size_are_refused_before_anything_runs(room, pendulum_mirror):
    with pytest.raises(InputError, match="does not fit the environment"):
        audit(room(), pendulum_mirror)
    with pytest.raises(InputError, match="give a Symmetry"):
        audit(room(), "paper")
    with pytest.raises(InputError, match="audit at least one state"):
        audit("swimmer", "exact", states=0)


def test_actions_beyond_their_bounds_are_taken_at_the_bounds():
    task = get_task("fetch-reach")
    evidence = VisitedStates(simulator_for(task.make()), 4, 0)
    acting = Acting.of(task.symmetry(), task.symmetry().group.generators)
    for element in range(3):
        images = np.array(evidence._image_actions(acting, element, evidence.situations))
        assert np.abs(images).max() <= 1.0
        raw = acting.act(element, np.array([situation.action for situation in evidence.situations]))
        np.testing.assert_array_equal(images, np.clip(raw, -1.0, 1.0).astype(np.float32))


def test_an_exact_step_is_the_image_of_the_step_element_by_element():
    """The law itself, written out once without any of the audit's code."""
    task = get_task("swimmer")
    symmetry: Symmetry = task.symmetry("exact")
    env = task.make("exact").unwrapped
    env.reset(seed=5)
    rng = np.random.default_rng(5)
    for _ in range(20):
        env.step(rng.uniform(-1.0, 1.0, 2))
    observation, matrix = env._get_obs(), symmetry.observation.matrix(symmetry.group.generators[0])
    action = rng.uniform(-1.0, 1.0, 2)

    def stepped(shown, taken):
        mujoco.mj_resetData(env.model, env.data)
        env.set_state(np.concatenate([[0.0, 0.0], shown[:3]]), shown[3:])
        return env.step(taken)[0]

    image = stepped(matrix @ observation, symmetry.action.matrix(symmetry.group.generators[0]) @ action)
    np.testing.assert_allclose(image, matrix @ stepped(observation, action), atol=1e-12)
    assert np.abs(image - stepped(observation, action)).max() > 1e-3
