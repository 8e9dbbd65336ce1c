"""Metrics between two looks: sums on the device, and on the host a ledger of all of them.

The device sums over stretches of `STRETCH` environment steps that begin at fixed steps, whoever looks in between. The
ledger adds the stretches up in double precision and chains a SHA-256 over them, so that rows of metrics can be written
at any step while the sums, and the chain, stay the same for every choice of when to write.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from symbreak.errors import NumericFault
from symbreak.storage.arrays import named_leaves
from symbreak.storage.files import Damaged, is_count
from symbreak.storage.strict_json import to_json

STRETCH = 1_000  # environment steps; also how soon a divergence is noticed
# These have a value at every update, so one that is no number is a fault and must not be passed over.
ALWAYS = ("critic/loss", "actor/loss")
FINITE = "gate/finite"  # 1 while all disagreements are numbers


class Tally(eqx.Module):
    """Sums of metrics, each with the number of steps at which it had a value."""

    totals: dict[str, Array]
    counts: dict[str, Array]

    @classmethod
    def empty(cls, names: Any) -> Tally:
        return cls({name: jnp.zeros(()) for name in names}, {name: jnp.zeros(()) for name in names})

    def add(self, metrics: dict[str, Array]) -> Tally:
        known = {name: jnp.isfinite(value) | (name in ALWAYS) for name, value in metrics.items()}
        totals = {name: self.totals[name] + jnp.where(known[name], metrics[name], 0.0) for name in metrics}
        return Tally(totals, {name: self.counts[name] + known[name] for name in metrics})

    def read(self) -> tuple[dict[str, float], dict[str, float]]:
        """Sums and counts on the host."""
        totals, counts = jax.device_get((self.totals, self.counts))
        return {name: float(value) for name, value in totals.items()}, {n: float(value) for n, value in counts.items()}

    def means(self) -> dict[str, Array]:
        """NaN where there was nothing to average."""
        return {name: total / self.counts[name] for name, total in self.totals.items()}


@jax.jit
def _finite(leaves: list[Array]) -> list[Array]:
    return [jnp.all(jnp.isfinite(leaf)) for leaf in leaves]


def require_finite_state(agent_state: Any, step: int) -> None:
    """Refuse parameters, moments, statistics or a threshold that are no numbers, by name."""
    leaves = named_leaves(agent_state)
    names = [name for name, leaf in leaves.items() if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    found = jax.device_get(_finite([leaves[name] for name in names]))
    for name, finite in zip(names, found, strict=True):
        if not finite:
            raise NumericFault(f"{name} of the agent is not finite at step {step}; lower the learning rates")


def require_finite_metrics(totals: dict[str, float], counts: dict[str, float], step: int) -> None:
    """Refuse losses and disagreements that are no numbers."""
    if totals.get(FINITE, 0.0) < counts.get(FINITE, 0.0):
        raise NumericFault(f"the predictors' disagreement is not finite before step {step}; lower the predictor's rate")
    for name, total in totals.items():
        if not math.isfinite(total):
            raise NumericFault(f"{name} is not finite before step {step}; lower the learning rate")


@dataclass
class Ledger:
    """All stretches so far: sums in double precision, those at the last row, and the chain over the stretches."""

    totals: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    row_totals: dict[str, float] = field(default_factory=dict)
    row_counts: dict[str, float] = field(default_factory=dict)
    chain: str = ""
    folded: int = 0  # the step up to which stretches are in

    def now(self, tally: Tally) -> tuple[dict[str, float], dict[str, float]]:
        """Sums and counts of the run so far, the stretch that is not over included."""
        totals, counts = tally.read()
        return (
            {name: self.totals.get(name, 0.0) + value for name, value in totals.items()},
            {name: self.counts.get(name, 0.0) + value for name, value in counts.items()},
        )

    def fold(self, tally: Tally, step: int) -> None:
        """A stretch is over; whoever calls this begins a new tally."""
        arrays = {name: np.asarray(leaf).tobytes().hex() for name, leaf in named_leaves(tally).items()}
        self.totals, self.counts = self.now(tally)
        require_finite_metrics(self.totals, self.counts, step)
        text = to_json({"chain": self.chain, "step": step, "sums": arrays}, "a stretch")
        self.chain, self.folded = hashlib.sha256(text).hexdigest(), step

    def row(self, tally: Tally, step: int) -> dict[str, float]:
        """Means since the last row; a metric without a value is left out."""
        totals, counts = self.now(tally)
        require_finite_metrics(totals, counts, step)
        means = {}
        for name in sorted(totals):
            count = counts[name] - self.row_counts.get(name, 0.0)
            if count > 0:
                means[name] = (totals[name] - self.row_totals.get(name, 0.0)) / count
        self.row_totals, self.row_counts = totals, counts
        return means

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: Any, where: str) -> Ledger:
        if not isinstance(value, dict) or value.keys() != vars(cls()).keys():
            raise Damaged(f"{where} holds no ledger of metrics")
        sums = (value[name] for name in ("totals", "counts", "row_totals", "row_counts"))
        if not all(isinstance(part, dict) and all(map(_is_finite, part.values())) for part in sums):
            raise Damaged(f"{where} holds sums of metrics that are none")
        if not isinstance(value["chain"], str) or not is_count(value["folded"]):
            raise Damaged(f"{where} holds no chain of metrics")
        return cls(**value)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
