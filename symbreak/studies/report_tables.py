"""The numbers of a comparison: per setting and method, and over all settings together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symbreak.studies.report_runs import RETURN, SUCCESS, Group
from symbreak.studies.statistics import Estimate, difference, interval, iqm, mean, probability_of_improvement

REFERENCE = "partial"  # the method that others are compared with, where it was run
MEASURED_AGAINST = (REFERENCE, "vanilla")  # whose scores the summary takes off those of the others, each pair once


@dataclass(frozen=True, eq=False)
class Row:
    """One method in one setting; None where no run is settled or the figure was not recorded."""

    group: Group
    final: Estimate | None
    final_mean: Estimate | None
    auc: Estimate | None
    auc_mean: Estimate | None
    success: Estimate | None
    beaten: Estimate | None  # probability that a run of the reference beats one of this method
    less: dict[str, dict[str, Estimate]]  # another method → `final` and `auc`, each of this method less the other's


@dataclass(frozen=True, eq=False)
class Comparison:
    """The methods of one setting, in reading order."""

    setting: str
    reference: str | None
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row | None:
        scored = [row for row in self.rows if row.final is not None]
        return max(scored, key=lambda row: row.final.value, default=None) if scored else None  # pyright: ignore


def compare(groups: Sequence[Group]) -> list[Comparison]:
    """One comparison per setting."""
    settings: dict[str, list[Group]] = {}
    for group in groups:
        settings.setdefault(group.setting, []).append(group)
    return [_compare_setting(setting, members) for setting, members in settings.items()]


def _compare_setting(setting: str, groups: list[Group]) -> Comparison:
    reference = reference_label([group.label for group in groups])
    against = next((group.final() for group in groups if group.label == reference), np.array([]))
    others = {group.label: _scores(group) for group in groups if group.label in MEASURED_AGAINST}
    rows = []
    for group in groups:
        final, areas, success = group.final(), group.areas(), group.final(SUCCESS)
        contest = group.label != reference and final.size and against.size
        rows.append(
            Row(
                group,
                final=_maybe(final, iqm),
                final_mean=_maybe(final, mean),
                auc=_maybe(areas, iqm),
                auc_mean=_maybe(areas, mean),
                success=_maybe(success, mean, bounds=(0.0, 1.0)),
                beaten=probability_of_improvement([against], [final]) if contest else None,
                less={
                    label: {name: difference([mine], [other[name]]) for name, mine in _scores(group).items()}
                    for label, other in others.items()
                    if group.label not in (label, REFERENCE) and final.size and other["final"].size
                },
            )
        )
    return Comparison(setting, reference if len(groups) > 1 else None, tuple(rows))


def _scores(group: Group) -> dict[str, np.ndarray]:
    return {"final": group.final(), "auc": group.areas()}


def reference_label(labels: Sequence[str]) -> str | None:
    """The plain reference method, else the first variant of it."""
    variants = [label for label in labels if label.split(" ")[0] == REFERENCE]
    return REFERENCE if REFERENCE in labels else variants[0] if variants else None


def _maybe(scores: np.ndarray, statistic: Callable[..., np.ndarray], **options: Any) -> Estimate | None:
    return interval([scores], statistic, **options) if scores.size else None


@dataclass(frozen=True, eq=False)
class Overall:
    """Methods that were run in every setting, on scores scaled to [0, 1] per setting.

    0 and 1 are the lowest and the highest final return that any settled run of the setting reached, which makes these
    scores comparable within one report and not between reports.
    """

    settings: tuple[str, ...]
    scores: dict[str, list[np.ndarray]]  # method → one array per setting

    @cached_property
    def reference(self) -> str | None:
        return reference_label(list(self.scores))

    @cached_property
    def figures(self) -> dict[str, tuple[Estimate, Estimate, Estimate | None]]:
        """IQM and mean of the scaled scores, and how probably the reference beats the method."""
        return {
            label: (
                interval(strata, iqm, bounds=(0.0, 1.0)),
                interval(strata, mean, bounds=(0.0, 1.0)),
                probability_of_improvement(self.scores[self.reference], strata)
                if self.reference is not None and label != self.reference
                else None,
            )
            for label, strata in self.scores.items()
        }


def overall(groups: Sequence[Group]) -> Overall | None:
    """All settings together; None where there is one only, or no method is settled in all of them."""
    settings = tuple(dict.fromkeys(group.setting for group in groups))
    finals = {(group.setting, group.label): group.final() for group in groups}
    labels = [label for label in dict.fromkeys(group.label for group in groups)]
    complete = [label for label in labels if all(_size(finals, setting, label) for setting in settings)]
    if len(settings) < 2 or not complete:
        return None
    scores: dict[str, list[np.ndarray]] = {label: [] for label in complete}
    for setting in settings:
        everyone = np.concatenate([final for (where, _), final in finals.items() if where == setting])
        low, spread = everyone.min(), np.ptp(everyone)
        for label in complete:
            scores[label].append((finals[setting, label] - low) / (spread or 1.0))
    return Overall(settings, scores)


def _size(finals: dict[tuple[str, str], np.ndarray], setting: str, label: str) -> int:
    return finals.get((setting, label), np.array([])).size


def summarise(groups: Sequence[Group]) -> dict[str, dict[str, Any]]:
    """Setting → method → `final` and `auc` (each `iqm`, `low`, `high`, `mean`, …) and `seeds`, ready for JSON; `less`
    has both less those of the methods that others are measured against.
    """

    def brief(middle: Estimate | None, average: Estimate | None) -> dict[str, float | None] | None:
        if middle is None or average is None:
            return None
        names = {"mean": average.value, "mean_low": average.low, "mean_high": average.high}
        return _ends(middle) | {name: _number(value) for name, value in names.items()}

    return {
        comparison.setting: {
            row.group.label: {
                "final": brief(row.final, row.final_mean),
                "auc": brief(row.auc, row.auc_mean),
                "less": {other: {name: _ends(gap) for name, gap in gaps.items()} for other, gaps in row.less.items()},
                "success": None if row.success is None else _number(row.success.value),
                "seeds": sum(run.state == "failed" or RETURN in run.metrics for run in row.group.settled.runs),
                "failed": row.group.count("failed"),
                "unfinished": row.group.unfinished,
                "inexact": row.group.inexact,
            }
            for row in comparison.rows
        }
        for comparison in compare(groups)
    }


def _ends(middle: Estimate) -> dict[str, float | None]:
    return {"iqm": _number(middle.value), "low": _number(middle.low), "high": _number(middle.high)}


def _number(value: float) -> float | None:
    """Six significant digits: what a figure over seeds can carry, and the same on every machine."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def metric_means(group: Group, metric: str) -> float:
    """The mean over runs of the last recorded value; NaN where there is none."""
    last = [run.curve(metric)[1][-1] for run in group.runs if run.curve(metric)[1]]
    return float(np.mean(last)) if last else float("nan")
