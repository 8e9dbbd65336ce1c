"""`symbreak evaluate`: what the agent of a run does, in numbers and as a film."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from symbreak.commands.arguments import RunDirectory, declared


def evaluate(
    directory: RunDirectory,
    episodes: int = 10,
    seed: int = 0,
    video: Path | None = None,
    gate: Literal["own", "drawn", "decided", "equivariant", "free", "coin"] = "own",
    random: float = 0.0,
    symmetry: str | None = None,
    env_import: tuple[str, ...] = (),
    json: bool = False,
) -> int:
    """Play greedy episodes with the agent of a run's newest good checkpoint. The run is left as it is.

    Args:
        directory: Directory of the run.
        episodes: How many.
        seed: Seed of the episodes.
        video: Also film the first episode (.mp4 or .gif), beside it which expert acts and what the gate says.
        gate: Who chooses between two experts: the agent as it is (own), its gate by a draw at every step (drawn) or
            decided at one half (decided); or what they do without it: equivariant, free, or a coin at every step.
        random: Share of moves that are made at random instead: an agent that gets stuck does better with a few.
        symmetry: A symmetry of your own is given again, as file.py:NAME: a run never stores what to import.
        env_import: Packages that register your environment, again.
        json: Print JSON.
    """
    import json as json_module

    from symbreak.training.choice import task_of_run
    from symbreak.training.record import read_config
    from symbreak.training.video import check_target, record_episode

    config = read_config(directory)
    if video is not None:
        check_target(video)
    task = task_of_run(config, directory, symmetry=declared(symmetry, env_import))

    from symbreak.training.evaluate import chosen_by, load_trained
    from symbreak.training.evaluate import evaluate as play

    trained = chosen_by(load_trained(directory, task), gate)
    result = play(trained, episodes, seed, random)
    if json:
        print(json_module.dumps({"step": trained.step, "gate": gate, "random": random, **result.to_dict()}, indent=1))
    else:
        choice = "" if gate == "own" else f", gate {gate}"
        choice += f", {random:.3g} of moves random" if random else ""
        print(f"{config.method} on {config.task}, step {trained.step}{choice}: {result}")
    if video is not None:
        episode = record_episode(trained, video, seed, random)
        if not json:
            print(f"film of an episode of {len(episode.rewards)} steps, return {episode.total:.3f}: {video}")
    return 0
