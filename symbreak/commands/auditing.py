"""`symbreak audit`: is a declared symmetry one?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symbreak.commands.arguments import TaskName, declared
from symbreak.errors import InputError


def audit(
    task: TaskName,
    symmetry: str | None = None,
    env_import: tuple[str, ...] = (),
    run: Path | None = None,
    states: int = 200,
    seed: int = 0,
    json: bool = False,
    out: Path | None = None,
) -> int:
    """Is a declared symmetry one? Steps the simulator from states and from their images, and compares.

    Args:
        task: Name of a task, or with a symmetry of your own a Gymnasium id.
        symmetry: paper, exact, or file.py:NAME (the file is executed).
        env_import: Packages that register your environment, installed or in the current directory.
        run: Audit the states that the agent of this run visits, instead of those of random actions.
        states: How many states to compare.
        seed: Seed of the policy that visits them.
        json: Print JSON.
        out: Also write report and picture into this directory.
    """
    from symbreak.audit.run import audit as compare
    from symbreak.training.choice import choose_task

    chosen = declared(symmetry, env_import)
    found = choose_task(task, chosen)
    policy = None if run is None else _policy_of(run, task, found, chosen)
    report = compare(found, None if symmetry is None else chosen, states, seed, policy)
    print(report.to_json() if json else report)
    if out is not None:
        written = report.save(out)
        if not json:
            print(f"written: {', '.join(str(path) for path in written)}")
    return report.exit_code


def _policy_of(directory: Path, name: str, task: Any, symmetry: Any) -> Any:
    """The greedy actions of a run's agent, as the environment takes them."""
    from symbreak.training.choice import needs_own_symmetry, task_of_run
    from symbreak.training.evaluate import greedy_policy, load_trained
    from symbreak.training.record import read_config

    config = read_config(directory)
    if config.task != name:
        raise InputError(f"the run in {directory} is about {config.task}, not {name}; audit {config.task}")
    if task.jax_env is not None:
        raise InputError("of a grid-world every state is audited, whatever a policy visits; leave --run out")
    trained_on = task_of_run(config, directory, symmetry=symmetry if needs_own_symmetry(config) else None)
    shown = task.symmetry(symmetry if isinstance(symmetry, str) else None).observation.size
    if trained_on.symmetry(config.symmetry).observation.size != shown:
        seen = config.symmetry or trained_on.symmetries[0]
        raise InputError(f"the run in {directory} sees other numbers than this symmetry; audit --symmetry {seen}")
    return greedy_policy(load_trained(directory, trained_on))
