"""Does plain SAC learn as well as SBX's? The same settings, seeds, evaluations: `make learning`.

One line of JSON per run in a file that later calls add to; what stands there is not run again.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from symbreak.agents.sac import SACConfig
from symbreak.errors import InputError
from symbreak.tasks import get_task
from symbreak.training.run import train
from symbreak.training.settings import RunConfig

EPISODES = 10


def ours(task: str, seed: int, steps: int, evaluations: int) -> list[float]:
    config = RunConfig(task, "vanilla", steps=steps, seed=seed, evaluations=evaluations, episodes=EPISODES)
    return [row["eval/return"] for row in train(config) if "eval/return" in row]


def theirs(task: str, seed: int, steps: int, evaluations: int) -> list[float]:
    import optax
    import torch
    from sbx import SAC  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    config, described = SACConfig(), get_task(task)
    world: Any = described.make()

    def optimiser(learning_rate: Any, **_: Any) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(config.largest_norm or np.inf), optax.adam(learning_rate))

    model = SAC(
        "MlpPolicy",
        world,
        learning_rate=config.rate,
        batch_size=config.batch,
        buffer_size=steps,
        learning_starts=described.random_steps,
        tau=config.polyak,
        gamma=described.discount,
        ent_coef=f"auto_{config.first_temperature}",
        target_entropy=config.entropy_per_action * world.action_space.shape[0],
        policy_kwargs={"net_arch": [config.width] * 2, "optimizer_class": optimiser},
        seed=seed,
    )
    returns = []
    for _ in range(evaluations):
        model.learn(steps // evaluations, reset_num_timesteps=False, log_interval=10**9)
        returns.append(_mean_return(model, described.make(), seed))
    return returns


def _mean_return(model: Any, world: Any, seed: int) -> float:
    total = 0.0
    for episode in range(EPISODES):
        observation, _ = world.reset(seed=1_000_000 + EPISODES * seed + episode)
        ended = False
        while not ended:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = world.step(action)
            total, ended = total + float(reward), terminated or truncated
    world.close()
    return total / EPISODES


LIBRARIES = {"ours": ours, "sbx": theirs}


def main(
    task: str = "hopper", steps: int = 100_000, seeds: int = 3, evaluations: int = 20, out: Path | None = None
) -> int:
    """Train both libraries and print their last returns.

    Args:
        task: One with continuous actions.
        steps: Environment steps per run.
        seeds: How many runs of each library.
        evaluations: How many, spread evenly over the run, of ten greedy episodes each.
        out: The file of results; by default results/learning.jsonl.
    """
    from symbreak.process.fast_start import prepare_process

    prepare_process()
    path = out or Path("results/learning.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    asked = {"task": task, "steps": steps, "evaluations": evaluations}
    for seed in range(seeds):
        for library, run_library in LIBRARIES.items():
            run = {**asked, "library": library, "seed": seed}
            if any(run.items() <= row.items() for row in _rows(path)):
                continue
            returns = [round(value, 2) for value in run_library(task, seed, steps, evaluations)]
            with path.open("a") as file:
                file.write(json.dumps({**run, "returns": returns}) + "\n")
            print(f"{library} seed {seed}: {returns[-1]:.0f}", flush=True)
    for library in LIBRARIES:
        last = [r["returns"][-1] for r in _rows(path) if asked.items() <= r.items() and r["library"] == library]
        print(f"{library}: {min(last):.0f} to {max(last):.0f}, mean {np.mean(last):.0f}, {len(last)} seeds")
    return 0


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    try:
        sys.exit(tyro.cli(main))
    except InputError as problem:
        sys.exit(f"error: {problem}")
