"""The summary of all studies as tables of Markdown pages, each between two marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symbreak.agents.methods import PAPER_METHODS
from symbreak.errors import InputError, StorageFault
from symbreak.studies.plans import STUDIES
from symbreak.studies.report_runs import METHOD_ORDER, method_place, natural
from symbreak.studies.report_tables import MEASURED_AGAINST, REFERENCE

FIGURES = {
    "final": "return of the last evaluation",
    "auc": "mean return from the first evaluation on (area under the curve)",
}
FEWEST_SEEDS = 3  # an interval of two says nothing


def marks(section: str) -> tuple[str, str]:
    """Between these two lines of a page a section stands."""
    return f"<!-- {section}: written by `make results` -->", f"<!-- /{section} -->"


def sections_of(summary: dict[str, Any]) -> dict[str, str]:
    """`results`: a table per figure, settings down, methods across, each cell an IQM over seeds with its 95 % interval.
    `differences`: the same less what a method that others are measured against has. `variants`: a row each, what no
    method stands beside: gates that know the truth, the published recipe, the ablations.
    """
    settings: dict[str, dict[str, Any]] = {}
    variants: list[tuple[str, str, str, Any]] = []
    for study in sorted(summary, key=_place):
        if study in STUDIES and not STUDIES[study].scored:
            continue
        compares = study in STUDIES and set(STUDIES[study].methods) == set(PAPER_METHODS)
        for setting, methods in summary[study].items():
            for method in sorted(methods, key=method_place):
                if compares and method in PAPER_METHODS:
                    settings.setdefault(setting, {})[method] = methods[method]
                else:
                    variants.append((study, setting, method, methods[method]))
    results, differences = [], []
    for figure, meaning in FIGURES.items():
        title = f"{meaning[0].upper()}{meaning[1:]}"
        shown = {name: {m: _cell(row, figure) for m, row in methods.items()} for name, methods in settings.items()}
        results += _table(f"{title}:", shown)
        for other in MEASURED_AGAINST:
            gaps = {name: _gaps(methods, other, figure) for name, methods in settings.items()}
            differences += _table(f"{title}, less that of `{other}`:", gaps)
    rest = [f"| study | | | return at the end | less that of `{REFERENCE}` | area | less that of `{REFERENCE}` |"]
    rest.append("|---|---|---|---|---|---|---|")
    for study, setting, name, row in variants:
        cells = [
            f"{_cell(row, figure)} | {_gaps(summary[study][setting], REFERENCE, figure).get(name, '–')}"
            for figure in ("final", "auc")
        ]
        rest.append(f"| {study} | {setting} | `{name}` | {' | '.join(cells)} |")
    lines = {"results": results, "differences": differences, "variants": [*rest, ""]}
    return {section: "\n".join(text) for section, text in lines.items()}


def _table(title: str, settings: dict[str, dict[str, str]]) -> list[str]:
    columns = [name for name in METHOD_ORDER if any(name in methods for methods in settings.values())]
    lines = [title, "", "| | " + " | ".join(f"`{c}`" for c in columns) + " |", "|---|" + "---|" * len(columns)]
    for setting in sorted(filter(settings.get, settings), key=natural):
        lines.append(f"| {setting} | " + " | ".join(settings[setting].get(column, "–") for column in columns) + " |")
    return [*lines, ""]


def _gaps(methods: dict[str, Any], other: str, figure: str) -> dict[str, str]:
    """What each method has more than the other, where both have seeds enough."""
    gaps = {name: row["less"][other][figure] for name, row in methods.items() if other in row["less"]}
    return {
        name: f"{gap['iqm']:+.2f} [{gap['low']:+.2f}, {gap['high']:+.2f}]"
        for name, gap in gaps.items()
        if gap["low"] is not None and min(methods[name]["seeds"], methods[other]["seeds"]) >= FEWEST_SEEDS
    }


def _place(study: str) -> tuple[int, str]:
    return list(STUDIES).index(study) if study in STUDIES else len(STUDIES), study


def _cell(row: dict[str, Any], figure: str) -> str:
    found = row[figure]
    remarks = "".join(f", {row[kind]} {kind}" for kind in ("failed", "inexact") if row[kind])
    if found is None:
        return f"– ({row['seeds']}{remarks})" if remarks else "–"
    known = found["low"] is not None and row["seeds"] >= FEWEST_SEEDS
    interval = f" [{found['low']:.2f}, {found['high']:.2f}]" if known else ""
    return f"{found['iqm']:.2f}{interval} ({row['seeds']}{remarks})"


def put_into(page: Path, sections: dict[str, str]) -> None:
    """Replace what stands between the marks of those sections that the page has."""
    try:
        whole, found = page.read_text(encoding="utf-8"), False
        for section, text in sections.items():
            begin, end = marks(section)
            before, opened, rest = whole.partition(begin)
            _, closed, after = rest.partition(end)
            if opened and not closed:
                raise InputError(f"{page} has no line {end!r} after {begin!r}; add it")
            if opened:
                whole, found = f"{before}{begin}\n{text}\n{end}{after}", True
        if not found:
            known = " or ".join(repr(section) for section in sections)
            begin, end = marks(next(iter(sections)))
            raise InputError(f"{page} has no place for tables; add the lines {begin!r} and {end!r} to it ({known})")
        page.write_text(whole, encoding="utf-8")
    except OSError as problem:
        raise StorageFault(f"cannot write tables into {page}: {problem.strerror}") from problem
