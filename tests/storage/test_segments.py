"""The replay comes back from its segments bit for bit, whatever the ring's size and wherever it wraps."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from symbreak.agents.agent import Transition
from symbreak.errors import InputError, StorageFault
from symbreak.storage import segment_writer
from symbreak.storage.arrays import as_bytes, decode, encode
from symbreak.storage.files import TEMPORARY, Damaged, FileRecord, read_file, write_file
from symbreak.storage.replay import Replay
from symbreak.storage.segment_writer import SegmentWriter, collect
from symbreak.storage.segments import SegmentReference, read_segment, restore_replay

GAMMA = 0.99
Column = dict[str, np.ndarray]


def episodes(count: int, seed: int, *, size=3, action=2, length=7.0, discrete=False) -> Column:
    """Transitions as a training loop inserts them: chained within an episode, with true final observations."""
    rng = np.random.default_rng(seed)
    over = rng.random(count) < 1 / length
    terminated = over & (rng.random(count) < 0.5)
    states = rng.standard_normal((count + 1, size)).astype(np.float32)
    states[rng.random(states.shape) < 0.05] = -0.0
    observation, following = states[:-1], states[1:].copy()
    following[over] = rng.standard_normal((over.sum(), size))
    actions = rng.integers(0, 4, count, np.int32) if discrete else rng.standard_normal((count, action), np.float32)
    return {
        "observation": observation,
        "action": actions,
        "reward": rng.standard_normal(count, np.float32),
        "next_observation": following,
        "discount": np.where(terminated, np.float32(0), np.float32(GAMMA)),
    }


def ring_of(columns: Column, capacity: int) -> Replay:
    """A reference of a few lines: what inserting one after the other leaves."""
    count = len(columns["reward"])
    data = {name: np.zeros((capacity, *column.shape[1:]), column.dtype) for name, column in columns.items()}
    for i in range(count):
        for name, column in columns.items():
            data[name][i % capacity] = column[i]
    return Replay(Transition(**{name: jnp.asarray(x) for name, x in data.items()}), jnp.asarray(count, jnp.int32))


def bits(tree) -> list[bytes]:
    return [bytes(as_bytes(np.asarray(leaf))) for leaf in jax.tree.leaves(tree)]


def part(columns: Column, start: int, end: int) -> Column:
    return {name: column[start:end] for name, column in columns.items()}


def template_of(ring: Replay) -> Replay:
    return jax.eval_shape(lambda: ring)


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize(("capacity", "count"), [(100, 60), (100, 100), (50, 333), (1, 20), (7, 7), (64, 0)])
def test_a_ring_comes_back_bit_for_bit(tmp_path, capacity, count, discrete):
    columns = episodes(count, seed=count, discrete=discrete)
    ring = ring_of(columns, capacity)
    writer = SegmentWriter(tmp_path, capacity, GAMMA)
    for start in range(0, count, 41):
        writer.append(**part(columns, start, start + 41))
        writer.seal()
    restored = restore_replay(tmp_path, writer.seal(), template_of(ring))
    assert bits(restored) == bits(ring)
    assert restored.inserted.dtype == ring.inserted.dtype


def test_the_reference_ring_is_the_replay():
    columns = episodes(23, seed=1)
    example = Transition(**{name: jnp.asarray(column[0]) for name, column in columns.items()})
    replay = Replay.empty(10, example)
    insert = jax.jit(Replay.insert)
    for i in range(23):
        replay = insert(replay, Transition(**{name: jnp.asarray(column[i]) for name, column in columns.items()}))
    assert bits(replay) == bits(ring_of(columns, 10))


@hypothesis_settings(max_examples=25)
@given(
    capacity=st.integers(1, 40),
    length=st.floats(1.0, 30.0),
    chunks=st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=8),
    seed=st.integers(0, 10_000),
)
def test_any_schedule_of_seals_gives_the_same_ring(tmp_path_factory, capacity, length, chunks, seed):
    directory = tmp_path_factory.mktemp("replay")
    count = sum(size for size, _ in chunks)
    columns = episodes(count, seed, length=length)
    writer, start = SegmentWriter(directory, capacity, GAMMA), 0
    for size, resumed in chunks:
        writer.append(**part(columns, start, start + size))
        start += size
        references = writer.seal()
        if resumed:
            writer = SegmentWriter(directory, capacity, GAMMA, references)
    ring = ring_of(columns, capacity)
    assert bits(restore_replay(directory, writer.seal(), template_of(ring))) == bits(ring)


def test_nan_and_negative_zero_keep_their_bits(tmp_path):
    columns = episodes(9, seed=0, length=1e9)
    columns["observation"][4, 0] = columns["next_observation"][3, 0] = np.nan
    columns["observation"][5, 0], columns["next_observation"][4, 0] = 0.0, -0.0  # equal, but not the same bits
    columns["reward"][2] = np.frombuffer(b"\x01\x00\xc0\x7f", np.float32)[0]  # a NaN that carries a payload
    writer = SegmentWriter(tmp_path, 9, GAMMA)
    writer.append(**columns)
    (reference,) = writer.seal()
    assert bits(read_segment(tmp_path, reference)) == bits(columns)
    stored = decode(read_file(tmp_path / reference.name, 10_000), "segment")["following"]
    assert len(stored) == 2  # the pair that differs by a sign, and the last


def test_the_device_ring_is_followed(tmp_path, monkeypatch):
    """Blocks of fixed length, wrap-around, more than a ring between two times, and nothing new at all."""
    monkeypatch.setattr(segment_writer, "BLOCK", 8)
    columns = episodes(90, seed=3)
    writer = SegmentWriter(tmp_path, 20, GAMMA)
    for count in (0, 3, 3, 11, 19, 31, 51, 90):
        ring = ring_of(part(columns, 0, count), 20)
        before = bits(ring)
        writer.follow(ring)
        assert bits(ring) == before
        assert bits(restore_replay(tmp_path, writer.seal(), template_of(ring))) == before
    waiting = SegmentWriter(tmp_path, 20, GAMMA)
    waiting.follow(ring_of(part(columns, 0, 3), 20))
    waiting.follow(ring_of(columns, 20))  # before the first three were sealed, the ring has lost them
    assert waiting.seal()[0].start == 70
    assert bits(restore_replay(tmp_path, waiting.seal(), template_of(ring))) == bits(ring)
    with pytest.raises(InputError, match="cannot follow"):
        writer.follow(ring_of(part(columns, 0, 50), 20))
    with pytest.raises(InputError, match="cannot follow"):
        writer.follow(ring_of(columns, 21))


def test_following_compiles_once(tmp_path):
    columns = episodes(30, seed=3)
    writer = SegmentWriter(tmp_path, 20, GAMMA)
    before = segment_writer._take._cache_size()
    for count in (1, 5, 19, 30):
        writer.follow(ring_of(part(columns, 0, count), 20))
    assert segment_writer._take._cache_size() - before <= 1


def test_long_segments_are_split(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_writer, "ROWS", 10)
    columns = episodes(57, seed=4)
    writer = SegmentWriter(tmp_path, 40, GAMMA)
    writer.append(**part(columns, 0, 25))
    assert len(list(tmp_path.iterdir())) == 2  # only five rows wait in memory
    writer.append(**part(columns, 25, 57))
    references = writer.seal()
    assert [segment.count for segment in references] == [10, 10, 10, 10, 7]  # 0 to 10 has left the ring
    ring = ring_of(columns, 40)
    assert bits(restore_replay(tmp_path, references, template_of(ring))) == bits(ring)


def test_an_ant_transition_takes_less_than_160_bytes(tmp_path):
    columns = episodes(10_000, seed=5, size=27, action=8, length=60.0)
    writer = SegmentWriter(tmp_path, 10_000, GAMMA)
    for start in range(0, 10_000, 1000):
        writer.append(**part(columns, start, start + 1000))
        writer.seal()
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 145 <= total / 10_000 <= 150


def test_discounts_other_than_gamma_are_refused(tmp_path):
    columns = episodes(5, seed=6)
    columns["discount"][2] = 0.5
    writer = SegmentWriter(tmp_path, 5, GAMMA)
    writer.append(**columns)
    with pytest.raises(InputError, match=r"neither 0 nor 0\.99"):
        writer.seal()
    assert list(tmp_path.iterdir()) == []


def test_columns_must_be_complete(tmp_path):
    columns = episodes(5, seed=6)
    writer = SegmentWriter(tmp_path, 5, GAMMA)
    with pytest.raises(InputError, match="columns"):
        writer.append(**{**columns, "reward": columns["reward"][:4]})
    with pytest.raises(InputError, match="columns"):
        writer.append(reward=columns["reward"])


def test_repeated_steps_give_the_same_files_and_other_steps_others(tmp_path):
    def write(seed: int) -> str:
        writer = SegmentWriter(tmp_path, 50, GAMMA)
        writer.append(**episodes(30, seed))
        return writer.seal()[0].name

    first = write(1)
    content = (tmp_path / first).read_bytes()
    assert write(1) == first
    assert write(2) != first
    assert (tmp_path / first).read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 2


def test_only_segments_that_nothing_needs_are_removed(tmp_path):
    columns = episodes(30, seed=7)
    writer = SegmentWriter(tmp_path, 15, GAMMA)
    names = []
    for start in range(0, 30, 10):
        writer.append(**part(columns, start, start + 10))
        names = [segment.name for segment in writer.seal()]
    assert [name[:12] for name in names] == ["000000000010", "000000000020"]  # the first has left the ring
    assert len(list(tmp_path.iterdir())) == 3  # but is still there
    (tmp_path / f"{TEMPORARY}1-30").write_text("half")
    (tmp_path / "notes.txt").write_text("the user's")
    collect(tmp_path, names)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "notes.txt"}


def two_segments(directory) -> tuple[tuple[SegmentReference, ...], Replay]:
    columns = episodes(40, seed=8)
    writer = SegmentWriter(directory, 40, GAMMA)
    for start in (0, 20):
        writer.append(**part(columns, start, start + 20))
        writer.seal()
    return writer.seal(), ring_of(columns, 40)


def flip(path, rng) -> None:
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    path.write_bytes(data)


def test_damaged_segments_are_found(tmp_path):
    references, ring = two_segments(tmp_path)
    path, rng = tmp_path / references[1].name, np.random.default_rng(0)
    good = path.read_bytes()

    def truncate():
        path.write_bytes(good[:-1])

    def zero():
        path.write_bytes(bytes(len(good)))

    def longer():
        path.write_bytes(good + b"\0")

    for damage in (*[lambda: flip(path, rng)] * 20, truncate, zero, longer, path.unlink):
        damage()
        with pytest.raises(Damaged, match=references[1].name):
            restore_replay(tmp_path, references, template_of(ring))
        path.write_bytes(good)
    assert bits(restore_replay(tmp_path, references, template_of(ring))) == bits(ring)


def test_gaps_are_found(tmp_path):
    references, ring = two_segments(tmp_path)
    with pytest.raises(Damaged, match="before transition 20"):
        restore_replay(tmp_path, references[1:], template_of(ring))
    with pytest.raises(Damaged, match="between transitions 40 and 0"):
        restore_replay(tmp_path, references[::-1], template_of(ring))
    smaller = Replay.empty(20, jax.tree.map(lambda leaf: leaf[0], ring.data))
    assert int(restore_replay(tmp_path, references[1:], template_of(smaller)).inserted) == 40  # no gap in this ring


def test_another_kind_of_ring_is_refused_by_column(tmp_path):
    references, _ = two_segments(tmp_path)
    other = ring_of(episodes(40, seed=8, size=4), 40)
    with pytest.raises(StorageFault, match="as observation, which does not fit a ring of float32") as fault:
        restore_replay(tmp_path, references, template_of(other))
    assert not isinstance(fault.value, Damaged)


HOSTILE = {
    "another format": lambda a: {**a, "format": np.asarray(2, np.uint32)},
    "a format of another type": lambda a: {**a, "format": np.ones(3, np.uint32)},
    "another start": lambda a: {**a, "start": np.asarray(5, np.int64)},
    "no flags": lambda a: {k: v for k, v in a.items() if k != "flags"},
    "one array more": lambda a: {**a, "more": np.zeros(3)},
    "shorter actions": lambda a: {**a, "action": a["action"][:-1]},
    "a reward without rows": lambda a: {**a, "reward": np.zeros((), np.float32)},
    "unknown flags": lambda a: {**a, "flags": a["flags"] | 4},
    "flags of another type": lambda a: {**a, "flags": a["flags"].astype(np.int64)},
    "more ends than stored": lambda a: {**a, "flags": a["flags"] | 2},
    "last not stored": lambda a: {**a, "flags": a["flags"] & 1, "following": a["following"][:0]},
    "stored of another size": lambda a: {**a, "following": np.zeros((len(a["following"]), 4), np.float32)},
    "stored of another type": lambda a: {**a, "following": a["following"].astype(np.float64)},
    "many discounts": lambda a: {**a, "gamma": np.zeros(20, np.float32)},
    "nothing": lambda a: {},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_segments_that_were_never_written_are_refused(tmp_path, name):
    """With the right size and hash, as somebody could make them who wants to."""
    references, ring = two_segments(tmp_path)
    path = tmp_path / references[1].name

    def forge(change) -> SegmentReference:
        arrays = decode(read_file(path, 100_000), "segment")
        path.unlink()
        return replace(references[1], file=write_file(path, encode(change(arrays), "segment")))

    same = forge(lambda arrays: arrays)
    assert bits(restore_replay(tmp_path, [references[0], same], template_of(ring))) == bits(ring)
    with pytest.raises(Damaged):
        read_segment(tmp_path, forge(HOSTILE[name]))


GOOD = {"name": f"{0:012d}-{'a' * 16}.safetensors", "start": 0, "count": 5, "size": 10, "sha256": "0" * 64}


def test_a_reference_comes_back():
    reference = SegmentReference.from_json(GOOD, "meta")
    assert reference == SegmentReference(GOOD["name"], 0, 5, FileRecord(10, "0" * 64))
    assert reference.to_json() == GOOD


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../../etc/passwd"},
        {"name": "/etc/passwd"},
        {"name": GOOD["name"] + "\n"},
        {"name": "../" + GOOD["name"]},
        {"name": "\u0660" * 12 + GOOD["name"][12:]},  # digits, but of another script
        {"name": 7},
        {"start": -1},
        {"start": 1.0},
        {"start": True},
        {"count": 0},
        {"count": 10**9},
        {"size": -5},
        {"size": "10"},
        {"sha256": "0" * 63},
        {"sha256": None},
        {"extra": 1},
    ],
    ids=str,
)
def test_references_that_were_never_written_are_refused(change):
    with pytest.raises(Damaged):
        SegmentReference.from_json({**GOOD, **change}, "meta")


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, call):
    references, ring = two_segments(tmp_path)
    writer = SegmentWriter(tmp_path, 40, GAMMA, references)
    writer.append(**episodes(5, seed=9))

    def fail(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StorageFault, match="free some space"):
            writer.seal()
    assert bits(restore_replay(tmp_path, references, template_of(ring))) == bits(ring)
    assert len(list(tmp_path.iterdir())) == 2
    assert len(writer.seal()) == 3  # with space again, nothing is lost


def test_what_a_full_disk_left_waiting_is_split_when_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_writer, "ROWS", 10)
    columns, writer = episodes(35, seed=4), SegmentWriter(tmp_path, 40, GAMMA)

    def fail(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(StorageFault):
            writer.append(**columns)
    references = writer.seal()
    assert [segment.count for segment in references] == [10, 10, 10, 5]
    ring = ring_of(columns, 40)
    assert bits(restore_replay(tmp_path, references, template_of(ring))) == bits(ring)
