"""The parts of the report page that need no script: headline, cards and tables.

Every word that comes from a file passes through `text`; nothing else does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from symbreak.studies.report_runs import Group
from symbreak.studies.report_tables import Comparison, Overall, Row, metric_means
from symbreak.studies.statistics import ENOUGH_SEEDS, Estimate

MOST_NOTICES = 8
SAID = ("notes", "inexact")  # in a status, why a result may not be what it seems
UNCHECKED = "unchecked"
BLIND = "What a gate does not predict can break unnoticed: gate.reward_head and gate.termination_head add to it."


def text(value: object) -> str:
    return escape(str(value), quote=True)


def figure(value: float, scale: float) -> str:
    """A number with as many decimals as numbers of that scale deserve."""
    if not math.isfinite(value):
        return "–"
    decimals = 0 if scale >= 200 else 1 if scale >= 20 else 2 if scale >= 0.2 else 3 if scale >= 0.02 else 5
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−")  # + 0.0: a zero has no sign


def ranged(estimate: Estimate | None, scale: float) -> str:
    """A figure and, where there is one, its interval."""
    if estimate is None:
        return '<span class="faint">–</span>'
    value = f"<b>{figure(estimate.value, scale)}</b>"
    if not math.isfinite(estimate.low):
        return value
    return f'{value} <span class="faint">[{figure(estimate.low, scale)}, {figure(estimate.high, scale)}]</span>'


def swatch(label: str, styles: Mapping[str, tuple[str, str]]) -> str:
    colour, dash = styles[label]
    drawn = f'<span class="swatch {dash}" style="--colour:{colour}"></span>{text(label)}'
    return f'<span class="whole">{drawn}</span>' if len(label) <= 20 else drawn


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def headline(groups: Sequence[Group]) -> tuple[str, str]:
    """What was run, as a title and a line below it."""
    if not groups:
        return "Audit", ""
    settings = list(dict.fromkeys(group.setting for group in groups))
    methods = list(dict.fromkeys(group.label for group in groups))
    runs = [run for group in groups for run in group.runs]
    who = methods[0] if len(methods) == 1 else plural(len(methods), "method")
    where = settings[0] if len(settings) == 1 else plural(len(settings), "setting")
    counts = sorted({len(group.runs) for group in groups})
    seeds = plural(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    budgets = sorted({int(run.config["steps"]) for run in runs if isinstance(run.config.get("steps"), int)})
    steps = (
        [f"{budgets[0]:,} steps" if len(budgets) == 1 else f"{budgets[0]:,} to {budgets[-1]:,} steps"]
        if budgets
        else []
    )
    states = {name: sum(run.state == name for run in runs) for name in ("failed", "running", "interrupted", "unknown")}
    trouble = [f"{count} {name}" for name, count in states.items() if count]
    facts = [plural(len(runs), "run"), seeds + (" each" if len(runs) > 1 else ""), *steps, *trouble]
    listed = ", ".join(settings) if len(settings) > 1 else ""
    return f"{who} on {where}", " · ".join([*([listed] if listed else []), *facts])


def notices(groups: Sequence[Group]) -> str:
    """What runs have to say beside their results, each remark once with the methods that make it."""
    said: dict[str, list[str]] = {}
    for group in groups:
        for run in group.runs:
            notes, reasons = (found if isinstance(found := run.status.get(key), list) else [] for key in SAID)
            stopped = [f"not what it would be without a stop: {reason}" for reason in reasons]
            for note in dict.fromkeys(map(str, [*notes, *stopped])):
                said.setdefault(note, []).append(f"{group.label} on {group.setting}")
    lines = [f"<p><b>{text(note)}</b> ({text(', '.join(dict.fromkeys(who)))})</p>" for note, who in said.items()]
    rest = f"<p>{plural(len(lines) - MOST_NOTICES, 'more remark')} under Runs.</p>" if len(lines) > MOST_NOTICES else ""
    if any(note.endswith(UNCHECKED) for note in said):
        rest += f"<p>{BLIND}</p>"
    return f'<div class="notice">{"".join(lines[:MOST_NOTICES])}{rest}</div>' if lines else ""


def glance(comparisons: Sequence[Comparison]) -> str:
    """One card per setting: who leads, by how much, and whether that is more than luck."""
    cards = []
    for comparison in comparisons:
        best = comparison.best
        if best is None or best.final is None:
            body = '<p class="big">–</p><p>no run has finished yet</p>'
        else:
            scale = _scale(comparison, "final")
            kind = "final return" if best.final.seeds == 1 else "final return, IQM"
            body = (
                f'<p class="big">{figure(best.final.value, scale)} <span>{text(best.group.label)}</span></p>'
                f"<p>{kind}{_within(best.final, scale)}</p>{_lead(comparison, best)}{_gate_line(comparison)}"
            )
        cards.append(f'<article class="card"><h3>{text(comparison.setting)}</h3>{body}</article>')
    return f'<div class="cards">{"".join(cards)}</div>'


def _within(estimate: Estimate, scale: float) -> str:
    if not math.isfinite(estimate.low):
        return ", one seed: no interval"
    return f", 95 % interval {figure(estimate.low, scale)} to {figure(estimate.high, scale)}"


def _lead(comparison: Comparison, best: Row) -> str:
    if len(comparison.rows) < 2:
        success = (
            "" if best.success is None else f"<p>reaches its goal in {100 * best.success.value:.0f} % of episodes</p>"
        )
        return success
    beaten = [row for row in comparison.rows if row.beaten is not None]
    if comparison.reference is None or not beaten:
        return f"<p>highest of {len(comparison.rows)} methods</p>"
    clear = sum(row.beaten.low > 0.5 for row in beaten if row.beaten is not None)
    behind = sum(row.beaten.high < 0.5 for row in beaten if row.beaten is not None)
    lost = f", worse than {behind}" if behind else ""
    return f"<p>{text(comparison.reference)} is clearly better than {clear} of {len(beaten)} others{lost}</p>"


def _gate_line(comparison: Comparison) -> str:
    rows = [
        row for row in comparison.rows if row.group.label == (comparison.reference or comparison.rows[0].group.label)
    ]
    auroc, rate = (metric_means(rows[0].group, f"gate/{name}") for name in ("auroc_minority", "rate"))
    said = [f"gate AUROC {auroc:.2f}"] if math.isfinite(auroc) else []
    said += [f"gate rate {rate:.2f}"] if math.isfinite(rate) else []
    return f"<p>{' · '.join(said)}</p>" if said else ""


def _scale(comparison: Comparison, name: str) -> float:
    values = [getattr(row, name).value for row in comparison.rows if getattr(row, name) is not None]
    return max((abs(value) for value in values), default=1.0)


def results_table(comparison: Comparison, styles: Mapping[str, tuple[str, str]]) -> str:
    """Final return, area under the curve, success and probability of improvement of every method."""
    scale = max(_scale(comparison, "final"), _scale(comparison, "auc"))
    success = any(row.success is not None for row in comparison.rows)
    contest = any(row.beaten is not None for row in comparison.rows)
    ends = [value for row in comparison.rows if row.final for value in _reach(row.final)]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    heads = ["method", "final return, IQM", "", "mean", "area under curve, IQM"]
    heads += (["success"] if success else []) + ([f"{text(comparison.reference)} beats it"] if contest else [])
    lines = []
    for row in comparison.rows:
        leads = ' class="leads"' if row is comparison.best and len(comparison.rows) > 1 else ""
        cells = [
            f'<th scope="row">{swatch(row.group.label, styles)}</th>',
            f"<td>{ranged(row.final, scale)}</td>",
            f'<td class="bar">{_bar(row.final, low, high, styles[row.group.label][0])}</td>',
            f"<td>{ranged(row.final_mean, scale)}</td>",
            f"<td>{ranged(row.auc, scale)}</td>",
        ]
        cells += [f"<td>{ranged(row.success, 1.0)}</td>"] if success else []
        cells += [f"<td>{ranged(row.beaten, 1.0)}</td>"] if contest else []
        lines.append(f"<tr{leads}>{''.join(cells)}<td>{_seeds(row.group)}</td></tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in [*heads, "seeds"])
    remarks = "".join(f"<li>{remark}</li>" for remark in _remarks(comparison))
    return (
        f"<h3>{text(comparison.setting)}</h3>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="results of {text(comparison.setting)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        f'<ul class="remarks">{remarks}</ul>'
    )


def _reach(estimate: Estimate) -> list[float]:
    return [value for value in (estimate.low, estimate.value, estimate.high) if math.isfinite(value)]


def _bar(estimate: Estimate | None, low: float, high: float, colour: str) -> str:
    """An interval as a line with a dot, on the axis that the table's rows share."""
    if estimate is None:
        return ""
    place = [
        100 * (value - low) / ((high - low) or 1.0)
        for value in (_reach(estimate)[0], estimate.value, _reach(estimate)[-1])
    ]
    style = f"--low:{place[0]:.1f}%;--at:{place[1]:.1f}%;--high:{place[2]:.1f}%;--colour:{colour}"
    return f'<span class="range" style="{style}"></span>'


def _seeds(group: Group) -> str:
    said = [str(len(group.settled.runs))]
    said += [f'<span class="bad">{group.count("failed")} failed</span>'] if group.count("failed") else []
    said += [f'<span class="faint">+{group.unfinished} unfinished</span>'] if group.unfinished else []
    return " ".join(said)


def _remarks(comparison: Comparison) -> list[str]:
    groups = [row.group for row in comparison.rows]
    fewest = min(len(group.settled.runs) for group in groups)
    said = []
    if fewest == 1:
        said.append("A method with one seed has no interval: nothing is known about its spread.")
    elif 1 < fewest < ENOUGH_SEEDS:
        said.append(
            f"{fewest} seeds, fewer than {ENOUGH_SEEDS}: the intervals allow for that where seeds scatter evenly, "
            "not where a rare failure has not happened yet."
        )
    failed = sum(group.count("failed") for group in groups)
    if failed:
        floor = groups[0].floors.get("eval/return", math.nan)
        counted = f"{figure(floor, abs(floor))}" if math.isfinite(floor) else "nothing, as no run has a value"
        said.append(f"{plural(failed, 'failed run')} counted, with {counted} from where they stopped.")
    unfinished = sum(group.unfinished for group in groups)
    if unfinished:
        said.append(f"{plural(unfinished, 'unfinished run')} not counted yet, and drawn as far as they came.")
    return said


def overall_table(together: Overall, styles: Mapping[str, tuple[str, str]]) -> str:
    """All settings together."""
    reference = together.reference
    heads = ["method", "scaled final return, IQM", "", "mean"] + ([f"{text(reference)} beats it"] if reference else [])
    lines = []
    for label, (middle, average, beaten) in together.figures.items():
        bar = _bar(middle, 0.0, 1.0, styles[label][0]) if math.isfinite(middle.low) else ""
        cells = f'<td>{ranged(middle, 1.0)}</td><td class="bar">{bar}</td><td>{ranged(average, 1.0)}</td>'
        cells += f"<td>{ranged(beaten, 1.0)}</td>" if reference else ""
        lines.append(f'<tr><th scope="row">{swatch(label, styles)}</th>{cells}</tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="results over all settings">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
