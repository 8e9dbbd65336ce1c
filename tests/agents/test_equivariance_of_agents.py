"""The constrained modules of an agent commute with the group at the start, after learning and after loading."""

from __future__ import annotations

from contextlib import nullcontext

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.methods import METHODS
from symbreak.agents.sac import SAC, SACConfig
from symbreak.gates import GateConfig, LearnedGate
from symbreak.models.predictor import IncrementOutcome
from symbreak.storage.checkpoint import Checkpoints
from symbreak.tasks.symmetries import ant_exact, fetch_paper

LIMIT = {"float32": 1e-4, "float64": 1e-9}


def enlarged(model):
    """Heads start at a hundredth; an error relative to that would hide behind the biases."""
    return eqx.tree_at(lambda m: m.network.head, model, jax.tree.map(lambda leaf: 100 * leaf, model.network.head))


def answers(agent, state, observation, action):
    """Outputs of every module on one pair, each with the layout by which it should move."""
    gate, predictors = agent.gate, state.gate.predictors
    vector = gate.predictors.vector(action)
    standard = gate.predictors.standard(predictors, observation)
    predicted = gate.outcome.decode(predictors.equivariant.model(jnp.concatenate([standard, vector])))
    result = {
        "predictor": predicted,
        "free predictor": predictors.free.model(gate.predictors.free_input(predictors, standard, vector)),
    }
    learners, targets = (state.experts if agent.symmetry.discrete else state.critics), state.targets
    if agent.symmetry.discrete:
        for name, model in (("critic", learners[0].model), ("target", targets[0]), ("free critic", learners[1].model)):
            result[name] = enlarged(model)(observation)
        return result
    pair = jnp.concatenate([observation, action])
    for name, twins in (("critic", learners[0].model), ("target", targets[0]), ("free critic", learners[1].model)):
        result[name] = jax.vmap(lambda twin: enlarged(twin)(pair)[0])(twins)
    for name, learner in zip(("policy", "free policy"), state.policies, strict=True):
        policy = eqx.tree_at(lambda p: p.model, learner.model, enlarged(learner.model.model))
        distribution = policy(observation)
        result |= {f"{name} mode": distribution.mode(), f"{name} std": distribution.std}
    return result


def moved(agent, name, output, element):
    """What an answer of this name becomes when its pair is moved by the element."""
    symmetry, size = agent.symmetry, output.shape[-1]
    if "predictor" in name:
        return output @ agent.gate.outcome.layout.matrix(element).T
    if "mode" in name or (symmetry.discrete and size == symmetry.action.size):
        return output @ symmetry.action.matrix(element).T
    if "std" in name:
        signed = all(atom.is_signed_permutation for atom in symmetry.action.rep.distinct)
        return output @ np.abs(symmetry.action.matrix(element)).T if signed else output
    return output


def errors(agent, ask, state, dtype):
    rng = np.random.default_rng(0)
    symmetry = agent.symmetry
    element = symmetry.group.generators[0] if symmetry.group.is_finite else symmetry.group.sample(rng)
    observation = rng.normal(size=(12, symmetry.observation.size))
    image = observation @ symmetry.observation.matrix(element).T
    if symmetry.discrete:
        action = rng.integers(4, size=12)
        action_image = symmetry.action_permutation(element)[action]
    else:
        action = rng.uniform(-1, 1, size=(12, symmetry.action.size)).astype(dtype)
        action_image = (action @ symmetry.action.matrix(element).T).astype(dtype)
    straight = ask(state, jnp.asarray(observation, dtype), jnp.asarray(action))
    images = ask(state, jnp.asarray(image, dtype), jnp.asarray(action_image))
    found = {}
    for name, output in straight.items():
        wanted = moved(agent, name, np.asarray(output, np.float64), element)
        found[name] = np.linalg.norm(np.asarray(images[name]) - wanted) / np.linalg.norm(wanted)
        assert np.abs(output).max() > 1e-3, name
    return found


def quickly(function):
    """Compiled in a third of the time."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def check(agent, batch, dtype, updates, directory):
    ask = quickly(
        lambda state, observations, actions: jax.vmap(lambda s, a: answers(agent, state, s, a))(observations, actions)
    )
    batch = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, batch)

    @quickly
    def learn(state, count):
        step = lambda n, s: agent.update(s, lambda _: batch, n, jax.random.fold_in(jax.random.key(1), n))[0]  # noqa: E731
        return jax.lax.fori_loop(1, count + 1, step, state)

    start = agent.init(jax.random.key(0))
    learned = learn(start, jnp.int32(updates))
    (directory / "replay").mkdir()
    store = Checkpoints(directory, directory / "replay")
    store.save(updates, {"agent": learned}, {})
    loaded = store.load({"agent": start}).trees["agent"]
    assert not jax.tree.all(jax.tree.map(np.array_equal, start, loaded))
    for state in (start, learned, loaded):
        found = errors(agent, ask, state, dtype)
        constrained = {name: error for name, error in found.items() if not name.startswith("free")}
        assert max(constrained.values()) < LIMIT[dtype], constrained
        free = [found["free predictor"], found["free critic"], found.get("free policy mode", 1.0)]
        assert min(free) > 1e-2, found


@pytest.mark.parametrize(
    ("algorithm", "dtype"),
    [
        ("dqn", "float32"),
        pytest.param("dqn", "float64", marks=pytest.mark.slow),
        pytest.param("sac", "float32", marks=pytest.mark.slow),
    ],
)
def test_constrained_modules_commute_with_the_group(algorithm, dtype, small_agent, random_batch, tmp_path):
    with jax.enable_x64(True) if dtype == "float64" else nullcontext():
        agent = small_agent(algorithm, "partial", config={"rate": 1e-3})
        check(agent, random_batch(agent), dtype, 20, tmp_path)


def large_agent(symmetry, width):
    gate = GateConfig(disagreement="trained", warmup=0, width=8, predictor_width=width, state_gate="expectile")
    return SAC(
        symmetry,
        METHODS["partial"],
        LearnedGate(symmetry, IncrementOutcome(symmetry), gate),
        SACConfig(batch=16, width=width, rate=1e-3),
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("name", ["dqn", "mirror", "quarter turns", "rotations"])
def test_they_still_do_after_a_thousand_updates(name, dtype, small_agent, random_batch, tmp_path):
    with jax.enable_x64(True) if dtype == "float64" else nullcontext():
        if name in ("quarter turns", "rotations"):
            agent = large_agent(*((ant_exact(), 64) if name == "quarter turns" else (fetch_paper(), 64)))
        else:
            agent = small_agent("dqn" if name == "dqn" else "sac", "partial", config={"rate": 1e-3})
        check(agent, random_batch(agent), dtype, 1_000, tmp_path)
