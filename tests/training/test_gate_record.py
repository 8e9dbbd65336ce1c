"""What a gate says where it was asked, divided by the entries that tell: planted places are found, others are not."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.agents.agent import Transition
from symbreak.errors import StorageFault
from symbreak.storage.replay import Replay
from symbreak.training.gate_record import FILE, KEPT, PARTS, divide, read_gate_record, write_gate_record

PAIRS = 4000


@pytest.fixture
def entries() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.uniform(-1, 1, PAIRS) for name in "abcdefgh"}


def test_the_entry_that_opens_the_gate_is_named_first(entries):
    record = divide(entries, np.where(entries["d"] > 0.5, 0.9, 0.1))
    first = record.entries[0]
    assert first.names == ("d",)
    assert first.explains > 0.8  # all but what lies within one of its parts
    assert max(entry.explains for entry in record.entries[1:]) < 0.01
    assert (len(record.entries), record.others, record.pairs) == (KEPT, 8 - KEPT, PAIRS)
    assert record.open == pytest.approx((entries["d"] > 0.5).mean(), rel=1e-4)
    assert len(first.counts) == PARTS
    assert max(first.counts) - min(first.counts) <= 2
    np.testing.assert_allclose(np.dot(first.counts, [g or 0.0 for g in first.gates]) / PAIRS, record.mean, rtol=1e-3)
    assert first.gates[0] == pytest.approx(0.1)
    assert first.gates[-1] == pytest.approx(0.9)


def test_two_entries_that_tell_only_together_are_found(entries):
    record = divide(entries, np.where(entries["b"] * entries["g"] > 0, 0.8, 0.2))
    assert record.both is not None
    assert record.both.names in (("b", "g"), ("g", "b"))
    assert record.both.explains > 0.85
    assert record.entries[0].explains < 0.05  # a control: alone they say nothing
    gates, counts = np.array(record.both.gates, float), np.array(record.both.counts)
    assert counts.sum() == PAIRS
    assert gates.reshape(8, 8)[0, 0] == pytest.approx(0.8)
    assert gates.reshape(8, 8)[0, 7] == pytest.approx(0.2)


def test_what_stays_the_same_within_episodes_explains_nothing_by_that():
    """Forty episodes, each with its own target and its own luck: parts of the target know every episode."""
    rng = np.random.default_rng(1)
    target, luck = (np.repeat(rng.uniform(size=40), 100) for _ in range(2))
    record = divide({"target": target, "luck": luck}, luck)
    explains = {entry.names[0]: entry.explains for entry in record.entries}
    assert explains["luck"] > 0.7
    assert explains["target"] < 0.1
    parts = np.searchsorted(np.quantile(target, np.arange(1, PARTS) / PARTS), target)
    means = np.array([luck[parts == part].mean() for part in range(PARTS)])[parts]
    assert 1 - np.var(luck - means) / np.var(luck) > 0.15  # the control: judged by itself it would explain much


def test_switches_constants_and_a_gate_without_opinion(entries):
    rare = (np.arange(PAIRS) % 100 == 0).astype(float)
    record = divide({"contact": rare, "never": np.ones(PAIRS), "a": entries["a"]}, np.where(rare > 0, 1.0, 0.0))
    assert record.entries[0].names == ("contact",)
    assert record.entries[0].edges == ((0.0, 1.0, 1.0),)
    assert record.entries[0].counts == (PAIRS - PAIRS // 100, PAIRS // 100)
    assert record.entries[0].gates == (0.0, 1.0)
    assert "never" not in {entry.names[0] for entry in record.entries}
    even = divide(entries, np.full(PAIRS, 0.3))
    assert even.deviation < 1e-9
    assert even.both is None
    assert {entry.explains for entry in even.entries} == {0.0}
    assert divide({"a": np.array([1.0])}, np.array([0.4])).entries == ()


def test_a_record_comes_back_and_is_small(entries, tmp_path):
    wide = {f"{name}{number}": values for number in range(50) for name, values in entries.items()}
    record = divide(wide, entries["a"] ** 2)
    path = write_gate_record(tmp_path, record)
    assert read_gate_record(tmp_path) == record
    assert path.stat().st_size < 10_000


def test_a_wrong_record_is_refused_in_one_line(entries, tmp_path):
    path = write_gate_record(tmp_path, divide(entries, entries["a"] ** 2))
    good = json.loads(path.read_text())
    entry = good["entries"][0]
    changes = [
        {"format": 2},
        {"pairs": -1},
        {"pairs": True},
        {"mean": 1.5},
        {"open": "0.5"},
        {"entries": 7 * [entry]},
        {"entries": {}},
        {"entries": [3]},
        {"both": entry},
        *(
            {"entries": [{**entry, **change}]}
            for change in (
                {"gates": entry["gates"][:-1]},
                {"gates": [2.0, *entry["gates"][1:]]},
                {"gates": [None, *entry["gates"][1:]]},
                {"counts": [0.5, *entry["counts"][1:]]},
                {"edges": [entry["edges"][0][::-1]]},
                {"edges": [["x"] * 11]},
                {"edges": [[10**400] * 11]},
                {"names": ["n" * 1000]},
                {"names": [3]},
                {"explains": 1.5},
            )
        ),
    ]
    for change in changes:
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(StorageFault, match=FILE) as refused:
            read_gate_record(tmp_path)
        assert "\n" not in str(refused.value)
    for text in ("{", "[]", "3", json.dumps(good).replace(str(good["mean"]), "NaN"), "[" * 100_000, " " * (2 << 20)):
        path.write_text(text)
        with pytest.raises(StorageFault, match=FILE):
            read_gate_record(tmp_path)
    path.unlink()
    (tmp_path / "elsewhere").write_text(json.dumps(good))
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFault, match=FILE):
        read_gate_record(tmp_path)
    path.unlink()
    path.write_text(json.dumps(good))
    assert read_gate_record(tmp_path).pairs == PAIRS  # a control


@pytest.mark.parametrize(("inserted", "most", "seen"), [(3, 9, [1, 2, 3]), (7, 9, [3, 4, 5, 6, 7]), (8, 2, [4, 6])])
def test_stored_transitions_from_the_oldest_to_the_newest(inserted, most, seen):
    nothing = jnp.zeros(())
    ring = Replay.empty(5, Transition(jnp.zeros(1), nothing, nothing, jnp.zeros(1), nothing))
    for number in range(1, inserted + 1):
        ring = ring.insert(Transition(jnp.full(1, float(number)), nothing, nothing, jnp.zeros(1), nothing))
    assert ring.spread(most).observation[:, 0].tolist() == seen
