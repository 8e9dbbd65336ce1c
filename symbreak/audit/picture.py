"""The picture of an audit: how wrong each field is, and on grids where."""

from __future__ import annotations

import base64
import html
import io
import math
import textwrap
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from symbreak.audit.verdict import NOT_A_SYMMETRY, Finding, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from symbreak.audit.report import AuditReport

GOOD, PARTLY, BAD, INK, FAINT = "#2f8f6b", "#e0a030", "#c8453c", "#2b2f38", "#9aa0a8"
UNRELATED, OPPOSITE = math.sqrt(2), 2.0
LONGEST = 2.6  # where bars of larger errors are cut


def draw(report: AuditReport) -> Figure:
    below = [
        line
        for remark in _remarks(report)
        for line in textwrap.wrap(remark.replace(" %", "\u00a0%"), 150 if report.cells is None else 62)
    ]
    if report.cells is None:
        rows = len(report.rows)
        figure = Figure(figsize=(10.0, 1.5 + 0.32 * rows + 0.17 * len(below)), layout="constrained")
        bars, text = figure.subplots(2, 1, height_ratios=(0.32 * rows + 0.6, 0.17 * len(below) + 0.05))
        _draw_bars(bars, report)
    else:
        figure = Figure(figsize=(11.0, 5.2), layout="constrained")
        spaces = figure.add_gridspec(2, 2, width_ratios=(1.2, 1.0), height_ratios=(1.0, 0.75))
        _draw_map(figure, figure.add_subplot(spaces[:, 0]), report)
        bars, text = figure.add_subplot(spaces[0, 1]), figure.add_subplot(spaces[1, 1])
        _draw_shares(bars, report)
    text.set_axis_off()
    text.text(0.0, 1.0, "\n".join(below), va="top", fontsize=8.5, color=INK, linespacing=1.4, transform=text.transAxes)
    FigureCanvasAgg(figure)
    title = f"{report.task}, symmetry {report.symmetry}: {report.verdict}"
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=12, fontweight="bold")
    return figure


def _remarks(report: AuditReport) -> list[str]:
    """What should be read with the bars: why, what else, what to do."""
    suggestions = [f"suggestion: {suggestion}" for suggestion in report.suggestions]
    return [*report.reasons, *suggestions, *report.remarks]


def as_png(report: AuditReport) -> bytes:
    buffer = io.BytesIO()
    draw(report).savefig(buffer, format="png", dpi=130, facecolor="white")
    return buffer.getvalue()


def page(report: AuditReport, picture: bytes) -> str:
    """One self-contained HTML file."""
    title = html.escape(f"Audit of {report.task}, symmetry {report.symmetry}")
    image = f'<img alt="errors per field" style="max-width:100%" src="data:image/png;base64,{_encoded(picture)}">'
    style = "body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#2b2f38}"
    head = f'<head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>'
    return f'<!DOCTYPE html><html lang="en">{head}<body><h1>{title}</h1>{report._repr_html_()}{image}</body></html>\n'


def _encoded(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def _colour(finding: Finding) -> str:
    if finding.is_hidden:
        return FAINT
    if finding.is_exact:
        return GOOD
    judged = finding.reachable_error if math.isfinite(finding.reachable_error) else finding.error
    return BAD if finding.words.startswith(NOT_A_SYMMETRY) or not judged < UNRELATED else PARTLY


def _draw_bars(axes: Axes, report: AuditReport) -> None:
    """Errors relative to a step's change: pale over all images, full over those that can be visited."""
    words = []
    for place, finding in _places(axes, report):
        colour = _colour(finding)
        exact = finding.is_exact and not finding.is_hidden
        words.append("" if exact else finding.words)
        if exact:
            axes.plot(0.0, place, marker="o", ms=6, color=GOOD, clip_on=False, zorder=3)
            axes.text(
                0.06,
                place,
                f"{finding.words} ({finding.error:.1g})" if finding.error else finding.words,
                va="center",
                fontsize=8.5,
                color=GOOD,
            )
        elif math.isfinite(finding.error):
            visited = finding.reachable_error if math.isfinite(finding.reachable_error) else 0.0
            axes.barh(place, min(finding.error, LONGEST), color=colour, alpha=0.35, height=0.6)
            axes.barh(place, min(visited, LONGEST), color=colour, height=0.6)
            longer = max(finding.error, visited)
            backed = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            end = min(longer, LONGEST) + 0.03
            axes.text(end, place, f"{longer:.2g}", va="center", fontsize=8, color=FAINT, bbox=backed, zorder=2)
            if longer > LONGEST:
                axes.plot(LONGEST, place, marker=5, ms=8, color="white", clip_on=False, zorder=3)
    axes.set_xlim(0.0, LONGEST)
    for value, meaning in ((UNRELATED, "unrelated"), (OPPOSITE, "opposite")):
        axes.axvline(value, color=FAINT, lw=1, ls="--", zorder=0)
        axes.text(value, axes.get_ylim()[1], meaning, color=FAINT, ha="center", va="bottom", fontsize=8)
    label = "mean error / size of a step's change"
    pale = any(finding.reachable_error != finding.error for finding in report.rows.values())
    axes.set_xlabel(f"{label} (pale: with images that cannot be visited)" if pale else label, fontsize=9, color=INK)
    beside = axes.twinx()
    beside.set_ylim(axes.get_ylim())
    beside.set_yticks(axes.get_yticks(), words, fontsize=8.5, color=INK)
    beside.tick_params(axis="y", length=0, pad=28)
    beside.spines[:].set_visible(False)
    for label, finding in zip(beside.get_yticklabels(), report.rows.values(), strict=True):
        label.set_color(_ink(_colour(finding)))


def _draw_shares(axes: Axes, report: AuditReport) -> None:
    """Shares of broken pairs, for enumerated worlds."""
    for place, finding in _places(axes, report):
        colour = _colour(finding)
        axes.barh(place, finding.share_broken, color=colour, height=0.6)
        if finding.is_exact:
            axes.plot(0.0, place, marker="o", ms=6, color=GOOD, clip_on=False, zorder=3)
        written = "exact" if finding.is_exact else percent(finding.share_broken)
        axes.text(finding.share_broken + 0.03, place, written, va="center", fontsize=9, color=_ink(colour))
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel(f"share of broken {report.noun}", fontsize=9, color=INK)


def _places(axes: Axes, report: AuditReport) -> list[tuple[float, Finding]]:
    """Rows from the top, with the axes dressed for them."""
    places = np.arange(len(report.rows), dtype=float)[::-1]
    axes.set_yticks(places, list(report.rows), fontsize=9.5, color=INK)
    axes.set_ylim(-0.6, len(places) - 0.4)
    axes.tick_params(axis="x", labelsize=8, colors=INK)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return list(zip(places.tolist(), report.rows.values(), strict=True))


def _ink(colour: str) -> str:
    return INK if colour == PARTLY else colour


def _draw_map(figure: Figure, axes: Axes, report: AuditReport) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    from symbreak.tasks.gridworld_render import render

    assert report.world is not None
    assert report.cells is not None
    broken = bool(np.nanmax(report.cells) > 0)
    shown = np.where(report.cells > 0, report.cells, np.nan)
    axes.imshow(render(report.world, overlay=shown, limits=(0.0, 1.0), colormap="YlOrRd"))
    axes.set_axis_off()
    title = "share of broken moves, by the agent's cell" if broken else "no move is broken anywhere"
    axes.set_title(title, fontsize=9.5, color=INK)
    if broken:
        bar = figure.colorbar(ScalarMappable(Normalize(0.0, 1.0), "YlOrRd"), ax=axes, shrink=0.8, pad=0.02)
        bar.ax.tick_params(labelsize=8, colors=INK)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
