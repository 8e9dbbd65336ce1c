"""Studies of real runs in real processes: each exactly once, continued after a kill, failures counted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from symbreak.commands.studying import study
from symbreak.errors import InputError, Interrupted, StorageFault
from symbreak.process.watch import SIGNALS, Watch
from symbreak.storage.directory import DirectoryInUse, lock_run_directory
from symbreak.storage.files import replace_file
from symbreak.studies import worker
from symbreak.studies.launch import Progress, arguments_of, begin, log_of, look, run_local, settle
from symbreak.studies.plans import Job, plan
from symbreak.studies.progress import LINE, RECENT, LiveTable, TimeLeft, print_plan
from symbreak.studies.records import (
    record_directory,
    recorded,
    refuse_replacing,
    run_directory,
    take_over,
    write_record,
)
from symbreak.studies.summary import add_to_plan, verify, write_summary
from symbreak.training.inspection import fingerprint
from symbreak.training.record import is_finished, read_status
from symbreak.training.run import resume, train

SMALL = {"width": 16, "batch": 16, "learning_starts": 20, "capacity": 500}


@pytest.fixture
def jobs() -> list[Job]:
    planned = plan("grid-obstacles", seeds=2, steps=200, methods=["exact"], settings=["grid-20"])
    changes = {"agent": SMALL, "evaluations": 2, "episodes": 2, "checkpoint_every": 50}
    return [Job(job.setting, replace(job.config, **changes)) for job in planned]


def facts(out, job):
    return json.loads((record_directory(out, job) / "record.json").read_text())


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="needs the workers of pytest-xdist")
@pytest.mark.xdist_group("studies")
def test_tests_of_one_group_share_a_worker(request):
    """Some releases of pytest with some of pytest-xdist ignore the mark; tests of Ray then meet a strange cluster."""
    assert request.node.nodeid.endswith("@studies")


def test_a_run_of_another_study_is_taken_over(tmp_path, jobs, capsys):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for job, state in zip(jobs, ("finished", "failed"), strict=True):
        run_directory(other, job).mkdir(parents=True)
        (run_directory(other, job) / "config.json").write_text(json.dumps(job.config.to_json()))
        for name in ("metrics.jsonl", "status.json"):
            (run_directory(other, job) / name).write_text(f"{name} of {job.name}")
        write_record(other, job, state, 1, seal="0123")
    elsewhere = Job("grid-20_again", jobs[0].config)  # the same run under the name of another setting
    changed = Job("grid-20", replace(jobs[0].config, seed=7))
    print_plan("grid-obstacles", [elsewhere, changed, jobs[1]], mine)
    assert "3 runs, 1 of them finished" in capsys.readouterr().out
    assert take_over(mine, [elsewhere, changed, jobs[1]]) == 1
    assert facts(mine, elsewhere) == facts(other, jobs[0])
    assert (record_directory(mine, elsewhere) / "metrics.jsonl").read_text() == f"metrics.jsonl of {jobs[0].name}"
    assert recorded(mine, changed) is None
    assert recorded(mine, jobs[1]) is None  # a failed run is another study's misfortune
    assert take_over(mine, [elsewhere]) == 0
    assert take_over(other, jobs) == 0  # nothing is taken from itself
    config = record_directory(other, jobs[0]) / "config.json"
    config.write_text(json.dumps(replace(jobs[0].config, steps=7).to_json()))  # not the run that its record claims
    shutil.rmtree(mine)
    assert take_over(mine, [elsewhere]) == 0


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "status.json", "record.json"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text(path.read_text().replace("1", "2"))])
def test_a_damaged_record_is_no_record(tmp_path, jobs, name, damage):
    """`report --verify` advises to make such a run again: the study must agree, and so must those beside it."""
    out, run = tmp_path / "study", run_directory(tmp_path / "study", jobs[0])
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(jobs[0].config.to_json()))
    (run / "metrics.jsonl").write_text('{"step": 200, "eval/return": 1.0}\n')
    (run / "status.json").write_text('{"state": "finished", "step": 1}')
    write_record(out, jobs[0], "finished", 1, seal="0123")
    assert recorded(out, jobs[0]) == "finished"
    with pytest.raises(InputError, match="choose another --out"):
        refuse_replacing(out, [replace(jobs[0], config=replace(jobs[0].config, steps=7))])
    shutil.rmtree(run)
    damage(record_directory(out, jobs[0]) / name)
    assert recorded(out, jobs[0]) is None
    refuse_replacing(out, jobs[:1])
    assert take_over(tmp_path / "beside", jobs[:1]) == 0


def test_a_finished_record_needs_metrics_and_a_fingerprint(tmp_path, jobs):
    run = run_directory(tmp_path, jobs[0])
    run.mkdir(parents=True)
    for name, content in (("config.json", json.dumps(jobs[0].config.to_json())), ("status.json", "{}")):
        (run / name).write_text(content)
    write_record(tmp_path, jobs[0], "finished", 1, seal="0123")
    assert recorded(tmp_path, jobs[0]) is None
    (run / "metrics.jsonl").write_text("")
    for seal, state in (("", None), ("0123", "finished")):
        write_record(tmp_path, jobs[0], "finished", 1, seal=seal)
        assert recorded(tmp_path, jobs[0]) == state


def test_the_map_of_a_run_is_kept_where_a_figure_is_drawn_from_it(tmp_path, jobs):
    plain, mapped = jobs[0], replace(jobs[0], keeps_map=True)
    assert [job.keeps_map for job in plan("propagation")] == [True]
    without, out, third = tmp_path / "without", tmp_path / "mapped", tmp_path / "third"
    for place, job in ((without, plain), (out, mapped)):
        run_directory(place, job).mkdir(parents=True)
        (run_directory(place, job) / "config.json").write_text(json.dumps(job.config.to_json()))
        for name in ("metrics.jsonl", "status.json", "grid.json"):
            (run_directory(place, job) / name).write_text(name)
    write_record(without, plain, "finished", 1, seal="0123")
    assert not (record_directory(without, plain) / "grid.json").exists()
    assert take_over(third, [mapped]) == 0  # that record lacks what this one is for
    write_record(out, mapped, "finished", 1, seal="0123")
    assert (record_directory(out, mapped) / "grid.json").read_text() == "grid.json"
    shutil.rmtree(without)
    assert take_over(third, [mapped]) == 1
    assert (record_directory(third, mapped) / "grid.json").read_text() == "grid.json"


def test_a_begun_run_of_another_configuration_is_neither_continued_nor_recorded(tmp_path, jobs):
    (job, _), run = jobs, run_directory(tmp_path, jobs[0])
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(replace(job.config, steps=150).to_json()))
    (run / "status.json").write_text('{"state": "finished", "step": 150}')
    with pytest.raises(InputError, match="seed-0 holds a run with steps 150 and not 200; choose another --out"):
        refuse_replacing(tmp_path, jobs)
    config, directory = arguments_of(tmp_path, job)
    with pytest.raises(InputError, match="steps 150 and not 200"):
        worker.work(Path(config), Path(directory), Watch())
    (run / "config.json").write_text(json.dumps(job.config.to_json()))
    refuse_replacing(tmp_path, jobs)
    worker.work(Path(config), Path(directory), Watch())  # finished: nothing to do


@pytest.mark.parametrize("began", [True, False])
def test_a_run_that_was_killed_or_never_began_counts_as_failed(tmp_path, jobs, began):
    job, out = jobs[0], tmp_path / "study"
    add_to_plan(out, [job])
    if began:  # the kernel ended it for want of memory
        run_directory(out, job).mkdir(parents=True)
        (run_directory(out, job) / "config.json").write_text(json.dumps(job.config.to_json()))
        (run_directory(out, job) / "status.json").write_text('{"state": "running", "step": 50}')
    write_record(out, job, "failed", 3, reason="exit code -9")
    assert read_status(record_directory(out, job)) == {"state": "failed", "step": 50 * began, "reason": "exit code -9"}
    found = json.loads(write_summary(tmp_path).read_text())["study"]["grid-20"]["exact"]
    assert (found["seeds"], found["failed"], found["unfinished"]) == (1, 1, 0)
    assert verify(tmp_path) == 1


def test_a_finished_run_that_cannot_be_read_fails_alone(tmp_path, jobs, monkeypatch):
    """Not the whole study, and not for ever: it is tried again and then counted."""
    entry, run = Progress(jobs[0], "running", attempts=1), run_directory(tmp_path, jobs[0])
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(jobs[0].config.to_json()))
    (run / "status.json").write_text('{"state": "finished", "step": 200}')  # and no checkpoint
    settle(tmp_path, entry, 0, keep_runs=False)
    assert (entry.state, recorded(tmp_path, jobs[0])) == ("waiting", None)
    assert not is_finished(run)  # or the next try would have nothing to do
    (run / "status.json").write_text('{"state": "finished", "step": 200}')
    entry.attempts = 3
    settle(tmp_path, entry, 0, keep_runs=False)
    assert (entry.state, recorded(tmp_path, jobs[0])) == ("failed", "failed")
    assert "checkpoint" in entry.reason

    def full(path, data):
        raise StorageFault("no space left")

    monkeypatch.setattr("symbreak.studies.records.replace_file", full)  # of no one run's making
    with pytest.raises(StorageFault, match="no space left"):
        settle(tmp_path, entry, 0, keep_runs=False)


def test_a_run_whose_last_checkpoint_is_damaged_goes_on_from_the_one_before(tmp_path, jobs):
    """Its fingerprint is that of its end, not of an older state."""
    run = run_directory(tmp_path, jobs[0])
    train(jobs[0].config, run)
    whole = fingerprint(run, at_its_end=True)
    newest = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
    damaged = newest / "arrays.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(StorageFault, match=r"last checkpoint of .* is damaged"):
        fingerprint(run, at_its_end=True)
    assert fingerprint(run) != whole  # of the older one, which must not be recorded
    entry = Progress(jobs[0], "running", attempts=1)
    settle(tmp_path, entry, 0, keep_runs=True)
    assert (entry.state, recorded(tmp_path, jobs[0])) == ("waiting", None)
    resume(run)
    settle(tmp_path, entry, 0, keep_runs=True)
    assert facts(tmp_path, jobs[0])["fingerprint"] == whole


@pytest.mark.parametrize(
    ("code", "says", "reason"),
    [(-9, "", "killed by SIGKILL"), (-40, "", "killed by signal 40"), (4, "new", "new"), (4, "", "exit code 4")],
)
def test_the_reason_of_a_failure_is_of_the_last_try(tmp_path, jobs, code, says, reason):
    log = log_of(tmp_path, jobs[0])
    log.parent.mkdir(parents=True)
    log.write_text("error[storage]: what was wrong last week\n")
    entry = Progress(jobs[0], attempts=2)
    begin(tmp_path, entry)
    with log.open("a") as file:
        file.write(says)
    settle(tmp_path, entry, code, keep_runs=False)
    assert (entry.state, entry.reason) == ("failed", reason)


def test_a_run_that_was_asked_to_stop_has_not_failed_as_long_as_it_gets_on(tmp_path, jobs):
    entry, run = Progress(jobs[0]), run_directory(tmp_path, jobs[0])
    run.mkdir(parents=True)
    told = []
    for step in (50, 100, 150, 190, 190, 190, 190):  # often, as on nodes that others may claim; then it stands still
        begin(tmp_path, entry)
        (run / "status.json").write_text(json.dumps({"state": "interrupted", "step": step}))
        settle(tmp_path, entry, Interrupted.exit_code, keep_runs=False)
        told.append((entry.state, entry.attempts))
    assert told == [("waiting", 0)] * 4 + [("waiting", 1), ("waiting", 2), ("failed", 3)]


def test_a_run_that_was_killed_gets_on_from_its_checkpoint(tmp_path, jobs):
    """The step that it had told when it was killed is ahead of that; to come that far again is not asked for."""
    entry, run = Progress(jobs[0]), run_directory(tmp_path, jobs[0])
    run.mkdir(parents=True)

    def tell(step):
        (run / "status.json").write_text(json.dumps({"state": "running", "step": step}))
        look(tmp_path, entry)

    begin(tmp_path, entry)
    tell(190)
    settle(tmp_path, entry, -9, keep_runs=False)
    assert (entry.state, entry.attempts) == ("waiting", 1)
    begin(tmp_path, entry)
    for step in (100, 150):
        tell(step)
    settle(tmp_path, entry, Interrupted.exit_code, keep_runs=False)
    assert (entry.state, entry.attempts) == ("waiting", 1)
    begin(tmp_path, entry)
    tell(150)
    settle(tmp_path, entry, Interrupted.exit_code, keep_runs=False)
    assert (entry.state, entry.attempts) == ("waiting", 2)


def test_a_record_names_the_code_of_the_process_that_made_the_run(tmp_path, jobs, monkeypatch):
    """Not of whoever started it, which may have been there before an edit, or come from another checkout."""
    config, directory = arguments_of(tmp_path, jobs[0])
    refused, run = [], run_directory(tmp_path, jobs[0])
    run.parent.mkdir(parents=True)

    @contextmanager
    def held(*_, **__):
        if refused:
            raise DirectoryInUse("in use by host a")
        yield SimpleNamespace(advance=lambda: None)

    monkeypatch.setattr("symbreak.training.run.Run.create", held)
    monkeypatch.setattr("symbreak.training.run.Run.open", held)

    def told(by):
        monkeypatch.setattr("symbreak.studies.records.code_digest", lambda: by)
        worker.work(Path(config), Path(directory), Watch())
        monkeypatch.setattr("symbreak.studies.records.code_digest", lambda: "of-the-launcher")
        for job in jobs:
            write_record(tmp_path, job, "failed", 3, reason="killed")
        return [facts(tmp_path, job).get("code") for job in jobs]

    assert told("old") == [["old"], None]
    run.mkdir()
    (run / "config.json").write_text(json.dumps(jobs[0].config.to_json()))
    assert told("old") == [["old"], None]
    assert told("new") == [["old", "new"], None]  # continued by other code
    refused.append("by whoever makes it")
    with pytest.raises(DirectoryInUse):
        told("idle")
    assert told_of(tmp_path, jobs[0]) == ["old", "new"]
    refused.clear()
    shutil.rmtree(run)
    assert told("anew") == [["anew"], None]


def told_of(out, job):
    write_record(out, job, "failed", 3, reason="killed")
    return facts(out, job)["code"]


def stand_in(monkeypatch, tmp_path, script):
    """Workers that run this instead: `run` is the directory of theirs, `core` what they were told."""
    code = f"import os, pathlib, sys\nrun, core = pathlib.Path(sys.argv[2]), sys.argv[3]\n{script}"
    (tmp_path / "stand_in.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("symbreak.studies.launch.WORKER", "stand_in")


@pytest.mark.parametrize("workers", [1, 2])
def test_as_many_runs_as_asked_for_go_on_each_with_a_core_of_its_own(tmp_path, jobs, monkeypatch, workers):
    stand_in(monkeypatch, tmp_path, "sys.exit(f'on core {core}')")
    monkeypatch.setattr("symbreak.studies.launch.least_used_first", lambda: [11, 12, 13])
    seen = []
    table = run_local(
        jobs, tmp_path / "study", workers=workers, poll=0.01, show=lambda table: seen.append([e.state for e in table])
    )
    assert max(states.count("running") for states in seen) == workers
    assert {entry.reason for entry in table} <= {f"on core {core}" for core in (11, 12, 13)[:workers]}


def test_more_workers_than_cores_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"--workers 4096: each run has a core of its own, and there are \d+"):
        study("grid-obstacles", out=tmp_path / "study", workers=4096)
    assert not (tmp_path / "study").exists()


def test_every_try_is_told_with_the_reason_of_the_one_before(tmp_path, jobs, monkeypatch, capsys):
    stand_in(monkeypatch, tmp_path, "sys.exit('no such thing')")
    with LiveTable("grid-obstacles") as show:
        run_local(jobs[:1], tmp_path / "study", poll=0.01, show=show)
    name = jobs[0].name
    again = [f"running: {name}, try {number} after no such thing" for number in (2, 3)]
    assert capsys.readouterr().out.splitlines() == [f"running: {name}", *again, f"failed: {name}"]


def test_a_study_whose_runs_failed_is_done(tmp_path, monkeypatch, capsys):
    """Failures are recorded and counted; nothing in the program is wrong, and the next study can begin."""
    stand_in(monkeypatch, tmp_path, "sys.exit('no such thing')")
    asked = {"seeds": 1, "methods": ("exact",), "settings": ("grid-20",)}
    assert study("grid-obstacles", out=tmp_path / "results" / "study", **asked) == 0
    said = capsys.readouterr()
    assert "0 of 1 runs finished" in said.out
    assert said.err == "failed: grid-20/exact/seed-0: no such thing\n"


def test_a_run_that_a_study_beside_this_one_makes_meanwhile_is_not_made_again(tmp_path, jobs, monkeypatch):
    mine, other = tmp_path / "mine", tmp_path / "other"
    stand_in(monkeypatch, tmp_path, "open(run.parent / 'made', 'a').write(run.name)")
    run_directory(other, jobs[1]).mkdir(parents=True)
    for name, content in (("config.json", json.dumps(jobs[1].config.to_json())), ("status.json", "{}")):
        (run_directory(other, jobs[1]) / name).write_text(content)
    (run_directory(other, jobs[1]) / "metrics.jsonl").write_text("")

    def finish_beside(table):
        if table[0].state == "running":
            write_record(other, jobs[1], "finished", 1, seal="0123")

    table = run_local(jobs, mine, workers=1, poll=0.01, show=finish_beside)
    assert [entry.state for entry in table] == ["failed", "finished"]  # the first left nothing behind
    assert recorded(mine, jobs[1]) == "finished"
    assert (run_directory(mine, jobs[0]).parent / "made").read_text() == 3 * "seed-0"


def test_a_failed_record_keeps_nothing_of_a_former_one(tmp_path, jobs):
    other = replace(jobs[0], config=replace(jobs[0].config, steps=77))
    for job in (other, jobs[0]):
        write_record(tmp_path, job, "failed", 3, reason="never began")
    add_to_plan(tmp_path, jobs[:1])
    write_summary(tmp_path.parent)
    assert verify(tmp_path) == 1


def test_a_failed_run_is_no_reason_to_make_one_that_is_there(tmp_path, jobs, monkeypatch):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for place, state in ((mine, "failed"), (other, "finished")):
        run_directory(place, jobs[0]).mkdir(parents=True)
        (run_directory(place, jobs[0]) / "config.json").write_text(json.dumps(jobs[0].config.to_json()))
        for name in ("metrics.jsonl", "status.json"):
            (run_directory(place, jobs[0]) / name).write_text("{}")
        write_record(place, jobs[0], state, 1, seal="0123")
    for name in ("metrics.jsonl", "status.json", "record.json"):  # a kill before any of them leaves no record
        with monkeypatch.context() as patched:
            patched.setattr("symbreak.studies.records.replace_file", dying_before(name))
            with pytest.raises(KeyboardInterrupt):
                take_over(mine, jobs)
        assert not (record_directory(mine, jobs[0]) / "record.json").exists()
    assert take_over(mine, jobs) == 1
    assert recorded(mine, jobs[0]) == "finished"


def dying_before(name):
    def replace_or_die(path, content):
        if path.name == name:
            raise KeyboardInterrupt
        replace_file(path, content)

    return replace_or_die


def test_a_study_that_was_taken_over_stops(tmp_path, monkeypatch):
    """Its lock is looked at as long as it goes on; another host may have thought it dead."""
    shown = []

    def run_nothing(jobs, out, *, workers, show, keep_runs):
        show([])
        shown.append("once")
        (out / "run.lock").write_text('{"host": "elsewhere", "pid": 7}')
        show([])

    monkeypatch.setattr("symbreak.studies.launch.run_local", run_nothing)
    with pytest.raises(DirectoryInUse, match="taken over by host elsewhere, pid 7"):
        study("grid-obstacles", out=tmp_path / "study", seeds=1, settings=("grid-0",), methods=("vanilla",))
    assert shown == ["once"]


def test_a_number_of_workers_is_not_for_a_cluster(tmp_path):
    with pytest.raises(InputError, match="--workers and --ray"):
        study("grid-obstacles", out=tmp_path / "study", workers=2, ray="auto")
    assert not (tmp_path / "study").exists()


def test_two_studies_do_not_write_into_one_directory(tmp_path):
    with lock_run_directory(tmp_path), pytest.raises(DirectoryInUse, match="in use by host"):
        study("grid-obstacles", out=tmp_path, seeds=1, settings=("grid-0",), methods=("vanilla",))
    assert not (tmp_path / "plan.json").exists()


def test_a_directory_in_use_is_waited_for(tmp_path, monkeypatch, capsys):
    answers = [DirectoryInUse("in use by host a"), DirectoryInUse("in use by host a"), None, InputError("wrong")]

    def work(*_):
        if (answer := answers.pop(0)) is not None:
            raise answer

    for name, replacement in {"work": work, "use_one_core": int, "prepare_process": int, "PAUSE": 0.0}.items():
        monkeypatch.setattr(worker, name, replacement)
    assert worker.main(["config.json", "run"]) == 0
    assert len(answers) == 1
    assert worker.main(["config.json", "run"]) == InputError.exit_code
    assert "wrong" in capsys.readouterr().err


@pytest.fixture
def signals_as_before():
    former = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals_as_before")
def test_a_worker_that_waits_for_a_directory_hears_signals(monkeypatch, capsys):
    asked = []

    def work(*_):
        asked.append(time.monotonic())
        assert len(asked) < 100
        if len(asked) == 1:
            signal.raise_signal(signal.SIGTERM)
        raise DirectoryInUse("in use by host a")

    for name, replacement in {"work": work, "use_one_core": int, "prepare_process": int, "PAUSE": 0.1}.items():
        monkeypatch.setattr(worker, name, replacement)
    assert worker.main(["config.json", "run"]) == Interrupted.exit_code
    assert "stopped by SIGTERM" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.xdist_group("studies")
def test_a_study_is_made_once_and_a_killed_run_is_continued(tmp_path, jobs, capsys):
    killed, results, out = [], tmp_path / "results", tmp_path / "results" / "study"
    add_to_plan(out, jobs)

    def kill_the_first(table):
        entry = table[0]
        if entry.process is not None and not killed and (run_directory(out, entry.job) / "config.json").exists():
            os.kill(entry.process.pid, signal.SIGKILL)
            killed.append(time.monotonic())

    table = run_local(jobs, out, show=kill_the_first, poll=0.05)
    assert killed
    assert [entry.state for entry in table] == ["finished", "finished"]
    assert [entry.attempts for entry in table] == [2, 1]
    first = [facts(out, job) for job in jobs]
    assert first[0]["fingerprint"] != first[1]["fingerprint"]

    # The kill left no trace: the same run without it.
    alone = tmp_path / "alone"
    run_local(jobs[:1], alone, poll=0.05)
    assert facts(alone, jobs[0])["fingerprint"] == first[0]["fingerprint"]

    # Nothing is made again, and nothing but the records is needed for that.
    assert not run_directory(out, jobs[0]).exists()
    again = run_local(jobs, out)
    assert [entry.attempts for entry in again] == [0, 0]

    summary = json.loads(write_summary(results).read_text())
    assert summary["study"]["grid-20"]["exact"]["seeds"] == 2
    assert verify(out) == verify(results) == 2
    changed = Job(jobs[0].setting, replace(jobs[0].config, steps=201))
    assert recorded(out, changed) is None
    print_plan("grid-obstacles", jobs, out)
    assert "2 runs, 2 of them finished" in capsys.readouterr().out


def test_time_left_follows_the_speed_of_the_last_minutes(jobs):
    """Jobs of 200 steps, estimated at a second in all; 0.1 s a step is twenty times as slow."""
    (first, second), left = (Progress(job, "running", attempts=1) for job in jobs), TimeLeft()
    table, plan_s = [first, second], 3600 * jobs[0].hours
    left.look(table, 0.0)
    assert left.of(first, 0.0) is None
    assert left.of_all(table, 0.0) == pytest.approx((2 * plan_s, plan_s))
    first.step = 50
    left.look(table, 5.0)
    assert left.of(first, 5.0) == pytest.approx(15.0)
    assert left.of(first, 7.0) == pytest.approx(13.0)  # between two signs of life the clock goes on
    assert left.of(first, 100.0) == 0.0
    # The other one is taken to be as slow, and to wait for the same core as long as it has not moved.
    assert left.of_all(table, 5.0) == pytest.approx((35.0, 35.0))
    second.step = 50
    left.look(table, 5.0)
    assert left.of_all(table, 5.0) == pytest.approx((30.0, 15.0))
    second.step, second.state = 0, "waiting"
    assert left.of_all(table, 5.0) == pytest.approx((35.0, 35.0))
    first.step = 51  # much slower from here on, and the quick beginning is forgotten
    left.look(table, RECENT + 10.0)
    first.step = 52
    left.look(table, RECENT + 20.0)
    assert left.of(first, RECENT + 20.0) == pytest.approx(148 * (RECENT + 15.0) / 2)
    first.step = 40  # back to its checkpoint
    left.look(table, RECENT + 30.0)
    assert left.of(first, RECENT + 30.0) is None
    first.attempts = 2  # another try is another beginning
    left.look(table, RECENT + 40.0)
    first.step = 60
    left.look(table, RECENT + 42.0)
    assert left.of(first, RECENT + 42.0) == pytest.approx(14.0)
    first.attempts, first.step = 3, 40
    left.look(table, RECENT + 50.0)
    first.step = 41  # after it has compiled
    left.look(table, RECENT + 90.0)
    assert left.of(first, RECENT + 90.0) is None
    first.step = 51
    left.look(table, RECENT + 91.0)
    assert left.of(first, RECENT + 91.0) == pytest.approx(14.9)
    first.state = second.state = "finished"
    assert left.of_all(table, RECENT + 95.0) == (0.0, 0.0)


def test_without_a_terminal_a_line_now_and_then_tells_how_far_runs_are(jobs, capsys, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("symbreak.studies.progress.time.monotonic", lambda: now)
    table = [Progress(jobs[0], "running", attempts=1), Progress(jobs[1])]
    with LiveTable("study") as show:
        for step, later in ((0, 0.0), (50, 50.0), (100, 50.0), (150, LINE)):
            table[0].step, now = step, now + later
            show(table)
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"running: {jobs[0].name}"
    assert second == f"running: {jobs[0].name}: step 150 / 200, 0:02:13 left"


@pytest.mark.slow
@pytest.mark.xdist_group("studies")
def test_a_run_that_cannot_work_is_tried_three_times_and_counted(tmp_path, jobs):
    broken = Job("grid-20", replace(jobs[0].config, agent={"width": 15}))  # no multiple of the group's order
    (entry,) = run_local([broken], tmp_path, poll=0.05)
    assert (entry.state, entry.attempts) == ("failed", 3)
    assert "width" in entry.reason
    assert facts(tmp_path, broken)["state"] == "failed"
    assert "fingerprint" not in facts(tmp_path, broken)


def _is_alive(process):
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"  # a zombie that nobody reaps is gone
    except (FileNotFoundError, ProcessLookupError):
        return False


def _ctrl_c(study):
    os.killpg(study.pid, signal.SIGINT)  # what a terminal does: everyone in the foreground hears it


ENDS = {  # how the process of a study ends, and what it then returns
    "terminated": (subprocess.Popen.terminate, 75),
    "ctrl-c": (_ctrl_c, 75),
    "killed": (subprocess.Popen.kill, -signal.SIGKILL),
}


@pytest.mark.slow
@pytest.mark.xdist_group("studies")
@pytest.mark.parametrize("how", ENDS)
def test_runs_of_a_study_that_ends_save_and_stop(tmp_path, how):
    out = tmp_path / "study"
    (job,) = plan("grid-obstacles", seeds=1, methods=["vanilla"], settings=["grid-0"])
    chosen = ["--seeds", "1", "--methods", "vanilla", "--settings", "grid-0", "--out", str(out)]
    arguments = [sys.executable, "-m", "symbreak", "study", "grid-obstacles", *chosen]
    study = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, start_new_session=True)
    run, until = run_directory(out, job), time.monotonic() + 300
    while not read_status(run).get("step"):
        assert study.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    worker = Path("/proc", str(json.loads((run / "run.lock").read_text())["pid"]))
    assert _is_alive(worker)

    end, code = ENDS[how]
    end(study)
    _, said = study.communicate(timeout=30)
    until = time.monotonic() + 30
    while _is_alive(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _is_alive(worker)
    assert read_status(run)["state"] == "interrupted"
    assert study.returncode == code
    if how != "killed":
        assert said.strip().startswith("error[interrupted]: stopped by SIG")
        assert len(said.strip().splitlines()) == 1
