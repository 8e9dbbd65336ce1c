"""Files survive a crash, readers trust nothing, and one process at a time owns a run directory."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from symbreak.errors import InputError, StorageFault
from symbreak.storage import directory as directory_module
from symbreak.storage.directory import LOCK_NAME, SILENCE, DirectoryInUse, Holder, lock_run_directory
from symbreak.storage.files import TEMPORARY, Damaged, cut_back, make_directory, read_file, replace_file
from symbreak.storage.strict_json import from_json, read_json, to_json, write_json

HOLD = """
import sys, time
from pathlib import Path
from symbreak.storage.directory import lock_run_directory
with lock_run_directory(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lock of `tmp_path`."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_by_host_and_pid(tmp_path, other):
    for _ in range(10):
        named = f"host {socket.gethostname()}, pid {other.pid};"
        with pytest.raises(DirectoryInUse, match=named) as refusal, lock_run_directory(tmp_path):
            pytest.fail("two processes hold one lock")
        assert refusal.value.exit_code == 5
        assert "\n" not in str(refusal.value)


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, other):
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert f'"pid":{other.pid}' in (tmp_path / LOCK_NAME).read_text()
    with lock_run_directory(tmp_path) as lock:
        assert lock.taken_over == Holder(socket.gethostname(), other.pid)


def test_a_lock_is_given_back(tmp_path):
    for _ in range(3):
        with lock_run_directory(tmp_path) as lock:
            assert lock.taken_over is None  # the one before gave it back and left no name
            lock.beat()
            assert json.loads((tmp_path / LOCK_NAME).read_text()) == {"host": socket.gethostname(), "pid": os.getpid()}
        assert (tmp_path / LOCK_NAME).read_text() == ""


def test_a_lock_is_given_back_after_an_error(tmp_path):
    with pytest.raises(KeyboardInterrupt), lock_run_directory(tmp_path):
        raise KeyboardInterrupt
    with lock_run_directory(tmp_path) as lock:
        assert lock.taken_over is None


def test_one_process_cannot_hold_a_lock_twice(tmp_path):
    refused = pytest.raises(DirectoryInUse, match=f"pid {os.getpid()}")
    with lock_run_directory(tmp_path), refused, lock_run_directory(tmp_path):
        pytest.fail("held twice")


def test_a_forked_child_does_not_keep_the_lock_of_a_dead_parent(tmp_path):
    script = """
import os, sys, time
from pathlib import Path
from symbreak.storage.directory import lock_run_directory
with lock_run_directory(Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        os.close(1), os.close(2)  # or this test would wait for them
        time.sleep(20)
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60)
    try:
        with lock_run_directory(tmp_path) as lock:
            assert lock.taken_over is not None
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


def name_of_another_host(path: Path, silent: float) -> None:
    path.write_text('{"host":"elsewhere","pid":77}')
    os.utime(path, (time.time() - silent, time.time() - silent))


def test_another_host_counts_until_it_is_silent_for_long(tmp_path):
    name_of_another_host(tmp_path / LOCK_NAME, silent=SILENCE / 2)
    with pytest.raises(DirectoryInUse, match=r"host elsewhere, pid 77, seen \d+ s ago"), lock_run_directory(tmp_path):
        pytest.fail("taken from a living host")
    name_of_another_host(tmp_path / LOCK_NAME, silent=SILENCE + 10)
    with lock_run_directory(tmp_path) as lock:
        assert lock.taken_over == Holder("elsewhere", 77)


def test_who_is_overruled_finds_out(tmp_path):
    with lock_run_directory(tmp_path) as lock:
        os.utime(tmp_path / LOCK_NAME, (0, 0))
        lock.beat()
        assert (tmp_path / LOCK_NAME).stat().st_mtime > time.time() - 60
        (tmp_path / LOCK_NAME).write_text('{"host":"elsewhere","pid":77}')
        with pytest.raises(DirectoryInUse, match="host elsewhere, pid 77"):
            lock.beat()
    assert "elsewhere" in (tmp_path / LOCK_NAME).read_text()  # not this process's to give back


def test_a_lock_whose_file_was_removed_no_longer_holds(tmp_path):
    with lock_run_directory(tmp_path) as lock:
        (tmp_path / LOCK_NAME).unlink()
        with pytest.raises(StorageFault, match="No such file"):
            lock.beat()
        (tmp_path / LOCK_NAME).write_text("")
        with pytest.raises(DirectoryInUse):
            lock.beat()


@pytest.mark.parametrize("text", ["junk", "[]", '{"host":1,"pid":2}', '{"host":"a\\nb","pid":2}', "{" * 9000, "\0"])
def test_a_lock_that_makes_no_sense_is_taken_over(tmp_path, text):
    (tmp_path / LOCK_NAME).write_text(text)
    with lock_run_directory(tmp_path) as lock:
        assert lock.taken_over == directory_module.UNKNOWN


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / LOCK_NAME).symlink_to(victim)
    with pytest.raises(StorageFault, match="symbolic link"), lock_run_directory(tmp_path):
        pytest.fail("followed a link")
    assert victim.read_text() == "precious"


def test_a_lock_in_a_vanished_directory_is_refused(tmp_path):
    with pytest.raises(StorageFault, match="vanished"), lock_run_directory(tmp_path / "gone"):
        pytest.fail("locked nothing")


def test_locking_removes_what_a_killed_process_left(tmp_path):
    (tmp_path / f"{TEMPORARY}1-status.json").write_text("half")
    with lock_run_directory(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {LOCK_NAME}


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_replaced_file_is_old_or_new_at_every_fault(tmp_path, monkeypatch):
    path = tmp_path / "status.json"
    for name in ("open", "write", "fsync", "replace"):
        write_json(path, {"step": 1})

        def fail(*_args, **_kwargs):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(StorageFault, match="No space left on device; free some space"):
                write_json(path, {"step": 2})
        assert read_json(path) == {"step": 1}
        assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]
    write_json(path, {"step": 2})
    assert read_json(path) == {"step": 2}


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO, errno.ENOENT])
def test_faults_say_what_to_do(tmp_path, monkeypatch, code):
    def fail(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageFault) as fault:
        replace_file(tmp_path / "file", b"data")
    assert fault.value.exit_code == 5
    assert os.strerror(code) in str(fault.value)
    assert str(fault.value).count(";") == 1
    assert "\n" not in str(fault.value)


def test_a_directory_is_made_once_and_never_with_its_parents(tmp_path):
    make_directory(tmp_path / "replay")
    make_directory(tmp_path / "replay")
    with pytest.raises(StorageFault, match="vanished"):
        make_directory(tmp_path / "gone" / "replay")


def test_cutting_back_undoes_appending(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"one\ntwo\n")
    cut_back(path, 4)
    assert path.read_bytes() == b"one\n"
    with pytest.raises(Damaged, match="has 4 bytes where the checkpoint saw 8"):
        cut_back(path, 8)
    assert path.read_bytes() == b"one\n"


def test_reading_is_bounded_and_follows_nothing(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    with pytest.raises(Damaged, match="at most 4"):
        read_file(path, 4)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for name, reason in {"link": "symbolic link", "pipe": "regular", ".": "regular", "none": "missing"}.items():
        with pytest.raises(Damaged, match=reason):
            read_file(tmp_path / name, 100)


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_comes_back_as_it_went():
    value = {"b": [1, 0.1, -0.0, 1e-300, True, None, "é\ud800"], "a": {"": []}, "large": 2**70}
    text = to_json(value, "value")
    assert from_json(text, "text") == value
    assert to_json(from_json(text, "text"), "value") == text


@pytest.mark.parametrize(
    "value", [float("nan"), [1, {"x": float("inf")}], {1: 2}, {"x": Path("a")}, {"x": {1, 2}}, b"bytes", 1j]
)
def test_what_json_would_change_is_refused(value):
    with pytest.raises(InputError):
        to_json(value, "value")


def test_the_place_of_what_is_refused_is_named():
    with pytest.raises(InputError, match=r"meta\.rates\[1\] is nan"):
        to_json({"rates": [1.0, float("nan")]}, "meta")


@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b'{"a":1,"a":2}',
        b"[" * 200_000,
        b"\xff",
        b"",
        b"{",
        b"1 2",
        b"'x'",
    ],
)
def test_json_that_was_never_written_is_refused(text):
    with pytest.raises(Damaged) as fault:
        from_json(text, "file")
    assert "\n" not in str(fault.value)
    assert len(str(fault.value)) < 200
