"""The two gates that screening liked best, trained with an agent where the broken place is known.

On grid-worlds the study `predictor-steps` does this; the planted patch is a continuous world of a few steps, so all of
its runs take minutes. Plain and equivariant agents stand beside the gated ones: what the patch costs, and what it
costs to be blind to it.

    python -m symbreak.studies.patch --out results/patch.jsonl
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from symbreak.agents.methods import get_method
from symbreak.studies.random_policy import random_episodes
from symbreak.studies.screening import pair_score
from symbreak.studies.variants import CONTINUOUS_VARIANTS
from symbreak.tasks.diagnostic import diagnostic_task, in_patch
from symbreak.training.build import build_agent
from symbreak.training.hosted import HostedLoop

GATES = ("default", "predictor and gate every step")  # names of variants of `partial`
CONTENDERS = (*(("partial", name) for name in GATES), ("vanilla", ""), ("exact", ""))
EPISODES = 200  # of the last evaluation


def trained(method: str, variant: str, seed: int, steps: int, width: int = 64) -> dict[str, Any]:
    """Return and, of a gated agent, the gate on pairs of a random policy, after `steps` steps."""
    task = diagnostic_task("patch", continuous=True)
    changes = next((found.changes for found in CONTINUOUS_VARIANTS if found.name == variant), {})
    config = {"width": width, "batch": 128, "learning_starts": 500}
    gate = {"warmup": steps // 5, **changes} if get_method(method).gate == "learned" else {}
    agent = build_agent(task, method, steps=steps, config=config, gate=gate)
    loop = HostedLoop(agent, lambda: task.make(None), seed)
    loop.advance(steps)
    row: dict[str, Any] = {"method": method, "variant": variant, "seed": seed, "steps": steps}
    row["return"] = loop.evaluate(EPISODES)["eval/return"]
    if gate:
        data = random_episodes(task.make(None), task.discount, 5_000, seed)
        x, y = np.asarray(data.observation).T
        score = pair_score(data, in_patch(x, y) | in_patch(-x, y))
        names = ("auroc", "on_broken", "on_symmetric")
        row |= zip(names, score(agent.gate, loop.state.agent.gate), strict=True)  # pyright: ignore
    loop.close()
    return row


def main(arguments: list[str] | None = None) -> None:
    """One line per run, on the terminal and in the file; runs that stand in the file are not made again."""
    from symbreak.process.cores import use_one_core

    parser = argparse.ArgumentParser(description="Train the best screened gates on a planted patch.")
    parser.add_argument("--out", type=Path, required=True, help="file of results, a JSON object per line")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    use_one_core()
    lines = chosen.out.read_text().splitlines() if chosen.out.exists() else []
    identity = ("method", "variant", "seed", "steps")
    known = {tuple(json.loads(line)[name] for name in identity) for line in lines}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(chosen.seeds):
        for method, variant in CONTENDERS:
            if (method, variant, seed, chosen.steps) in known:
                continue
            row = trained(method, variant, seed, chosen.steps)
            text = json.dumps({name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()})
            with chosen.out.open("a") as file:
                file.write(text + "\n")
            print(text, flush=True)


if __name__ == "__main__":
    main()
