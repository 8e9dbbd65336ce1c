"""What a trained agent thinks on every state of a grid-world, in one compact file beside the run.

`grid.json` holds, for every agent cell × goal cell × action, the gate and the disagreement in 256 levels, the two
oracles as bits, and per state the greedy action; arrays are base64 of their bytes in that order (agent first). For
15 × 15 cells that is 0.7 MB. An agent without a gate has neither gate nor disagreement.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from symbreak.errors import InputError, StorageFault
from symbreak.storage.files import read_file, replace_file

FILE = "grid.json"
FORMAT = 1
LEVELS = 255
LARGEST = 64  # cells a side, of a file from elsewhere
LARGEST_FILE = 256 << 20  # bytes

Levels = UInt8[np.ndarray, "agents goals actions"]
Mask = Bool[np.ndarray, "agents goals actions"]


@dataclass(frozen=True, eq=False)
class GridRecord:
    """The arrays of a `grid.json`; a level stands for level / 255 of the scale."""

    size: int
    actions: tuple[str, ...]
    blocked: tuple[int, ...]
    penalty: tuple[int, ...]
    minority: Mask
    strict: Mask
    greedy: UInt8[np.ndarray, "agents goals"]
    gate: Levels | None = None
    disagreement: Levels | None = None
    disagreement_scale: float = 1.0

    @property
    def live(self) -> Bool[np.ndarray, "agents goals"]:
        """The states an agent acts in: both cells free, and distinct."""
        free = np.ones(self.size**2, bool)
        free[list(self.blocked)] = False
        return free[:, None] & free[None, :] & ~np.eye(self.size**2, dtype=bool)

    def auroc(self, truth: Mask) -> float:
        """How often the gate ranks a broken pair above an intact one, over all live states; NaN without both kinds."""
        if self.gate is None:
            return float("nan")
        levels, broken = self.gate[self.live].ravel(), truth[self.live].ravel()
        positives = np.bincount(levels[broken], minlength=LEVELS + 1)
        negatives = np.bincount(levels[~broken], minlength=LEVELS + 1)
        if not positives.any() or not negatives.any():
            return float("nan")
        below = np.cumsum(negatives) - 0.5 * negatives  # ties count half
        return float((positives * below).sum() / (positives.sum() * negatives.sum()))


def write_grid_record(
    path: Path,
    *,
    size: int,
    blocked: Any,
    penalty: Any,
    minority: np.ndarray,
    strict: np.ndarray,
    greedy: np.ndarray,
    gate: np.ndarray | None = None,
    disagreement: np.ndarray | None = None,
    actions: Sequence[str] = ("up", "left", "down", "right"),
) -> Path:
    """Write the record to `path` (a file, or the directory of a run).

    `blocked` and `penalty` are masks over cells. Arrays have one entry per agent cell, goal cell and action (`greedy`:
    per agent and goal cell) and may come flattened over states agent * cells + goal. The gate lies in [0, 1].
    """
    cells = size**2
    pairs, states = (cells, cells, len(actions)), (cells, cells)
    content: dict[str, Any] = {
        "format": FORMAT,
        "size": size,
        "actions": list(actions),
        "blocked": np.flatnonzero(_shaped("blocked", blocked, (cells,))).tolist(),
        "penalty": np.flatnonzero(_shaped("penalty", penalty, (cells,))).tolist(),
        "minority": _text(np.packbits(_shaped("minority", minority, pairs).astype(bool))),
        "strict": _text(np.packbits(_shaped("strict", strict, pairs).astype(bool))),
        "greedy": _text(_shaped("greedy", greedy, states).astype(np.uint8)),
        "gate": None,
        "disagreement": None,
        "disagreement_scale": 1.0,
    }
    if gate is not None:
        content["gate"] = _text(_levels("gate", _shaped("gate", gate, pairs), 1.0))
    if disagreement is not None:
        values = _shaped("disagreement", disagreement, pairs)
        scale = max(1.0, float(values.max()))
        content |= {"disagreement": _text(_levels("disagreement", values, scale)), "disagreement_scale": scale}
    path = path / FILE if path.is_dir() else path
    replace_file(path, (json.dumps(content) + "\n").encode())
    return path


def read_grid_record(path: Path) -> GridRecord:
    """The record that `write_grid_record` wrote; anything else is refused."""
    path = path / FILE if path.is_dir() else path
    try:
        content = json.loads(bytes(read_file(path, LARGEST_FILE)))
        if content["format"] != FORMAT:
            raise StorageFault(f"{path} has format {content['format']}, this version reads {FORMAT}; use a newer one")
        size, actions = int(content["size"]), tuple(str(name) for name in content["actions"])
        if not 1 <= size <= LARGEST or not 1 <= len(actions) <= LEVELS:
            raise ValueError("a size out of range")
        pairs, states = (size**2, size**2, len(actions)), (size**2, size**2)
        cells = {name: tuple(int(cell) for cell in content[name]) for name in ("blocked", "penalty")}
        if any(not 0 <= cell < size**2 for listed in cells.values() for cell in listed):
            raise ValueError("a cell outside the grid")
        return GridRecord(
            size=size,
            actions=actions,
            blocked=cells["blocked"],
            penalty=cells["penalty"],
            minority=_bits(content["minority"], pairs),
            strict=_bits(content["strict"], pairs),
            greedy=_bytes(content["greedy"], states),
            gate=None if content["gate"] is None else _bytes(content["gate"], pairs),
            disagreement=None if content["disagreement"] is None else _bytes(content["disagreement"], pairs),
            disagreement_scale=float(content["disagreement_scale"]),
        )
    except OSError as problem:
        raise StorageFault(f"cannot read {path}: {problem.strerror}") from problem
    except (ValueError, TypeError, KeyError) as problem:
        raise StorageFault(f"{path} is no grid record ({problem}); delete it or evaluate the run again") from problem


def _shaped(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    values = np.asarray(values)
    if values.size != np.prod(shape):
        raise InputError(f"{name} of a grid record has shape {values.shape}; give {shape}, or the same flattened")
    return values.reshape(shape)


def _levels(name: str, values: np.ndarray, scale: float) -> np.ndarray:
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > scale * (1 + 1e-6):
        raise InputError(f"{name} of a grid record must lie between 0 and {scale:g} and be finite")
    return np.rint(np.minimum(values / scale, 1.0) * LEVELS).astype(np.uint8)


def _text(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _bytes(text: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text, validate=True), np.uint8).reshape(shape)


def _bits(text: str, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape))
    return np.unpackbits(_bytes(text, ((count + 7) // 8,)), count=count).astype(bool).reshape(shape)
