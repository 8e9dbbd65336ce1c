"""The result of an audit, to read, to store and to look at."""

from __future__ import annotations

import html
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from symbreak.audit.verdict import LOCALLY_BROKEN, NEARLY_ALL, NOT_A_SYMMETRY, Finding, percent
from symbreak.errors import StorageFault

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from symbreak.tasks.gridworld import GridWorld


@dataclass(frozen=True, eq=False)
class AuditReport:
    """Whether a declared symmetry is one, field by field.

    `dynamics_share` is the share of audited pairs in which some field is broken, `broken_share` that in which the
    reward or the termination may be broken instead. `cells` is, for grid-worlds, the share of broken pairs per cell of
    the agent.
    """

    task: str
    symmetry: str
    verdict: str
    reasons: tuple[str, ...]
    fields: dict[str, Finding]
    reward: Finding
    termination: Finding
    action_bounds_invariant: bool
    reachable_share: float
    dynamics_share: float
    broken_share: float
    suggestions: tuple[str, ...]
    notes: tuple[str, ...]
    pairs: int
    noun: str
    world: GridWorld | None = None
    cells: np.ndarray | None = None

    @property
    def exit_code(self) -> int:
        """0 for a symmetry that holds at least in places, 2 for none at all."""
        return 2 if self.verdict == NOT_A_SYMMETRY else 0

    @property
    def rows(self) -> dict[str, Finding]:
        """The fields, then reward and termination."""
        return {**self.fields, "reward": self.reward, "termination": self.termination}

    def to_dict(self) -> dict[str, Any]:
        def brief(finding: Finding) -> dict[str, float | None]:
            return {"error": _number(finding.error), "share_broken": finding.share_broken}

        return {
            "verdict": self.verdict,
            "fields": {name: brief(finding) for name, finding in self.fields.items()},
            "reward": brief(self.reward),
            "termination": brief(self.termination),
            "action_bounds_invariant": self.action_bounds_invariant,
            "reachable_share": self.reachable_share,
            "suggestions": list(self.suggestions),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    @property
    def headline(self) -> str:
        reasons = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.verdict}{reasons}"

    @property
    def remarks(self) -> list[str]:
        """What the table does not show."""
        lines = []
        if self.dynamics_share or not self.reward.is_exact or not self.termination.is_exact:
            shares = {"dynamics": self.dynamics_share, "reward": self.reward.share_broken}
            shares["termination"] = self.termination.share_broken
            written = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
            lines.append(f"broken share of {self.noun}: {written}; any of them {percent(self.broken_share)}")
        if self.verdict == LOCALLY_BROKEN and self.dynamics_share >= NEARLY_ALL:
            lines.append("no place where it holds exactly: read the errors as how good an approximation it is")
        lines.append(f"images that can be visited: {percent(self.reachable_share)}")
        kept = "maps the action bounds to themselves" if self.action_bounds_invariant else "leaves the action bounds"
        lines.append(f"the group {kept}")
        return [*lines, *self.notes]

    def __str__(self) -> str:
        width = max(len(name) for name in self.rows)
        # A second column where errors differ between images that can be visited and those that cannot.
        both = any(f.reachable_error != f.error and math.isfinite(f.reachable_error) for f in self.rows.values())
        lines = [f"{self.task}, symmetry {self.symmetry}: {self.headline}", ""]
        lines.append(f"{'field':{width}}  {'error':>8}  {'reachable  ' if both else ''}{'broken':>6}")
        for name, finding in self.rows.items():
            reachable = f"{_brief(finding.reachable_error):>9}  " if both else ""
            numbers = f"{_brief(finding.error):>8}  {reachable}{percent(finding.share_broken):>6}"
            lines.append(f"{name:{width}}  {numbers}  {finding.words}")
        lines += ["", *self.remarks]
        lines += [f"suggestion: {suggestion}" for suggestion in self.suggestions]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cell = 'style="padding:2px 10px;text-align:{}"'
        rows = []
        for name, finding in self.rows.items():
            numbers = (_brief(finding.error), percent(finding.share_broken))
            rows.append(
                f"<tr><td {cell.format('left')}>{html.escape(name)}</td>"
                + "".join(f"<td {cell.format('right')}>{number}</td>" for number in numbers)
                + f"<td {cell.format('left')}>{html.escape(finding.words)}</td></tr>"
            )
        head = "".join(f"<th {cell.format('left')}>{name}</th>" for name in ("field", "error", "broken", "verdict"))
        remarks = [*self.remarks, *(f"suggestion: {suggestion}" for suggestion in self.suggestions)]
        listed = "".join(f"<li>{html.escape(remark)}</li>" for remark in remarks)
        title = f"<b>{html.escape(self.task)}</b>, symmetry {html.escape(self.symmetry)}: {html.escape(self.headline)}"
        return f"<div><p>{title}</p><table><tr>{head}</tr>{''.join(rows)}</table><ul>{listed}</ul></div>"

    def plot(self) -> Figure:
        """Bars of the errors; for grid-worlds beside a map of where pairs are broken."""
        from symbreak.audit.picture import draw

        return draw(self)

    def save(self, directory: str | Path) -> list[Path]:
        """Write `audit.json`, `audit.txt`, `audit.html` and `audit.png` into the directory."""
        from symbreak.audit.picture import as_png, page

        directory = Path(directory)
        picture = as_png(self)
        contents: dict[str, bytes] = {
            "audit.json": (self.to_json() + "\n").encode(),
            "audit.txt": (str(self) + "\n").encode(),
            "audit.html": page(self, picture).encode(),
            "audit.png": picture,
        }
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for name, content in contents.items():
                (directory / name).write_bytes(content)
        except OSError as problem:
            raise StorageFault(
                f"the audit cannot be written to {directory}: {problem.strerror}; choose another"
            ) from problem
        return [directory / name for name in contents]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _brief(value: float) -> str:
    return "-" if not math.isfinite(value) else "0" if value == 0 else f"{value:.2g}"
