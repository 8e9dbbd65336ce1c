"""Tabular Markov decision processes whose kernels stay sparse.

A kernel is kept as a padded list of successors: `next_state[s, a, slot]` is reached with `probability[s, a, slot]`.
The grid-world with every goal has 225² states and four actions; a dense kernel would hold 10¹⁰ numbers, the padded one
at most a handful per pair. Every construction of this package (group averages, gated mixtures, orbit-tied backups) is a
mixture of such rows, so it stays in this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from symbreak.errors import InputError

StateValues = NDArray[np.float64]  # (states)
PairValues = NDArray[np.float64]  # (states, actions)
Slots = NDArray[np.float64]  # (states, actions, slots)
Successors = NDArray[np.int32]  # (states, actions, slots)
StateMask = NDArray[np.bool_]  # (states)
PairMask = NDArray[np.bool_]  # (states, actions)


@runtime_checkable
class Tables(Protocol):
    """What a task exports: plain arrays, so that this package needs no task."""

    @property
    def next_state(self) -> NDArray[np.integer]: ...
    @property
    def probability(self) -> Slots: ...
    @property
    def reward(self) -> PairValues: ...
    @property
    def state_permutations(self) -> NDArray[np.integer]: ...
    @property
    def action_permutations(self) -> NDArray[np.integer]: ...
    @property
    def free(self) -> StateMask: ...


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """An MDP (R, P, γ) on finitely many states and actions; every row of the kernel sums to one."""

    next_state: Successors
    probability: Slots
    reward: PairValues
    gamma: float

    def __post_init__(self) -> None:
        if not 0.0 < self.gamma < 1.0:
            raise InputError(f"gamma is {self.gamma}, it must lie strictly between 0 and 1")
        if self.reward.ndim != 2 or self.next_state.shape[:-1] != self.reward.shape:
            raise InputError(f"next_state {self.next_state.shape} is not reward {self.reward.shape} and one more axis")
        if self.next_state.shape != self.probability.shape:
            raise InputError(f"next_state {self.next_state.shape} and probability {self.probability.shape} must agree")
        if self.next_state.min() < 0 or self.next_state.max() >= self.states:
            raise InputError(f"next_state names a state outside 0..{self.states - 1}")
        total = self.probability.sum(axis=-1)
        if self.probability.min() < 0.0 or not np.allclose(total, 1.0, rtol=0.0, atol=1e-9):
            raise InputError("a row of probability is negative or does not sum to one; normalise each (state, action)")
        if not np.isfinite(self.reward).all():
            raise InputError("reward has a non-finite entry; replace it before building the MDP")

    @classmethod
    def from_tables(cls, tables: Tables, gamma: float) -> TabularMDP:
        """The MDP of a task's exported arrays."""
        return cls(
            np.ascontiguousarray(tables.next_state, np.int32),
            np.ascontiguousarray(tables.probability, np.float64),
            np.ascontiguousarray(tables.reward, np.float64),
            float(gamma),
        )

    @classmethod
    def from_dense(cls, kernel: ArrayLike, reward: ArrayLike, gamma: float) -> TabularMDP:
        """The MDP of a dense kernel P[s, a, s']."""
        probability = np.asarray(kernel, np.float64)
        successors = np.broadcast_to(np.arange(probability.shape[-1], dtype=np.int32), probability.shape)
        return cls(*merge_successors(successors, probability), np.asarray(reward, np.float64), float(gamma))

    @property
    def states(self) -> int:
        return self.reward.shape[0]

    @property
    def actions(self) -> int:
        return self.reward.shape[1]

    @property
    def reward_bound(self) -> float:
        """R_max: the largest absolute reward."""
        return float(np.abs(self.reward).max())

    @property
    def value_bound(self) -> float:
        """V_max = R_max / (1 − γ): no value of any policy is larger in absolute value."""
        return self.reward_bound / (1.0 - self.gamma)

    @cached_property
    def kernel(self) -> sparse.csr_array:
        """P as a sparse matrix, one row per pair (s, a)."""
        rows, slots = self.reward.size, self.next_state.shape[-1]
        pointers = np.arange(rows + 1, dtype=np.int32) * slots
        parts = (self.probability.ravel(), self.next_state.ravel(), pointers)
        return sparse.csr_array(parts, shape=(rows, self.states))

    @property
    def dense_kernel(self) -> NDArray[np.float64]:
        """P[s, a, s'] in full, for small examples."""
        return self.kernel.toarray().reshape(self.states, self.actions, self.states)

    @cached_property
    def absorbing(self) -> StateMask:
        """States that no action leaves and that pay nothing: the ends of episodes."""
        stays = (self.next_state == np.arange(self.states)[:, None, None]) | (self.probability == 0.0)
        return stays.all(axis=(1, 2)) & (self.reward == 0.0).all(axis=1)

    def expectation(self, state_values: StateValues) -> PairValues:
        """E[v(s') | s, a] for every pair."""
        return (self.kernel @ state_values).reshape(self.reward.shape)


def merge_successors(next_state: Successors, probability: Slots) -> tuple[Successors, Slots]:
    """The same measures with every successor listed once, in rising order, in as few slots as the longest row needs.

    Works for signed weights too, so that a difference of two kernels is merged by the same rule.
    """
    # Unused slots repeat a used successor; otherwise they would count as distinct states with weight zero.
    used = np.take_along_axis(next_state, np.abs(probability).argmax(axis=-1)[..., None], axis=-1)
    successors = np.where(probability == 0.0, used, next_state)
    order = successors.argsort(axis=-1, kind="stable")
    successors = np.take_along_axis(successors, order, axis=-1)
    weights = np.take_along_axis(probability, order, axis=-1)
    is_new = np.diff(successors, axis=-1, prepend=-1) != 0
    slot = is_new.cumsum(axis=-1) - 1
    width = int(slot.max()) + 1
    row = np.arange(slot[..., 0].size).reshape((*slot.shape[:-1], 1))
    cell = (row * width + slot).ravel()
    merged = np.bincount(cell, weights.ravel(), minlength=row.size * width).astype(np.float64)
    merged = merged.reshape((*slot.shape[:-1], width))
    listed = np.broadcast_to(successors[..., -1:], merged.shape).astype(np.int32)
    listed.reshape(-1)[cell] = successors.ravel()
    return listed, merged


def mixture(weights: Sequence[PairValues], parts: Sequence[TabularMDP]) -> TabularMDP:
    """The MDP whose row at (s, a) is the convex combination of the parts' rows with the weights at (s, a)."""
    reward = sum((weight * part.reward for weight, part in zip(weights, parts, strict=True)), np.zeros(()))
    successors = np.concatenate([part.next_state for part in parts], axis=-1)
    scaled = [weight[..., None] * part.probability for weight, part in zip(weights, parts, strict=True)]
    return TabularMDP(
        *merge_successors(successors, np.concatenate(scaled, axis=-1)), np.asarray(reward), parts[0].gamma
    )


def total_variation(first: TabularMDP, second: TabularMDP) -> PairValues:
    """½ Σ_s' |P(s'|s,a) − P'(s'|s,a)| for every pair."""
    successors = np.concatenate([first.next_state, second.next_state], axis=-1)
    difference = np.concatenate([first.probability, -second.probability], axis=-1)
    return 0.5 * np.abs(merge_successors(successors, difference)[1]).sum(axis=-1)
