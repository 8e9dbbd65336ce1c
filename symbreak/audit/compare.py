"""One step from s with a, one from gs with ga: how far is the second from the image of the first?

Both steps start from observations that are images of each other, so the difference of the results is the difference of
the changes. It is given per field, relative to the mean size of the field's change: 0 is exact, √2 is what two
unrelated changes of that size differ by, 2 is the opposite change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from dataclasses import field as dataclass_field

import numpy as np

from symbreak.audit.declaration import Acting
from symbreak.symmetry import Element, Group

TOLERANCE = 1e-6  # relative errors up to this come from rounding


@dataclass(frozen=True, eq=False)
class Errors:
    """Relative errors of one field, of the reward or of the termination, (pairs, elements); NaN where gs is not made.

    `agreement` says whether the changes of s and gs point the same way: 1 for equal ones, 0 for unrelated ones, -1 for
    opposite ones. Errors up to `tolerance` are not told from rounding. `moved` says where there was any change.
    """

    relative: np.ndarray
    agreement: np.ndarray | None = None
    tolerance: float = TOLERANCE
    moved: np.ndarray | None = None

    @property
    def broken(self) -> np.ndarray:
        return np.nan_to_num(self.relative) > self.tolerance


@dataclass(frozen=True, eq=False)
class Comparison:
    """What every pair (s, a) showed under every element g. With `enumerated` all pairs there are were looked at."""

    fields: dict[str, Errors]
    reward: Errors
    termination: Errors
    reachable: np.ndarray
    hindrances: Counter[str] = dataclass_field(default_factory=Counter)  # why images cannot be visited, how often
    enumerated: bool = False
    leaving: np.ndarray | None = None  # where the image of the action leaves the action bounds, so nothing is compared

    @property
    def everything(self) -> list[Errors]:
        return [*self.fields.values(), self.reward, self.termination]

    @property
    def made(self) -> np.ndarray:
        """Where the image of the state could be made."""
        return np.isfinite(self.reward.relative)

    @property
    def exact(self) -> bool:
        return bool(self.reachable.all()) and not any(errors.broken.any() for errors in self.everything)

    @property
    def exact_share(self) -> float:
        """Share of pairs whose images can all be visited and of which nothing is broken."""
        broken = np.any([errors.broken for errors in self.everything], axis=0)
        return float((self.reachable & ~broken).all(axis=1).mean())

    @property
    def score(self) -> float:
        """Mean error over everything compared, each capped at 2; an image that cannot be reached counts 2."""
        capped = [np.where(self.reachable, np.minimum(errors.relative, 2.0), 2.0) for errors in self.everything]
        compared = np.isfinite(capped)
        return float(np.mean(capped, where=compared)) if compared.any() else 2.0

    def telling(self, size: int) -> np.ndarray:
        """Numbers of at most `size` pairs, half of them with an error or an unreachable image if there are so many."""
        wrong = np.any([errors.broken for errors in self.everything], axis=0) | ~self.reachable
        bad, good = np.flatnonzero(wrong.any(axis=1)), np.flatnonzero(~wrong.any(axis=1))
        first = _spread_out(bad, max(size - good.size, size // 2))
        return np.sort(np.concatenate([first, _spread_out(good, size - first.size)]))

    def broken_share(self, parts: list[Errors]) -> float:
        """Share of pairs for which some element breaks one of the parts.

        Where all pairs are enumerated, one without any image counts as unbroken: nothing contradicts it.
        """
        broken = np.any([part.broken for part in parts], axis=0).any(axis=1)
        comparable = np.ones_like(broken) if self.enumerated else self.made.any(axis=1)
        return float(broken.sum() / comparable.sum()) if comparable.any() else 1.0


def _spread_out(numbers: np.ndarray, count: int) -> np.ndarray:
    if numbers.size <= count:
        return numbers
    return numbers[np.linspace(0, numbers.size - 1, count).astype(int)]


class Evidence(ABC):
    """Something a symmetry can be compared with."""

    how: str
    noun: str  # what the pairs are called in sentences
    pairs: int
    few: int = 5  # pairs for a first look at a changed declaration,
    more: int = 20  # and for a second
    control: float = 0.0  # largest relative error of the identity: what the comparison itself gets wrong
    left_out: int = 0  # further pairs that could not be compared even with themselves
    allowance: str = "ten times"  # how much of it is not counted as broken, in words

    def elements(self, group: Group) -> list[Element]:
        """The elements that are compared in full: those that generate the group."""
        return list(group.generators)

    @abstractmethod
    def compare(self, acting: Acting, centre: np.ndarray | None = None, chosen: np.ndarray | None = None) -> Comparison:
        """Errors of elements that act about `centre` (default: zero), on all pairs or on those with chosen numbers."""

    def actions(self) -> np.ndarray | None:
        """The numbers of the pairs' actions where these are discrete."""
        return None

    @abstractmethod
    def observations(self) -> np.ndarray:
        """The observations of the pairs, for finding what they are centred at."""
