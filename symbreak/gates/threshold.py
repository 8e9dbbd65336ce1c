"""From a disagreement to a label: how large is too large?

`sigma` compares with a smoothed mean plus κ deviations of all disagreements since the warm-up ended, `quantile` with a
quantile of the batch, `absolute` with a constant that follows from the size of an orbit (for categorical
predictors: a pair in the minority of its orbit is at least one half away from the orbit's mean), `error` with a
multiple of the free predictor's own squared error: predictions that differ no more than they are wrong say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from symbreak.models.statistics import Running

ThresholdKind = Literal["sigma", "quantile", "absolute", "error"]


@dataclass(frozen=True)
class ThresholdRule:
    kind: ThresholdKind = "sigma"
    deviations: float = 1.5  # κ
    smoothing: float = 0.2  # β, the weight of the old value
    every: int = 200  # environment steps between two values
    level: float = 0.6  # ordinary quantile level: 0.6 labels the top 40 %
    upper: bool = False  # read the level from above instead: 0.6 labels the top 60 %
    absolute: float = 0.45
    multiple: float = 4.0  # of the predictor's error; where nothing is broken the disagreement is at most about one


class ThresholdState(eqx.Module):
    statistics: Running
    value: Float[Array, ""]
    known: Bool[Array, ""]

    @classmethod
    def empty(cls) -> ThresholdState:
        return cls(Running.empty(), jnp.zeros(()), jnp.zeros((), bool))


def observe(
    rule: ThresholdRule,
    state: ThresholdState,
    disagreement: Float[Array, " batch"],
    step: Array,
    error: Float[Array, ""] | None = None,
    stride: int = 1,
) -> tuple[ThresholdState, Float[Array, " batch"]]:
    """Take a batch into account and label it. The first batch sets the first threshold, whatever the step.

    `error` is the free predictor's mean error on the batch, in the units of the disagreement; the rule of that name
    needs it. Batches come every `stride` environment steps; the first of them in `every` steps renews the threshold.
    """
    if rule.kind == "absolute":
        value = jnp.asarray(rule.absolute, disagreement.dtype)
        return ThresholdState(state.statistics, value, jnp.ones((), bool)), _above(disagreement, value)
    if rule.kind == "quantile":
        value = _quantile(disagreement, 1 - rule.level if rule.upper else rule.level)
        return ThresholdState(state.statistics, value, jnp.ones((), bool)), _above(disagreement, value)
    statistics = state.statistics.merge(disagreement)
    raw = statistics.mean + rule.deviations * statistics.std
    if rule.kind == "error":
        if error is None:
            raise ValueError("the threshold rule 'error' was given no error")
        raw = rule.multiple * error
    smoothed = jnp.where(state.known, rule.smoothing * state.value + (1 - rule.smoothing) * raw, raw)
    due = ~state.known | (step % rule.every < stride)
    value = jnp.where(due, smoothed, state.value)
    return ThresholdState(statistics, value, jnp.ones((), bool)), _above(disagreement, value)


def _quantile(values: Float[Array, " batch"], level: float) -> Float[Array, ""]:
    """Linear between neighbours, and exactly their value where they are equal, which a weighted mean is not."""
    ordered, position = jnp.sort(values), level * (len(values) - 1)
    below = int(position)
    low, high = ordered[below], ordered[min(below + 1, len(values) - 1)]
    return low + (position - below) * (high - low)


def _above(disagreement: Array, value: Array) -> Array:
    return (disagreement > value).astype(disagreement.dtype)
