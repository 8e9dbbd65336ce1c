"""Where a learned gate says "broken" in an environment without a map, in one small file beside the run.

`gate.json` divides the pairs that an agent has visited by each entry of the observation and the action into parts of
equal size, and holds the mean gate of every part; for the two entries that tell most together it does so for both at
once. How much entries *explain* is by what share the error falls when the gate of a fifth of the time is foretold by
the means of the parts in the other four fifths, not by their one mean. The file has a few kilobytes at most.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from symbreak.errors import StorageFault
from symbreak.storage.files import Damaged, is_count
from symbreak.storage.strict_json import read_json, write_json

FILE = "gate.json"
FORMAT = 1
PARTS, PARTS_OF_TWO = 10, 8  # that an entry is divided into, alone and beside another
KEPT = 6  # entries that a file holds
TIMES = 5  # that the pairs are divided into by when they were visited
TRIED = 48  # entries of which every two are compared
LARGEST_FILE = 1 << 20  # bytes, of a file from elsewhere
LONGEST_NAME = 200

Places = Int[np.ndarray, " pairs"]  # the part of each pair


@dataclass(frozen=True)
class Division:
    """The mean gate by the parts of one or two entries; a part without pairs has none."""

    names: tuple[str, ...]
    edges: tuple[tuple[float, ...], ...]  # of every entry: where its parts begin, and where the last one ends
    counts: tuple[int, ...]  # pairs in every part, those of the first entry slowest
    gates: tuple[float | None, ...]
    explains: float  # below 0: they mislead


@dataclass(frozen=True)
class GateRecord:
    pairs: int
    mean: float  # of the gate
    deviation: float  # standard deviation of the gate
    open: float  # share of pairs whose gate is above one half
    entries: tuple[Division, ...]  # by how much they explain
    others: int  # entries that explain less than those
    both: Division | None  # the two entries that explain most together


def divide(entries: Mapping[str, np.ndarray], gate: Float[np.ndarray, " pairs"]) -> GateRecord:
    """The gate of pairs in the order of their visit against their entries; those that never change tell nothing."""
    gate = np.asarray(gate, float)
    values = {name[:LONGEST_NAME]: np.asarray(value, float) for name, value in entries.items()}
    cuts = {name: _cuts(value, PARTS) for name, value in values.items() if np.ptp(value) > 0}
    alone = [_division((name,), [values[name]], [cut], gate) for name, cut in cuts.items()]
    alone.sort(key=lambda division: -division.explains)  # equal ones stay in the vector's order
    tried = [division.names[0] for division in alone[:TRIED]]
    coarse = {name: _cuts(values[name], PARTS_OF_TWO) for name in tried}
    both = [
        _division(pair, [values[name] for name in pair], [coarse[name] for name in pair], gate)
        for pair in itertools.combinations(tried, 2)
    ]
    best = max(both, key=lambda division: division.explains, default=None)
    return GateRecord(
        pairs=len(gate),
        mean=_short(gate.mean()),
        deviation=_short(gate.std()),
        open=_short((gate > 0.5).mean()),
        entries=tuple(alone[:KEPT]),
        others=len(entries) - len(alone[:KEPT]),
        both=best if best is not None and best.explains > 0 else None,
    )


def _cuts(values: np.ndarray, parts: int) -> np.ndarray:
    """Where parts after the first begin: one part per value where there are few, else parts of equal size."""
    different = np.unique(values)
    if len(different) > parts:
        # Values that occur, so that no part is empty.
        different = np.unique(np.quantile(values, np.arange(parts) / parts, method="inverted_cdf"))
    return different[different > values.min()]


def _division(
    names: tuple[str, ...], values: Sequence[np.ndarray], cuts: Sequence[np.ndarray], gate: np.ndarray
) -> Division:
    shape = tuple(len(cut) + 1 for cut in cuts)
    places = np.ravel_multi_index(
        [np.searchsorted(cut, value, side="right") for value, cut in zip(values, cuts, strict=True)], shape
    )
    counts, sums = (_by_time(places, math.prod(shape), weights) for weights in (np.ones_like(gate), gate))
    count, total = counts.sum(axis=0), sums.sum(axis=0)
    edges = [[value.min(), *cut, value.max()] for value, cut in zip(values, cuts, strict=True)]
    return Division(
        names=names,
        edges=tuple(tuple(_short(edge) for edge in own) for own in edges),
        counts=tuple(int(number) for number in count),
        gates=tuple(_short(whole / number) if number else None for whole, number in zip(total, count, strict=True)),
        explains=_short(_explained(gate, counts, sums)),
    )


def _by_time(places: Places, parts: int, weights: np.ndarray) -> Float[np.ndarray, "times parts"]:
    """Sums of the weights in every part, by when the pairs were visited."""
    times = np.arange(len(places)) * TIMES // len(places)
    return np.bincount(times * parts + places, weights, TIMES * parts).reshape(TIMES, parts)


def _explained(
    gate: np.ndarray, counts: Float[np.ndarray, "times parts"], sums: Float[np.ndarray, "times parts"]
) -> float:
    """1 − Σ(gate − foretold)² / Σ(gate − mean)², where other times foretell by their parts, or by their mean alone.

    Pairs of one episode are alike. Whoever judged parts by the pairs that made them would find that whatever stays the
    same within episodes, a target for one, explains much.
    """
    other_counts, other_sums = counts.sum(axis=0) - counts, sums.sum(axis=0) - sums
    means = other_sums.sum(axis=1, keepdims=True) / np.maximum(other_counts.sum(axis=1, keepdims=True), 1)
    foretold = np.where(other_counts > 0, other_sums / np.maximum(other_counts, 1), means)
    wrong, spread = (
        float(np.sum(gate**2) - 2 * np.sum(answer * sums) + np.sum(answer**2 * counts)) for answer in (foretold, means)
    )
    return 1 - wrong / spread if spread > 1e-9 * len(gate) else 0.0


def _short(number: float) -> float:
    return float(f"{number:.5g}")


def write_gate_record(directory: Path, record: GateRecord) -> Path:
    content = {
        "format": FORMAT,
        "pairs": record.pairs,
        "mean": record.mean,
        "deviation": record.deviation,
        "open": record.open,
        "entries": [_to_json(division) for division in record.entries],
        "others": record.others,
        "both": None if record.both is None else _to_json(record.both),
    }
    write_json(directory / FILE, content)
    return directory / FILE


def read_gate_record(directory: Path) -> GateRecord:
    """The record that `write_gate_record` wrote; anything else is refused."""
    path = directory / FILE
    try:
        content = read_json(path, LARGEST_FILE)
        if content["format"] != FORMAT:
            raise StorageFault(f"{path} has format {content['format']}, this version reads {FORMAT}; use a newer one")
        counts = {name: content[name] for name in ("pairs", "others")}
        shares = {name: content[name] for name in ("mean", "deviation", "open")}
        entries, both = content["entries"], content["both"]
        if not all(map(is_count, counts.values())) or not all(map(_is_share, shares.values())):
            raise ValueError("a number stands where it cannot")
        if not isinstance(entries, list) or len(entries) > KEPT:
            raise ValueError("it has no list of entries, or too long a one")
        alone = tuple(_from_json(entry, 1, PARTS) for entry in entries)
        together = None if both is None else _from_json(both, 2, PARTS_OF_TWO)
        return GateRecord(**counts, **shares, entries=alone, both=together)
    except (ValueError, TypeError, KeyError, OverflowError, Damaged) as problem:
        raise StorageFault(f"{path} is no gate record ({problem}); delete it or train the run again") from problem


def _to_json(division: Division) -> dict[str, Any]:
    return {
        "names": list(division.names),
        "edges": [list(edges) for edges in division.edges],
        "counts": list(division.counts),
        "gates": list(division.gates),
        "explains": division.explains,
    }


def _from_json(value: Any, entries: int, most: int) -> Division:
    names, edges, counts, gates = (value[name] for name in ("names", "edges", "counts", "gates"))
    parts = math.prod(len(own) - 1 for own in edges)
    good = (
        len(names) == len(edges) == entries
        and all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in names)
        and all(2 <= len(own) <= most + 1 and own == sorted(map(float, own)) for own in edges)
        and len(counts) == len(gates) == parts
        and all(is_count(count) for count in counts)
        and all(_is_share(gate) if count else gate is None for gate, count in zip(gates, counts, strict=True))
        and type(value["explains"]) is float
        and value["explains"] <= 1
    )
    if not good:
        raise ValueError("an entry is not divided as one is")
    return Division(
        tuple(names), tuple(tuple(own) for own in edges), tuple(counts), tuple(gates), float(value["explains"])
    )


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
