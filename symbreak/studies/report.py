"""One page about a set of runs: curves, tables, gates, maps and provenance, in a file that needs no network.

The page is a template with our own style and script, the plotting script of the installed `plotly` package, and the
data as JSON. It carries no date and no absolute path, so equal runs give an equal file. Only the scripts that were put
in here may run: their hashes stand in the page's security policy, so a hostile name could not even if it got through.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from symbreak.errors import EnvironmentFault, InputError, StorageFault
from symbreak.studies.report_details import audit_bars, provenance
from symbreak.studies.report_figures import bounds_of, paint, title_of
from symbreak.studies.report_gate import gate_maps
from symbreak.studies.report_html import figure, glance, headline, notices, overall_table, results_table, swatch, text
from symbreak.studies.report_runs import Group, Run, find_runs, group_runs, read_json
from symbreak.studies.report_tables import Overall, compare, overall
from symbreak.studies.statistics import curve_band, iqm, mean, performance_profile
from symbreak.training.grid_record import FILE, GridRecord, read_grid_record

Styles = Mapping[str, tuple[str, str]]


def make_report(directories: Sequence[Path], output: Path, floors: Mapping[str, float] | None = None) -> Path:
    """Write the page about all runs in or below the directories, and return its path.

    `floors` gives, per setting or task, the return that a failed run counts with; without it the lowest one seen.
    """
    directories = [Path(directory) for directory in directories]
    runs = find_runs(directories)
    audits = _audits(directories, runs)
    if not runs and not audits:
        named = ", ".join(map(str, directories)) or "no directory"
        raise InputError(f"no run and no audit found in {named}; give directories that `symbreak train` wrote")
    groups = group_runs(runs, floors)
    page = _page(groups, audits)
    output = Path(output)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(page, encoding="utf-8")
    except OSError as problem:
        raise StorageFault(f"the report cannot be written to {output}: {problem.strerror}; choose another") from problem
    return output


def _page(groups: list[Group], audits: dict[str, dict[str, Any]]) -> str:
    styles = paint(dict.fromkeys(group.label for group in groups))
    comparisons, together = compare(groups), overall(groups)
    title, facts = headline(groups)
    scripts = {"theme": _asset("report_theme.js"), "plotly": _plotting_script(), "script": _page_script()}
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts.values())
    data = {
        "settings": [_setting(setting, groups) for setting in dict.fromkeys(group.setting for group in groups)],
        "methods": [{"label": label, "colour": colour, "dash": dash} for label, (colour, dash) in styles.items()],
        "titles": {metric: title_of(metric) for metric in sorted(set().union(*map(_metrics, groups)))},
        "profile": _profile(together),
        "maps": _maps(groups),
    }
    parts = {
        **scripts,
        "policy": f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:",
        "style": _asset("report_template.css"),
        "title": text(title),
        "facts": text(facts),
        "notices": notices(groups),
        "glance": glance(comparisons),
        "methods": "".join(_chip(number, label, styles) for number, label in enumerate(styles)),
        "tables": "".join(results_table(comparison, styles) for comparison in comparisons),
        "overall": overall_table(together, styles) if together else "",
        "where": gate_maps(groups),
        "audits": "".join(audit_bars(name, audit) for name, audit in audits.items()),
        "provenance": provenance(groups),
        "data": _embedded(data),
    }
    return _fill(_asset("report_template.html"), parts)


def _fill(template: str, parts: Mapping[str, str]) -> str:
    """Put the parts into the template. Sections whose parts are all empty are left out, with the links to them."""

    def keep(match: re.Match[str]) -> str:
        return match["body"] if any(parts[name] for name in match["names"].split()) else ""

    template = re.sub(r"\{%if (?P<names>[\w ]+)%\}(?P<body>.*?)\{%end%\}", keep, template, flags=re.DOTALL)
    # One pass over the template alone: a part that contains a placeholder is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _asset(name: str) -> str:
    return (resources.files("symbreak.studies") / name).read_text(encoding="utf-8")


def _plotting_script() -> str:
    try:
        script = (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    except (ModuleNotFoundError, OSError) as problem:
        raise EnvironmentFault("the report draws with plotly, which is not installed; pip install plotly") from problem
    return script.replace("</script", "<\\/script")


def _page_script() -> str:
    """Our own scripts, in a block of their own: nothing of them can be seen from outside."""
    parts = (_asset(f"report_{part}.js") for part in ("charts", "map", "start"))
    return '"use strict";\n{\n' + "\n".join(parts) + "}\n"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _embedded(data: Any) -> str:
    """JSON that no HTML parser can take for anything else."""
    written = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _numbers(values: Any) -> list[float | None]:
    """Five significant digits, None where there is no value."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in np.asarray(values, float)]


def _chip(number: int, label: str, styles: Styles) -> str:
    pressed = f'type="button" class="chip" aria-pressed="true" data-method="{number}"'
    return f"<button {pressed}>{swatch(label, styles)}</button>"


def _setting(setting: str, groups: list[Group]) -> dict[str, Any]:
    members = [group for group in groups if group.setting == setting]
    return {"name": setting, "groups": [_group(group) for group in members]}


def _group(group: Group) -> dict[str, Any]:
    return {
        "label": group.label,
        "steps": [int(step) for step in group.steps],
        "seeds": [str(run.seed) + ("" if run.settled else f" ({run.state})") for run in group.runs],
        "failed": group.count("failed"),
        "metrics": {metric: _metric(group, metric) for metric in sorted(_metrics(group))},
    }


def _metrics(group: Group) -> set[str]:
    """What there is to draw: everything recorded but the alarm, which is 1 in every run that goes on, and the use of a
    gate where nothing else is told of one: there is none.
    """
    recorded = set(group.floors).union(*(run.metrics for run in group.runs)) - {"gate/finite"}
    gates = {metric for metric in recorded if metric.startswith("gate/")}
    return recorded - gates if gates == {"gate/used"} else recorded


def _metric(group: Group, metric: str) -> dict[str, Any]:
    curves, bounds = group.curves(metric), bounds_of(metric)
    centres = {"mean": mean} | ({"iqm": iqm} if metric.startswith("eval/") else {})
    bands = {name: curve_band(curves, statistic, bounds=bounds) for name, statistic in centres.items()}
    return {name: [_numbers(line) for line in lines] for name, lines in {**bands, "runs": curves}.items()}


def _profile(together: Overall | None) -> dict[str, Any] | None:
    if together is None:
        return None
    thresholds = np.linspace(0.0, 1.0, 81)
    curves = {}
    for label, strata in together.scores.items():
        profile = performance_profile(strata, thresholds)
        curves[label] = [_numbers(line) for line in (profile.share, profile.low, profile.high)]
    return {"thresholds": _numbers(thresholds), "curves": curves}


def _maps(groups: list[Group]) -> list[dict[str, Any]]:
    """One map per method and setting, of its first seed that has one: a map is large and seeds look alike."""
    maps = []
    for group in groups:
        for run in group.runs:
            if (run.directory / FILE).exists():
                maps.append(_map(group, run, read_grid_record(run.directory / FILE)))
                break
    return sorted(maps, key=lambda shown: shown["gate"] is None)  # gated ones first


def _map(group: Group, run: Run, record: GridRecord) -> dict[str, Any]:
    stored = read_json(run.directory / FILE)
    names = ("size", "actions", "blocked", "penalty", "minority", "strict", "greedy", "gate", "disagreement")
    scores = {name: record.auroc(getattr(record, name)) for name in ("minority", "strict")}
    return {
        "name": f"{group.setting} · {group.label} · seed {run.seed}",
        "auroc": {name: figure(score, 1.0) for name, score in scores.items()},
        "scale": record.disagreement_scale,
        **{name: stored[name] for name in names},
    }


def _audits(directories: Sequence[Path], runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Audits in the directories and beside the runs, equal ones once."""
    places = {directory / "audit.json": directory.resolve().name for directory in directories}
    for run in runs:
        symmetry = run.config.get("symmetry")
        places[run.directory / "audit.json"] = run.config["task"] + (f", symmetry {symmetry}" if symmetry else "")
    audits: dict[str, dict[str, Any]] = {}
    seen = set()
    for path, name in places.items():
        if path.exists():
            audit = read_json(path)
            written = json.dumps([name, audit], sort_keys=True)
            if isinstance(audit, dict) and written not in seen:
                seen.add(written)
                audits[name if name not in audits else f"{name} ({len(audits) + 1})"] = audit
    return audits
