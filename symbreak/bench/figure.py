"""The benchmarks as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK, QUIET, OURS, GATED, PEER = "#1f2430", "#9aa3b2", "#4c78a8", "#d9822b", "#b8c0cc"
NAMES = {"sb3": "SB3", "sbx": "SBX"}
TITLES = {"hopper": "SAC on Hopper", "ant": "SAC on Ant", "grid-20": "DQN on a grid with 20 obstacles"}


def draw(results: dict[str, Any], path: Path) -> None:
    """Steps per second of every agent, one panel per task, and cost per seed."""
    tasks = results["tasks"]
    figure = Figure(figsize=(13, 6.4), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, len(tasks), height_ratios=(2.1, 1))
    for column, (task, rows) in enumerate(tasks.items()):
        _speeds(figure.add_subplot(grid[0, column]), TITLES[task], rows)
    _promises(figure.add_subplot(grid[1, :2]), results)
    _seeds(figure.add_subplot(grid[1, 2]), results["seeds"])
    figure.suptitle("Training speed on one core (batch 256, 256×256 networks, one update per step)", color=INK)
    figure.savefig(path, dpi=150)


def _speeds(axes: Axes, title: str, rows: dict[str, Any]) -> None:
    shown = {name: row for name, row in rows.items() if name != "partial"}
    names = sorted(shown, key=lambda name: shown[name]["steps_per_s"])
    colours = [PEER if name in NAMES else GATED if name.startswith("partial") else OURS for name in names]
    speeds = [shown[name]["steps_per_s"] for name in names]
    bars = axes.barh([NAMES.get(name, name) for name in names], speeds, color=colours, height=0.72)
    axes.bar_label(bars, [f"{speed:.0f}" for speed in speeds], padding=3, color=INK, fontsize=9)
    axes.margins(x=0.14)
    _plain(axes, title, "steps per second")


def _promises(axes: Axes, results: dict[str, Any]) -> None:
    """Measured / promised, so that 1 is the line to reach; where less is better, the other way round."""
    ant = "ant"
    wanted: list[tuple[str, float | None, float, bool]] = [
        ("vanilla SAC / SBX, Ant ≥ 1.2", results.get("vanilla_sac_vs_sbx", {}).get(ant), 1.2, True),
        ("share of matrix products ≥ 0.85", results["gemm_share"], 0.85, True),
        ("PE-SAC / vanilla SAC cost, Ant ≤ 1.5", results["pe_sac_cost"][ant], 1.5, False),
        ("PE-DQN / vanilla DQN cost ≤ 3", results["pe_dqn_cost"], 3.0, False),
        ("first update, cold ≤ 30 s", results["first_update_cold_s"], 30.0, False),
        ("first update, warm ≤ 8 s", results["first_update_warm_s"], 8.0, False),
    ]
    kept = [(name, value, target, more) for name, value, target, more in wanted if value is not None][::-1]
    ratios = [value / target if more else target / value for _, value, target, more in kept]
    colours = [OURS if ratio >= 1 else GATED for ratio in ratios]
    bars = axes.barh([name for name, *_ in kept], ratios, color=colours, height=0.7)
    axes.bar_label(bars, [f"{value:.2f}" for _, value, *_ in kept], padding=3, color=INK, fontsize=9)
    axes.axvline(1, color=INK, linewidth=1)
    axes.margins(x=0.1)
    _plain(axes, "promises: a bar beyond the line is kept", "measured relative to promised")


def _seeds(axes: Axes, seeds: dict[str, dict[Any, Any]]) -> None:
    for (how, rows), colour in zip(seeds.items(), (OURS, GATED, INK), strict=True):
        counts = [int(count) for count in rows]
        axes.plot(counts, [1e3 * row["wall_s"] for row in rows.values()], "o-", color=colour, label=how)
    axes.set_xscale("log", base=2)
    ticks = [int(count) for count in seeds["map"]]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    _plain(axes, "several seeds", "seeds")
    axes.set_ylabel("ms per step and seed", color=INK)


def _plain(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.set_xlabel(label, color=INK)
    axes.tick_params(colors=INK, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(QUIET)
