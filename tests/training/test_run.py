"""A run leaves no trace of when it was looked at, saved or divided, and stops for a reason that it names."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.errors import EnvironmentFault, InputError, Interrupted, NumericFault, StorageFault
from symbreak.process import provenance as provenance_module
from symbreak.process.watch import Watch
from symbreak.storage.arrays import array_to_json
from symbreak.storage.checkpoint import Checkpoints
from symbreak.storage.directory import DirectoryInUse
from symbreak.storage.files import Damaged
from symbreak.storage.strict_json import MOST_JSON
from symbreak.symmetry import Field, Layout, Symmetry, Z
from symbreak.tasks import get_task
from symbreak.tasks.task import Task, View
from symbreak.training.drivers import CompiledDriver, HostedDriver, _read_episode
from symbreak.training.evaluate import load_trained
from symbreak.training.exchange import read_run
from symbreak.training.gate_record import read_gate_record
from symbreak.training.inspection import fingerprint, verify
from symbreak.training.meta import KEYS
from symbreak.training.record import read_status
from symbreak.training.run import Run, RunConfig, resume, train
from symbreak.training.seats import MOST_ACTIONS, remembered

TINY = {"width": 8, "batch": 8, "capacity": 700, "learning_starts": 100}
GRID = RunConfig("grid-0", "vanilla", steps=1_500, evaluations=2, episodes=4, checkpoint_every=400, agent=TINY)


class Pendulum(gym.Env):
    """A point that is pushed about; the seed decides where it begins, `fault` what goes wrong at which step."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    steps = 0  # over all episodes of one environment

    def __init__(self, fault: str = "", at: int = 0, noise: float = 0.0):
        self.fault, self.at, self.noise = fault, at, noise
        self.others = np.random.default_rng(time.time_ns())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.uniform(-1, 1, 2)
        return self.place.astype(np.float32), {}

    def step(self, action):
        self.time, self.steps = self.time + 1, self.steps + 1
        self.place = 0.9 * self.place + 0.1 * np.array([action[0], self.place[0]])
        self.place += self.noise * self.others.normal(size=2)
        observation, reward = self.place.astype(np.float32), float(-abs(self.place[0]))
        if self.fault and self.steps == self.at:
            if self.fault == "hangs":
                time.sleep(30)
            if self.fault == "raises":
                raise RuntimeError("the motor\nis broken")
            if self.fault == "shape":
                observation = np.zeros(3, np.float32)
            if self.fault == "reward":
                reward = float("inf")
            if self.fault == "observation":
                observation[1] = np.nan
        return observation, reward, False, self.time >= 40, {}

    def close(self):
        if self.fault == "closing":
            raise RuntimeError("the window is gone")


def point_task(**options) -> Task:
    group = Z(2)
    layout = Layout({"angle": Field(group.sign, indices=(0,)), "speed": Field(group.sign, indices=(1,))})
    symmetry = Symmetry(layout, Layout({"push": group.sign}), name="mirror")
    return Task(
        name="point",
        description="a point that is pushed about",
        views={"mirror": View(lambda: Pendulum(**options), lambda: symmetry)},
        algorithm="sac",
        horizon=40,
        training_steps=300,
        random_steps=50,
    )


SAC_TINY = {"width": 8, "batch": 8, "capacity": 250, "learning_starts": 60}
POINT = RunConfig("point", "vanilla", steps=300, evaluations=2, episodes=1, checkpoint_every=100, agent=SAC_TINY)


def finish(config: RunConfig, directory: Path, **options) -> None:
    with Run.create(config, directory, task=point_task(**options) if config.task == "point" else None) as run:
        run.advance()


@pytest.fixture(scope="module", autouse=True)
def _no_maps():
    """The maps for reports take seconds and say nothing about resuming."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledDriver, "write_maps", lambda self, directory: None)
        yield


@pytest.fixture(scope="module")
def grid_run(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("grid") / "run"
    train(GRID, directory)
    return directory


@pytest.fixture(scope="module")
def point_run(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("point") / "run"
    finish(POINT, directory)
    return directory


# --- no trace ---------------------------------------------------------------------------------------------------------


def test_frequencies_of_looking_and_saving_leave_no_trace(grid_run, tmp_path):
    expected = fingerprint(grid_run)
    assert len(expected) == 64
    for number, (evaluations, every, log) in enumerate(itertools.product((1, 3), (333, 9_999), (None, 70))):
        config = replace(GRID, evaluations=evaluations, checkpoint_every=every, log_every=log)
        rows = train(config, tmp_path / str(number))
        assert fingerprint(tmp_path / str(number)) == expected
        assert rows[-1]["step"] == 1_500
        assert len(rows) == len(
            {*range(log or 1_500, 1_501, log or 1_500), *range(0, 1_501, 1_500 // evaluations)} - {0}
        )


def test_another_seed_or_one_more_step_has_another_fingerprint(grid_run, tmp_path):
    for number, change in enumerate(({"seed": 1}, {"steps": 1_501})):
        train(replace(GRID, **change), tmp_path / str(number))
        assert fingerprint(tmp_path / str(number)) != fingerprint(grid_run)


@pytest.mark.parametrize("config", [GRID, POINT], ids=["grid", "point"])
def test_pieces_and_reopening_are_one_run(config, grid_run, point_run, tmp_path):
    reference = grid_run if config is GRID else point_run
    task = None if config is GRID else point_task()
    assert config.steps is not None
    run = Run.create(config, tmp_path / "run", task=task)
    for until in (1, 59, 60, 61, 99, 100, 137, config.steps):
        run.advance(until)
        run.close()
        run = Run.open(tmp_path / "run", task=task)
    assert run.finished
    run.close()
    assert fingerprint(tmp_path / "run") == fingerprint(reference)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (reference / "metrics.jsonl").read_bytes()
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status == json.loads((reference / "status.json").read_text())
    assert (status["state"], status["step"], status["exact"]) == ("finished", config.steps, True)


def test_where_a_gate_opens_is_told_by_every_way_to_the_end_and_leaves_no_trace(tmp_path, monkeypatch):
    gate = {"width": 8, "predictor_width": 8, "warmup": 80}
    config = replace(POINT, method="partial", agent={**SAC_TINY, "width": 16}, gate=gate)
    with Run.create(config, tmp_path / "whole", task=point_task()) as run:
        run.advance()
    run = Run.create(config, tmp_path / "parts", task=point_task())
    for until in (100, 137, config.steps):
        run.advance(until)
        run.close()
        run = Run.open(tmp_path / "parts", task=point_task())
    run.close()
    for name in ("gate.json", "metrics.jsonl", "status.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert all("gate/explained" in row for row in rows)
    assert {entry.names[0] for entry in read_gate_record(tmp_path / "whole").entries} == {
        "angle",
        "speed",
        "push (action)",
    }
    monkeypatch.setattr(HostedDriver, "write_maps", lambda self, directory: None)
    monkeypatch.setattr("symbreak.training.drivers.explained_change", lambda *_: {})
    with Run.create(config, tmp_path / "silent", task=point_task()) as run:
        run.advance()
    assert not (tmp_path / "silent" / "gate.json").exists()
    assert fingerprint(tmp_path / "silent") == fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "parts")


def test_methods_without_a_learned_gate_tell_nothing_of_one(point_run):
    assert not (point_run / "gate.json").exists()
    assert "notes" not in read_status(point_run)


def test_steps_are_told_as_they_are_made_and_leave_no_trace(point_run, tmp_path):
    told = []
    with Run.create(POINT, tmp_path / "run", task=point_task()) as run:
        run.advance(tick=told.append)
    assert told == sorted(set(told))
    assert (told[0], told[-1]) == (1, 300)
    assert {59, 60} <= set(told)  # before the first step that learns, which is compiled, and after it
    assert fingerprint(tmp_path / "run") == fingerprint(point_run)


def test_signs_of_life_tell_the_step_and_leave_no_trace(point_run, tmp_path, monkeypatch):
    monkeypatch.setattr("symbreak.training.record.BEAT", 0.0)
    told = []
    with Run.create(POINT, tmp_path / "run", task=point_task()) as run:
        run.advance(tick=lambda step: told.append((step, read_status(tmp_path / "run")["step"])))
    assert [step for step, _ in told] == [step for _, step in told]
    assert len(told) > len(run.rows)
    assert fingerprint(tmp_path / "run") == fingerprint(point_run)
    assert read_status(tmp_path / "run") == read_status(point_run)


def test_several_environments_are_brought_back_too(point_run, tmp_path):
    config = replace(POINT, environments=3)
    with Run.create(config, tmp_path / "whole", task=point_task()) as run:
        run.advance()
    run = Run.create(config, tmp_path / "run", task=point_task())
    for until in (1, 2, 100, 137, config.steps):
        run.advance(until)
        run.close()
        run = Run.open(tmp_path / "run", task=point_task())
    assert run.finished
    run.close()
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole") != fingerprint(point_run)
    assert json.loads((tmp_path / "run" / "status.json").read_text())["exact"]


def test_a_grid_world_has_one_environment(tmp_path):
    with pytest.raises(InputError, match="leave environments at 1"):
        train(replace(GRID, environments=2), tmp_path / "run")


def test_going_on_after_loading_compiles_nothing(point_run, tmp_path):
    run = Run.create(POINT, tmp_path / "run", task=point_task())
    run.advance(150)
    run.close()
    run = Run.open(tmp_path / "run", task=point_task())
    device = type(run.driver.loop.device)  # pyright: ignore[reportAttributeAccessIssue]
    run.advance(151)
    before = device.think._cache_size()  # pyright: ignore[reportFunctionMemberAccess]
    leaves = jax.tree.leaves(run.driver.agent_state)
    assert not any(leaf.weak_type for leaf in leaves)
    run.advance(300)
    assert device.think._cache_size() == before  # pyright: ignore[reportFunctionMemberAccess]
    run.close()


def test_metrics_are_means_over_what_was_learned_since_the_last_row(tmp_path):
    rows = train(replace(GRID, log_every=50), None)
    early = [row for row in rows if row["step"] < 100]
    assert [row["step"] for row in early] == [50]
    assert "critic/loss" not in early[0]
    assert all(row["critic/loss"] > 0 for row in rows if row["step"] >= 100)
    (total,) = train(replace(GRID, evaluations=1), None)
    # From step 100 on, one update per step: 1 in the first row that learns, then 50 in each.
    losses = [row["critic/loss"] for row in rows if row["step"] >= 100]
    updates = [1, *[50] * (len(losses) - 1)]
    assert total["critic/loss"] == pytest.approx(np.average(losses, weights=updates), rel=1e-5)


# --- directories ------------------------------------------------------------------------------------------------------


def test_a_directory_that_holds_a_run_is_not_trained_into(grid_run, tmp_path):
    with pytest.raises(InputError, match="already holds a finished run"):
        train(GRID, grid_run)
    run = Run.create(POINT, tmp_path / "run", task=point_task())
    with pytest.raises(DirectoryInUse, match=f"in use by host .*, pid {os.getpid()}"):
        Run.create(POINT, tmp_path / "run", task=point_task())
    run.close()
    with pytest.raises(InputError, match=f"continue it with: symbreak resume {tmp_path / 'run'}"):
        Run.create(POINT, tmp_path / "run", task=point_task())


def test_a_finished_run_is_left_as_it_is(grid_run):
    before = {path: path.stat().st_mtime_ns for path in grid_run.rglob("*") if path.name != "run.lock"}
    stored = [json.loads(line) for line in (grid_run / "metrics.jsonl").read_text().splitlines()]
    assert resume(grid_run) == stored
    assert [row["step"] for row in stored] == [750, 1_500]
    with Run.open(grid_run) as opened:
        assert (opened.finished, opened.rows) == (True, stored)
    after = {path: path.stat().st_mtime_ns for path in grid_run.rglob("*") if path.name != "run.lock"}
    assert before == after


def test_what_is_left_of_a_run_without_its_configuration_is_not_written_over(grid_run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(grid_run, copy)
    (copy / "config.json").unlink()
    left = sorted(path for path in copy.rglob("*") if path.name != "run.lock")
    with pytest.raises(InputError, match=r"holds checkpoints of a run without config.json; restore that, or choose"):
        Run.create(POINT, copy, task=point_task())
    assert sorted(path for path in copy.rglob("*") if path.name != "run.lock") == left
    for name in ("checkpoints", "replay"):
        shutil.rmtree(copy / name)
    with pytest.raises(InputError, match=r"holds .* of a run without config.json"):
        Run.create(POINT, copy, task=point_task())


def test_a_changed_configuration_is_noticed_from_outside(grid_run, tmp_path):
    """`evaluate` would tell the return on a task that the agent was never trained on."""
    copy = tmp_path / "run"
    shutil.copytree(grid_run, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "task": "grid-40"}))
    assert "config.json is not the one" in str(verify(copy).metrics)
    with pytest.raises(StorageFault, match=r"config.json is not the one"):
        fingerprint(copy)
    with pytest.raises(InputError, match=r"config.json is not the one"):
        load_trained(copy, get_task("grid-40"))
    (copy / "config.json").write_text(json.dumps({**config, "environment_timeout": 5.0}))  # may change
    assert verify(copy).metrics is None


def test_rows_after_the_end_of_a_run_and_lost_checkpoints_are_noticed(grid_run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(grid_run, copy)
    assert verify(copy).metrics is None
    with (copy / "metrics.jsonl").open("a") as rows:
        rows.write('{"step": 2000, "eval/return": 99.0}\n')
    assert "goes on after the end of the run" in str(verify(copy).metrics)
    with pytest.raises(StorageFault, match="goes on after the end"):
        fingerprint(copy)
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(StorageFault, match="a finished run whose checkpoints are not here"):
        fingerprint(copy)


def test_a_changed_configuration_is_refused(point_run, tmp_path):
    run = Run.create(POINT, tmp_path / "run", task=point_task())
    run.advance(120)
    run.close()
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "seed": 5}))
    with pytest.raises(InputError, match=r"config.json is not the one"):
        Run.open(tmp_path / "run", task=point_task())
    with pytest.raises(InputError, match=r"config.json is not the one"):
        read_run(tmp_path / "run", point_task())
    path.write_text(json.dumps({**config, "sede": 5}))
    with pytest.raises(InputError, match="did you mean 'seed'"):
        Run.open(tmp_path / "run", task=point_task())


def test_a_damaged_checkpoint_is_passed_over_and_a_damaged_metrics_file_is_not(point_run, tmp_path, capsys):
    directory = tmp_path / "run"
    run = Run.create(POINT, directory, task=point_task())
    run.advance(230)
    run.close()
    newest = sorted((directory / "checkpoints").iterdir())[-1] / "arrays.safetensors"
    data = bytearray(newest.read_bytes())
    data[-5] ^= 4
    newest.write_bytes(data)
    assert [status.problem is None for status in verify(directory).checkpoints] == [True, True, False]
    with Run.open(directory, task=point_task()) as run:
        assert run.step == 200
        run.advance()
    assert "passed over step-000000000230" in capsys.readouterr().err
    assert fingerprint(directory) == fingerprint(point_run)
    metrics = directory / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes().replace(b"150", b"151"))
    with pytest.raises(StorageFault, match="is not what it was"):
        fingerprint(directory)
    assert verify(directory).metrics is not None


# --- exact or said ----------------------------------------------------------------------------------------------------


def test_an_environment_that_does_not_repeat_itself_makes_a_run_inexact(tmp_path, capsys):
    run = Run.create(POINT, tmp_path / "run", task=point_task(noise=0.01))
    run.advance(130)
    run.close()
    with Run.open(tmp_path / "run", task=point_task(noise=0.01)) as run:
        run.advance()
    assert "repeating it led elsewhere" in capsys.readouterr().err
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "finished"
    assert status["exact"] is False
    assert "episode 3" in status["inexact"][0]


def test_another_number_of_cores_or_version_makes_a_run_inexact(tmp_path, capsys, monkeypatch):
    run = Run.create(POINT, tmp_path / "run", task=point_task())
    run.advance(100)
    run.close()
    monkeypatch.setattr(provenance_module, "visible_cores", lambda: 77)
    monkeypatch.setattr(provenance_module, "versions", lambda: {"jax": "0.0.1"})
    Run.open(tmp_path / "run", task=point_task()).close()
    said = capsys.readouterr().err
    assert "on 77 visible cores" in said
    assert "with jax 0.0.1" in said
    assert json.loads((tmp_path / "run" / "status.json").read_text())["exact"] is False


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "named"),
    [
        ("observation", NumericFault, r"observation\[1\] \(speed\) is nan after step 130"),
        ("reward", NumericFault, r"reward is inf after step 130"),
        ("raises", EnvironmentFault, "step 130 raised RuntimeError: the motor is broken"),
        ("shape", EnvironmentFault, r"step 130 has shape \(3,\)"),
        ("hangs", EnvironmentFault, "step 130 of the environment took longer than 0.5 s"),
    ],
)
def test_a_fault_of_the_environment_is_named_and_never_stored(tmp_path, fault, error, named):
    config = replace(POINT, environment_timeout=0.5)
    with pytest.raises(error, match=named):
        finish(config, tmp_path / "run", fault=fault, at=130)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "failed"
    assert 100 <= status["step"] < 130
    loaded = Run.open(tmp_path / "run", task=point_task(), environment_timeout=7.0)
    assert (loaded.step, loaded.watch.timeout) == (100, 7.0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(loaded.driver.save()[1]))
    loaded.close()


def test_a_mended_environment_goes_on_as_if_nothing_had_happened(point_run, tmp_path):
    with pytest.raises(EnvironmentFault):
        finish(POINT, tmp_path / "run", fault="raises", at=130)
    with Run.open(tmp_path / "run", task=point_task()) as run:
        run.advance()
    assert fingerprint(tmp_path / "run") == fingerprint(point_run)


@pytest.mark.parametrize("fault", [EnvironmentFault("it hung"), NumericFault("it returned nan")], ids=str)
def test_a_fault_of_an_evaluation_loses_nothing_of_the_training(point_run, tmp_path, fault, monkeypatch):
    run = Run.create(POINT, tmp_path / "run", task=point_task())

    def evaluate(step, pause):
        raise fault

    monkeypatch.setattr(run.driver, "evaluate", evaluate)
    with pytest.raises(type(fault), match=str(fault)), run:
        run.advance()
    assert read_status(tmp_path / "run")["state"] == "failed"
    with Run.open(tmp_path / "run", task=point_task()) as run:
        assert run.step == 150  # checkpoints are due at 100 and 200
        run.advance()
    assert fingerprint(tmp_path / "run") == fingerprint(point_run)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (point_run / "metrics.jsonl").read_bytes()


def test_divergence_stops_within_a_stretch_and_keeps_the_last_finite_checkpoint(tmp_path):
    with pytest.raises(NumericFault, match="not finite") as stop:
        train(replace(GRID, agent={**TINY, "rate": 1e30}), tmp_path / "run")
    assert stop.value.exit_code == 4
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["step"] <= 1_000
    with pytest.raises(NumericFault):  # again, from wherever a finite checkpoint was kept
        resume(tmp_path / "run")


def test_what_is_not_finite_is_never_saved(tmp_path):
    run = Run.create(POINT, tmp_path / "run", task=point_task())
    run.advance(100)
    state = run.driver.loop.state  # pyright: ignore[reportAttributeAccessIssue]
    sick = jax.tree.map(lambda leaf: leaf * jnp.nan if leaf.dtype == jnp.float32 else leaf, state.agent)
    run.driver.loop.state = type(state)(sick, state.replay, state.tally)  # pyright: ignore
    run.saved_step = -1
    with pytest.raises(NumericFault, match="of the agent is not finite at step 100"):
        run.save()
    assert [status.problem for status in verify(tmp_path / "run").checkpoints] == [None]
    run.driver.loop.state = state  # pyright: ignore[reportAttributeAccessIssue]
    run.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.ENOENT])
def test_a_disk_that_fails_leaves_older_checkpoints_intact(point_run, tmp_path, monkeypatch, number):
    run = Run.create(POINT, tmp_path / "run", task=point_task())
    run.advance(150)
    fsync = os.fsync

    def full(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFault) as stop, run:
        run.advance()
    assert stop.value.exit_code == 5
    assert "\n" not in str(stop.value)
    monkeypatch.setattr(os, "fsync", fsync)
    assert [status.problem for status in verify(tmp_path / "run").checkpoints] == [None]
    with Run.open(tmp_path / "run", task=point_task()) as run:
        run.advance()
    assert fingerprint(tmp_path / "run") == fingerprint(point_run)


def test_half_a_line_is_taken_back_and_the_run_goes_on_from_its_checkpoint(point_run, tmp_path, monkeypatch):
    run, write = Run.create(POINT, tmp_path / "run", task=point_task()), os.write

    def full(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[:9]) if bytes(data[:7]) == b'{"step"' else write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StorageFault, match="half a line"):
            run.advance()
    assert run.rows == []
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == b""
    with pytest.raises(InputError, match=r"go on from its checkpoint with Run\.open"), run:
        run.advance()  # the sums of the row are gone
    with Run.open(tmp_path / "run", task=point_task()) as run:
        run.advance()
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == (point_run / "metrics.jsonl").read_text()
    assert verify(tmp_path / "run").metrics is None


@pytest.mark.parametrize("shape", [[], [60_000], [1 << 40, 0]])
def test_the_actions_of_a_running_episode_are_bounded(shape):
    actions = array_to_json(np.zeros(0, np.int64)) | {"shape": shape}
    if shape != [1 << 40, 0]:
        actions = array_to_json(np.zeros(shape, np.int64))
    facts = {"episode": 3, "reset_seed": 1, "actions": actions, "total": 0.0}
    with pytest.raises(Damaged, match="impossible actions"):
        _read_episode(facts, np.zeros(2))
    assert len(_read_episode(facts | {"actions": array_to_json(np.zeros((5, 1)))}, np.zeros(2)).actions) == 5


def test_a_signal_during_an_evaluation_gives_it_up_and_it_is_made_after_resuming(point_run, tmp_path, monkeypatch):
    watch = Watch()
    run = Run.create(POINT, tmp_path / "run", task=point_task(), watch=watch)
    evaluate = run.driver.evaluate

    def interrupted(step, pause):
        watch.received = 15
        return evaluate(step, pause)

    monkeypatch.setattr(run.driver, "evaluate", interrupted)
    with pytest.raises(Interrupted, match=f"SIGTERM.*symbreak resume {tmp_path / 'run'}") as stop, run:
        run.advance()
    assert stop.value.exit_code == 75
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == b""
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"
    with Run.open(tmp_path / "run", task=point_task()) as run:
        assert run.step == 150
        run.advance()
    assert fingerprint(tmp_path / "run") == fingerprint(point_run)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (point_run / "metrics.jsonl").read_bytes()


# --- directories and endings ------------------------------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path) -> Path:
    """A run of three hundred steps that was left after two hundred."""
    with Run.create(POINT, tmp_path / "run", task=point_task()) as run:
        run.advance(200)
        run.save()
    return tmp_path / "run"


def test_who_was_overruled_leaves_the_new_owner_s_status_alone(begun):
    run = Run.open(begun, task=point_task())
    (begun / "run.lock").write_text('{"host":"elsewhere","pid":1}')
    (begun / "status.json").write_text('{"state": "finished", "step": 300}')
    with pytest.raises(DirectoryInUse), run:
        run.record.beat(always=True)
    assert json.loads((begun / "status.json").read_text())["state"] == "finished"


def test_an_environment_that_does_not_close_hides_nothing(tmp_path):
    with pytest.raises(EnvironmentFault, match="closing the environment raised RuntimeError: the window is gone"):
        finish(POINT, tmp_path / "run", fault="closing")
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "finished"
    with pytest.raises(NumericFault, match="lower"), Run.open(tmp_path / "run", task=point_task(fault="closing")):
        raise NumericFault("lower the rate")
    Run.open(tmp_path / "run", task=point_task()).close()  # the directory was given back each time


def test_vanished_checkpoints_are_told_and_nothing_is_overwritten(begun, tmp_path):
    before = (begun / "metrics.jsonl").read_bytes()
    (begun / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(StorageFault, match="reached step 150 and has no checkpoint"):
        Run.open(begun, task=point_task())
    assert (begun / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("part", ["checkpoints", "replay", "tensorboard"])
def test_parts_of_a_run_that_are_links_are_refused(begun, tmp_path, part):
    other = tmp_path / "other"
    (begun / part).rename(other)
    (begun / part).symlink_to(other)
    before = sorted(path.name for path in other.iterdir())
    with pytest.raises(StorageFault, match=f"{part} is a symbolic link"):
        Run.open(begun, task=point_task())
    assert sorted(path.name for path in other.iterdir()) == before


def test_a_metrics_file_that_is_a_link_is_replaced_and_not_emptied(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("do not lose me")
    with Run.create(POINT, tmp_path / "run", task=point_task()):
        pass
    (tmp_path / "run" / "metrics.jsonl").unlink()
    (tmp_path / "run" / "metrics.jsonl").symlink_to(precious)
    Run.open(tmp_path / "run", task=point_task()).close()
    assert precious.read_text() == "do not lose me"


def _without(name):
    return lambda meta: meta.pop(name)


WRONG_META = {
    **{f"no {name}": _without(name) for name in sorted(KEYS)},
    "more": lambda meta: meta.update(more=1),
    "row_step": lambda meta: meta.update(row_step="x"),
    "capacity": lambda meta: meta.update(capacity=-1),
    "inexact": lambda meta: meta.update(inexact=[1]),
    "symmetry": lambda meta: meta.update(symmetry=1),
    "totals": lambda meta: meta["ledger"].update(totals=[1]),
    "counts": lambda meta: meta["ledger"].update(counts={"a": "b"}),
    "chain": lambda meta: meta["ledger"].update(chain=1),
    "folded": lambda meta: meta["ledger"].update(folded=-1),
    "environment": lambda meta: meta.update(environment={"episodes": []}),
}


@pytest.mark.parametrize("change", WRONG_META.values(), ids=list(WRONG_META))
def test_a_checkpoint_with_facts_that_no_run_saves_is_refused(point_run, tmp_path, change, monkeypatch):
    """As if somebody had written and sealed it: all checksums fit."""
    directory = tmp_path / "run"
    shutil.copytree(point_run, directory)
    load = Checkpoints.load

    def changed(self, trees):
        loaded = load(self, trees)
        change(loaded.meta)
        return loaded

    monkeypatch.setattr(Checkpoints, "load", changed)
    with pytest.raises(StorageFault):
        Run.open(directory, task=point_task())
    if change is not WRONG_META["environment"]:  # that is the business of its driver, which only a run has
        assert verify(directory).metrics is not None


def test_actions_that_are_remembered_fit_into_a_checkpoint():
    for copies, dimensions in ((1, 1), (4, 8), (2, 17), (1, 32), (16, 32)):
        most = remembered(copies, 4 * dimensions)
        assert 0 < most <= MOST_ACTIONS
        text = 4 / 3 * most * copies * 4 * dimensions
        assert text < MOST_JSON - (2 << 20)
    assert remembered(1, 4) == MOST_ACTIONS


def test_an_episode_longer_than_what_is_remembered_begins_anew_and_says_so(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("symbreak.training.hosted.remembered", lambda *sizes: asked.append(sizes) or 5)
    Run.create(replace(POINT, environments=2), tmp_path / "run", task=point_task()).close()
    assert asked == [(2, 4)]  # copies, and bytes of one action
    with Run.create(POINT, tmp_path / "long", task=point_task()) as run:
        run.advance(20)  # of an episode of forty
        run.save()
    with Run.open(tmp_path / "long", task=point_task()) as run:
        assert "it was too long to repeat" in run.record.inexact[0]
