"""What can be chosen about a learned gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from symbreak.errors import InputError
from symbreak.gates.threshold import ThresholdRule

Encoding = Literal["fourier", "raw"]


@dataclass(frozen=True)
class GateConfig:
    """Our recommended gate; the presets of a task are made where agents are built."""

    disagreement: Literal["averaged", "trained"] = "averaged"  # with the group average, or with a trained network
    threshold: ThresholdRule = field(default_factory=ThresholdRule)
    classifier: Literal["network", "head", "direct"] = "network"
    encoding: Encoding = "raw"  # what the classifiers see; Fourier features need coordinates in [-1, 1]
    predictor_encoding: Encoding = "raw"
    standardise: bool = True  # inputs of unbounded observations, in a way that commutes with the group
    warmup: int = 10_000  # environment steps before the gate learns
    prior: float = 0.5  # gate probability until then
    rate: float = 5e-4
    predictor_rate: float = 3e-4
    predictor_steps: int = 1  # gradient steps each time
    predictor_every: int = 1  # environment steps between two times
    gate_every: int = 1  # environment steps between two updates of the classifiers
    largest_norm: float = 1.0
    width: int = 256
    predictor_width: int = 256
    polyak: float = 0.005
    few: int = 4  # elements of a continuous group in an average
    state_gate: Literal["none", "expectile", "sampled_max"] = "none"
    expectile: float = 0.8
    shared_predictor_trunk: bool = False
    # Do the predictors of continuous states also predict these? None: where the task's audit finds them broken.
    reward_head: bool | None = None
    termination_head: bool | None = None

    def __post_init__(self) -> None:
        if not 0 < self.prior < 1:
            raise InputError(f"gate.prior={self.prior} is no probability between 0 and 1")
        if self.shared_predictor_trunk and self.disagreement != "trained":
            raise InputError("predictors can share a trunk only if there are two; set gate.disagreement to 'trained'")
