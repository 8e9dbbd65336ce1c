"""`symbreak evaluate`: the agent of a run in numbers and as a film, for our tasks and for a user's own."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import imageio.v3 as imageio
import jax
import numpy as np
import pytest

from symbreak import cli
from symbreak.agents.methods import METHODS
from symbreak.commands.weights_and_biases import rows_to_wandb
from symbreak.errors import InputError, SymbreakError
from symbreak.tasks import get_task
from symbreak.training.drivers import CompiledDriver
from symbreak.training.evaluate import CHOICES, Episode, Evaluation, chosen_by, evaluate, load_trained, played_seed
from symbreak.training.guarded import GuardedEnvironment
from symbreak.training.seats import reset_seed
from symbreak.training.settings import RunConfig
from symbreak.training.video import EQUIVARIANT, FREE, HEIGHT, PANEL, frames

TINY = ("--set", "agent.width=8", "agent.batch=8", "agent.learning_starts=20")
SHORT = ("--steps", "60", "--evaluations", "1", "--episodes", "2", "--quiet")
ROBOT = """
import gymnasium as gym
import numpy as np
from symbreak import Layout, Symmetry, Z

mirror = Z(2)
SYMMETRY = Symmetry(
    observation=Layout({"place": mirror.sign, "speed": mirror.sign}), action=Layout({"push": mirror.sign}), name="mine"
)
OTHER = Symmetry(
    observation=Layout({"place": mirror.trivial, "speed": mirror.sign}), action=Layout({"push": mirror.sign})
)
FALSE = Symmetry(observation=OTHER.observation, action=OTHER.action, name="mine")
WIDE = Symmetry(observation=Layout({"place": 3 * mirror.sign}), action=Layout({"push": mirror.sign}))
"""
PACKAGE = """
import gymnasium as gym
import numpy as np


class Cart(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.state = 0, self.np_random.uniform(-1, 1, 2)
        return self.state.astype(np.float32), {}

    def get_state(self):
        return self.state.copy()

    def set_state(self, state):
        self.state = np.array(state)

    def step(self, action):
        self.time += 1
        self.state = 0.9 * self.state + 0.1 * np.array([float(action[0]) / 2, self.state[0]])
        return self.state.astype(np.float32), float(-abs(self.state[0])), False, self.time >= 10, {}


gym.register("SomeCart-v0", Cart)
"""


def run(monkeypatch, capsys, *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["symbreak", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


@pytest.fixture(scope="module", autouse=True)
def no_maps():
    """What a report shows of a grid-world is tested elsewhere, and takes long to draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledDriver, "write_maps", lambda self, directory: None)
        yield


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A directory with a user's file and package, and the flags that name them."""
    (tmp_path / "my_robot.py").write_text(ROBOT)
    (tmp_path / "some_carts.py").write_text(PACKAGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return ("--symmetry", "my_robot.py:SYMMETRY", "--env-import", "some_carts")


@pytest.fixture(scope="module")
def grid_run(tmp_path_factory) -> Path:
    from symbreak.training.run import RunConfig, train

    directory = tmp_path_factory.mktemp("runs") / "grid"
    agent = {"width": 8, "batch": 8, "learning_starts": 20}
    # Two experts and a gate that has nothing to learn: compiles in a fraction of the time.
    train(RunConfig("grid-20", "partial-fixed", steps=60, evaluations=1, episodes=2, agent=agent), directory)
    return directory


@pytest.mark.slow
def test_a_grid_world_in_numbers_and_as_films(grid_run, monkeypatch, capsys, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in grid_run.rglob("*")}
    arguments = ("evaluate", grid_run, "--episodes", 2, "--video", tmp_path / "film.gif")
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert (code, err) == (0, "")
    assert "partial-fixed on grid-20, step 60: return" in out
    assert "success" in out
    assert "the free expert acted on" in out
    film = imageio.imread(tmp_path / "film.gif")
    assert film.shape[1:] == (HEIGHT, HEIGHT + PANEL, 3)
    assert (film[0, :, HEIGHT:] != film[-1, :, HEIGHT:]).any()  # the strip moves
    code, out, _ = run(
        monkeypatch, capsys, "evaluate", grid_run, "--episodes", 2, "--json", "--video", tmp_path / "film.mp4"
    )
    values = json.loads(out)
    assert code == 0
    assert len(values["returns"]) == values["episodes"] == 2
    assert values["gate_probability"] == values["gate_use"] == 0.5
    assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"
    assert before == {path: path.stat().st_mtime_ns for path in grid_run.rglob("*")}  # looked at, not touched


def test_the_experts_of_an_agent_can_be_asked_without_its_gate(grid_run, monkeypatch, capsys):
    trained = load_trained(grid_run, get_task("grid-20"))
    assert chosen_by(trained, "own") is trained
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (40, 4)).astype(np.float32)
    equivariant, free = (jax.vmap(expert.model)(observations) for expert in trained.state.experts)
    expected = {"equivariant": equivariant, "free": free}
    assert (np.argmax(equivariant, axis=1) != np.argmax(free, axis=1)).any()
    for gate, values in expected.items():
        other = chosen_by(trained, gate)
        acted = [other.act(observation, jax.random.key(i)) for i, observation in enumerate(observations)]
        assert [int(action) for action, _, _ in acted] == np.argmax(values, axis=1).tolist()
        assert {float(used) for _, used, _ in acted} == {float(gate == "free")}
    used = {
        gate: [
            chosen_by(trained, gate).act(observation, jax.random.key(i))[1]
            for i, observation in enumerate(observations)
        ]
        for gate in ("own", "drawn", "decided", "coin")
    }
    assert set(used["own"]) == {0.5}  # a fixed mixture
    assert set(used["drawn"]) == set(used["coin"]) == {0.0, 1.0}
    assert set(used["decided"]) == {0.0}  # of one half nobody says that it is more
    single = replace(trained, agent=replace(trained.agent, method=METHODS["exact"]))
    with pytest.raises(InputError, match="has one expert"):
        chosen_by(single, "free")
    with pytest.raises(InputError, match="gate 'fre' is none of own, drawn"):
        chosen_by(trained, "fre")
    code, out, _ = run(monkeypatch, capsys, "evaluate", grid_run, "--episodes", 2, "--gate", "free")
    assert code == 0
    assert "step 60, gate free: return" in out
    assert "the free expert acted on 100 % of steps" in out
    code, _, err = run(monkeypatch, capsys, "evaluate", "nowhere", "--gate", "fre")  # before it looks for the run
    assert code == 2
    assert all(repr(word) in err for word in CHOICES)


def test_no_played_episode_begins_as_one_of_the_training_did():
    trained = {reset_seed(seed, number) for seed in range(3) for number in range(2_000)}
    played = {played_seed(seed, number) for seed in range(3) for number in range(100)}
    assert len(played) == 300
    assert not trained & played


def test_a_share_of_moves_can_be_random(grid_run, monkeypatch, capsys):
    trained = load_trained(grid_run, get_task("grid-20"))

    class Leftwards(type(trained)):
        def act(self, observation, key):
            return np.asarray(1, np.int32), 0.0, 0.0

    made, step = [], GuardedEnvironment.step

    def watched(self, action, number):
        made.append(int(action))
        return step(self, action, number)

    monkeypatch.setattr(GuardedEnvironment, "step", watched)
    always_left = Leftwards(**vars(trained))
    for share in (0.0, 0.4, 1.0):
        made.clear()
        returns = evaluate(always_left, 20, random=share).returns
        counts = np.bincount(made, minlength=4) / len(made)
        np.testing.assert_allclose(counts, share / 4 + (1 - share) * np.array([0, 1, 0, 0]), atol=0.06)
    assert evaluate(always_left, 4, random=1.0).returns == returns[:4]
    assert evaluate(always_left, 4, seed=1, random=1.0).returns != returns[:4]
    with pytest.raises(InputError, match="no share of random moves"):
        evaluate(trained, random=1.5)
    code, out, _ = run(monkeypatch, capsys, "evaluate", grid_run, "--episodes", 2, "--random", 0.25)
    assert code == 0
    assert "step 60, 0.25 of moves random: return" in out


def test_a_strip_shows_who_acted_and_veils_what_comes():
    episode = Episode((0.0,) * 8, (0, 0, 0, 0, 1, 1, 1, 1), (0.1,) * 4 + (0.9,) * 4, None)
    pictures = [np.zeros((HEIGHT, 100, 3), np.uint8)] * 8
    film = list(frames(pictures, episode, "title", gated=True))
    first, last = (np.unique(frame[:, 100:].reshape(-1, 3), axis=0).tolist() for frame in (film[0], film[-1]))
    free, equivariant = ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (FREE, EQUIVARIANT))
    assert free in last
    assert equivariant in last
    assert free not in first  # comes later


def test_numbers_are_of_the_episodes():
    episodes = (Episode((1.0, 2.0), (0.0, 1.0), (0.2, 0.8), 1.0), Episode((5.0,), (1.0,), (0.6,), 0.0))
    values = Evaluation(episodes, gated=True).to_dict()
    assert values["return"] == 4.0
    assert values["return_error"] == 1.0
    assert values["success"] == 0.5
    assert values["gate_use"] == pytest.approx(2 / 3)
    alone = Evaluation(episodes[:1], gated=False)
    assert alone.to_dict()["gate_use"] is None
    assert "expert" not in str(alone)


def test_a_users_environment_from_training_to_audit(own, monkeypatch, capsys, tmp_path):
    train = ("train", "SomeCart-v0", "--method", "vanilla", *own, *SHORT, *TINY, "--out", "run")
    assert run(monkeypatch, capsys, *train)[0] == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["task"], config["symmetry"]) == ("SomeCart-v0", "mine")
    assert "my_robot" not in json.dumps(config)  # nothing to import is stored
    assert "some_carts" not in json.dumps(config)
    assert run(monkeypatch, capsys, "evaluate", "run", *own)[0] == 0
    code, _, err = run(monkeypatch, capsys, "evaluate", "run")
    assert code == 2
    assert "a run never stores what to import; give it again: --symmetry file.py:NAME" in err
    assert len(err.splitlines()) == 1
    for name, exit_code, told in (("OTHER", 2, "started under symmetry 'mine'"), ("FALSE", 2, "another symmetry")):
        code, _, err = run(monkeypatch, capsys, "evaluate", "run", "--symmetry", f"my_robot.py:{name}")
        assert code == exit_code
        assert told in err
    code, out, _ = run(monkeypatch, capsys, "audit", "SomeCart-v0", *own, "--run", "run", "--states", 20, "--json")
    assert json.loads(out)["verdict"] == "exact"
    assert code == 0
    code, _, err = run(monkeypatch, capsys, "evaluate", "run", *own, "--video", "film.gif")
    assert code == 3
    assert "cannot be drawn" in err


def test_resume_of_a_users_run_asks_for_the_flags_again(own, monkeypatch, capsys, tmp_path):
    from symbreak.training.choice import choose_task
    from symbreak.training.inspection import fingerprint
    from symbreak.training.run import Run, RunConfig

    arguments = ("train", "SomeCart-v0", "--method", "vanilla", *own, *SHORT, *TINY)
    assert run(monkeypatch, capsys, *arguments, "--out", "whole")[0] == 0
    config = RunConfig(
        **{k: v for k, v in json.loads(Path("whole/config.json").read_text()).items() if k != "versions"}
    )
    from symbreak.tasks.user_file import load_symmetry

    half = Run.create(config, Path("run"), task=choose_task("SomeCart-v0", load_symmetry(own[1]), 60))
    half.advance(30)
    half.close()
    code, _, err = run(monkeypatch, capsys, "resume", "run")
    assert code == 2
    assert "give it again: --symmetry file.py:NAME --env-import PACKAGE" in err
    assert run(monkeypatch, capsys, "resume", "run", *own, "--quiet")[0] == 0
    assert fingerprint(Path("run")) == fingerprint(Path("whole"))


def test_training_over_a_run_of_ones_own_prints_the_command_with_the_flags_just_given(own, monkeypatch, capsys):
    from symbreak.training.settings import RunConfig

    Path("run").mkdir()
    Path("run/config.json").write_text(json.dumps(RunConfig("SomeCart-v0", symmetry="mine").to_json()))
    code, _, err = run(monkeypatch, capsys, "train", "SomeCart-v0", *own, "--out", "run")
    assert code == 2
    assert err.strip().endswith(f"continue it with: symbreak resume run {' '.join(own)}")


MISTAKES = {
    "no package": (("train", "SomeCart-v0", "--env-import", "no_carts"), "there is no such module"),
    "broken package": (("train", "SomeCart-v0", "--env-import", "broken"), "importing it raised ZeroDivisionError"),
    "no symmetry": (("train", "SomeCart-v0", "--env-import", "some_carts"), "--symmetry file.py:NAME"),
    "name": (("train", "SomeCart-v0", "--symmetry", "my_robot.py:SYMETRY"), "did you mean SYMMETRY"),
    "file": (("train", "SomeCart-v0", "--symmetry", "my_robt.py:SYMMETRY"), "there is no file my_robt.py"),
    "size": (
        ("train", "SomeCart-v0", "--env-import", "some_carts", "--symmetry", "my_robot.py:WIDE"),
        "the observation has 2 entries, the symmetry 3 (place 3)",
    ),
    "no environment": (("train", "SomeCrt-v0", "--symmetry", "my_robot.py:SYMMETRY"), "is registered"),
    "no run": (("evaluate", "nowhere"), "holds no run"),
    "film": (("evaluate", "RUN", "--video", "film.avi"), ".mp4 or .gif"),
    "audit of a grid along a run": (("audit", "grid-20", "--run", "RUN"), "leave --run out"),
    "audit along another run": (("audit", "hopper", "--run", "RUN"), "is about grid-20, not hopper"),
    "wandb": (("train", "grid-20", "--wandb"), "pip install '.[wandb]'"),
    "episodes": (("evaluate", "RUN", "--episodes", "0"), "use 1 or more"),
    "seed": (("evaluate", "RUN", "--seed", "-1"), "seed -1 is negative; use 0 or more"),
    "no run to draw": (("theory", "grid-20", "--run", "nowhere", "--out", "figures"), "holds no run"),
    "seed of an audit": (("audit", "swimmer", "--seed", "-1"), "seed -1 is negative; use 0 or more"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_do(name, own, grid_run, monkeypatch, capsys, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.setitem(sys.modules, "wandb", None)
    arguments, told = MISTAKES[name]
    code, _, err = run(monkeypatch, capsys, *(grid_run if word == "RUN" else word for word in arguments))
    assert code == 2
    assert err.startswith("error[input]: ")
    assert len(err.splitlines()) == 1
    assert told in err


def test_rows_go_to_wandb(monkeypatch, capsys, tmp_path):
    logged, started = [], []

    class Board:
        id = "abc"

        def log(self, row, step):
            logged.append((step, row))

        def finish(self):
            logged.append("finished")

    service = types.ModuleType("wandb")
    service.init = lambda **options: started.append(options) or Board()  # pyright: ignore
    monkeypatch.setitem(sys.modules, "wandb", service)
    arguments = ("train", "grid-20", "--method", "vanilla", *SHORT, *TINY, "--out", tmp_path / "run", "--wandb")
    assert run(monkeypatch, capsys, *arguments)[::2] == (0, "")
    stored = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (step, row), end = logged
    assert end == "finished"
    assert step == stored[0]["step"] == 60
    assert {name: value for name, value in row.items() if name != "steps_per_second"} | {"step": 60} == stored[0]
    assert started[0]["config"]["task"] == "grid-20"
    assert json.loads((tmp_path / "run" / "wandb.json").read_text()) == {"id": "abc"}

    # A run of somebody else: nothing is written through a link, and what is no id goes nowhere.
    mine, foreign = tmp_path / "mine.json", tmp_path / "foreign"
    foreign.mkdir()
    mine.write_text('{"id": "old", "precious": 1}')
    (foreign / "wandb.json").symlink_to(mine)
    with rows_to_wandb(foreign) as send, pytest.raises(SymbreakError, match="symbolic link"):
        send({"step": 1.0}, RunConfig("grid-20"))
    assert json.loads(mine.read_text()) == {"id": "old", "precious": 1}
    (foreign / "wandb.json").unlink()
    for wrong in ("{}", '{"id": 3}', '{"id": "../x"}', "[]"):
        (foreign / "wandb.json").write_text(wrong)
        with rows_to_wandb(foreign) as send, pytest.raises(InputError, match="names no run of Weights & Biases"):
            send({"step": 1.0}, RunConfig("grid-20"))
    assert len(started) == 1
