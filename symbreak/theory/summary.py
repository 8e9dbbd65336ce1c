"""What symmetry breaking costs on one layout, in numbers: the bounds, and the ceilings of the methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from symbreak.theory.averaging import PermutationAction, group_average
from symbreak.theory.bounds import Inequality, proximity, residual_gap, value_gap
from symbreak.theory.ceiling import ceiling, standard_gates, start_distribution
from symbreak.theory.mdp import PairValues, Tables, TabularMDP
from symbreak.theory.operators import greedy_policy, greedy_value
from symbreak.theory.oracle import minority_gate, strict_gate
from symbreak.theory.solve import episode_return, policy_iteration

RANDOM_GATES = 3
DISTURBED = 0.01  # a state counts as disturbed when averaging moves its value by more: the reward of one step


def summarise(
    tables: Tables, gamma: float = 0.99, layout: str = "", horizon: int = 100, seed: int = 0
) -> dict[str, Any]:
    """One JSON-ready object for a layout.

    Gaps and their bounds run over all states; shares, returns and ceilings over the states that can occur. A
    `random_gate` is uniform in [0, 1] at each pair; the largest gap and the largest bound of a few are given. Returns
    are expectations over the start distribution, computed and not sampled, undiscounted unless the name says so.
    """
    true, action = TabularMDP.from_tables(tables, gamma), PermutationAction.from_tables(tables)
    free = np.asarray(tables.free, bool)
    average = group_average(true, action)
    true_q, average_q = policy_iteration(true).values, policy_iteration(average).values
    start = start_distribution(true, free)

    def returns(q: PairValues, discounted: bool = False) -> float:
        return episode_return(true, greedy_policy(q), start, horizon, discounted)

    rng = np.random.default_rng(seed)
    whole = value_gap(true, average, true_q, average_q)
    sharper = residual_gap(true, average, np.zeros_like(true.reward), true_q, average_q)
    oracle = proximity(true, average, strict_gate(true, action), true_q)
    minority = proximity(true, average, minority_gate(true, action), true_q)
    random = [proximity(true, average, rng.random(true.reward.shape), true_q) for _ in range(RANDOM_GATES)]
    gates = standard_gates(true, action, true_q, free)
    return {
        "layout": layout,
        "gamma": gamma,
        "horizon": horizon,
        "broken_share": float(start @ gates["oracle-strict"].mean(axis=1)),
        "disturbed_share": float(start @ (np.abs(greedy_value(true_q) - greedy_value(average_q)) > DISTURBED)),
        "value_gap": float(whole.left),
        "value_gap_bound": float(whole.right),
        "value_gap_residual_bound": float(sharper.right),
        "value_gap_free": float(np.abs(true_q - average_q)[free].max()),
        **_sides("oracle_gap", [oracle]),
        **_sides("minority_gap", [minority]),
        **_sides("random_gate_gap", random),
        "equivariant_return": returns(average_q),
        "equivariant_discounted_return": returns(average_q, discounted=True),
        "optimal_return": returns(true_q),
        "optimal_discounted_return": returns(true_q, discounted=True),
        "ceiling": {
            name: {
                "return": (reached := ceiling(true, action, gate, free, horizon=horizon)).mean_return,
                "random_tie_return": reached.random_tie_return,
                "discounted_return": reached.discounted_return,
                "gate_rate": reached.gate_rate,
                "tie_rate": reached.tie_rate,
            }
            for name, gate in gates.items()
        },
    }


def _sides(name: str, claims: Sequence[Inequality]) -> dict[str, float]:
    return {
        name: max(float(claim.left) for claim in claims),
        f"{name}_bound": max(float(claim.right) for claim in claims),
    }


def mean_of(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The means of what several summaries say, under the name of the first."""
    means: dict[str, Any] = {}
    for name, first in summaries[0].items():
        values = [one[name] for one in summaries]
        if isinstance(first, Mapping):
            means[name] = mean_of(values)
        else:
            means[name] = first if isinstance(first, str | int) else float(np.mean(values))
    return means


def as_table(summaries: Sequence[Mapping[str, Any]]) -> str:
    """The summaries side by side as plain text, one column per layout."""
    lines = [("", [str(one["layout"]) for one in summaries])]
    for text, key in (
        ("broken pairs", "broken_share"),
        ("states whose value moves by > 0.01", "disturbed_share"),
        ("value gap, true against average", "value_gap"),
        ("  its bound", "value_gap_bound"),
        ("  its bound with the true values", "value_gap_residual_bound"),
        ("  on states that can occur", "value_gap_free"),
        ("value gap, strict oracle gate", "oracle_gap"),
        ("value gap, minority oracle gate", "minority_gap"),
        ("value gap, random gates", "random_gate_gap"),
        ("  its bound", "random_gate_gap_bound"),
        ("return of the optimum", "optimal_return"),
        ("return of the average's optimum", "equivariant_return"),
    ):
        lines.append((text, [_number(one[key]) for one in summaries]))
    for name in summaries[0]["ceiling"]:
        cells = [one["ceiling"][name] for one in summaries]
        lines.append((f"ceiling, {name}", [_number(cell["return"]) for cell in cells]))
        if name != "exact":
            lines.append(("  gated pairs", [_number(cell["gate_rate"]) for cell in cells]))
    margin = max(len(text) for text, _ in lines)
    width = max(len(cell) for _, cells in lines for cell in cells) + 2
    return "\n".join(text.ljust(margin) + "".join(cell.rjust(width) for cell in cells) for text, cells in lines)


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100.0 else f"{value:.3f}"
