"""A report reads well, stores what it promises, and its command has the right exit code."""

from __future__ import annotations

import importlib
import json
import sys

import gymnasium as gym
import numpy as np
import pytest
from matplotlib.figure import Figure

from symbreak.audit import audit, run_audit
from symbreak.audit.grid import _total_variation
from symbreak.audit.run import _bounds_invariant
from symbreak.audit.verdict import percent
from symbreak.errors import InputError, StorageFault
from symbreak.symmetry import SO3, Layout, Symmetry, Z
from symbreak.tasks import get_task
from symbreak.tasks.user_file import load_symmetry, names_a_file

KEYS = ["verdict", "fields", "reward", "termination", "action_bounds_invariant", "reachable_share", "suggestions"]


@pytest.fixture(scope="module")
def reports():
    return {
        "swimmer": audit("swimmer", "paper", states=20),
        "exact": audit("swimmer", "exact", states=20),
        "hopper": audit("hopper", states=40),
        "grid": audit("grid-20"),
        "empty grid": audit("grid-0"),
    }


def test_json_has_the_promised_keys_and_only_numbers(reports):
    for report in reports.values():
        stored = json.loads(report.to_json())
        assert list(stored) == KEYS
        for part in (*stored["fields"].values(), stored["reward"], stored["termination"]):
            assert list(part) == ["error", "share_broken"]
            assert 0.0 <= part["share_broken"] <= 1.0
        assert stored["verdict"] in {"exact", "locally broken", "not a symmetry"}
    assert json.loads(reports["swimmer"].to_json())["suggestions"] == ["tip.velocity.y should flip (then it is exact)"]


def test_json_stays_valid_where_no_image_could_be_made(room, room_turn):
    report = audit(room(corner=100), room_turn, states=20)
    assert report.verdict == "not a symmetry"
    stored = json.loads(report.to_json())
    assert stored["fields"]["place"] == {"error": None, "share_broken": 1.0}
    assert "no image could be made" in str(report)
    assert "subtract (104, 104)" in report.suggestions[0]


def test_exit_codes_follow_the_verdict(reports):
    assert {name: report.exit_code for name, report in reports.items()} == {
        "swimmer": 2,
        "exact": 0,
        "hopper": 0,
        "grid": 0,
        "empty grid": 0,
    }


def test_the_text_names_every_field_and_the_shares(reports):
    text = str(reports["hopper"])
    for name in reports["hopper"].rows:
        assert f"\n{name}" in text
    assert "broken share of states: dynamics 100 %, reward 100 %" in text
    assert "suggestion" not in text
    assert "suggestion: tip.velocity.y should flip (then it is exact)" in str(reports["swimmer"])
    assert "reachable" in text.splitlines()[2]
    assert "reachable" not in str(reports["exact"]).splitlines()[2]


def test_pictures_are_made_of_every_kind_of_report(reports, tmp_path):
    for name, report in reports.items():
        figure = report.plot()
        assert isinstance(figure, Figure)
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert len(reports["grid"].plot().axes) > len(reports["hopper"].plot().axes)


def test_html_escapes_what_a_user_named(room, room_turn):
    renamed = Symmetry(Layout({"<script>x</script>": room_turn.observation.rep}), room_turn.action, discrete=True)
    report = audit(room(), renamed, states=10)
    assert "<script>" not in report._repr_html_()
    assert "&lt;script&gt;" in report._repr_html_()


def test_save_writes_four_files(reports, tmp_path):
    written = reports["grid"].save(tmp_path / "new" / "place")
    assert sorted(path.name for path in written) == ["audit.html", "audit.json", "audit.png", "audit.txt"]
    assert json.loads((tmp_path / "new" / "place" / "audit.json").read_text()) == reports["grid"].to_dict()
    page = (tmp_path / "new" / "place" / "audit.html").read_text()
    assert "http" not in page.replace("data:image", "")  # self-contained
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFault, match="cannot be written"):
        reports["grid"].save(tmp_path / "file" / "below")


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_and_returns_the_exit_code(capsys, tmp_path):
    assert run_audit("swimmer", "paper", states=20, out=tmp_path) == 2
    printed = capsys.readouterr().out
    assert "not a symmetry" in printed
    assert "audit.png" in printed
    assert run_audit("swimmer", "exact", states=20, json=True) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "exact"
    assert run_audit("grid-0") == 0
    with pytest.raises(InputError, match="has no symmetry 'exakt'"):
        run_audit("swimmer", "exakt")
    with pytest.raises(InputError, match="did you mean swimmer"):
        run_audit("swimer")


SYMMETRIES = """
from symbreak.symmetry import Layout, Symmetry, Z
from symbreak.tasks.symmetries import swimmer_exact, ant_exact

mine = swimmer_exact()
flip = Z(2)
cart = Symmetry(Layout({"all": 4 * flip.sign}), Layout({"push": flip.vector}), discrete=True)
number = 3
"""


def test_a_symmetry_from_a_file(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "robot.py").write_text(SYMMETRIES)
    assert run_audit("swimmer", "robot.py:mine", states=10) == 0
    # A function that makes one is as good; the environment is the view with as many numbers.
    assert run_audit("ant", f"{tmp_path}/robot.py:ant_exact", states=10) == 0
    assert "exact" in capsys.readouterr().out
    assert names_a_file("robot.py:mine")
    assert not names_a_file("paper")


def test_an_environment_registered_by_the_file(tmp_path, capsys):
    source = """
import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

class Settable(CartPoleEnv):
    def get_state(self):
        return np.array(self.state)
    def set_state(self, state):
        self.state, self.steps_beyond_terminated = tuple(state), None

gym.register("TestOfAudit-v0", entry_point=Settable, max_episode_steps=200)
"""
    (tmp_path / "cart.py").write_text(source + SYMMETRIES)
    assert run_audit("TestOfAudit-v0", f"{tmp_path}/cart.py:cart", states=20) == 0
    assert "TestOfAudit-v0" in capsys.readouterr().out
    gym.registry.pop("TestOfAudit-v0")


FILE_MISTAKES = {
    "no name": ("robot.py", "write it as file.py:NAME"),
    "no file": ("nowhere.py:mine", "there is no file"),
    "other name": ("robot.py:mime", "did you mean mine"),
    "other kind": ("robot.py:number", "number is int"),
    "what needs arguments": ("robot.py:Layout", "calling Layout raised TypeError"),
    "a directory": (".py:mine", "there is no file"),
    "raises": ("broken.py:mine", "raised ZeroDivisionError"),
    "a bad symmetry": ("bad.py:mine", "has residual"),
}


@pytest.mark.parametrize("name", FILE_MISTAKES)
def test_mistakes_in_naming_a_file_are_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "robot.py").write_text(SYMMETRIES)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "bad.py").write_text("from symbreak.symmetry import Z\nZ(3).atom('x', [[[-1.0]]])\n")
    text, message = FILE_MISTAKES[name]
    with pytest.raises(InputError) as caught:
        load_symmetry(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- parts -----------------------------------------------------------------------------------------------------------


def test_action_bounds():
    mirror, space = Z(2), SO3()

    def kept(symmetry_of_action, low, high) -> bool:
        symmetry = Symmetry(Layout({"x": symmetry_of_action.group.trivial}), Layout({"a": symmetry_of_action}))
        box = gym.spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
        return _bounds_invariant(symmetry, box)

    assert kept(2 * mirror.sign, [-1, -2], [1, 2])
    assert not kept(2 * mirror.sign, [0, -2], [1, 2])
    assert kept(2 * mirror.trivial, [0, -2], [1, 2])
    assert kept(mirror.vector + mirror.sign, [0, 0, -1], [1, 1, 1])
    assert not kept(mirror.vector + mirror.sign, [0, 0, -1], [1, 2, 1])
    assert not kept(1 * space.vector, [-1] * 3, [1] * 3)
    assert kept(1 * space.vector, [-np.inf] * 3, [np.inf] * 3)
    assert kept(3 * space.trivial, [-1] * 3, [1] * 3)
    for name in get_task("ant").symmetries:
        task = get_task("ant")
        assert _bounds_invariant(task.symmetry(name), task.make(name).action_space)


def test_total_variation_against_a_dictionary():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 4, (200, 4)), rng.integers(0, 4, (200, 4))
    weights, other = rng.dirichlet(np.ones(4), 200), rng.dirichlet(np.ones(4), 200)

    def masses(places, weight):
        table = dict.fromkeys(range(4), 0.0)
        for place, mass in zip(places, weight, strict=True):
            table[place] += mass
        return np.array(list(table.values()))

    expected = [
        0.5 * np.abs(masses(a, p) - masses(b, q)).sum()
        for a, p, b, q in zip(first, weights, second, other, strict=True)
    ]
    np.testing.assert_allclose(_total_variation(first, weights, second, other), expected, atol=1e-12)


def test_percentages_never_hide_something():
    assert [percent(share) for share in (0.0, 1e-5, 0.012, 0.0999, 0.26, 0.999, 1.0)] == [
        "0 %",
        "below 0.1 %",
        "1.2 %",
        "10 %",
        "26 %",
        "99.9 %",
        "100 %",
    ]


def test_a_file_may_import_what_lies_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = list(sys.path)
    (tmp_path / "beside_the_robot.py").write_text(SYMMETRIES)
    (tmp_path / "robot.py").write_text("from beside_the_robot import mine\n")
    assert load_symmetry(f"{tmp_path}/robot.py:mine").name
    assert sys.path == [*before, str(tmp_path.resolve())]  # last, where it hides nothing that is installed


def test_a_file_that_was_imported_is_not_run_again(tmp_path, monkeypatch):
    """It may have registered its environments."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "robot_and_world.py").write_text(SYMMETRIES)
    module = importlib.import_module("robot_and_world")
    text = f"{tmp_path}/robot_and_world.py:cart"
    assert load_symmetry(text, [json, sys, module]) is module.cart
    assert load_symmetry(text, [json]) is not module.cart
