"""Each diagnostic environment is learned by each method; the planted patch opens the gate where it is."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.methods import PAPER_METHODS
from symbreak.gates.threshold import ThresholdRule
from symbreak.tasks.diagnostic import PROBES, diagnostic_task, in_patch
from symbreak.training.build import build_agent
from symbreak.training.hosted import HostedLoop

ONE_STEP = [name for name in PROBES if name != "patch"]
QUICK, ALL = ("vanilla", "partial"), PAPER_METHODS
KINDS = ("dqn", "sac")


def agents(methods):
    """Each algorithm with each method; the tests of one agent run in one process, where it is compiled once."""
    return [
        pytest.param(kind, method, marks=pytest.mark.xdist_group(f"{kind} {method}"))
        for kind in KINDS
        for method in methods
    ]


STEPS = {"dqn": 500, "sac": 700}
GATE = {
    "threshold": ThresholdRule("sigma", deviations=1.0, every=20),
    "encoding": "fourier",
    "predictor_encoding": "fourier",
    "standardise": False,
    "warmup": 150,
    "rate": 3e-3,
    "predictor_rate": 3e-3,
    "predictor_steps": 2,
    "width": 32,
    "predictor_width": 32,
}


def agent_for(kind: str, method: str, **changes):
    """The same for every probe, so that it is compiled once."""
    task = diagnostic_task("constant", kind == "sac")
    config = {"batch": 32, "width": 32, "rate": 3e-3, "polyak": 0.05, "capacity": 1_000, "learning_starts": 50}
    config["route"] = False  # the same numbers from a program that compiles in a fraction of the time
    if kind == "sac":
        config |= {"first_temperature": 0.05, "largest_norm": None}
    return build_agent(task, method, steps=400, config=config | changes, gate=GATE if method == "partial" else None)


@cache
def learned(kind: str, method: str, probe: str, steps: int | None = None, **changes) -> HostedLoop:
    loop = HostedLoop(agent_for(kind, method, **changes), diagnostic_task(probe, kind == "sac").make, seed=1)
    loop.advance(steps or STEPS[kind])
    return loop


def value(loop: HostedLoop, x: float, y: float) -> float:
    """What the agent thinks of a state: of its best action, or of the mean of its policy."""
    agent, state, observation = loop.agent, loop.state.agent, jnp.array([x, y], float)
    if agent.symmetry.discrete:
        return float(agent.values(state, observation).max())
    action, _ = agent.exploit(state, observation, jax.random.key(0))
    pair = jnp.concatenate([observation, action])
    gate = agent.gate.of_pair(state.gate, observation, action)
    expert = state.critics[int(gate > 0.5) if len(state.critics) > 1 else 0].model
    return float(jnp.min(jax.vmap(lambda twin: twin(pair)[0])(expert)))


def push(loop: HostedLoop, x: float, y: float) -> float:
    """The sideways push that the agent chooses."""
    leaves, structure = jax.tree.flatten(loop.state.agent)
    action, _ = loop.device.exploit(structure, leaves, jnp.array([x, y], float), jax.random.key(0), 0, 0)
    return float(action) - 1 if loop.agent.symmetry.discrete else float(action[0])


def check(loop: HostedLoop, probe: str) -> None:
    """The agent thinks and does on this probe what only somebody who has learned it would."""
    if probe == "constant":
        assert value(loop, 0, 0) == pytest.approx(1, abs=0.2)
    if probe == "observation":
        assert [value(loop, 0, y) for y in (-1, 1)] == pytest.approx([-1, 1], abs=0.2)
    if probe == "discount":
        assert value(loop, 0, 1) == pytest.approx(1, abs=0.1)
        assert value(loop, 0, -1) == pytest.approx(0.9, abs=0.1)
    if probe == "action":
        assert value(loop, 0, 0) == pytest.approx(1, abs=0.15)
        assert push(loop, 0, 0) == pytest.approx(0, abs=0.3)
    if probe == "both":
        assert [push(loop, x, 0) for x in (-1, 1)] == pytest.approx([-1, 1], abs=0.35)
    assert loop.evaluate(8)["eval/return"] > PROBES[probe].best - (2.0 if probe == "observation" else 0.3)


@pytest.mark.parametrize("probe", ONE_STEP)
@pytest.mark.parametrize(("kind", "method"), agents(QUICK))
def test_a_probe_is_learned(kind, method, probe):
    check(learned(kind, method, probe), probe)


@pytest.mark.slow
@pytest.mark.parametrize("probe", ONE_STEP)
@pytest.mark.parametrize(("kind", "method"), agents([name for name in ALL if name not in QUICK]))
def test_every_other_method_learns_it_too(kind, method, probe):
    check(learned(kind, method, probe), probe)


@pytest.mark.parametrize(("kind", "method"), agents(["vanilla"]))
def test_an_untrained_agent_fails_every_probe(kind, method):
    for probe in ONE_STEP:
        with pytest.raises(AssertionError):
            check(learned(kind, method, probe, steps=1), probe)


@pytest.mark.parametrize(("kind", "method"), agents(["vanilla"]))
def test_what_one_probe_teaches_does_not_pass_for_another(kind, method):
    for probe, other in (("constant", "observation"), ("observation", "discount"), ("action", "both")):
        with pytest.raises(AssertionError):
            check(learned(kind, method, probe), other)


@pytest.mark.parametrize(("kind", "method"), agents(["vanilla"])[:1])
def test_without_bootstrapping_the_reward_two_steps_away_is_not_seen(kind, method):
    loop = learned(kind, method, "discount", discount=0.0)
    assert value(loop, 0, 1) == pytest.approx(1, abs=0.1)
    assert value(loop, 0, -1) == pytest.approx(0, abs=0.1)
    with pytest.raises(AssertionError):
        check(loop, "discount")


def gates(loop: HostedLoop) -> tuple[np.ndarray, np.ndarray]:
    """The gate of random pairs, and whether the pair lies in the patch or in its image."""
    agent, rng = loop.agent, np.random.default_rng(0)
    place = rng.uniform(-1, 1, size=(500, 2))
    action = rng.integers(3, size=500) if agent.symmetry.discrete else rng.uniform(-1, 1, size=(500, 2))
    action = jnp.asarray(action) if agent.symmetry.discrete else jnp.asarray(action, jnp.float32)
    ask = jax.jit(jax.vmap(lambda s, a: agent.gate.of_pair(loop.state.agent.gate, s, a)))
    broken = in_patch(place[:, 0], place[:, 1]) | in_patch(-place[:, 0], place[:, 1])
    return np.asarray(ask(jnp.asarray(place, jnp.float32), action)), broken


def in_middle(loop: HostedLoop) -> float:
    """Mean reward of the first step from many places in the patch."""
    places = [(x, y) for x in np.linspace(0.32, 0.68, 7) for y in np.linspace(0.1, 0.9, 5)]
    return float(np.mean([1 - abs(np.clip(x + 0.4 * push(loop, x, y) - 0.8, -1, 1)) for x, y in places]))


def rank_chance(gate: np.ndarray, broken: np.ndarray) -> float:
    """The chance that a broken pair has a higher gate than an intact one."""
    ranks = np.argsort(np.argsort(gate))
    return (ranks[broken].mean() - (broken.sum() - 1) / 2) / (~broken).sum()


@pytest.mark.parametrize(("kind", "method"), agents(["partial"]))
def test_the_gate_finds_the_planted_patch(kind, method):
    loop = learned(kind, method, "patch", steps=900)
    gate, broken = gates(loop)
    assert rank_chance(gate, broken) > 0.95
    assert gate[broken].mean() > gate[~broken].mean() + 0.3
    assert loop.evaluate(30)["eval/return"] > 3
    assert in_middle(loop) > 0.45
    # A gate that learned where there is no patch does not know where it would be.
    assert rank_chance(*gates(learned(kind, method, "constant"))) < 0.8


@pytest.mark.parametrize(("kind", "method"), agents(["vanilla"]))
def test_a_free_agent_learns_the_patch(kind, method):
    loop = learned(kind, method, "patch", steps=900)
    assert loop.evaluate(30)["eval/return"] > 3
    assert in_middle(loop) > 0.45


@pytest.mark.parametrize(("kind", "method"), agents(["exact"])[:1])
def test_an_exact_agent_cannot_learn_the_patch(kind, method):
    """Outside it does as well as anybody; inside it must do the mirror image of what is right on the other side."""
    loop = learned(kind, method, "patch", steps=900)
    assert push(loop, 0.8, -0.5) == -1
    assert push(loop, -0.8, -0.5) == 1
    assert in_middle(loop) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_method_on_the_patch(kind):
    """All learn to walk to the middle; only those that can bend the symmetry also do so against the wind."""
    loops = {name: learned(kind, name, "patch", steps=3_000) for name in ALL}
    returns = {name: loop.evaluate(60)["eval/return"] for name, loop in loops.items()}
    assert min(returns.values()) > 2.3, returns
    against = {name: in_middle(loop) for name, loop in loops.items()}
    assert min(against["partial"], against["vanilla"]) > against["exact"] + 0.1, against
