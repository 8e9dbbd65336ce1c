"""JSON that comes back as it went, and reading of JSON that trusts nothing.

A value has exactly one text, so a text that is not the text of its own value has been altered.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from symbreak.errors import InputError
from symbreak.storage.files import Damaged, FileRecord, read_file, replace_file

MOST_JSON = 8 << 20  # bytes; a list of empty lists takes about twenty times its text in memory


def to_json(value: Any, where: str) -> bytes:
    """The one way to write a value: sorted keys, no spaces, no NaN. What JSON would change silently is refused."""
    _require_plain(value, where)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _require_plain(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where} has the key {key!r}, but JSON knows only text as keys; convert it first")
            _require_plain(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _require_plain(item, f"{where}[{index}]")
    elif type(value) is float:
        if not math.isfinite(value):
            raise InputError(f"{where} is {value}, which JSON cannot hold; leave it out or store it as an array")
    elif value is not None and type(value) not in (bool, int, str):
        raise InputError(f"{where} is of type {type(value).__name__}, which JSON cannot hold; convert it first")


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"it holds {text[:20]}")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    return result if len(result) == len(pairs) else _refuse("a key twice")


def from_json(data: bytes | bytearray, where: str) -> Any:
    """The value; NaN, infinities, repeated keys and bottomless nesting are refused."""
    try:
        text = data.decode("utf-8")
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise Damaged(f"{where} is not the JSON that was written: {reason}") from error


def write_json(path: Path, value: Any) -> None:
    """The file holds the value, on the disk; a crash leaves the old value or the new."""
    replace_file(path, to_json(value, path.name) + b"\n")


def read_json(path: Path, most: int = MOST_JSON, expected: FileRecord | None = None) -> Any:
    return from_json(read_file(path, most, expected), str(path))
