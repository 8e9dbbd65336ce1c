"""Which loss may change which parameters: every pair outside the allowed set has a gradient of exactly zero."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.dqn import DQN
from symbreak.agents.sac import SAC
from symbreak.gates import AbstractGate, LearnedGate
from symbreak.gates.gate import Empty
from symbreak.gates.threshold import observe

KEY = jax.random.key(3)


def models(learners):
    return tuple(learner.model for learner in learners)


def gate_losses(agent, batch):
    gate = agent.gate

    def classifier(state):
        distance = gate.disagreements(state.gate, batch, KEY)
        labels = observe(gate.config.threshold, state.gate.threshold, distance, jnp.int32(1))[1]
        return gate.classifier_loss(state.gate.classifier.model, state.gate.predictors, batch, labels)[0]

    def free(state):
        predictors = state.gate.predictors
        return gate.predictors.free_loss(predictors.free.model, predictors, batch)

    def equivariant(state):
        predictors = state.gate.predictors
        return gate.predictors.equivariant_loss(predictors.equivariant.model, predictors, batch)

    own = {"free predictor": free, "classifier": classifier}
    return own | ({"equivariant predictor": equivariant} if gate.config.disagreement == "trained" else {})


def dqn_losses(agent: DQN, batch):
    def critic(state):
        return agent.critic_loss(models(state.experts), state.targets, state.gate, batch, KEY)[0]

    return {"critic": critic, **gate_losses(agent, batch)}


def sac_losses(agent: SAC, batch):
    def critic(state):
        policies, temperature = models(state.policies), state.temperature.model
        return agent.critic_loss(models(state.critics), state.targets, policies, state.gate, temperature, batch, KEY)[0]

    def actor(state):
        critics, temperature = models(state.critics), state.temperature.model
        return agent.actor_loss(models(state.policies), critics, state.gate, temperature, batch, KEY)[0]

    def temperature(state):
        critics, model = models(state.critics), state.temperature.model
        _, (log_prob, _) = agent.actor_loss(models(state.policies), critics, state.gate, model, batch, KEY)
        return agent.temperature_loss(model, log_prob)

    def state_gate(state):
        propose = agent._proposer(models(state.policies))
        candidates = jax.vmap(propose)(jax.random.split(KEY, len(batch.reward)), batch.observation)
        return agent.gate.state_gate_loss(state.gate.state_gate.model, state.gate, batch, candidates)

    own = {"critic": critic, "actor": actor, "temperature": temperature}
    if agent.gate.config.state_gate == "expectile":
        own["state gate"] = state_gate
    return own | gate_losses(agent, batch)


GATE_GROUPS = {
    "free predictor": lambda s: s.gate.predictors.free.model,
    "equivariant predictor": lambda s: s.gate.predictors.equivariant and s.gate.predictors.equivariant.model,
    "classifier": lambda s: s.gate.classifier.model,
    "target gate": lambda s: s.gate.target,
    "statistics": lambda s: (s.gate.predictors.inputs, s.gate.predictors.outcomes, s.gate.threshold),
}
GROUPS = {
    "dqn": {
        "equivariant critic": lambda s: s.experts[0].model,
        "free critic": lambda s: s.experts[1].model,
        "target critics": lambda s: s.targets,
        **GATE_GROUPS,
    },
    "sac": {
        "equivariant critic": lambda s: s.critics[0].model,
        "free critic": lambda s: s.critics[1].model,
        "target critics": lambda s: s.targets,
        "equivariant policy": lambda s: s.policies[0].model,
        "free policy": lambda s: s.policies[1].model,
        "temperature": lambda s: s.temperature.model,
        "state gate": lambda s: s.gate.state_gate and s.gate.state_gate.model,
        **GATE_GROUPS,
    },
}
ALLOWED = {
    "critic": {"equivariant critic", "free critic"},
    "actor": {"equivariant policy", "free policy"},
    "temperature": {"temperature"},
    "state gate": {"state gate"},
    "free predictor": {"free predictor"},
    "equivariant predictor": {"equivariant predictor"},
    "classifier": {"classifier"},
}


def reached(losses, groups, state) -> dict[str, set[str]]:
    """For each loss the groups of parameters into which some gradient flows."""
    gradients = eqx.filter_jit(lambda s: {name: eqx.filter_grad(loss)(s) for name, loss in losses.items()})(state)

    def moves(part) -> bool:
        leaves = [leaf for leaf in jax.tree.leaves(part) if eqx.is_inexact_array(leaf)]
        assert all(np.isfinite(leaf).all() for leaf in leaves)
        return any(np.any(leaf) for leaf in leaves)

    return {
        name: {group for group, select in groups.items() if moves(select(gradient))}
        for name, gradient in gradients.items()
    }


def seen_something(state, batch):
    """Statistics of a few values, so that a gradient through them would show."""
    numbers = jnp.asarray(np.random.default_rng(0).uniform(0.5, 2, size=(8, batch.observation.shape[1])), jnp.float32)
    predictors = state.gate.predictors
    changed = (predictors.inputs.merge(numbers), predictors.outcomes.merge(numbers[:, : predictors.outcomes.mean.size]))
    return eqx.tree_at(lambda s: (s.gate.predictors.inputs, s.gate.predictors.outcomes), state, changed)


CASES = {
    "dqn hard": ("dqn", "hard", {}),
    "dqn soft, head on the predictor": ("dqn", "soft", {"classifier": "head"}),
    "sac hard": ("sac", "hard", {}),
    "sac soft": ("sac", "soft", {}),
    "dqn soft, averaged": ("dqn", "soft", {"disagreement": "averaged"}),
    "sac soft, averaged, sampled maximum": ("sac", "soft", {"disagreement": "averaged", "state_gate": "sampled_max"}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name.startswith("sac soft") else []) for name in CASES]
)
def test_every_loss_reaches_its_own_parameters_and_no_others(name, small_agent, drawn_state, random_batch):
    algorithm, routing, settings = CASES[name]
    agent = small_agent(algorithm, routing=routing, **settings)
    batch = random_batch(agent)
    losses = (dqn_losses if algorithm == "dqn" else sac_losses)(agent, batch)
    state = seen_something(drawn_state(agent), batch)
    assert reached(losses, GROUPS[algorithm], state) == {name: ALLOWED[name] for name in losses}


@dataclass(frozen=True)
class LeakyGate(LearnedGate):
    """A gate that forgot to stop its answers, and a head that trains what it reads."""

    def of_pair(self, state, observation, action, *, target=False):
        return jax.nn.sigmoid(self._logit(state.predictors, self._model(state, target), observation, action))

    def _logit(self, predictors, model, observation, action):
        standard = self.predictors.standard(predictors, observation)
        pair = self.predictors.free_input(predictors, standard, self.predictors.vector(action))
        return model(predictors.free.model.features(pair))[0]


def test_the_table_sees_a_gate_that_does_not_stop(small_agent, drawn_state, random_batch):
    agent = small_agent("dqn", routing="soft", classifier="head")
    leaky = LeakyGate(agent.gate.symmetry, agent.gate.outcome, agent.gate.config)
    agent = DQN(agent.symmetry, agent.method, leaky, agent.config)
    batch = random_batch(agent)
    losses = dqn_losses(agent, batch)

    def unstopped_target(state):
        target = agent.target(state.targets, state.gate, batch, KEY)
        value = jax.vmap(state.experts[0].model)(batch.observation)[:, 0]
        return jnp.mean((value - target) ** 2)

    chosen = {"critic": losses["critic"], "classifier": losses["classifier"], "unstopped": unstopped_target}
    found = reached(chosen, GROUPS["dqn"], seen_something(drawn_state(agent), batch))
    assert {"classifier", "free predictor"} <= found["critic"]
    assert "free predictor" in found["classifier"]
    assert "target critics" in found["unstopped"]


@dataclass(frozen=True)
class RightGate(AbstractGate):
    """1 on the right half of the plane, 0 on the left: known routing, sample by sample."""

    actions: int = 4
    unchecked = ()

    def of_pair(self, state, observation, action, *, target=False):
        return (observation[0] > 0).astype(observation.dtype)

    def of_actions(self, state, observation, *, target=False):
        return jnp.full(self.actions, observation[0] > 0).astype(observation.dtype)

    def of_state(self, state, observation, propose, key):
        return (observation[0] > 0).astype(observation.dtype)

    def init(self, key):
        return Empty()

    def update(self, state, sample, batch, step, key, propose):
        return state, {}


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_an_expert_learns_only_from_the_samples_routed_to_it(algorithm, small_agent, drawn_state, random_batch):
    agent = small_agent(algorithm)
    state, batch = drawn_state(agent), random_batch(agent)
    agent = type(agent)(agent.symmetry, agent.method, RightGate(), agent.config)
    right = np.asarray(batch.observation[:, 0]) > 0
    assert 3 <= right.sum() <= 13

    @jax.jit
    def gradients(reward):
        changed = eqx.tree_at(lambda b: b.reward, batch, reward)
        if algorithm == "dqn":
            loss = lambda m: agent.critic_loss(m, state.targets, None, changed, KEY)[0]  # noqa: E731
            return jax.grad(loss)(models(state.experts))
        policies, temperature = models(state.policies), state.temperature.model
        loss = lambda m: agent.critic_loss(m, state.targets, policies, None, temperature, changed, KEY)[0]  # noqa: E731
        return jax.grad(loss)(models(state.critics))

    before = gradients(batch.reward)
    after = gradients(batch.reward + jnp.asarray(right, jnp.float32))
    equivariant, free = (
        jax.tree.leaves(jax.tree.map(np.array_equal, a, b)) for a, b in zip(before, after, strict=True)
    )
    assert all(equivariant)  # nothing it was asked about has changed
    assert not any(free)
    all_right = gradients(batch.reward + 1)
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, before[0], all_right[0])))


@pytest.mark.parametrize(("probability", "selected"), [(0.0, 0), pytest.param(1.0, 1, marks=pytest.mark.slow)])
def test_the_expert_that_is_never_selected_gets_no_gradient(
    probability, selected, small_agent, drawn_state, random_batch
):
    agent = small_agent("sac", gate=probability)
    state, batch = drawn_state(agent), random_batch(agent)

    @jax.jit
    def gradients(state):
        policies, temperature = models(state.policies), state.temperature.model
        critics = models(state.critics)
        critic = jax.grad(lambda m: agent.critic_loss(m, state.targets, policies, None, temperature, batch, KEY)[0])
        actor = jax.grad(lambda m: agent.actor_loss(m, critics, None, temperature, batch, KEY)[0])
        return critic(critics), actor(policies)

    for pair in gradients(state):
        norms = [sum(float(np.abs(leaf).sum()) for leaf in jax.tree.leaves(part)) for part in pair]
        assert norms[1 - selected] == 0
        assert norms[selected] > 0
