"""The parts of the report page that are looked up rather than read: audits and the provenance of every run."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from symbreak.storage.files import read_file
from symbreak.studies.report_html import plural, text
from symbreak.studies.report_runs import Group, Run
from symbreak.training.choice import needs_own_symmetry
from symbreak.training.record import MOST_METRICS
from symbreak.training.settings import RunConfig

AS_USUAL = {"checkpoint_every": 10_000, "environments": 1, "log_every": None}  # options that are seldom given
MOST_EXACT = 0.01  # an audit's error above which a field that is not broken is hidden by noise or rounding
LONGEST_BAR = 2.0  # an audit's error at which a bar is full: as large as a change of the opposite sign


def audit_bars(name: str, audit: Mapping[str, Any]) -> str:
    """How far each field is from obeying the symmetry, as bars."""
    fields = audit.get("fields")
    findings = dict(fields) if isinstance(fields, dict) else {}
    findings |= {part: audit[part] for part in ("reward", "termination") if isinstance(audit.get(part), dict)}
    rows = []
    for field, finding in findings.items():
        error, broken = (_share(finding, key) for key in ("error", "share_broken"))
        hidden = broken == 0 and error > MOST_EXACT
        colour = "partly" if hidden else "good" if broken == 0 else "bad" if error >= math.sqrt(2) else "partly"
        beside = "no more than without a transformation" if hidden else f"broken in {_percent(broken)}"
        said = "exact" if broken == 0 and not hidden else f"{_brief(error)}, {beside}"
        length = 100 * min((error if math.isfinite(error) else LONGEST_BAR) / LONGEST_BAR, 1.0)
        rows.append(
            f'<tr><th scope="row">{text(field)}</th><td class="wide"><span class="meter {colour}" '
            f'style="--at:{length:.1f}%"></span></td><td>{text(said)}</td></tr>'
        )
    remarks = [f"images that can be visited: {_percent(_share(audit, 'reachable_share'))}"]
    if audit.get("action_bounds_invariant") is False:
        remarks.append("the group leaves the action bounds")
    suggestions = audit.get("suggestions")
    remarks += [f"suggestion: {line}" for line in suggestions] if isinstance(suggestions, list) else []
    listed = "".join(f"<li>{text(remark)}</li>" for remark in remarks)
    return (
        f'<article class="card"><h3>{text(name)}: {text(audit.get("verdict", "no verdict"))}</h3>'
        f'<table class="audit"><tbody>{"".join(rows)}</tbody></table><ul class="remarks">{listed}</ul></article>'
    )


def _share(finding: object, key: str) -> float:
    value = finding.get(key) if isinstance(finding, Mapping) else None
    return float(value) if isinstance(value, int | float) else math.nan


def _brief(value: float) -> str:
    return f"error {value:.2g}" if math.isfinite(value) else "error unknown"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}\N{NO-BREAK SPACE}%" if math.isfinite(share) else "an unknown share"


def provenance(groups: Sequence[Group]) -> str:
    """Config, versions, state and fingerprints of every run, folded."""
    parts = []
    for group in groups:
        runs = "".join(_run_details(run) for run in group.runs)
        parts.append(
            f"<details><summary><b>{text(group.setting)}</b> · {text(group.label)} "
            f'<span class="faint">{plural(len(group.runs), "run")}</span></summary>{runs}</details>'
        )
    return "".join(parts)


def _run_details(run: Run) -> str:
    versions = run.config.get("versions")
    facts: dict[str, Any] = {"state": run.state, "last step": f"{int(run.rows[-1]['step']):,}" if run.rows else "none"}
    facts |= {key: value for key, value in run.status.items() if key not in ("state", "step")}
    facts |= {key: value for key, value in sorted(run.config.items()) if key != "versions" and value not in (None, {})}
    facts |= (
        {"versions": ", ".join(f"{key} {value}" for key, value in versions.items())}
        if isinstance(versions, dict)
        else {}
    )
    facts["metrics.jsonl"] = f"SHA-256 {_fingerprint(run)}"
    again = _command(run)
    facts |= {"again": again} if again else {}
    rows = "".join(f'<tr><th scope="row">{text(key)}</th><td>{_fact(value)}</td></tr>' for key, value in facts.items())
    state = run.state if run.state in ("finished", "failed") else "unfinished"
    return (
        f'<details class="run"><summary><span class="state {state}">{text(run.state)}</span> {text(run.name)} '
        f'<span class="faint">seed {text(run.seed)}</span></summary>'
        f'<table class="facts"><tbody>{rows}</tbody></table></details>'
    )


def _fact(value: Any) -> str:
    return text(value if isinstance(value, str) else json.dumps(value, sort_keys=True))


def _fingerprint(run: Run) -> str:
    path = run.directory / "metrics.jsonl"
    return hashlib.sha256(read_file(path, MOST_METRICS)).hexdigest() if path.exists() else "none"


def _command(run: Run) -> str:
    """The command that repeats the run, where its config is made of plain options."""
    config = run.config
    if config.get("agent") or config.get("gate") or needs_own_symmetry(_named(config)):
        return ""
    words = ["symbreak", "train", str(config["task"])]
    for key in ("method", "symmetry", "preset", "steps", "seed", "evaluations", "episodes", *AS_USUAL):
        if config.get(key) is not None and config[key] != AS_USUAL.get(key):
            words += [f"--{key.replace('_', '-')}", str(config[key])]
    return shlex.join(words)


def _named(config: Mapping[str, Any]) -> RunConfig:
    symmetry = config.get("symmetry")
    return RunConfig(str(config["task"]), symmetry=None if symmetry is None else str(symmetry))
