"""From an environment and a symmetry to a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from symbreak.audit.compare import Comparison, Evidence
from symbreak.audit.declaration import Acting
from symbreak.audit.grid import GridPairs
from symbreak.audit.mend import Mending, mend
from symbreak.audit.report import AuditReport
from symbreak.audit.rollout import Policy
from symbreak.audit.simulators import simulator_for
from symbreak.audit.verdict import NOT_A_SYMMETRY, accuse, find, is_good_approximation, judge, percent, told_by_action
from symbreak.audit.visited import VisitedStates
from symbreak.errors import InputError
from symbreak.symmetry import Symmetry
from symbreak.tasks import Task, get_task, user_task
from symbreak.tasks.check import check_spaces
from symbreak.tasks.user_file import load_symmetry, names_a_file

ENOUGH = 10  # comparisons with images that can be visited below which the reader is warned
NOTABLE_CONTROL = 1e-3  # without a transformation, a step that differs by more than this share of a change is told


def audit(
    environment: gym.Env | Task | str | Callable[..., gym.Env],
    symmetry: Symmetry | str | None = None,
    states: int = 200,
    seed: int = 0,
    policy: Policy | None = None,
) -> AuditReport:
    """Compare steps of the environment with their images under a symmetry.

    The environment is a task, its name, or any Gymnasium environment that can be put into a state (see
    `symbreak.audit.simulators`), its id, or a function that makes it. The symmetry is one of the task's by name, or
    declared. States are those that `policy` (a function from observation to action; default: random actions) visits; a
    grid-world is enumerated instead.
    """
    task = _named(environment, symmetry) if isinstance(environment, str) else environment
    if not isinstance(task, Task):
        if not isinstance(symmetry, Symmetry):
            raise InputError(f"symmetry={symmetry!r}: give a Symmetry for an environment of your own")
        if isinstance(task, gym.Env):
            return _audit(task, symmetry, _name(task), states, seed, policy)
        task = user_task(task, symmetry)
    if isinstance(symmetry, Symmetry):
        made = task.make(_fitting_view(task, symmetry))
        declared = symmetry
    else:
        made, declared = task.make(symmetry), task.symmetry(symmetry)
    try:
        return _audit(made, declared, task.name, states, seed, policy)
    finally:
        made.close()


def run_audit(
    task_name: str,
    symmetry_name: str | None = None,
    states: int = 200,
    seed: int = 0,
    json: bool = False,
    out: str | Path | None = None,
) -> int:
    """The command `symbreak audit`: prints the report, writes it to `out`, returns the exit code."""
    symmetry: Symmetry | str | None = symmetry_name
    if symmetry_name is not None and names_a_file(symmetry_name):
        symmetry = load_symmetry(symmetry_name)
    report = audit(task_name, symmetry, states, seed)
    print(report.to_json() if json else report)
    if out is not None:
        written = report.save(out)
        if not json:
            print(f"written: {', '.join(str(path) for path in written)}")
    return report.exit_code


def _named(task_name: str, symmetry: Symmetry | str | None) -> Task:
    """One of our tasks, or, with a symmetry of one's own, any environment registered with Gymnasium."""
    if isinstance(symmetry, Symmetry) and task_name in gym.registry:
        return user_task(task_name, symmetry)
    return get_task(task_name)


def _name(env: gym.Env) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def _fitting_view(task: Task, symmetry: Symmetry) -> str | None:
    """The name of the view with as many numbers as the symmetry describes; the default one if there is none."""
    fits = (name for name in task.symmetries if task.symmetry(name).observation.size == symmetry.observation.size)
    return next(fits, None)


def _audit(env: gym.Env, symmetry: Symmetry, name: str, states: int, seed: int, policy: Policy | None) -> AuditReport:
    observation_space, action_space = check_spaces(env)
    discrete = isinstance(action_space, Discrete)
    size = int(action_space.n) if isinstance(action_space, Discrete) else action_space.shape[0]
    symmetry.require(observation_space.shape[0], size, discrete)
    evidence: Evidence = GridPairs.of(env) or VisitedStates(simulator_for(env), states, seed, policy)
    comparison = evidence.compare(Acting.of(symmetry, evidence.elements(symmetry.group)))
    findings = {name: find(comparison, errors, evidence.noun) for name, errors in comparison.fields.items()}
    reward = find(comparison, comparison.reward, evidence.noun)
    termination = find(comparison, comparison.termination, evidence.noun)
    invariant = isinstance(action_space, Discrete) or _bounds_invariant(symmetry, action_space)
    mending = Mending()
    if not comparison.exact and not is_good_approximation(findings, reward, comparison):
        mending = mend(evidence, symmetry, comparison, (observation_space.low, observation_space.high))
    verdict, reasons = judge(findings, reward, termination, comparison, invariant, mending, evidence.control)
    if verdict == NOT_A_SYMMETRY:
        findings = accuse(findings, mending)
    return AuditReport(
        task=name,
        symmetry=f"{symmetry.name} ({symmetry.group})",
        verdict=verdict,
        reasons=reasons,
        fields=findings,
        reward=reward,
        termination=termination,
        action_bounds_invariant=invariant,
        reachable_share=float(comparison.reachable.mean()),
        dynamics_share=comparison.broken_share(list(comparison.fields.values())),
        broken_share=comparison.broken_share(comparison.everything),
        suggestions=_suggestions(mending) if verdict == NOT_A_SYMMETRY or mending.exact else (),
        notes=_notes(evidence, comparison),
        pairs=evidence.pairs,
        noun=evidence.noun,
        world=evidence.world if isinstance(evidence, GridPairs) else None,
        cells=_cells(evidence, comparison) if isinstance(evidence, GridPairs) else None,
    )


def _bounds_invariant(symmetry: Symmetry, space: Box) -> bool:
    """Whether every generator maps the box of actions into itself (then onto itself: it keeps volumes)."""
    low, high = space.low.astype(float), space.high.astype(float)
    for element in symmetry.group.generators:
        matrix = symmetry.action.matrix(element)
        acts = np.abs(matrix) > 1e-12
        with np.errstate(invalid="ignore"):  # nothing times infinity is nothing here
            corners = np.where(acts, matrix * high, 0.0), np.where(acts, matrix * low, 0.0)
        highest, lowest = np.maximum(*corners).sum(axis=1), np.minimum(*corners).sum(axis=1)
        slack = 1e-6 * np.where(np.isfinite(high), 1.0 + np.abs(high), 1.0)
        if np.any(highest > high + slack) or np.any(lowest < low - slack):
            return False
    return True


def _suggestions(mending: Mending) -> tuple[str, ...]:
    if not mending.changes:
        return ()
    gain = "then it is exact"
    if not mending.exact:
        before, after = mending.errors
        gain = f"then the mean error falls from {before:.2g} to {after:.2g}"
    first, last = mending.changes[:-1], mending.changes[-1]
    return (*map(str, first), f"{last} ({gain})")


def _notes(evidence: Evidence, comparison: Comparison) -> tuple[str, ...]:
    notes = [f"{evidence.pairs} {evidence.noun}; {evidence.how}"]
    if evidence.left_out:
        all_pairs = evidence.pairs + evidence.left_out
        verb = "is" if evidence.left_out == 1 else "are"
        notes.append(
            f"{evidence.left_out} of {all_pairs} {evidence.noun} cannot be set back and {verb} left out: from there a "
            "step differs even without a transformation"
        )
    leaving = np.zeros_like(comparison.made) if comparison.leaving is None else comparison.leaving
    if leaving.any():
        notes.append(f"images of actions that leave the action bounds: {percent(leaving.mean())}; not compared")
    could_be_made = comparison.made | leaving
    if not could_be_made.all() and not comparison.enumerated:
        notes.append(f"images that could be made: {percent(could_be_made.mean())}; the others are not compared")
    notes += told_by_action(comparison, evidence.actions())
    visited = int((comparison.reachable & comparison.made).sum())
    if visited < ENOUGH:
        notes.append(f"only {visited} images could be visited: audit more states for firmer figures")
    if comparison.hindrances:
        total = comparison.reachable.size
        written = (f"{reason} ({percent(count / total)})" for reason, count in comparison.hindrances.most_common(3))
        notes.append(f"what keeps images from being visited: {', '.join(written)}")
    if evidence.control > NOTABLE_CONTROL:
        notes.append(
            f"even without a transformation a step is off by up to {percent(evidence.control)}: the observation does "
            "not determine the step, set_state does not set everything, or the environment is random; "
            f"{evidence.allowance} this counts as unbroken"
        )
    return tuple(notes)


def _cells(evidence: GridPairs, comparison: Comparison) -> np.ndarray:
    """Share of broken pairs per cell of the agent; NaN on blocked cells."""
    broken = np.any([errors.broken for errors in comparison.everything], axis=0).any(axis=1)
    agent = np.repeat(evidence.states // evidence.world.cells, 4)
    count = np.bincount(agent, minlength=evidence.world.cells)
    with np.errstate(invalid="ignore"):
        return np.bincount(agent, weights=broken, minlength=evidence.world.cells) / count
