"""The part of the report page that shows where a learned gate opens in an environment without a map. No script."""

from __future__ import annotations

from collections.abc import Sequence

from symbreak.studies.report_html import figure, plural, text
from symbreak.studies.report_runs import Group, Run
from symbreak.training.gate_record import FILE, Division, GateRecord, read_gate_record

EVEN = 0.01  # standard deviation below which a gate tells no places apart
NOTHING = "<p>It says the same nearly everywhere: there is nothing to draw.</p>"
KEY = '<p class="hint">gate <span class="whole">0<span class="ramp hot"></span>1</span>; empty: no pair was there</p>'


def gate_maps(groups: Sequence[Group]) -> str:
    """One article per method and setting, of its first seed that has a record: seeds look alike."""
    articles = []
    for group in groups:
        run = next((run for run in group.runs if (run.directory / FILE).exists()), None)
        if run is not None:
            articles.append(_article(group, run, read_gate_record(run.directory)))
    return "".join(articles)


def _article(group: Group, run: Run, record: GateRecord) -> str:
    said = (
        f"On {plural(record.pairs, 'visited pair')} the gate has the mean {figure(record.mean, 1.0)}, the deviation "
        f"{figure(record.deviation, 1.0)}, and is above one half on {_percent(record.open)}."
    )
    even = record.deviation < EVEN or not record.entries
    drawn = NOTHING if even else _drawings(record)
    return (
        f'<article class="gated"><h3>{text(group.setting)} · {text(group.label)} '
        f'<span class="faint">seed {text(run.seed)}</span></h3><p class="readout">{said}</p>{drawn}</article>'
    )


def _drawings(record: GateRecord) -> str:
    rest = f'<p class="faint">Entries that explain less: {record.others}.</p>' if record.others else ""
    both = "" if record.both is None else _both(record.both)
    return f'<div class="strips">{"".join(map(_strip, record.entries))}</div>{rest}{both}'


def _explains(division: Division) -> str:
    return f"explains {_percent(division.explains)}" if division.explains > 0 else "explains nothing"


def _percent(share: float) -> str:
    return f"{100 * share:.2g}\N{NO-BREAK SPACE}%" if share < 0.995 else "100\N{NO-BREAK SPACE}%"


def _strip(division: Division) -> str:
    """One entry as bars: parts of equal size from left to right, the mean gate as height."""
    name, (edges,) = division.names[0], division.edges
    bars = []
    for part, gate in enumerate(division.gates):
        height = gate or 0.0
        said = f"{_between(edges, part)}: {_answer(gate, division.counts[part])}"
        bars.append(
            f'<g><title>{text(said)}</title><rect class="floor" x="{part + 0.06:.2f}" y="0" width="0.88" height="1"/>'
            f'<rect class="hot" x="{part + 0.06:.2f}" y="{1 - height:.3f}" width="0.88" height="{height:.3f}"/></g>'
        )
    known = [gate for gate in division.gates if gate is not None]
    reach = f"{figure(min(known), 1.0)} to {figure(max(known), 1.0)}"
    return (
        f'<figure class="card strip"><figcaption>{text(name)} <span>{_explains(division)}, '
        f"gate {reach}</span></figcaption>{_drawing(len(bars), 1, f'mean gate over {name}', bars)}"
        f"{_axis(edges, _number(edges[len(edges) // 2]))}</figure>"
    )


def _both(division: Division) -> str:
    """Two entries as a field of squares, the second one upwards."""
    (first, second), (across, upwards) = division.names, division.edges
    columns, rows = len(across) - 1, len(upwards) - 1
    squares = []
    for place, gate in enumerate(division.gates):
        column, row = divmod(place, rows)
        where = f'x="{column + 0.03:.2f}" y="{rows - row - 0.97:.2f}" width="0.94" height="0.94"'
        said = f"{first} {_between(across, column)}, {second} {_between(upwards, row)}: "
        tone = 'class="unseen"' if gate is None else f'class="hot" fill-opacity="{gate:.3f}"'
        under = "" if gate is None else f'<rect class="floor" {where}/>'
        answer = _answer(gate, division.counts[place])
        squares.append(f"<g><title>{text(said + answer)}</title>{under}<rect {tone} {where}/></g>")
    side = f"<span>{_number(upwards[0])}</span><span>{text(second)}</span><span>{_number(upwards[-1])}</span>"
    return (
        f'<figure class="card both"><figcaption>{text(second)} over {text(first)} <span>together they explain '
        f'{_percent(division.explains)}</span></figcaption><div class="field"><div class="side">{side}</div>'
        f"{_drawing(columns, rows, f'mean gate over {first} and {second}', squares)}</div>"
        f"{_axis(across, text(first))}{KEY}</figure>"
    )


def _drawing(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    """Stretched to whatever room there is."""
    box = f'viewBox="0 0 {width} {height}" preserveAspectRatio="none"'
    return f'<svg {box} role="img" aria-label="{text(label)}">{"".join(parts)}</svg>'


def _axis(edges: Sequence[float], middle: str) -> str:
    ends = f"<span>{_number(edges[0])}</span><span>{middle}</span><span>{_number(edges[-1])}</span>"
    return f'<div class="axis">{ends}</div>'


def _answer(gate: float | None, count: int) -> str:
    return "no pair" if gate is None else f"gate {figure(gate, 1.0)} on {plural(count, 'pair')}"


def _between(edges: Sequence[float], part: int) -> str:
    return f"{_number(edges[part])} to {_number(edges[part + 1])}"


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
