"""Variants of a gate on stored transitions: scored against the truth, and not screened twice."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.errors import InputError
from symbreak.gates import GateConfig, LearnedGate
from symbreak.models.predictor import IncrementOutcome
from symbreak.studies.random_policy import random_quadrant
from symbreak.studies.screening import main, pair_score, screen_robot
from symbreak.studies.variants import ROBOT_VARIANTS
from symbreak.tasks import get_task
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
    main([*asked, "--steps", "300"])  # a row of another length is no reason
    assert len(out.read_text().splitlines()) == 3
    main(["swimmer:exact", "--only", "every eighth step", "--steps", "60", "--out", str(out)])
    row = json.loads(out.read_text().splitlines()[-1])
    assert (row["task"], row["variant"]) == ("swimmer:exact", "every eighth step")
    assert row["opened"] == [pytest.approx(0.7685, abs=1e-4)] * 6  # what it starts with


def test_one_quadrant_shows_no_image_of_any_pair(tmp_path):
    world = get_task("grid-20").jax_env()
    data = random_quadrant(world, 0.99, 500, jax.random.key(0))
    x, y = np.asarray(data.observation)[:, :2].T
    assert len(x) == 500
    assert min(x) > 0
    assert min(y) > 0
    out = tmp_path / "found.jsonl"
    main(["grid-20:quadrant", "--only", "direct", "--steps", "600", "--out", str(out)])
    (row,) = map(json.loads, out.read_text().splitlines())
    assert (row["task"], row["variant"], row["scores"]) == ("grid-20:quadrant", "direct", [0.5] * 6)


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


@pytest.mark.slow
@pytest.mark.parametrize(("symmetry", "least", "most"), [("exact", 0.0, 0.02), ("paper", 0.2, 0.8)])
def test_the_default_gate_opens_under_a_wrong_symmetry_of_a_robot_and_stays_shut_under_the_right_one(
    symmetry, least, most
):
    sizes = {"steps": 10_000, "warmup": 3_000, "report": 10_000}
    (found,) = screen_robot(get_task("swimmer"), symmetry, ROBOT_VARIANTS[:1], **sizes)
    assert (found.task, found.variant) == (f"swimmer:{symmetry}", "default")
    assert least <= found.opened[-1] <= most
