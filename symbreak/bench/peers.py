"""SB3 and SBX as contenders, with the network sizes and the update frequency of ours. Needs the `baselines` extra."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

from symbreak.bench.worker import Contender
from symbreak.tasks import get_task

MODULES = {"sb3": "stable_baselines3", "sbx": "sbx"}
MISSING = "SB3 and SBX are not installed and are left out; `make bench` installs them"


def installed() -> bool:
    return all(importlib.util.find_spec(module) is not None for module in MODULES.values())


class Peer(Contender):
    """SAC or DQN of a library on a task's own environment."""

    def __init__(self, library: str, task_name: str, warm_up: int) -> None:
        import torch

        # SBX imports torch too. One thread, as everything here has one core.
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        module: Any = importlib.import_module(MODULES[library])
        task = get_task(task_name)
        settings: dict[str, Any] = {
            "batch_size": 256,
            "buffer_size": 20_000,
            "learning_starts": warm_up,
            "train_freq": 1,
            "gradient_steps": 1,
            "tau": 0.005,
            "gamma": task.discount,
            "policy_kwargs": {"net_arch": [256, 256]},
            "seed": 0,
            "verbose": 0,
        }
        if task.algorithm == "dqn":
            settings["target_update_interval"] = 1
        family = module.SAC if task.algorithm == "sac" else module.DQN
        device = {"device": "cpu"} if library == "sb3" else {}
        self.model = family("MlpPolicy", task.make(), **settings, **device)

    def run(self, steps: int) -> None:
        # The first call counts from zero by itself; later ones go on.
        self.model.learn(total_timesteps=steps, reset_num_timesteps=False, log_interval=10**9)
