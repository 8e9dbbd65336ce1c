"""Agents as objects: they learn, predict, are saved and loaded, and are the runs that the command line makes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import symbreak
from symbreak.errors import EnvironmentFault, InputError, Interrupted, StorageFault
from symbreak.symmetry import Layout, Symmetry, Z
from symbreak.training.evaluate import greedy_policy
from symbreak.training.gate_record import read_gate_record
from symbreak.training.inspection import fingerprint, verify
from symbreak.training.record import read_status
from symbreak.training.run import Run, RunConfig

mirror = Z(2)
PUSHED = Symmetry(
    observation=Layout({"place": mirror.sign, "speed": mirror.sign}),
    action=Layout({"push": mirror.sign}),
    name="mirror",
)
CHOSEN = Symmetry(
    observation=Layout({"place": mirror.sign, "speed": mirror.sign}),
    action=Layout({"left right": mirror.permutation("sides", [[1, 0]])}),
    discrete=True,
    name="mirror",
)
TINY = {"width": 8, "batch": 8, "learning_starts": 20, "episodes": 1, "evaluations": 2}
WIDER = {**TINY, "width": 16}  # what two experts need
GATE = {"width": 8, "predictor_width": 8, "warmup": 30}


class Point(gym.Env):
    """A point that is pushed, by a bounded force or to one of two sides; bounds that are not ±1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, discrete: bool = False, render_mode: str | None = None):
        self.discrete, self.render_mode = discrete, render_mode
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-3.0, 3.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.uniform(-1, 1, 2)
        return self.place.astype(np.float32), {}

    def step(self, action):
        push = 2.0 * action - 1.0 if self.discrete else float(action[0]) / 3
        assert abs(push) <= 1.0
        self.time += 1
        self.place = 0.9 * self.place + 0.1 * np.array([push, self.place[0]])
        return self.place.astype(np.float32), float(-abs(self.place[0])), False, self.time >= 15, {"is_success": True}

    def render(self):
        picture = np.full((64, 64, 3), 255, np.uint8)
        column = int(np.clip(32 + 25 * self.place[0], 2, 61))
        picture[28:36, column - 2 : column + 3] = (200, 40, 40)
        return picture


class Sides(Point):
    def __init__(self, render_mode: str | None = None):
        super().__init__(discrete=True, render_mode=render_mode)


def small(method: str = "vanilla", **settings):
    return symbreak.SAC(Point, PUSHED, method=method, **TINY, **settings)


@pytest.fixture(scope="module")
def learned():
    return small(seed=3).learn(60)


@pytest.fixture(scope="module")
def gated():
    return symbreak.SAC(Point, PUSHED, gate=GATE, **WIDER).learn(60)


def test_an_agent_learns_predicts_and_is_evaluated(learned):
    assert learned.num_timesteps == 60
    assert [row["step"] for row in learned.rows] == [30, 60]
    one, state = learned.predict(np.array([0.5, -0.2]))
    assert state is None
    assert one.shape == (1,)
    assert one.dtype == np.float32
    many, _ = learned.predict(np.array([[0.5, -0.2], [-0.5, 0.2], [0.0, 0.0]]))
    assert many.shape == (3, 1)
    np.testing.assert_allclose(many[0], one, atol=1e-6)
    assert np.all(np.abs(many) <= 3.0)
    again, _ = learned.predict(np.array([0.5, -0.2]))
    np.testing.assert_array_equal(again, one)
    noisy = [learned.predict(np.array([0.5, -0.2]), deterministic=False)[0].item() for _ in range(2)]
    assert noisy[0] != noisy[1]  # a control: not everything is deterministic
    result = learned.evaluate(episodes=3, seed=1)
    assert len(result.returns) == 3
    assert result.success == 1.0
    assert result.gate_use is None
    assert result.returns == learned.evaluate(episodes=3, seed=1).returns
    assert result.returns != learned.evaluate(episodes=3, seed=2).returns
    assert "return" in str(result)
    assert "\n" not in repr(result)
    assert len(repr(result)) < 200  # not every reward
    assert len(repr(result.episodes[0])) < 60


def test_a_gate_that_is_drawn_in_evaluations_is_drawn_in_predictions_too():
    agent = symbreak.SAC(Point, PUSHED, method="partial-fixed", **{**TINY, "width": 16}).learn(30)
    run, here = agent._run, np.array([0.5, -0.2])
    assert len({agent.predict(here)[0].item() for _ in range(9)}) == 1  # a control: nothing is drawn
    drawn = replace(run.agent.method, routing="hard", sample_when_evaluating=True)
    run.agent = replace(run.agent, method=drawn)
    agent._acting.clear()
    calls = [agent.predict(here)[0].item() for _ in range(40)]
    rows = agent.predict(np.tile(here, (40, 1)))[0][:, 0]
    assert len(set(calls)) == 2  # one expert or the other
    assert 8 <= calls.count(calls[0]) <= 32  # as a coin falls but for one time in 10,000
    assert len({round(row, 4) for row in rows.tolist()}) == 2
    policy = greedy_policy(agent.trained)
    assert len({round(policy(here).item(), 4) for _ in range(40)}) == 2


def test_an_episode_that_never_ends_is_a_fault_of_the_environment(learned, monkeypatch):
    from symbreak.training.evaluate import show_episode

    monkeypatch.setattr("symbreak.training.guarded.LONGEST_EPISODE", 14)  # they have 15 steps
    with pytest.raises(EnvironmentFault, match="no end of an episode within 14 steps"):
        learned.evaluate(episodes=1)
    with pytest.raises(EnvironmentFault, match="no end of an episode within 14 steps"):
        show_episode(learned.trained, 0, lambda picture: None)
    monkeypatch.setattr("symbreak.training.guarded.LONGEST_EPISODE", 15)
    learned.evaluate(episodes=1)


def test_actions_are_scaled_to_the_bounds(learned):
    action = learned.predict(np.array([0.5, -0.2]))[0]
    raw = learned.trained.act(np.array([0.5, -0.2], np.float32), jax.random.key(0))[0]
    np.testing.assert_allclose(action, 3.0 * raw, rtol=1e-5)


def test_it_is_the_run_of_the_command_line(learned, tmp_path):
    from symbreak.training.choice import choose_task

    learned.save(tmp_path / "python")
    task = choose_task(Point, PUSHED, 60)
    agent = {name: TINY[name] for name in ("width", "batch", "learning_starts")}
    config = RunConfig("Point", "vanilla", "mirror", steps=60, seed=3, evaluations=2, episodes=1, agent=agent)
    with Run.create(config, tmp_path / "other", task=task) as run:
        run.advance()
    assert fingerprint(tmp_path / "python") == fingerprint(tmp_path / "other")
    for name in ("config.json", "metrics.jsonl", "status.json"):
        assert (tmp_path / "python" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    assert [status.problem for status in verify(tmp_path / "python").checkpoints] == [None]
    with Run.create(RunConfig(**{**config.to_json(), "seed": 4}), tmp_path / "third", task=task) as run:
        run.advance()
    assert fingerprint(tmp_path / "python") != fingerprint(tmp_path / "third")


def test_learning_goes_on_and_budgets_stay(tmp_path, monkeypatch):
    agent = small(seed=1)
    agent.learn(60)
    assert agent.trained.agent.config.capacity == 60  # from the budget
    agent.learn(20)
    assert agent.num_timesteps == agent.config.steps == 80
    assert agent.config.agent["capacity"] == agent.trained.agent.config.capacity == 60
    assert agent.rows[-1]["step"] == 80
    agent.save(tmp_path / "run")
    loaded = symbreak.load(tmp_path / "run", env=Point, symmetry=PUSHED)
    assert loaded.num_timesteps == 80
    assert loaded.rows == agent.rows
    observation = np.array([[0.3, 0.1], [1.0, -1.0]])
    np.testing.assert_array_equal(loaded.predict(observation)[0], agent.predict(observation)[0])
    # What is loaded goes on as what was never saved.
    loaded.learn(20)
    agent.learn(20)
    np.testing.assert_array_equal(loaded.predict(observation)[0], agent.predict(observation)[0])
    before = loaded.predict(observation)[0]
    loaded.learn(20)
    assert not np.array_equal(loaded.predict(observation)[0], before)
    # Its own run is replaced, and nothing else of the directory; another run's never.
    (tmp_path / "run" / "notes.md").write_text("kept")
    (tmp_path / "run" / "pictures").mkdir()
    (tmp_path / ".run.former-1").mkdir()  # of a save that was killed
    (tmp_path / ".run.former-1" / "draft.md").write_text("brought back")
    loaded.save(tmp_path / "run")
    assert (tmp_path / "run" / "draft.md").read_text() == "brought back"
    (tmp_path / ".run.former-2").mkdir()
    (tmp_path / ".run.former-2" / "draft.md").write_text("another")  # neither takes the other's place
    listed = Path.glob  # in any order; here the one left over comes before the one of this very save
    with monkeypatch.context() as patched:
        patched.setattr(Path, "glob", lambda *given: sorted(listed(*given), reverse=True))
        loaded.save(tmp_path / "run")
    assert (tmp_path / "run" / "draft.md").read_text() == "brought back"
    assert (tmp_path / ".run.former-2" / "draft.md").read_text() == "another"
    shutil.rmtree(tmp_path / ".run.former-2")
    assert (tmp_path / "run" / "notes.md").read_text() == "kept"
    assert (tmp_path / "run" / "pictures").is_dir()
    assert json.loads((tmp_path / "run" / "status.json").read_text())["step"] == 120
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    # A disk that fails in the last moment leaves the run that was there.
    rename = os.rename

    def failing(source, target):
        if ".saving-" in str(source):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing)
        with pytest.raises(StorageFault):
            loaded.save(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert (tmp_path / "run" / "notes.md").read_text() == "kept"
    with pytest.raises(InputError, match="already holds a finished run"):
        small(budget=60).learn(25).save(tmp_path / "run")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.tex").write_text("kept")
    with pytest.raises(InputError, match="holds other files and no run"):
        loaded.save(tmp_path / "thesis")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["text.tex"]
    (tmp_path / "full" / "checkpoints").mkdir(parents=True)  # as a save leaves it that ran out of space
    assert loaded.save(tmp_path / "full").is_dir()


def test_a_budget_larger_than_the_first_learn_leaves_a_run_to_be_resumed(tmp_path):
    agent = small(budget=60)
    agent.learn(25)
    agent.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["steps"] == 60
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"
    from symbreak.training.choice import choose_task

    with Run.open(tmp_path / "run", task=choose_task(Point, PUSHED, 60)) as run:
        assert run.step == 25
        run.advance()
    agent.learn(35)
    agent.save(tmp_path / "whole")
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")


def test_a_callback_sees_the_rows_and_may_stop():
    seen = []
    agent = small(log_every=10)
    agent.learn(60, callback=lambda row: seen.append(row["step"]) or len(seen) < 3)
    assert seen == [10, 20, 30]
    assert agent.num_timesteps == 30
    agent.learn(10, callback=lambda row: seen.append(row["step"]))  # None does not stop
    assert agent.num_timesteps == 40


def test_progress_is_shown_on_request(capsys, monkeypatch):
    monkeypatch.setattr("symbreak.progress.LINE", float("inf"))
    small(budget=60).learn(25)
    assert capsys.readouterr().out == ""
    small(budget=60).learn(25, progress_bar=True)
    assert capsys.readouterr().out == "vanilla on Point: 25 steps\n"


def test_progress_moves_with_the_steps(capsys, monkeypatch):
    monkeypatch.setattr("symbreak.progress.LINE", 0.0)
    small(budget=60).learn(25, progress_bar=True)
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "step 1/25  random steps"
    assert "step 19/25  compiling…" in told
    assert told[-1].startswith("step 25/25  ")
    assert told[-1].endswith("/s  0:00:00 left")


def test_a_refused_learn_leaves_the_agent_as_it_was(monkeypatch):
    agent = small()
    before = (agent.budget, agent.config, agent.task)
    for wrong in (2.5, 0.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=f"total_timesteps is {wrong}; use a whole number"):
            agent.learn(wrong)

    def refuse(*_, **__):
        raise InputError("not today")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "create", refuse)
        with pytest.raises(InputError, match="not today"):
            agent.learn(60)
    assert (agent.budget, agent.config, agent.task) == before
    assert agent.learn(2.5e1).num_timesteps == 25
    assert (agent.budget, type(agent.budget)) == (25, int)
    assert small(budget=6e1).config.steps == 60


@pytest.mark.slow
def test_dqn_with_a_gate():
    agent = symbreak.DQN(lambda: Sides(), CHOSEN, seed=0, gate=GATE, **TINY).learn(60)
    action, _ = agent.predict(np.array([0.5, -0.2]))
    assert action.dtype == np.int64
    assert Sides().action_space.contains(action)
    assert agent.predict(np.zeros((5, 2)))[0].shape == (5,)
    result = agent.evaluate(2)
    assert 0.0 <= result.gate_use <= 1.0
    assert all(0.0 <= p <= 1.0 for episode in result.episodes for p in episode.probabilities)
    gate, state, here = agent._run.agent.gate, agent._run.driver.agent_state.gate, np.array([0.5, -0.2], np.float32)
    expected = gate.of_actions(state, jnp.asarray(here))
    assert abs(expected[0] - expected[1]) > 1e-6
    np.testing.assert_allclose(agent.gate(np.stack([here, here]), [0, 1]), expected, atol=1e-6)
    assert agent.gate(here, action) == pytest.approx(expected[int(action)], abs=1e-6)
    for wrong in (2, -1, 0.5, [0], np.nan):
        with pytest.raises(InputError, match="give"):
            agent.gate(here, wrong)


def test_the_gate_answers_for_actions_as_the_environment_takes_them(gated):
    gate, state = gated._run.agent.gate, gated._run.driver.agent_state.gate
    rng = np.random.default_rng(0)
    observations, raw = rng.uniform(-1, 1, (6, 2)).astype(np.float32), rng.uniform(-1, 1, (6, 1)).astype(np.float32)
    expected = np.asarray(jax.vmap(lambda s, a: gate.of_pair(state, s, a))(observations, raw))
    assert np.ptp(expected) > 1e-4
    np.testing.assert_allclose(gated.gate(observations, 3.0 * raw), expected, atol=1e-5)
    assert np.abs(gated.gate(observations, raw) - expected).max() > 1e-5  # a control: bounds are ±3
    one = gated.gate(observations[2], 3.0 * raw[2])
    assert isinstance(one, float)
    assert one == pytest.approx(expected[2], abs=1e-5)
    action, _ = gated.predict(observations)
    assert gated.gate(observations, action).shape == (6,)


def test_pairs_that_do_not_fit_and_methods_without_a_gate(gated, learned):
    here = np.array([0.5, -0.2])
    wrong = {
        "shape": ([[0.0], [0.0]], here, r"shape \(2, 1\); give one for each observation, shape \(1,\)"),
        "bounds": ([3.1], here, "outside of Box"),
        "infinite": ([np.nan], here, "outside of Box"),
        "words": (["left"], here, "no numbers"),
        "observation": ([0.0], [0.5], "have 2 numbers"),
        "field": ([0.0], [0.5, np.inf], "speed"),
    }
    for action, observation, message in wrong.values():
        with pytest.raises(InputError, match=message) as refused:
            gated.gate(observation, action)
        assert "\n" not in str(refused.value)
    assert 0 < gated.gate(here, [3.0]) < 1  # a control: the bound itself is inside
    with pytest.raises(InputError, match="vanilla has no gate"):
        learned.gate(here, [0.0])


def test_a_saved_agent_tells_where_its_gate_opens_and_what_to_think_of_it(gated, tmp_path):
    gated.save(tmp_path / "run")
    record = read_gate_record(tmp_path / "run")
    assert record.pairs == 60
    assert {entry.names[0] for entry in record.entries} == {"place", "speed", "push (action)"}
    push = next(entry for entry in record.entries if entry.names == ("push (action)",))
    assert -3 <= push.edges[0][0] < -1.5  # in the environment's own bounds
    notes = read_status(tmp_path / "run")["notes"]
    assert notes[:2] == ["reward symmetry unchecked", "termination symmetry unchecked"]
    assert notes[2].startswith("the predictor explains ")  # sixty steps teach nothing
    symbreak.load(tmp_path / "run", env=Point, symmetry=PUSHED).save(tmp_path / "again")
    for name in ("gate.json", "status.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_our_own_tasks_by_name_and_vector_environments():
    assert symbreak.DQN("grid-20").task.name == "grid-20"
    one = symbreak.SAC(gym.make_vec("Pendulum-v1", num_envs=1), pendulum(), budget=100)
    assert one.task.name == "Pendulum-v1"
    assert one.task.random_steps == 10
    assert one.config.environments == 1
    three = symbreak.SAC(gym.make_vec("Pendulum-v1", num_envs=3), pendulum())
    assert (three.task.name, three.config.environments) == ("Pendulum-v1", 3)
    own = symbreak.SAC(gym.vector.SyncVectorEnv([Point, Point]), PUSHED)
    assert (own.task.name, own.config.environments) == (symbreak.SAC(Point, PUSHED).task.name, 2)


def pendulum() -> Symmetry:
    return Symmetry(
        observation=Layout({"cosine": mirror.trivial, "sine": mirror.sign, "rate": mirror.sign}),
        action=Layout({"torque": mirror.sign}),
    )


MISTAKES = {
    "algorithm": (lambda: symbreak.DQN(Point, PUSHED), "continuous: use symbreak.SAC"),
    "method": (lambda: symbreak.SAC(Point, PUSHED, method="partal"), "did you mean partial"),
    "setting": (lambda: symbreak.SAC(Point, PUSHED, widht=8), "did you mean 'width'"),
    "gate setting": (lambda: symbreak.SAC(Point, PUSHED, gate={"warm_up": 8}), "did you mean 'warmup'"),
    "value": (lambda: symbreak.SAC(Point, PUSHED, batch=0), "batch is 0; use 1 or more"),
    "id": (lambda: symbreak.SAC("Pendulum-v7", pendulum()), "Pendulum-v1"),
    "task": (lambda: symbreak.DQN("grid-2O"), "did you mean grid-20"),
    "no symmetry": (lambda: symbreak.SAC("Pendulum-v1"), "give a Symmetry"),
    "size": (lambda: symbreak.SAC("Pendulum-v1", PUSHED), r"has 3 entries, the symmetry 2 \(place 1, speed 1\)"),
    "budget": (lambda: symbreak.SAC(Point, PUSHED, budget=0), "budget is 0"),
    "early": (lambda: symbreak.SAC(Point, PUSHED).predict(np.zeros(2)), "call learn"),
    "instance": (lambda: symbreak.SAC(Point(), PUSHED), "pass the class or a function"),
    "no run": (lambda: symbreak.load("nowhere"), "holds no run"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_do(name):
    make, told = MISTAKES[name]
    with pytest.raises(InputError, match=told) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_observations_and_runs_that_do_not_fit(learned, tmp_path):
    with pytest.raises(InputError, match="have 2 numbers"):
        learned.predict(np.zeros(3))
    with pytest.raises(InputError, match=r"observation\[1\] \(speed\) is nan; give finite numbers"):
        learned.predict(np.array([0.5, np.nan]))
    with pytest.raises(InputError, match=r"observation\[2, 0\] \(place\) is inf"):
        learned.predict(np.array([[0.5, 0.1], [0.5, 0.1], [1e300, np.nan]]))
    for words in ("far", [[0.5, 0.1], [0.5]], {"place": 0.5}):
        with pytest.raises(InputError, match="the observation is no array of 2 numbers"):
            learned.predict(words)
    for steps in (0, 2.5, np.inf, np.nan):
        with pytest.raises(InputError, match=f"total_timesteps is {steps}; use a whole number"):
            learned.learn(steps)
    learned.save(tmp_path / "run")
    with pytest.raises(InputError, match="a run never stores what to import"):
        symbreak.load(tmp_path / "run")
    with pytest.raises(InputError, match="is about Point, not Sides"):
        symbreak.load(tmp_path / "run", env=Sides, symmetry=CHOSEN)


class Loose(Point):
    """Its cable comes off when it is pulled."""

    pulled = False

    def step(self, action):
        if self.pulled:
            raise RuntimeError("cable loose")
        return super().step(action)


def test_a_fault_in_the_middle_of_a_step_costs_nothing_that_was_saved(tmp_path, monkeypatch):
    agent = symbreak.SAC(Loose, PUSHED, method="vanilla", **TINY).learn(40)
    agent.save(tmp_path / "run")
    before = fingerprint(tmp_path / "run")
    monkeypatch.setattr(Loose, "pulled", True)
    with pytest.raises(EnvironmentFault, match="cable loose"):
        agent.learn(20)
    for attempt in (lambda: agent.save(tmp_path / "run"), lambda: agent.save(tmp_path / "new"), lambda: agent.learn(5)):
        with pytest.raises(InputError, match=r"broke off after step 4\d; load what was saved"):
            attempt()
    assert not (tmp_path / "new").exists()
    assert fingerprint(tmp_path / "run") == before
    monkeypatch.setattr(Loose, "pulled", False)
    assert symbreak.load(tmp_path / "run", Loose, PUSHED).learn(20).num_timesteps == 60


def test_a_save_that_fails_is_no_obstacle_to_the_next(learned, tmp_path, monkeypatch):
    def full(*_, **__):
        raise StorageFault("no space")

    with monkeypatch.context() as patched:
        patched.setattr(Run, "save", full)
        with pytest.raises(StorageFault, match="no space"):
            learned.save(tmp_path / "run")
    assert not any((tmp_path / "run").iterdir())
    learned.save(tmp_path / "run")
    assert verify(tmp_path / "run").good == 1


def test_last_and_best_may_be_saved_in_turns(tmp_path):
    agent = small().learn(30)
    for name in ("last", "best", "last"):
        agent.save(tmp_path / name)
    other = small().learn(30)
    with pytest.raises(InputError, match="holds a"):
        other.save(tmp_path / "last")


def test_after_an_interruption_one_can_go_on(tmp_path):
    agent = small(log_every=10)

    def interrupt(row):
        if row["step"] == 20:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)  # until the thread has taken note

    with pytest.raises(Interrupted, match="stopped by SIGINT, nothing is lost; learn again to go on, or save"):
        agent.learn(60, callback=interrupt)
    stopped = agent.num_timesteps
    assert 20 <= stopped < 60
    agent.learn(60 - stopped)
    agent.save(tmp_path / "interrupted")
    small(log_every=10).learn(60).save(tmp_path / "whole")
    assert fingerprint(tmp_path / "interrupted") == fingerprint(tmp_path / "whole")


def test_loading_says_what_it_passed_over(tmp_path, capsys):
    run = symbreak.SAC(Point, PUSHED, method="vanilla", **TINY).learn(20).save(tmp_path / "run")
    symbreak.load(run, Point, PUSHED).learn(20).save(tmp_path / "other")
    later = tmp_path / "other" / "checkpoints" / "step-000000000040"
    assert later.is_dir()
    capsys.readouterr()
    symbreak.load(run, Point, PUSHED)
    assert "warning" not in capsys.readouterr().err
    broken = run / "checkpoints" / later.name
    shutil.copytree(run / "checkpoints" / "step-000000000020", broken)
    assert symbreak.load(run, Point, PUSHED).num_timesteps == 20
    assert "warning: passed over step-000000000040" in capsys.readouterr().err


def test_no_episodes_are_refused(learned):
    with pytest.raises(InputError, match="episodes is 0; use a whole number, 1 or more"):
        learned.evaluate(episodes=0)


def test_what_a_type_checker_would_tell_is_told_in_one_line_too():
    """Outside of these tests, which check types themselves."""
    program = """
import symbreak
from symbreak.errors import InputError

def told(call):
    try:
        call()
    except InputError as error:
        print(error)

agent = symbreak.DQN("grid-20")
told(lambda: agent.learn("5"))
told(lambda: agent.learn(None))
told(lambda: agent.evaluate(episodes="3"))
told(lambda: agent.evaluate(seed=1.5))
told(lambda: (symbreak.C(2), symbreak.C(2.0)))
told(lambda: symbreak.D("3"))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        "total_timesteps is '5'; use a whole number of environment steps, 1 or more",
        "total_timesteps is None; use a whole number of environment steps, 1 or more",
        "episodes is '3'; use a whole number, 1 or more",
        "seed is 1.5; use a whole number, 0 or more",
        "C(2.0): a cyclic group needs a whole number n ≥ 2",
        "D('3'): a dihedral group needs a whole number n ≥ 3; for less use Z(2) or a product",
    ]


def test_audit_is_a_function_and_a_package():
    report = symbreak.audit("swimmer", "exact", states=10)
    assert report.verdict == "exact"
    assert "<table>" in report._repr_html_()
    assert report.plot().axes
    import symbreak.audit as package

    assert package("swimmer", "paper", states=10).verdict == "not a symmetry"
    assert package.audit is not None
    assert symbreak.audit is package  # after the import, and callable all the same


def test_importing_the_package_is_light():
    script = "import sys, symbreak; symbreak.SAC; symbreak.audit; print({'jax', 'gymnasium'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
