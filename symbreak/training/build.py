"""From names to an agent: task × symmetry × method × preset.

Two presets exist. `default` is what we recommend and have measured; `paper` follows the published tables.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from symbreak.agents.dqn import DQN, DQNConfig
from symbreak.agents.methods import Method, as_published, get_method
from symbreak.agents.sac import SAC, SACConfig
from symbreak.errors import InputError
from symbreak.gates.gate import AbstractGate, FixedGate, NoGate, OracleGate
from symbreak.gates.learned import GateConfig, LearnedGate
from symbreak.gates.threshold import ThresholdKind, ThresholdRule
from symbreak.models.predictor import AbstractOutcome, CellOutcome, IncrementOutcome
from symbreak.tasks.task import Task
from symbreak.training.truth import StateIndex, action_on, oracle_table

Preset = Literal["default", "paper"]


def gate_config(task: Task, preset: Preset, steps: int, learning_starts: int) -> GateConfig:
    """The gate's settings; budgets are fixed here, for a training of `steps` environment steps."""
    discrete = task.algorithm == "dqn"
    world = None if task.jax_env is None else task.jax_env()  # a grid: bounded coordinates, categorical predictors
    if preset == "paper":
        return GateConfig(
            disagreement="trained",
            threshold=threshold_rule(task, "sigma" if task.quantile_level is None else "quantile"),
            encoding="raw",
            standardise=False,
            warmup=task.paper_warm_up_steps if discrete else max(min(20_000, steps // 10), 2 * learning_starts),
            prior=0.5 if discrete else 0.7685,
            rate=1e-4,
            predictor_steps=20 if discrete else 2,
            largest_norm=1.0 if discrete else 0.5,
            width=256 if discrete else 128,
            state_gate="none" if discrete else "expectile",
        )
    if world is not None:
        rule = threshold_rule(task, "sigma" if world.slip else "absolute")
    else:  # κ was chosen for another disagreement; below zero it can call everything broken (docs/reproduction.md)
        rule = threshold_rule(task, "error")
    # Predictors see nothing before learning starts: they get as long again before anything is made of them.
    warmup = max(min(5_000 if discrete else 20_000, steps // 10), 2 * learning_starts)
    return GateConfig(
        threshold=rule,
        encoding="raw" if world is None else "fourier",
        standardise=world is None,
        warmup=warmup,
        prior=0.5 if discrete else 0.7685,
        # Fast rates every fourth step find what is broken sooner than the usual rate every step, at a third of the
        # cost (docs/reproduction.md has the figures of grid-worlds; elsewhere the usual rates are raised fourfold).
        rate=2e-3,
        predictor_rate=1.2e-3 if world is None else 2e-3,
        predictor_every=4,
        gate_every=4,
        largest_norm=1.0 if discrete else 0.5,
        width=128,
        state_gate="none" if discrete else "expectile",
    )


def threshold_rule(task: Task, kind: ThresholdKind, **parts: Any) -> ThresholdRule:
    """A rule as it is usual on the task, whose κ, level and pace are published; `parts` are otherwise."""
    discrete, own = task.algorithm == "dqn", kind == "error"  # that rule is ours
    usual = {
        "deviations": task.threshold_deviations,
        "level": task.quantile_level or 0.6,
        "smoothing": 0.9 if own else 0.2 if discrete else 0.1,
        "every": 200 if discrete and not own else 100,
    }
    return ThresholdRule(kind, **{**usual, **parts})


def outcome_for(task: Task, symmetry_name: str | None, preset: Preset, config: GateConfig) -> AbstractOutcome:
    """What the one-step predictors predict on this task."""
    symmetry = task.symmetry(symmetry_name)
    if task.jax_env is not None:
        if config.reward_head is not None or config.termination_head is not None:
            raise InputError("the heads of a grid-world's predictors follow from its rewards; leave out gate.*_head")
        world = task.jax_env()
        if not world.passable_penalty:
            return CellOutcome(symmetry, world.size)
        if preset == "paper":
            return CellOutcome(symmetry, world.size, "scalar")
        return CellOutcome(symmetry, world.size, "categorical", tuple(world.reward_values))
    broken = task.broken(symmetry_name) if preset == "default" else ()
    reward = "reward" in broken if config.reward_head is None else config.reward_head
    termination = "termination" in broken if config.termination_head is None else config.termination_head
    return IncrementOutcome(symmetry, reward, termination, scaled=preset == "default")


def make_gate(
    method: Method,
    task: Task,
    symmetry_name: str | None,
    preset: Preset,
    steps: int,
    changes: dict[str, Any],
    learning_starts: int | None = None,
) -> AbstractGate:
    symmetry = task.symmetry(symmetry_name)
    actions = symmetry.action.size if symmetry.discrete else 0
    if method.gate == "none":
        return NoGate(actions)
    if method.gate == "fixed":
        return FixedGate(method.fixed, actions)
    if method.gate == "learned":
        starts = task.random_steps if learning_starts is None else learning_starts
        config = gate_config(task, preset, steps, starts)
        if not symmetry.discrete:
            config = replace(config, state_gate=method.state_gate)
        if method.shared_predictors:  # two heads on one trunk need a second predictor to share it with
            config = replace(config, disagreement="trained", shared_predictor_trunk=True)
        if isinstance(rule := changes.get("threshold"), dict):
            changes = {**changes, "threshold": threshold_rule(task, **rule)}
        config = replace(config, **changes)
        outcome = outcome_for(task, symmetry_name, preset, config)
        if config.threshold.kind == "absolute" and not outcome.is_categorical:
            raise InputError(
                f"the threshold 'absolute' is a probability, and on {task.name} the predictors predict numbers: "
                "use gate.threshold.kind=sigma"
            )
        return LearnedGate(symmetry, outcome, config)
    if task.jax_env is None:
        raise InputError(
            f"method {method.gate!r} needs a grid-world, whose tables say what is broken; {task.name} is none"
        )
    world = task.jax_env()
    return OracleGate(oracle_table(world, symmetry, method.gate), StateIndex(world))


def build_agent(
    task: Task,
    method_name: str,
    *,
    symmetry_name: str | None = None,
    preset: Preset = "default",
    steps: int | None = None,
    config: dict[str, Any] | None = None,
    gate: dict[str, Any] | None = None,
) -> DQN | SAC:
    """The task's algorithm with the named method; `config` and `gate` override single settings."""
    symmetry = task.symmetry(symmetry_name)
    if task.jax_env is not None:
        action_on(task.jax_env(), symmetry)  # refuses what moves cells to elsewhere
    budget = task.training_steps if steps is None else steps
    method = get_method(method_name)
    if preset == "paper":
        method = as_published(method)

    def gated(learning_starts: int) -> AbstractGate:
        return make_gate(method, task, symmetry_name, preset, budget, gate or {}, learning_starts)

    if task.algorithm == "dqn":
        _require_no_policy(method_name, method)
        chosen = DQNConfig(
            discount=task.discount, learning_starts=task.random_steps, exploration_steps=budget // 2, route=True
        )
        chosen = replace(chosen, **config or {})
        return DQN(symmetry, method, gated(chosen.learning_starts), chosen)
    chosen = SACConfig(
        discount=task.discount,
        learning_starts=task.random_steps,
        capacity=min(budget, 1_000_000),
        radial=preset == "default",
        route=True,
    )
    if preset == "paper" and (task.name, method_name) == ("swimmer", "rpp"):
        chosen = replace(chosen, polyak=0.004)  # the one exception in the published table
    chosen = replace(chosen, **config or {})
    return SAC(symmetry, method, gated(chosen.learning_starts), chosen)


def _require_no_policy(name: str, method: Method) -> None:
    """DQN has no policy whose gate or trunk could differ; a run under the method's name would be plain `partial`."""
    if method.shared_trunk or method.state_gate != "expectile":
        raise InputError(
            f"method {name!r} is about policies, and an agent with numbered actions has none: use 'partial'"
        )
