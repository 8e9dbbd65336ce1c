"""Variants of a gate on stored transitions: scored against the truth, and not screened twice."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.errors import InputError
from symbreak.gates import GateConfig, LearnedGate
from symbreak.models.predictor import IncrementOutcome
from symbreak.studies.screening import main, pair_score
from symbreak.tasks.diagnostic import mirror


def test_a_gate_that_never_learned_scores_one_half_and_is_not_screened_again(tmp_path, capsys):
    out = tmp_path / "found.jsonl"
    asked = ["patch", "--only", "direct", "--steps", "600", "--out", str(out)]  # learning would start at 1,000
    main(asked)
    (row,) = map(json.loads, out.read_text().splitlines())
    assert (row["task"], row["variant"], row["seed"]) == ("patch", "direct", 0)
    assert row["scores"] == [0.5] * 6
    assert row["on_broken"] == row["on_symmetric"] > 0  # what it starts with
    assert "direct" in capsys.readouterr().out
    main(asked)
    assert len(out.read_text().splitlines()) == 1
    main([*asked, "--seed", "1"])
    assert len(out.read_text().splitlines()) == 2


def test_a_gate_that_knows_scores_one():
    class Knowing(LearnedGate):
        def of_pair(self, state, observation, action, *, target=False):
            return jnp.where(observation[0] > 0, 0.9, 0.2)

    gate = Knowing(mirror(True), IncrementOutcome(mirror(True)), GateConfig())
    places = np.linspace(-1, 1, 50, dtype=np.float32)[:, None]
    zero = jnp.zeros(50)
    data = Transition(jnp.asarray(places), jnp.asarray(places), zero, jnp.asarray(places), zero)
    assert pair_score(data, places[:, 0] > 0)(gate, None) == pytest.approx((1, 0.9, 0.2))
    assert pair_score(data, places[:, 0] < 0)(gate, None) == pytest.approx((0, 0.2, 0.9))


def test_a_shared_trunk_needs_two_predictors():
    with pytest.raises(InputError, match="only if there are two"):
        GateConfig(shared_predictor_trunk=True)
    assert GateConfig(shared_predictor_trunk=True, disagreement="trained").shared_predictor_trunk
