"""What small change would make a declared symmetry true?

Neighbours of the declaration are compared on a few states, the best is compared on more, and so on from there for at
most three changes. That they make a symmetry exact is said only where they do so in all states looked at. A shift of
the point about which a field turns is tried as well: a declared rotation acts about zero, so positions must be centred.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from symbreak.audit.compare import Comparison, Evidence
from symbreak.audit.declaration import Declaration
from symbreak.audit.neighbours import neighbours, units
from symbreak.symmetry import Symmetry

FINALISTS = 5
CHANGES = 3
WORTH_TELLING = 0.8  # a change that leaves more than this share of the score is not worth mentioning
RIVAL = 1.25  # changes whose scores differ by less than this factor are told apart on all pairs
OFF_CENTRE = 0.5  # a field whose mid-range is further from zero than this share of its half range may be off centre


@dataclass(frozen=True)
class Change:
    """What should happen to which fields; the words leave room for one or several of them."""

    fields: tuple[str, ...]
    words: str

    def predicate(self, single: bool) -> str:
        return self.words.format(s="s" if single else "", are="is" if single else "are")

    def __str__(self) -> str:
        return f"{' and '.join(self.fields)} {self.predicate(len(self.fields) == 1)}"


@dataclass(frozen=True)
class Mending:
    """Changes, and how a symmetry compares before and after all of them: mean errors and shares of exact pairs.

    `factor` is that by which the first change alone lowers the error of the most telling pairs. `exact` says that the
    changes lead to an exact symmetry in all pairs, `centres` that one of them moves a centre, `acts` that all of them
    concern actions only.
    """

    changes: tuple[Change, ...] = ()
    errors: tuple[float, float] = (0.0, 0.0)
    exact_shares: tuple[float, float] = (0.0, 0.0)
    factor: float = 1.0
    exact: bool = False
    centres: bool = False
    acts: bool = False


@dataclass(frozen=True, eq=False)
class _Trial:
    declaration: Declaration
    centre: np.ndarray
    change: Change = Change((), "")
    freezes: bool = False
    recasts: bool = False
    centres: bool = False
    acts: bool = False


def mend(
    evidence: Evidence, symmetry: Symmetry, comparison: Comparison, bounds: tuple[np.ndarray, np.ndarray]
) -> Mending:
    """The best sequence of small changes to a symmetry that compares like this; none where none is worth telling."""
    few, more = comparison.telling(evidence.few), comparison.telling(evidence.more)
    declared = current = _Trial(Declaration.of(symmetry), np.zeros(symmetry.observation.size))
    found = [_compare(evidence, current, more)]
    changes: list[_Trial] = []
    while not found[-1].exact and len(changes) < CHANGES:
        best = _best(evidence, current, _trials(evidence, current, bounds), few, more)
        if best is None or best[0].score > WORTH_TELLING * found[-1].score:
            break
        found.append(best[0])
        changes.append(best[1])
        current = best[1]
    while not found[-1].exact and len(changes) > 1 and changes[-1].recasts:
        changes.pop()  # after another change, a new kind of field is told only where it ends in an exact symmetry
        found.pop()
    if not changes:
        return Mending()
    before, after = (_compare(evidence, trial, np.arange(evidence.pairs)) for trial in (declared, changes[-1]))
    return Mending(
        changes=tuple(trial.change for trial in changes),
        errors=(before.score, after.score),
        exact_shares=(before.exact_share, after.exact_share),
        factor=found[0].score / found[1].score if found[1].score else np.inf,
        exact=after.exact,
        centres=any(trial.centres for trial in changes),
        acts=all(trial.acts for trial in changes),
    )


def _best(
    evidence: Evidence, current: _Trial, trials: list[_Trial], few: np.ndarray, more: np.ndarray
) -> tuple[Comparison, _Trial] | None:
    """The best single change, looked for on few pairs and confirmed on more."""

    def better(trials: list[_Trial], chosen: np.ndarray) -> list[tuple[Comparison, _Trial]]:
        limit = _compare(evidence, current, chosen).score
        compared = [(_compare(evidence, trial, chosen), trial) for trial in trials]
        kept = [(c, t) for c, t in compared if c.score < limit and (c.exact or not t.freezes)]
        # Of several that are exact, the smallest slip is the likeliest.
        return sorted(
            kept, key=lambda pair: (not pair[0].exact, pair[0].exact * len(pair[1].change.fields), pair[0].score)
        )

    finalists = better([trial for _, trial in better(trials, few)[:FINALISTS]], more)
    return _confirmed(evidence, finalists)


def _confirmed(evidence: Evidence, finalists: list[tuple[Comparison, _Trial]]) -> tuple[Comparison, _Trial] | None:
    """The first finalist that is exact in all pairs; else, of those about as good as the best, what is so in most."""
    rivals = [pair for pair in finalists if pair[0].score <= RIVAL * finalists[0][0].score]
    if len(rivals) <= 1:
        return next(iter(rivals), None)
    exact_shares = []
    for pair in rivals:
        everywhere = _compare(evidence, pair[1], np.arange(evidence.pairs))
        if everywhere.exact:
            return pair
        exact_shares.append(everywhere.exact_share)
    return rivals[int(np.argmax(exact_shares))]


def _compare(evidence: Evidence, trial: _Trial, chosen: np.ndarray) -> Comparison:
    return evidence.compare(trial.declaration.acting(), trial.centre, chosen)


def _trials(evidence: Evidence, current: _Trial, bounds: tuple[np.ndarray, np.ndarray]) -> list[_Trial]:
    changed = [
        _Trial(n.declaration, current.centre, Change(n.fields, n.words), n.freezes, n.recasts, acts=n.acts)
        for n in neighbours(current.declaration)
    ]
    return changed + _centrings(evidence, current, bounds)


def _centrings(evidence: Evidence, current: _Trial, bounds: tuple[np.ndarray, np.ndarray]) -> list[_Trial]:
    """Units that turn about the middle of their bounds, or where they have none about the middle of what was seen."""
    seen = evidence.observations()
    low, high = seen.min(axis=0), seen.max(axis=0)
    bounded = np.isfinite(bounds[0]) & np.isfinite(bounds[1])
    visited = np.where(np.abs(low + high) > OFF_CENTRE * (high - low), (low + high) / 2, 0.0)
    middle = visited
    middle[bounded] = (bounds[0][bounded] + bounds[1][bounded]) / 2
    indices, matrices = current.declaration.indices, current.declaration.acting().observation
    moves = np.any([np.abs(matrix - np.eye(len(matrix))).max(axis=1) > 1e-9 for matrix in matrices], axis=0)
    middle = np.where(moves, middle, 0.0)  # only what moves has a centre
    trials = []
    for unit in units(current.declaration):
        places = [place for place in unit if place[0] == "observation"]
        index = [i for place in places for i in indices[place]]
        centre = current.centre.copy()
        centre[index] = middle[index]
        shift = centre - current.centre
        if any(np.abs(matrix @ shift - shift).max() > 1e-9 for matrix in matrices):
            written = ", ".join(f"{value:.4g}" for value in centre[index])
            words = f"{{are}} not centred, subtract ({written})"
            fields = tuple(name for _, name in places)
            trials.append(_Trial(current.declaration, centre, Change(fields, words), centres=True))
    return trials
