"""How well a gate finds what is broken, and how far a policy is from symmetric, from their definitions; TensorBoard
files hold what metrics.jsonl does.
"""

from __future__ import annotations

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.gates import FixedGate, GateConfig
from symbreak.gates.gate import OracleGate
from symbreak.gates.predictors import Predictors, PredictorState
from symbreak.models.predictor import IncrementOutcome
from symbreak.storage.replay import Replay
from symbreak.tasks import get_task
from symbreak.tasks.diagnostic import mirror
from symbreak.tasks.gridworld import GridWorld
from symbreak.tasks.symmetries import grid
from symbreak.training.board import Board
from symbreak.training.quality import (
    GateJudge,
    auroc,
    calibration_error,
    doubts,
    equivariance_error,
    precision_recall,
    rank_correlation,
)
from symbreak.training.run import train
from symbreak.training.settings import RunConfig
from symbreak.training.truth import StateIndex, oracle_table


def test_auroc_is_the_chance_of_ranking_a_broken_pair_higher():
    rng = np.random.default_rng(0)
    score, truth = rng.integers(5, size=60) / 4, rng.random(60) < 0.3
    wins = [(a > b) + 0.5 * (a == b) for a in score[truth] for b in score[~truth]]
    assert auroc(score, truth) == pytest.approx(np.mean(wins))
    assert auroc(-score, truth) == pytest.approx(1 - np.mean(wins))
    assert np.isnan(auroc(score, np.zeros(60, bool)))


def test_precision_and_recall_by_hand():
    score, truth = np.array([0.9, 0.6, 0.5, 0.2, 0.7]), np.array([1, 0, 1, 1, 1], bool)
    assert precision_recall(score, truth) == (2 / 3, 2 / 4)  # one half is not above one half
    assert precision_recall(score, truth, level=0.1) == (4 / 5, 1)
    assert np.isnan(precision_recall(score, truth, level=1.0)[0])


def test_calibration_by_hand():
    """Two bins: 0.2 where a half is broken, 0.9 where all is."""
    score, truth = np.array([0.2, 0.2, 0.9, 0.9, 0.9, 0.9]), np.array([0, 1, 1, 1, 1, 1])
    assert calibration_error(score, truth) == pytest.approx(0.3 * 2 / 6 + 0.1 * 4 / 6)
    assert calibration_error(np.array([0.0, 1.0]), np.array([0, 1])) == 0
    assert calibration_error(np.array([1.0, 0.0]), np.array([0, 1])) == 1


def test_rank_correlation_looks_at_the_order_alone():
    values = np.array([0.1, 0.5, 0.2, 0.9])
    assert rank_correlation(values, np.exp(9 * values)) == pytest.approx(1)
    assert rank_correlation(values, -values) == pytest.approx(-1)
    assert rank_correlation(np.array([1, 2, 3, 4]), np.array([2, 1, 4, 3])) == pytest.approx(1 - 6 * 4 / (4 * 15))


def test_a_gate_is_judged_by_the_truth():
    world = GridWorld(size=5, obstacles=3, layout_seed=1)
    judge, key = GateJudge(world, get_task("grid-20").symmetry()), jax.random.key(0)
    minority, strict = (
        OracleGate(oracle_table(world, judge.symmetry, f"oracle-{kind}"), StateIndex(world))
        for kind in ("minority", "strict")
    )
    wrong = OracleGate(1 - oracle_table(world, judge.symmetry, "oracle-minority"), StateIndex(world))
    found = {
        name: judge.judge(gate, gate.init(key))
        for name, gate in {"right": minority, "strict": strict, "wrong": wrong, "half": FixedGate(0.5, 4)}.items()
    }
    right = found["right"]
    assert [right[f"gate/{name}"] for name in ("auroc_minority", "precision", "recall")] == [1, 1, 1]
    assert [right[f"gate/mean_{name}"] for name in ("minority", "images", "symmetric")] == [1, 0, 0]
    assert right["gate/calibration_error"] == 0
    assert right["gate/auroc_strict"] < 1  # it leaves out the images of what is broken
    assert found["strict"]["gate/auroc_strict"] == 1
    assert found["strict"]["gate/recall"] == 1
    assert found["strict"]["gate/precision"] < 1
    assert found["strict"]["gate/calibration_error"] > 0
    strictly = [found["strict"][f"gate/{name}_strict"] for name in ("precision", "recall", "calibration_error")]
    assert strictly == [1, 1, 0]
    assert right["gate/precision_strict"] == 1
    assert right["gate/recall_strict"] < 1
    assert right["gate/calibration_error_strict"] > 0
    assert right["gate/spearman"] > 0 > found["wrong"]["gate/spearman"]
    assert found["wrong"]["gate/auroc_minority"] == found["wrong"]["gate/recall"] == 0
    assert found["half"]["gate/auroc_minority"] == 0.5
    assert np.isnan(found["half"]["gate/spearman"])


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


def test_what_a_predictor_explains_by_hand():
    """Changes of 1 and 3 times a direction: saying the mean explains nothing, saying them everything."""
    symmetry = mirror(continuous=True)
    predictors = Predictors(symmetry, IncrementOutcome(symmetry), GateConfig(width=8, predictor_width=8))
    state = predictors.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    before = jnp.asarray(rng.normal(size=(64, symmetry.observation.size)), jnp.float32)
    action = jnp.asarray(rng.uniform(-1, 1, (64, symmetry.action.size)), jnp.float32)
    change = jnp.where(jnp.arange(64)[:, None] % 2, 3.0, 1.0) * jnp.ones((64, symmetry.observation.size))
    batch = Transition(before, action, jnp.zeros(64), before + change, jnp.ones(64))

    def constant(value: float) -> PredictorState:
        head = lambda s: s.free.model.network.head  # noqa: E731
        parts = (jnp.zeros_like(head(state).kernel), jnp.full_like(head(state).bias, value))
        return eqx.tree_at(lambda s: (head(s).kernel, head(s).bias), state, parts)

    assert predictors.explained(constant(2.0), batch) == pytest.approx(0.0, abs=1e-5)
    assert predictors.explained(constant(3.0), batch) == pytest.approx(-1.0, abs=1e-5)
    trained = state
    assert predictors.explained(trained, batch) < 0.5
    for _ in range(400):
        trained, _ = predictors.train(trained, batch)
    told = float(predictors.explained(trained, batch))
    loss = predictors.free_loss(trained.free.model, trained, batch)
    assert told == pytest.approx(1 - loss / symmetry.observation.size, abs=1e-4)  # each entry's change has variance 1
    assert np.isnan(predictors.explained(state, jax.tree.map(lambda leaf: leaf[:1], batch)))


def test_a_run_doubts_labels_whose_predictor_explains_little():
    said = "the predictor explains 11 % of a step's change: the gate's labels mean little yet"
    assert doubts([{"step": 5, "gate/explained": 0.114}]) == (said,)
    assert doubts([{"step": 5, "gate/explained": -3.0}])[0].startswith("the predictor explains 0 %")
    assert doubts([{"step": 5, "gate/explained": 0.1}, {"step": 6, "gate/explained": 0.8}, {"step": 7}]) == ()
    assert doubts([]) == doubts([{"step": 5}]) == ()  # without a gate nothing is doubted


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
