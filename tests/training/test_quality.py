"""How far a policy is from symmetric, from its definition; TensorBoard files hold what metrics.jsonl does."""

from __future__ import annotations

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.tasks.diagnostic import mirror
from symbreak.tasks.symmetries import grid
from symbreak.training.board import Board
from symbreak.training.quality import equivariance_error
from symbreak.training.replay import Replay
from symbreak.training.run import train
from symbreak.training.settings import RunConfig


class Acting(eqx.Module):
    """An agent that is nothing but a policy."""

    symmetry: object = eqx.field(static=True)
    policy: object = eqx.field(static=True)

    def exploit(self, state, observation, key):
        return self.policy(observation), jnp.zeros(())


def stored(symmetry, rows: np.ndarray) -> Replay:
    action = jnp.zeros(len(rows), jnp.int32)
    zero = jnp.zeros(len(rows))
    return Replay(Transition(jnp.asarray(rows), action, zero, jnp.asarray(rows), zero), jnp.int32(len(rows)))


def error(symmetry, policy) -> float:
    rows = np.random.default_rng(0).normal(size=(500, symmetry.observation.size)).astype(np.float32)
    return equivariance_error(Acting(symmetry, policy), None, stored(symmetry, rows), jax.random.key(3))


def test_of_a_mirrored_policy_there_is_no_error_and_of_a_constant_one_two_sqrt_half():
    # Under the mirror g of order two a constant action a becomes −a: half of the elements leave a gap of 2|a|.
    symmetry = mirror(continuous=True)  # the push changes sign, the lift does not
    assert error(symmetry, lambda x: jnp.tanh(x)) == 0
    assert error(symmetry, lambda x: jnp.array([0.3, 0.0])) == pytest.approx(2 * np.sqrt(0.5), rel=0.1)
    assert error(symmetry, lambda x: jnp.array([0.0, 0.3])) == 0


def test_of_a_constant_move_three_of_four_turns_do_not_correspond():
    assert error(grid(), lambda x: jnp.int32(2)) == pytest.approx(0.75, abs=0.08)


def test_metrics_have_it_and_tensorboard_has_the_metrics(tmp_path):
    small = {"batch": 8, "width": 8, "capacity": 100, "learning_starts": 20}
    train(RunConfig("grid-20", "vanilla", steps=40, evaluations=2, episodes=2, agent=small), tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(0.2 <= row["policy/equivariance_error"] <= 1 for row in rows)

    tensorboard = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = tensorboard.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    shown = [(event.step, event.value) for event in board.Scalars("eval/return")]
    np.testing.assert_allclose(shown, [(row["step"], row["eval/return"]) for row in rows], atol=1e-6)


def test_a_board_on_a_full_disk_says_so_where_it_is_called(tmp_path, monkeypatch):
    def full(_):
        raise OSError("full")

    board = Board(tmp_path / "tensorboard", 0)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="full"):
            board.add({"x": 1.0}, 3)
    board.add({"x": 2.0}, 4)
    board.close()
