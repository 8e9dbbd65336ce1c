"""How well a gate finds what is broken, against a grid-world's own tables; what a predictor explains; how far a
policy is from symmetric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import rankdata

from symbreak.agents.agent import Transition, augment
from symbreak.gates.learned import LearnedGate
from symbreak.models.predictor import IncrementOutcome
from symbreak.nn.keys import Key, named_key
from symbreak.symmetry.layout import Symmetry
from symbreak.theory import TabularMDP, breaking, minority_gate, strict_gate
from symbreak.training.truth import DISCOUNT, action_on

SHOWN_STATES = 4096  # states on which a gate is judged, drawn once
EXPLAINED_PAIRS = 2048  # stored transitions on which the free predictor is judged
LITTLE = 0.5  # a predictor that explains less than this share of a step's change leaves labels to chance
VISITED_STATES = 256  # stored states on which a policy's equivariance is measured


def auroc(score: np.ndarray, truth: np.ndarray) -> float:
    """Probability that a broken pair scores higher than an intact one (ties count half); NaN without both kinds."""
    truth = np.asarray(truth, bool)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(score)
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def precision_recall(score: np.ndarray, truth: np.ndarray, level: float = 0.5) -> tuple[float, float]:
    """Of the pairs called broken the share that is; of the broken ones the share that is called so."""
    called, truth = score > level, np.asarray(truth, bool)
    hits = float((called & truth).sum())
    return hits / called.sum() if called.any() else float("nan"), hits / truth.sum() if truth.any() else float("nan")


def rank_correlation(score: np.ndarray, truth: np.ndarray) -> float:
    """Spearman's ρ: correlation of the ranks."""
    return float(np.corrcoef(rankdata(score), rankdata(truth))[0, 1])


def calibration_error(score: np.ndarray, truth: np.ndarray, bins: int = 10) -> float:
    """Mean gap between the gate's probability and the share that is broken, over bins of equal width."""
    place = np.minimum((score * bins).astype(int), bins - 1)
    gaps = [abs(score[place == b].mean() - truth[place == b].mean()) * (place == b).mean() for b in np.unique(place)]
    return float(np.sum(gaps))


@dataclass(frozen=True, eq=False)
class GateJudge:
    """The ground truth of one grid-world under one symmetry, and the score of a gate against it."""

    world: Any
    symmetry: Symmetry

    @cached_property
    def _truth(self) -> dict[str, np.ndarray]:
        tables = self.world.tabular()
        mdp, action = TabularMDP.from_tables(tables, DISCOUNT), action_on(self.world, self.symmetry)
        free = np.flatnonzero(tables.free)
        # Its own fixed stream: judging must not depend on, or disturb, the run.
        states = np.random.default_rng(0).choice(free, min(SHOWN_STATES, len(free)), replace=False)
        found = breaking(mdp, action, tables.free)
        return {
            "states": states,
            "minority": minority_gate(mdp, action, tables.free)[states].ravel(),
            "strict": strict_gate(mdp, action, tables.free)[states].ravel(),
            "breaking": np.maximum(found.reward, found.transition)[states].ravel(),
        }

    def judge(self, gate: Any, gate_state: Any) -> dict[str, float]:
        """The metrics `gate/auroc_minority`, `gate/precision`, … and, against the other oracle, `…_strict`."""
        truth = self._truth
        agent, goal = np.divmod(truth["states"], self.world.cells)
        observation = jnp.asarray(self.world.observe(agent, goal), jnp.float32)
        score = np.asarray(_all_gates(gate, gate_state, observation), np.float64).ravel()
        both = np.ptp(score) > 0 and np.ptp(truth["breaking"]) > 0
        images = truth["strict"] & ~truth["minority"]
        means = {"minority": truth["minority"], "images": images, "symmetric": ~truth["strict"]}
        return {
            "gate/mean": float(score.mean()),
            "gate/auroc_minority": auroc(score, truth["minority"]),
            "gate/auroc_strict": auroc(score, truth["strict"]),
            **_decisions(score, truth["minority"], ""),
            **_decisions(score, truth["strict"], "_strict"),
            "gate/spearman": rank_correlation(score, truth["breaking"]) if both else float("nan"),
            **{f"gate/mean_{name}": float(score[mask].mean()) for name, mask in means.items() if mask.any()},
        }


def _decisions(score: np.ndarray, truth: np.ndarray, suffix: str) -> dict[str, float]:
    precision, recall = precision_recall(score, truth)
    return {
        f"gate/precision{suffix}": precision,
        f"gate/recall{suffix}": recall,
        f"gate/calibration_error{suffix}": calibration_error(score, truth),
    }


@jax.jit(static_argnums=0)
def _all_gates(gate: Any, gate_state: Any, observations: jax.Array) -> jax.Array:
    return jax.vmap(lambda observation: gate.of_actions(gate_state, observation))(observations)


def explained_change(agent: Any, state: Any, replay: Any) -> dict[str, float]:
    """The metric `gate/explained`: what a learned gate's labels can be worth. Empty without one, and on grid-worlds."""
    gate = agent.gate
    if not isinstance(gate, LearnedGate) or not isinstance(gate.outcome, IncrementOutcome):
        return {}
    return {"gate/explained": float(_explained(gate, state.gate, replay.spread(EXPLAINED_PAIRS)))}


@jax.jit(static_argnums=0)
def _explained(gate: LearnedGate, gate_state: Any, batch: Transition) -> jax.Array:
    return gate.predictors.explained(gate_state.predictors, batch)


def too_short(gate: Any, steps: int) -> tuple[str, ...]:
    """What a run has to say whose gate is not asked to learn anything before it ends."""
    if not isinstance(gate, LearnedGate) or gate.config.warmup < steps:
        return ()
    return (f"the gate learns nothing: its warm-up of {gate.config.warmup} steps lasts longer than the run",)


def doubts(rows: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """What a run has to say about its gate's labels, from the last row that knows."""
    shares = [row["gate/explained"] for row in rows if "gate/explained" in row]
    if not shares or shares[-1] >= LITTLE:
        return ()
    share = max(0.0, shares[-1])
    return (f"the predictor explains {100 * share:.0f} % of a step's change: the gate's labels mean little yet",)


def equivariance_error(agent: Any, state: Any, replay: Any, key: Key) -> float:
    """How far the greedy policy is from π(gs) = gπ(s), over stored states, each with a random element of its own.

    Discrete actions: the share of states at which the greedy actions do not correspond. Continuous ones: root mean
    square of the gap relative to that of the action.
    """
    stored = min(int(replay.inserted), replay.capacity)
    rows = np.asarray(jax.random.randint(named_key(key, "rows"), (VISITED_STATES,), 0, stored))
    return float(_equivariance_error(agent, state, replay.data.observation[rows], named_key(key, "moves")))


@jax.jit(static_argnums=0)
def _equivariance_error(agent: Any, state: Any, observations: jax.Array, key: Key) -> jax.Array:
    element_key, act_key = jax.random.split(key)
    rewards = jnp.zeros(len(observations))

    def act(observations: jax.Array) -> jax.Array:
        keys = jax.random.split(act_key, len(observations))
        return jax.vmap(lambda observation, k: agent.exploit(state, observation, k)[0])(observations, keys)

    actions = act(observations)
    transition = Transition(observations, actions, rewards, observations, rewards)
    moved = augment(agent.symmetry, transition, element_key)
    gap = act(moved.observation) - moved.action
    if agent.symmetry.discrete:
        return jnp.mean(gap != 0)
    return jnp.sqrt(jnp.sum(gap**2) / jnp.maximum(jnp.sum(actions**2), 1e-12))
