"""Gates to be screened: each differs from the `default` gate of its task in one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symbreak.gates.threshold import ThresholdRule


@dataclass(frozen=True)
class Variant:
    """What differs from the `default` gate of the task."""

    name: str
    changes: dict[str, Any]


GRID_VARIANTS = (
    Variant("default", {}),
    Variant("predictor and gate every step", {"predictor_every": 1, "gate_every": 1}),
    Variant("usual rates", {"rate": 5e-4, "predictor_rate": 3e-4}),
    Variant("usual rates, every step", {"rate": 5e-4, "predictor_rate": 3e-4, "predictor_every": 1, "gate_every": 1}),
    Variant("trained", {"disagreement": "trained"}),
    Variant("raw gate", {"encoding": "raw"}),
    Variant("raw gate, 1e-4, every step", {"encoding": "raw", "rate": 1e-4, "gate_every": 1}),
    Variant("Fourier predictor", {"predictor_encoding": "fourier"}),
    Variant("width 256", {"width": 256}),
    Variant("predictor width 128", {"predictor_width": 128}),
    Variant("head", {"classifier": "head"}),
    Variant("direct", {"classifier": "direct"}),
    Variant("κ = 1.5", {"threshold": ThresholdRule()}),
    Variant("κ = 0.5", {"threshold": ThresholdRule(deviations=0.5)}),
    Variant("quantile 0.9", {"threshold": ThresholdRule("quantile", level=0.9)}),
)

CONTINUOUS_VARIANTS = (
    Variant("default", {}),
    Variant("predictor and gate every step", {"predictor_every": 1, "gate_every": 1}),
    Variant("trained", {"disagreement": "trained"}),
    Variant("Fourier gate", {"encoding": "fourier", "standardise": False}),
    Variant("not standardised", {"standardise": False}),
    Variant("rate 1e-4", {"rate": 1e-4}),
    Variant("rate 5e-4", {"rate": 5e-4}),
    Variant("head", {"classifier": "head"}),
    Variant("direct", {"classifier": "direct"}),
    *(
        Variant(f"κ = {count}", {"threshold": ThresholdRule(deviations=count, smoothing=0.1, every=100)})
        for count in (0.5, 1.0, 1.5)
    ),
    Variant("quantile 0.8", {"threshold": ThresholdRule("quantile", level=0.8)}),
    *(
        Variant(f"{count} errors", {"threshold": ThresholdRule("error", multiple=count, smoothing=0.9, every=100)})
        for count in (2, 8)
    ),
)

ROBOT_VARIANTS = (
    Variant("default", {}),
    Variant("predictor width 128", {"predictor_width": 128}),
    Variant("every eighth step", {"predictor_every": 8, "gate_every": 8}),
)
