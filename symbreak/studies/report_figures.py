"""Learning curves as pictures for a paper or a page, and the colours that every drawing of a method shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from symbreak.errors import InputError, StorageFault
from symbreak.studies.report_runs import RETURN, Group, find_runs, group_runs
from symbreak.studies.statistics import ENOUGH_SEEDS, Statistic, curve_band, iqm

COLOURS = {
    "partial": "#e4572e",
    "vanilla": "#7a8594",
    "augmented": "#1a9f78",
    "exact": "#2f7ed8",
    "rpp": "#a05cc9",
    "approximate": "#d4920a",
    "oracle-minority": "#0f9fb0",
    "oracle-strict": "#c2548f",
}
OTHERS = ("#8c6d46", "#5b8c3a", "#5661b3", "#b0413e", "#3d8f8f", "#9a7d0a", "#7f4f8c", "#4f7a9a")
DASHES = ("solid", "dash", "dot", "dashdot")
FEWEST_IN_A_BAND = 3  # the interval of two seeds is many times as wide as they are apart
LINES: dict[str, Any] = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
TITLES = {
    RETURN: "return",
    "eval/success": "success rate",
    "eval/length": "episode length",
    "eval/gate": "share of evaluation steps on the free expert",
    "gate/rate": "gate rate",
    "gate/labels": "share labelled broken",
    "gate/disagreement": "disagreement",
    "gate/threshold": "threshold",
    "gate/auroc_minority": "AUROC against the minority oracle",
    "gate/auroc_strict": "AUROC against the strict oracle",
    "gate/mean": "mean gate over all pairs",
    "gate/mean_minority": "mean gate on minority pairs",
    "gate/mean_images": "mean gate on their images",
    "gate/mean_symmetric": "mean gate on symmetric pairs",
    "gate/used": "share of updates on the free expert",
    "gate/precision": "precision",
    "gate/precision_strict": "precision against the strict oracle",
    "gate/recall": "recall",
    "gate/recall_strict": "recall against the strict oracle",
    "gate/calibration_error": "calibration error",
    "gate/calibration_error_strict": "calibration error against the strict oracle",
    "gate/spearman": "rank correlation with the true breaking",
    "gate/predictor_loss": "predictor loss",
    "gate/explained": "share of a step's change that the predictor explains",
    "policy/equivariance_error": "equivariance error of the policy",
    "critic/value": "mean Q value",
    "critic/loss": "critic loss",
}
DRAWN = {  # what `symbreak report --figures` writes, and as what
    RETURN: "return",
    "eval/success": "success",
    "gate/rate": "gate-rate",
    "gate/auroc_minority": "gate-auroc",
    "policy/equivariance_error": "equivariance-error",
}
SHARES = ("success", "rate", "labels", "used", "precision", "recall", "auroc", "mean", "gate")  # lie in [0, 1]
INK, FAINT = "#2b2f38", "#d9dce1"


def paint(labels: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a dash per method: known methods keep theirs, their variants share the colour with another dash."""
    painted: dict[str, tuple[str, str]] = {}
    used: dict[str, int] = {}
    foreign: dict[str, str] = {}
    for label in labels:
        base = label.split(" ")[0]
        if base not in COLOURS:
            foreign.setdefault(base, OTHERS[len(foreign) % len(OTHERS)])
        colour = COLOURS.get(base) or foreign[base]
        painted[label] = colour, DASHES[used.get(base, 0) % len(DASHES)]
        used[base] = used.get(base, 0) + 1
    return painted


def title_of(metric: str) -> str:
    return TITLES.get(metric, metric.replace("_", " "))


def bounds_of(metric: str) -> tuple[float, float] | None:
    """What values of the metric cannot leave, so that no band is drawn there."""
    room, _, name = metric.partition("/")
    return (0.0, 1.0) if room in ("eval", "gate") and name.split("_")[0] in SHARES else None


def draw_curves(
    directories: Sequence[Path], path: Path, *, metric: str = RETURN, statistic: Statistic = iqm, columns: int = 3
) -> Path:
    """Draw one panel per setting, methods with 95 % intervals over seeds, to a .png, .pdf or .svg file."""
    path = Path(path)
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"a figure cannot be written as {path.name!r}; end its name in .png, .pdf or .svg")
    groups = [group for group in group_runs(find_runs(directories)) if _has(group, metric)]
    if not groups:
        raise InputError(f"no run in {', '.join(map(str, directories))} has recorded {metric}; nothing to draw")
    settings = list(dict.fromkeys(group.setting for group in groups))
    styles = paint(dict.fromkeys(group.label for group in groups))
    columns = min(columns, len(settings))
    rows = -(-len(settings) // columns)
    figure = Figure(figsize=(0.6 + 3.9 * columns, 0.9 + 2.9 * rows), dpi=160, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, setting in zip(panels, settings, strict=False):
        members = [group for group in groups if group.setting == setting]
        _draw_panel(panel, members, metric, statistic, styles)
        panel.set_title(_plain(setting), fontsize=11, loc="left", color=INK, fontweight="bold")
    for panel in panels[len(settings) :]:
        panel.set_axis_off()
    handles = [
        Line2D([], [], color=colour, linestyle=LINES[dash], linewidth=2, label=_plain(label))
        for label, (colour, dash) in styles.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 2 * columns), frameon=False)
    _save(figure, path)
    return path


def draw_figures(directories: Sequence[Path], target: Path) -> list[Path]:
    """The learning curves of everything that a reader looks for first and that was recorded, as PNG and PDF."""
    recorded = set().union(*(run.metrics for run in find_runs(directories)))
    return [
        draw_curves(directories, target / f"{name}.{ending}", metric=metric)
        for metric, name in DRAWN.items()
        if metric in recorded
        for ending in ("png", "pdf")
    ]


def _has(group: Group, metric: str) -> bool:
    return bool(np.isfinite(group.curves(metric)).any())


def _draw_panel(
    axes: Axes, groups: list[Group], metric: str, statistic: Statistic, styles: dict[str, tuple[str, str]]
) -> None:
    for group in reversed(groups):  # the first method on top
        value, low, high = curve_band(group.curves(metric), statistic, bounds=bounds_of(metric))
        colour, dash = styles[group.label]
        if len(group.runs) >= FEWEST_IN_A_BAND:
            axes.fill_between(group.steps, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(group.steps, value, color=colour, linestyle=LINES[dash], linewidth=1.8)
    seen = np.concatenate([group.curves(metric).ravel() for group in groups])
    low, high = np.nanmin(seen), np.nanmax(seen)
    room = 0.08 * (high - low) or 0.5
    axes.set_ylim(low - room, high + room)  # intervals of three seeds may lie far outside
    axes.set_xlabel("environment steps", fontsize=9, color=INK)
    axes.set_ylabel(f"{title_of(metric)} ({'IQM' if statistic is iqm else 'mean'})", fontsize=9, color=INK)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: _short(step)))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors=INK)
    counts = sorted({len(group.runs) for group in groups})
    if counts[0] < ENOUGH_SEEDS:
        said = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
        words = f"{said} seed{'s' if counts[-1] > 1 else ''}"
        words += "" if counts[-1] >= FEWEST_IN_A_BAND else ", no interval"
        axes.set_title(words, loc="right", fontsize=8, color="#6b7280")


def _short(step: float) -> str:
    if abs(step) >= 1e6:
        return f"{step / 1e6:g}M"
    return f"{step / 1e3:g}k" if abs(step) >= 1e3 else f"{step:g}"


def _plain(text: str) -> str:
    """Matplotlib would read dollar signs as mathematics, and a leading underscore as a wish for no label."""
    return text.replace("$", r"\$") if not text.startswith("_") else f" {text}"


def _save(figure: Figure, path: Path) -> None:
    # Without the date and the names of tools equal runs give equal files.
    nothing: dict[str, Any] = {
        ".png": {"Software": None},
        ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
        ".svg": {"Date": None, "Creator": None},
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context({"svg.hashsalt": "symbreak"}):
            figure.savefig(path, metadata=nothing[path.suffix])
    except OSError as problem:
        raise StorageFault(f"the figure cannot be written to {path}: {problem.strerror}; choose another") from problem
