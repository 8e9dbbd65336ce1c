"""The summary of all studies as tables of a Markdown page, between two marks of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symbreak.agents.methods import PAPER_METHODS
from symbreak.errors import InputError, StorageFault
from symbreak.studies.plans import STUDIES
from symbreak.studies.report_runs import METHOD_ORDER, method_place, natural

BEGIN, END = "<!-- results: written by `make results` -->", "<!-- /results -->"
FIGURES = {"final": "return of the last evaluation", "auc": "mean return over the whole run (area under the curve)"}


def as_markdown(summary: dict[str, Any]) -> str:
    """A table per figure: settings down, methods across, each cell an IQM over seeds with its 95 % interval. Below, a
    row each, what no method stands beside: gates that know the truth, the published recipe, the ablations.
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
    columns = [name for name in METHOD_ORDER if any(name in methods for methods in settings.values())]
    lines = []
    for figure, meaning in FIGURES.items():
        lines += [f"{meaning[0].upper()}{meaning[1:]}:", "", "| | " + " | ".join(f"`{c}`" for c in columns) + " |"]
        lines += ["|---|" + "---|" * len(columns)]
        for setting in sorted(settings, key=natural):
            cells = [_cell(settings[setting].get(column), figure) for column in columns]
            lines.append(f"| {setting} | " + " | ".join(cells) + " |")
        lines.append("")
    if variants:
        lines += ["Other variants:", "", "| study | | | return at the end | area under the curve |"]
        lines += ["|---|---|---|---|---|"]
        for study, setting, name, row in variants:
            lines.append(f"| {study} | {setting} | `{name}` | {_cell(row, 'final')} | {_cell(row, 'auc')} |")
        lines.append("")
    return "\n".join(lines)


def _place(study: str) -> tuple[int, str]:
    return list(STUDIES).index(study) if study in STUDIES else len(STUDIES), study


def _cell(row: dict[str, Any] | None, figure: str) -> str:
    if row is None or row[figure] is None:
        return "–"
    found, seeds = row[figure], row["seeds"]
    interval = "" if found["low"] is None else f" [{found['low']:.2f}, {found['high']:.2f}]"
    failed = f", {row['failed']} failed" if row["failed"] else ""
    return f"{found['iqm']:.2f}{interval} ({seeds}{failed})"


def put_into(page: Path, text: str) -> None:
    """Replace what stands between the marks."""
    try:
        whole = page.read_text(encoding="utf-8")
        before, begin, rest = whole.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise InputError(f"{page} has no place for tables; add the lines {BEGIN!r} and {END!r} to it")
        page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    except OSError as problem:
        raise StorageFault(f"cannot write tables into {page}: {problem.strerror}") from problem
