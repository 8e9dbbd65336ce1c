"""What a run's checkpoint says beside its arrays, checked before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symbreak.storage.files import Damaged, FileRecord, is_count
from symbreak.training.tally import Ledger

COUNTS, TEXTS = ("row_step", "capacity"), ("symmetry",)
KEYS = {*COUNTS, *TEXTS, "config", "provenance", "inexact", "metrics", "ledger", "environment"}


@dataclass(frozen=True)
class Meta:
    config: Any
    symmetry: str
    provenance: Any
    inexact: list[str]
    metrics: FileRecord
    ledger: Ledger
    row_step: int
    capacity: int
    environment: Any

    @classmethod
    def parse(cls, value: dict[str, Any], where: str) -> Meta:
        """Refuses what no run saves; what belongs to the environment is checked by its driver."""
        if value.keys() != KEYS:
            raise Damaged(f"{where} is not what a run saves: it lacks, or has too much, {min(KEYS ^ value.keys())!r}")
        inexact = value["inexact"]
        good = (
            all(is_count(value[name]) for name in COUNTS)
            and all(isinstance(value[name], str) for name in TEXTS)
            and isinstance(inexact, list)
            and all(isinstance(reason, str) for reason in inexact)
        )
        if not good:
            raise Damaged(f"{where} is not what a run saves: a value has another type")
        metrics, ledger = FileRecord.from_json(value["metrics"], where), Ledger.from_json(value["ledger"], where)
        return cls(**{**value, "metrics": metrics, "ledger": ledger})
