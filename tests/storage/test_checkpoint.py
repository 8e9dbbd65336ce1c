"""What was saved comes back bit for bit or not at all, whatever happened to the process or to the disk."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from safetensors.numpy import load as reference_load
from safetensors.numpy import save as reference_save

from symbreak.errors import InputError, StorageFault
from symbreak.models.learner import Learner, Optimiser
from symbreak.storage import snapshot as snapshot_module
from symbreak.storage.arrays import (
    CODES,
    DTYPES,
    array_from_json,
    array_to_json,
    as_bytes,
    decode,
    encode,
    fingerprint,
    fit,
    named_arrays,
)
from symbreak.storage.checkpoint import Checkpoints
from symbreak.storage.files import TEMPORARY, Damaged, make_directory
from symbreak.storage.segment_writer import SegmentWriter
from symbreak.storage.segments import SegmentReference

META = {"config": {"task": "ant", "rate": 3e-4}, "versions": {"jax": "0.10.2"}, "cores": 1, "reset_seed": 17}


class Weights(eqx.Module):
    matrix: jax.Array
    bias: jax.Array


def learner(seed: int) -> Learner[Weights]:
    keys = jax.random.split(jax.random.key(seed))
    weights = Weights(jax.random.normal(keys[0], (40, 30)), jax.random.normal(keys[1], (30,)))
    return Learner.create(weights, Optimiser(largest_norm=0.5)).step(weights)


def trees_at(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {"agent": {"weight": rng.standard_normal((50, 8), np.float32), "count": np.asarray(step, np.int32)}}


def transitions(start: int, end: int) -> dict[str, np.ndarray]:
    states = np.sin(np.arange(start, end + 1, dtype=np.float32))[:, None] * np.ones(4, np.float32)
    rewards = np.arange(start, end, dtype=np.float32)
    return {
        "observation": states[:-1],
        "action": rewards.astype(np.int32),
        "reward": rewards,
        "next_observation": states[1:],
        "discount": np.full(end - start, 0.99, np.float32),
    }


def open_store(directory: Path, keep: int = 3) -> Checkpoints:
    for path in (directory, directory / "checkpoints", directory / "replay"):
        make_directory(path)
    return Checkpoints(directory / "checkpoints", directory / "replay", keep)


def filled_store(directory: Path, steps=(10, 20, 30, 40), capacity: int = 25) -> Checkpoints:
    """A run that saved at these steps, each time with the transitions since."""
    store = open_store(directory)
    references: tuple[SegmentReference, ...] = ()
    for step in steps:
        writer = SegmentWriter(store.replay, capacity, 0.99, references)
        writer.append(**transitions(writer.end, step))
        references = writer.seal()
        store.save(step, trees_at(step), META, references)
    return store


def bits(tree) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (str(array.dtype), array.shape, bytes(as_bytes(array))) for name, array in named_arrays(tree).items()}


def loaded_step(store: Checkpoints) -> int:
    """The step that is loaded, after its content has been compared with what was saved."""
    loaded = store.load(trees_at(0))
    assert loaded is not None
    assert bits(loaded.trees) == bits(trees_at(loaded.step))
    assert loaded.meta == META
    assert loaded.segments[-1].end == loaded.step
    return loaded.step


def tree_of(directory: Path) -> dict[str, bytes | None]:
    paths = sorted(directory.rglob("*"))
    return {str(p): None if p.is_dir() or p.is_symlink() else p.read_bytes() for p in paths}


# --- restore ∘ save = identity ----------------------------------------------------------------------------------------


def arrays_of(draw_shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Random bits, so NaNs with payloads, subnormals and negative zeros are among them."""
    rng = np.random.default_rng(seed)
    size = DTYPES[CODES[dtype]].itemsize
    raw = rng.integers(0, 2 if dtype == "bool" else 256, (int(np.prod(draw_shape)) * size,), np.uint8)
    return raw.view(DTYPES[CODES[dtype]]).reshape(draw_shape)


leaves = st.builds(
    arrays_of,
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.sampled_from(sorted(CODES)),
    st.integers(0, 1000),
)
pytrees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


@hypothesis_settings(max_examples=40)
@given(tree=pytrees, step=st.integers(0, 10**12 - 1))
def test_numpy_trees_come_back(tmp_path_factory, tree, step):
    store = open_store(tmp_path_factory.mktemp("run"))
    store.save(step, {"tree": tree}, {"a": [1, None]})
    loaded = store.load({"tree": tree})
    assert loaded is not None
    assert (loaded.step, loaded.meta, loaded.passed_over) == (step, {"a": [1, None]}, ())
    assert jax.tree.structure(loaded.trees) == jax.tree.structure({"tree": tree})
    assert bits(loaded.trees) == bits({"tree": tree})
    assert fingerprint(loaded.trees) == fingerprint({"tree": tree})


def jax_tree() -> dict[str, Any]:
    return {
        "learner": learner(0),
        "small": jnp.asarray([1.5, float("nan"), -0.0], jnp.bfloat16),
        "none": jnp.zeros((0, 3), jnp.int32),
        "flag": jnp.asarray(True),
        "count": jnp.asarray(-7, jnp.int32),
        "words": jnp.arange(3, dtype=jnp.uint8),
    }


@pytest.mark.parametrize("templates", ["arrays", "shapes"])
def test_jax_trees_come_back(tmp_path, templates):
    store, tree = open_store(tmp_path), jax_tree()
    store.save(5, tree, {})
    loaded = store.load(tree if templates == "arrays" else jax.eval_shape(lambda: tree))
    assert loaded is not None
    assert bits(loaded.trees) == bits(tree)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(loaded.trees))
    assert loaded.trees["learner"].optimiser == tree["learner"].optimiser


def test_what_was_loaded_may_be_donated_and_goes_on_like_the_original(tmp_path):
    store, tree = open_store(tmp_path), {"learner": learner(0)}
    store.save(5, tree, {})
    loaded = store.load(tree)
    assert loaded is not None
    go_on = jax.jit(lambda module: module.step(module.model), donate_argnums=0)
    assert bits(go_on(loaded.trees["learner"])) == bits(go_on(learner(0)))


@pytest.mark.parametrize("template", [np.zeros(1000, np.float32), jnp.zeros(1000)], ids=["numpy", "jax"])
def test_what_was_loaded_has_memory_of_its_own(template):
    """JAX may take an aligned array of NumPy's as its own without a copy; donated, it would be overwritten."""
    buffer = np.zeros(4064, np.uint8)
    start = -buffer.ctypes.data % 64
    source = buffer[start : start + 4000].view(np.float32)
    tree = fit({"x": template}, {"x": source}, "file")
    source += 1
    assert not np.any(np.asarray(tree["x"]))


def test_without_templates_there_are_named_arrays_with_the_same_fingerprint(tmp_path):
    store, tree = open_store(tmp_path), jax_tree()
    store.save(5, tree, {})
    loaded = store.load(None)
    assert loaded is not None
    assert "learner/model/matrix" in loaded.trees
    assert fingerprint(loaded.trees) == fingerprint(tree)


def test_the_fingerprint_sees_every_bit_name_type_and_shape():
    base = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.int32)}
    others = [
        {**base, "a": -base["a"]},  # negative zeros are equal numbers
        {**base, "a": base["a"].reshape(3, 2)},
        {**base, "a": base["a"].view(np.int32)},
        {"a": base["a"], "c": base["b"]},
        {"a": base["a"]},
        {**base, "c": np.zeros(0)},
    ]
    prints = [fingerprint(tree) for tree in (base, *others)]
    assert len(set(prints)) == len(prints)
    assert fingerprint(dict(reversed(base.items()))) == prints[0]
    assert len(prints[0]) == 64


def test_the_file_is_ordinary_safetensors():
    arrays = {f"{code}/x": arrays_of((3, 2), dtype, 1) for dtype, code in CODES.items() if dtype != "bfloat16"}
    data = b"".join(bytes(part) for part in encode(arrays, "file"))
    assert bits(reference_load(data)) == bits(arrays)
    assert bits(decode(bytearray(reference_save(arrays)), "file")) == bits(arrays)
    assert data == b"".join(bytes(part) for part in encode(dict(reversed(arrays.items())), "file"))


def test_a_checkpoint_is_at_most_a_tenth_larger_than_its_arrays(tmp_path):
    store, tree = open_store(tmp_path), {"agent": [learner(i) for i in range(4)]}
    path = store.save(1, tree, META)
    raw = sum(array.nbytes for array in named_arrays(tree).values())
    assert raw <= sum(file.stat().st_size for file in path.iterdir()) <= 1.1 * raw


@pytest.mark.parametrize("dtype", sorted(CODES))
def test_a_log_of_unknown_length_goes_through_json(dtype):
    array = arrays_of((7, 2), dtype, 3)
    value = json.loads(json.dumps(array_to_json(array)))
    assert bits({"x": array_from_json(value, "log")}) == bits({"x": array})
    wrong: list[dict[str, Any]] = [{"shape": [7, 3]}, {"dtype": "object"}, {"base64": "%"}, {"base64": 3}, {"x": 1}]
    for change in wrong:
        with pytest.raises(Damaged):
            array_from_json({**value, **change}, "log")


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"x": 3.0}, "x is a float, not an array"),
        ({"x": [jax.random.key(0)]}, "x/0 has type key"),
        ({"x": np.array(["a"])}, "x has type"),
        ({"x": np.array([None])}, "x has type object"),
        ({"x": lambda: 0}, "x is a function"),
        ({"a/b": np.zeros(1), "a": {"b": np.zeros(1)}}, "two leaves"),
    ],
    ids=["float", "key", "text", "object", "function", "names"],
)
def test_what_is_no_array_is_refused_by_name(tmp_path, tree, reason):
    store = open_store(tmp_path)
    with pytest.raises(InputError, match=reason):
        store.save(1, tree, {})
    assert list(store.directory.iterdir()) == []


def test_what_is_no_json_is_refused_by_name(tmp_path):
    store = open_store(tmp_path)
    with pytest.raises(InputError, match=r"meta\.json\.meta\.rate is nan"):
        store.save(1, {}, {"rate": float("nan")})
    with pytest.raises(StorageFault, match="more than"):
        store.save(1, {}, {"log": "x" * (9 << 20)})
    with pytest.raises(InputError, match="cannot name"):
        store.save(-1, {}, {})
    with pytest.raises(InputError, match="keep"):
        open_store(tmp_path, keep=0)
    assert list(store.directory.iterdir()) == []


# --- which checkpoints there are --------------------------------------------------------------------------------------


def names(store: Checkpoints) -> list[str]:
    return sorted(path.name for path in store.directory.iterdir())


def test_the_last_three_are_kept_and_the_segments_they_need(tmp_path):
    store = filled_store(tmp_path, steps=range(10, 90, 10))
    assert names(store) == [f"step-{step:012d}" for step in (60, 70, 80)]
    assert all(status.problem is None for status in store.verify())
    # The ring of step 60 reaches back to 35, so segments 0, 10 and 20 are gone and 30 is not.
    assert sorted(int(path.name[:12]) for path in store.replay.iterdir()) == [30, 40, 50, 60, 70]
    assert loaded_step(store) == 80


def test_nothing_saved_is_no_error(tmp_path):
    assert open_store(tmp_path).load({}) is None


def test_other_names_are_not_checkpoints(tmp_path):
    store = filled_store(tmp_path)
    for name in (
        f"{TEMPORARY}1-step-{90:012d}",
        f".step-{90:012d}",
        f"step-{90:012d}x",
        "step-90",
        f"step-{90:012d}.0",
    ):
        shutil.copytree(store.directory / f"step-{40:012d}", store.directory / name)
    assert loaded_step(store) == 40
    assert len(store.verify()) == 3
    store.save(50, trees_at(50), META)
    assert not any(name.startswith(TEMPORARY) for name in names(store))


def test_a_step_saved_again_follows_and_then_replaces(tmp_path):
    store = filled_store(tmp_path)
    store.save(40, {"other": np.ones(3)}, {"again": True})
    assert names(store) == [f"step-{20:012d}", f"step-{30:012d}", f"step-{40:012d}.1"]
    loaded = store.load({"other": np.ones(3)})
    assert loaded is not None
    assert loaded.meta == {"again": True}


def test_saving_an_earlier_step_leaves_no_later_one(tmp_path):
    """After falling back from a damaged checkpoint, the damaged one must not stay the newest."""
    store = filled_store(tmp_path)
    (store.directory / f"step-{40:012d}" / "meta.json").write_text("{}")
    loaded = store.load(trees_at(0))
    assert loaded is not None
    assert loaded.step == 30
    store.save(35, trees_at(35), META)
    assert names(store) == [f"step-{step:012d}" for step in (20, 30, 35)]


def test_segments_stay_while_a_kept_checkpoint_cannot_say_what_it_needs(tmp_path):
    store = filled_store(tmp_path)
    (store.directory / f"step-{30:012d}" / "meta.json").write_text("{}")
    before = set(store.replay.iterdir())
    store.save(50, trees_at(50), META)
    assert set(store.replay.iterdir()) == before
    store.save(60, trees_at(60), META)  # the damaged one has been retired
    assert len(set(store.replay.iterdir())) < len(before)


# --- damage -----------------------------------------------------------------------------------------------------------


def files_of_newest(store: Checkpoints) -> list[Path]:
    """The files that the newest checkpoint needs and the one before does not."""
    newest_segment = max(store.replay.iterdir())
    return [*sorted((store.directory / f"step-{40:012d}").iterdir()), newest_segment]


def count_detected_flips(store: Checkpoints, count: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    paths = files_of_newest(store)
    detected = 0
    for number in range(count):
        path = paths[number % len(paths)]
        good = path.read_bytes()
        bad = bytearray(good)
        bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        path.write_bytes(bad)
        loaded = store.load(trees_at(0))
        assert loaded is not None
        detected += loaded.step == 30 and len(loaded.passed_over) == 1 and bits(loaded.trees) == bits(trees_at(30))
        assert [status.problem is None for status in store.verify()] == [True, True, False]
        path.write_bytes(good)
    assert loaded_step(store) == 40  # without a flip it is good
    return detected


def test_flipped_bits_are_detected(tmp_path):
    assert count_detected_flips(filled_store(tmp_path), 20, seed=0) == 20


@pytest.mark.slow
def test_two_hundred_flipped_bits_are_detected(tmp_path):
    assert count_detected_flips(filled_store(tmp_path), 200, seed=1) == 200


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "emptied": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "zeroed at the end": lambda path: path.write_bytes(path.read_bytes()[:-16] + bytes(16)),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_leads_to_the_checkpoint_before(tmp_path, which, damage):
    store = filled_store(tmp_path)
    path = files_of_newest(store)[which]
    DAMAGES[damage](path)
    loaded = store.load(trees_at(0))
    assert loaded is not None
    assert loaded.step == 30
    assert [status.step for status in loaded.passed_over] == [40]
    assert path.name in str(loaded.passed_over[0].problem)
    assert loaded_step(store) == 30


def test_when_all_are_damaged_nothing_is_changed(tmp_path):
    store = filled_store(tmp_path)
    for path in store.directory.glob("*/arrays.safetensors"):
        path.write_bytes(bytes(path.stat().st_size))
    before = tree_of(tmp_path)
    with pytest.raises(StorageFault, match=r"no checkpoint in .* is undamaged \(3 tried; the newest: ") as fault:
        store.load(trees_at(0))
    assert "\n" not in str(fault.value)
    assert tree_of(tmp_path) == before
    assert [status.problem is None for status in store.verify()] == [False] * 3


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            {"agent": {"weight": np.zeros((50, 9), np.float32), "count": np.int32(0)}},
            r"float32\[50,8\] as agent/weight",
        ),
        ({"agent": {"weight": np.zeros((50, 8), np.float64), "count": np.int32(0)}}, r"where float64\[50,8\]"),
        ({"agent": {"weight": np.zeros((50, 8), np.float32)}}, "agent/count, where nothing"),
        ({**trees_at(0), "more": np.zeros(1)}, "holds nothing as more"),
        ({}, "where nothing is expected"),
    ],
)
def test_another_configuration_is_refused_and_not_stepped_over(tmp_path, template, reason):
    store = filled_store(tmp_path)
    with pytest.raises(StorageFault, match=reason) as fault:
        store.load(template)
    assert not isinstance(fault.value, Damaged)
    assert "step-000000000040" in str(fault.value)


# --- versions ---------------------------------------------------------------------------------------------------------


def test_older_formats_are_migrated_and_later_ones_refused(tmp_path, monkeypatch):
    store = filled_store(tmp_path)

    def rename(old):
        return replace(old, arrays={name.replace("weight", "matrix"): a for name, a in old.arrays.items()})

    def extend(old):
        return replace(old, meta={**old.meta, "cores": 2}, arrays={**old.arrays, "agent/new": np.zeros(2)})

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_module, "FORMAT", 3)
        with pytest.raises(StorageFault, match="has format 1, which this version no longer reads"):
            store.load(None)
        patch.setattr(snapshot_module, "MIGRATIONS", {1: rename, 2: extend})
        loaded = store.load(None)
        assert loaded is not None
        assert loaded.meta["cores"] == 2
        assert set(loaded.trees) == {"agent/matrix", "agent/count", "agent/new"}
        store.save(50, trees_at(50), META)

    # Back to today's version: what a later one wrote is refused, and no older checkpoint is taken instead.
    with pytest.raises(StorageFault, match=r"has format 3, this version reads up to 1; update"):
        store.load(trees_at(0))
    assert [status.problem is None for status in store.verify()] == [True, True, False]


# --- faults while saving ----------------------------------------------------------------------------------------------

CALLS = ("open", "write", "fsync", "close", "mkdir", "rename", "replace", "unlink", "rmdir")

# One process imports everything once; each of its children dies at its own point of a save.
KILLED_AT_EACH_POINT = """
import json, os, shutil, signal, sys, warnings
from pathlib import Path
import numpy as np
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[2])
import test_checkpoint as t

os.fsync = lambda descriptor: None  # a kill loses nothing that was written; the order of syncs has its own test

def arm(point, torn):
    passed = 0
    for name in ["write"] if torn else t.CALLS:
        def guarded(*args, name=name, call=getattr(os, name), **kwargs):
            nonlocal passed
            passed += 1
            if passed == point:
                if torn:
                    call(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)
        setattr(os, name, guarded)

def save_fifty(store, references):
    writer = t.SegmentWriter(store.replay, 25, 0.99, references)
    writer.append(**t.transitions(writer.end, 50))
    store.save(50, t.trees_at(50), t.META, writer.seal())

root = Path(sys.argv[1])
references = t.filled_store(root / "base").load(None).segments
outcomes = {"whole": [], "torn": []}
for kind in outcomes:
    torn, point = kind == "torn", 0
    while True:
        point += 1
        run = root / f"{torn}-{point}"
        shutil.copytree(root / "base", run)
        store = t.open_store(run)
        child = os.fork()
        if child == 0:
            arm(point, torn)
            save_fifty(store, references)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL), status
        step = t.loaded_step(store)
        problems = [s.problem for s in store.verify() if s.problem is not None]
        assert problems == [], (point, problems)
        loaded = store.load(None)
        save_fifty(store, loaded.segments if step == 40 else references)
        assert t.loaded_step(store) == 50
        left = [p for p in run.rglob(".*")]
        assert left == [], left
        assert len(list(store.directory.iterdir())) == 3
        shutil.rmtree(run)
        if status == 0:
            break
        outcomes[kind].append(step)
print(json.dumps(outcomes))
"""


def test_killed_at_each_point_of_a_save_a_good_checkpoint_remains(tmp_path):
    command = [sys.executable, "-c", KILLED_AT_EACH_POINT, str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout)
    assert len(outcomes["whole"]) > 40
    assert set(outcomes["whole"]) == {40, 50}
    assert outcomes["whole"] == sorted(outcomes["whole"])  # once the new one is there, it stays
    assert outcomes["torn"] == [40] * len(outcomes["torn"])
    assert len(outcomes["torn"]) >= 4


class Trace:
    """The calls of a save, with the paths they are about."""

    def __init__(self, monkeypatch) -> None:
        self.events: list[tuple[str, ...]] = []
        self.names: dict[int, str] = {}
        for call in CALLS:
            monkeypatch.setattr(os, call, self._record(call, getattr(os, call)))

    def _record(self, call, original):
        def traced(*args, **kwargs):
            result = original(*args, **kwargs)
            if call == "open" and "dir_fd" not in kwargs:
                self.names[result] = str(args[0])
                if args[1] & os.O_CREAT:
                    self.events.append(("create", str(args[0])))
            elif call in ("write", "fsync"):
                self.events.append((call, self.names[args[0]]))
            elif call in ("rename", "replace"):
                self.events.append(("rename", str(args[0]), str(args[1])))
            elif call in ("unlink", "rmdir", "mkdir") and "dir_fd" not in kwargs:
                self.events.append((call, str(args[0])))
            return result

        return traced

    def violations(self) -> list[str]:
        """What could be lost if the power failed: names that become visible before their content is on the disk."""
        found = []
        unsynced: set[str] = set()  # files with content in memory only, directories with names in memory only
        for event, path, *target in self.events:
            parent = str(Path(path).parent)
            if event in ("create", "write"):
                unsynced |= {path, parent} if event == "create" else {path}
            elif event == "mkdir":
                unsynced.add(parent)
            elif event == "fsync":
                unsynced.discard(path)
            elif event == "unlink" and parent.endswith("/replay"):
                early = [p for p in unsynced if p.endswith("/checkpoints")]
                found += [f"{path} is removed before {p} is synced" for p in early]
            elif event == "rename":
                inside = sorted(p for p in unsynced if p == path or p.startswith(path + "/"))
                found += [f"{p} is renamed before it is synced" for p in inside]
                if "step-" in Path(target[0]).name and not Path(target[0]).name.startswith(TEMPORARY):
                    found += [f"{p} is referred to before it is synced" for p in unsynced if p.endswith("/replay")]
                if Path(target[0]).name.startswith(TEMPORARY) and parent in unsynced:
                    found.append(f"{path} is removed before {parent} is synced")
                unsynced.add(parent)
        return found


def save_traced(tmp_path, monkeypatch) -> Trace:
    store = filled_store(tmp_path, capacity=15)
    loaded = store.load(None)
    assert loaded is not None
    with monkeypatch.context() as patch:
        trace = Trace(patch)
        writer = SegmentWriter(store.replay, 15, 0.99, loaded.segments)
        writer.append(**transitions(writer.end, 50))
        store.save(50, trees_at(50), META, writer.seal())
    return trace


def test_content_reaches_the_disk_before_its_name(tmp_path, monkeypatch):
    trace = save_traced(tmp_path, monkeypatch)
    assert trace.violations() == []
    created = [Path(path).name for event, path, *_ in trace.events if event == "create"]
    assert created[-1] == "manifest.json"
    assert any(event == "unlink" and "/replay/" in path for event, path, *_ in trace.events)


@pytest.mark.parametrize("forgotten", ["file", "directory"])
def test_a_forgotten_sync_would_be_noticed(tmp_path, monkeypatch, forgotten):
    original = os.fsync
    store_trace = []

    def forget(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}") == (forgotten == "directory"):
            raise LookupError
        original(descriptor)

    def lenient(self, call, function, record=Trace._record):
        traced = record(self, call, forget if call == "fsync" else function)

        def passing(*args, **kwargs):
            try:
                return traced(*args, **kwargs)
            except LookupError:
                store_trace.append(args)

        return passing if call == "fsync" else traced

    monkeypatch.setattr(Trace, "_record", lenient)
    assert save_traced(tmp_path, monkeypatch).violations() != []
    assert store_trace


def fail_at(patch, point: int, code: int) -> None:
    """The call with this number, of those that change the disk, fails."""
    passed = 0

    def failing(call):
        def guarded(*args, **kwargs):
            nonlocal passed
            passed += 1
            if passed == point:
                raise OSError(code, os.strerror(code))
            return call(*args, **kwargs)

        return guarded

    for name in ("write", "fsync", "mkdir", "rename"):
        patch.setattr(os, name, failing(getattr(os, name)))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_failing_disk_leaves_older_checkpoints_intact(tmp_path, monkeypatch, code):
    """At whichever call of a save it fails, what was saved before is still there, bit for bit."""
    store = filled_store(tmp_path)
    before, point = tree_of(store.directory), 0
    while f"step-{50:012d}" not in names(store):  # after that, only tidying can fail
        assert tree_of(store.directory) == before
        point += 1
        with monkeypatch.context() as patch:
            fail_at(patch, point, code)
            with pytest.raises(StorageFault) as fault:
                store.save(50, trees_at(50), META)
        assert fault.value.exit_code == 5
        assert "\n" not in str(fault.value)
    assert point > 8


def test_a_real_limit_on_file_sizes_is_a_storage_fault(tmp_path):
    """The kernel itself refuses to write more, as it does on a full disk."""
    store = filled_store(tmp_path)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StorageFault, match="File too large"):
            store.save(50, {"agent": np.zeros(5000)}, META)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert loaded_step(store) == 40
    assert len(names(store)) == 3


def test_a_vanished_directory_is_a_storage_fault_and_stays_vanished(tmp_path):
    store = filled_store(tmp_path)
    shutil.rmtree(store.directory)
    with pytest.raises(StorageFault, match="vanished"):
        store.save(50, trees_at(50), META)
    with pytest.raises(StorageFault, match="vanished"):
        store.load(trees_at(0))
    with pytest.raises(StorageFault, match="vanished"):
        store.verify()
    assert not store.directory.exists()
