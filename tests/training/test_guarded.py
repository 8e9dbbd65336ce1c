"""Bounds of actions: agents act in [−1, 1], so scaling to the bounds must commute with the symmetry."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import symbreak
from symbreak.errors import InputError
from symbreak.symmetry import SO3, Layout, Symmetry, Z
from symbreak.training.guarded import require_bounds

MIRROR = Z(2)
SWAP = MIRROR.permutation("swap", [[1, 0]])


def acting(*reps) -> Symmetry:
    group = reps[0].group
    return Symmetry(Layout({"all": group.trivial}), Layout({f"part {i}": rep for i, rep in enumerate(reps)}))


@pytest.mark.parametrize(
    ("symmetry", "low", "high", "entry"),
    [
        (acting(SWAP), [-1, -1], [1, 1], None),
        (acting(SWAP), [0, 0], [2, 2], None),  # exchanged, so a common middle may lie anywhere
        (acting(SWAP), [-1, -0.5], [1, 1], 0),
        (acting(MIRROR.sign), [-2], [2], None),
        (acting(MIRROR.sign), [0], [2], 0),
        (acting(MIRROR.trivial, MIRROR.sign), [0, -1], [3, 1], None),  # what stays may have any bounds
        (acting(MIRROR.trivial, MIRROR.sign), [0, -1], [3, 2], 1),
        (acting(SO3().vector), [-1, -1, -1], [1, 1, 1], None),  # a cube is not round, but evenly scaled
        (acting(SO3().vector), [-1, -1, -2], [1, 1, 2], 1),
        (acting(MIRROR.trivial, MIRROR.sign), [-1000, 0], [1000, 0.004], 1),  # small beside a large one
    ],
)
def test_bounds_fit_where_scaling_commutes_with_the_group(symmetry, low, high, entry):
    space = gym.spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
    if entry is None:
        require_bounds(space, symmetry)
    else:
        with pytest.raises(InputError, match=f"bounds of action entry {entry} do not fit symmetry"):
            require_bounds(space, symmetry)


class Cart(gym.Env):
    """Two wheels, one of which is slower backwards."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = gym.spaces.Box(np.array([-1.0, -0.5], np.float32), np.ones(2, np.float32))
    closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        return np.asarray(action[:1], np.float32), 0.0, False, True, {}

    def close(self):
        Cart.closed += 1


def test_training_refuses_bounds_that_do_not_fit_and_closes_what_it_opened():
    symmetry = Symmetry(Layout({"place": MIRROR.sign}), Layout({"wheels": SWAP}))
    Cart.closed = 0
    with pytest.raises(InputError, match="bounds of action entry 0 do not fit"):
        symbreak.SAC(Cart, symmetry, method="exact").learn(10)
    assert Cart.closed >= 3  # the one that was checked, that to learn in and that to be evaluated in
