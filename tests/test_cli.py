"""The command line as a user meets it: answers, one-line errors, exit codes."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from symbreak import cli
from symbreak.commands.arguments import again
from symbreak.storage.directory import lock_run_directory
from symbreak.training.grid_record import write_grid_record
from symbreak.training.record import resume_command
from symbreak.training.settings import RunConfig


def run(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["symbreak", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_a_list_that_is_given_in_parts_is_one(monkeypatch, capsys):
    joined = cli.join_lists(["train", "--set", "a=1", "b=2", "--seed", "3", "--set", "c=4", "--set=d=5", "--quiet"])
    assert joined == ["train", "--seed", "3", "--quiet", "--set", "a=1", "b=2", "c=4", "d=5"]
    assert cli.join_lists(["--env_import", "a", "--env-import", "b"]) == ["--env-import", "a", "b"]
    once = ["study", "--methods", "exact", "rpp", "grid-slip"]
    assert cli.join_lists(once) == once
    arguments = ("--methods", "exact", "--methods", "vanilla", "--settings", "grid-20", "--seeds", "1", "--dry-run")
    code, out, _ = run(monkeypatch, capsys, "study", "grid-obstacles", *arguments)
    assert code == 0
    assert "2 runs" in out


def test_a_file_says_nothing_to_a_terminal_that_is_not_text(monkeypatch, capsys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"task": "x\x1b[31mred\x07"}))
    code, _, err = run(monkeypatch, capsys, "evaluate", str(tmp_path))
    assert code == 2
    assert "x?[31mred?" in err


def test_module_and_script_are_the_same_command():
    result = subprocess.run([sys.executable, "-m", "symbreak", "--help"], capture_output=True, text=True, check=True)
    for command in cli.COMMANDS:
        assert command in result.stdout


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself(monkeypatch, capsys, command):
    code, out, _ = run(monkeypatch, capsys, command, "--help")
    assert code == 0
    assert "default" in out or command in ("fingerprint", "verify")  # which have no options


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("train", "grid-2O"), "grid-20"),
        (("train", "grid-20", "--method", "partal"), "partial"),
        (("audit", "swimer"), "swimmer"),
        (("audit", "swimmer", "--symmetry", "exakt"), "exact"),
        (("theory", "hopper"), "grid"),
        (("theory", "grid-20", "--run", "runs/some"), "--out"),
        (("train", "grid-20", "--steps", "-5"), "1 or more"),
        (("train", "grid-20", "--steps", "0"), "1 or more"),
        (("study", "grid-slip", "--steps", "0", "--dry-run"), "at least one step"),
        (("study", "grid-slip", "--workers", "0", "--dry-run"), "1 or more"),
        (("study", "grid-obstacle"), "grid-obstacles"),
        (("report", "nowhere"), "nowhere"),
        (("report", ".", "--verify"), "symbreak study"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_way_out(monkeypatch, capsys, tmp_path, arguments, named):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert err.startswith("error[input]: ")
    assert len(err.strip().splitlines()) == 1
    assert named in err


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (("train", "grid-20", "--methd", "partial"), "--method"),
        (("evaluate", "run", "--vidio", "film.mp4"), "--video"),
        (("evalute", "run"), "evaluate"),
    ],
)
def test_a_typo_is_answered_with_the_nearest_option(monkeypatch, capsys, arguments, nearest):
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert nearest in out + err


def test_debug_adds_where_an_error_came_from_and_changes_nothing_else(monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "audit", "swimer", "--debug")
    assert code == 2
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("error[input]: ")


def test_a_reader_who_wants_no_more_is_no_bug():
    with subprocess.Popen(
        [sys.executable, "-m", "symbreak", "tasks", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_any_other_broken_pipe_is_reported(monkeypatch, capfd):
    def tasks() -> int:
        raise BrokenPipeError("of an environment")

    monkeypatch.setitem(cli.COMMANDS, "tasks", tasks)
    code, _, err = run(monkeypatch, capfd, "tasks")
    assert code == 1
    assert err.startswith("error[bug]: BrokenPipeError: of an environment")


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 5), (errno.EACCES, 5), (errno.ENOENT, 1)])
def test_a_disk_that_takes_nothing_is_no_bug(monkeypatch, capsys, number, code):
    def tasks() -> int:
        raise OSError(number, "as the system says", "pictures/ant.png")

    monkeypatch.setitem(cli.COMMANDS, "tasks", tasks)
    ended, _, err = run(monkeypatch, capsys, "tasks")
    assert ended == code
    assert err.startswith(
        "error[storage]: cannot use pictures/ant.png: as the system says" if code == 5 else "error[bug]"
    )


def test_commands_to_go_on_can_be_pasted():
    assert resume_command(Path("my runs/a")) == "symbreak resume 'my runs/a'"
    assert again("my files/robot.py:R", []) == " --symmetry 'my files/robot.py:R'"


def test_a_finished_run_answers_for_its_own_configuration_only(monkeypatch, capsys, tmp_path):
    stored = RunConfig("grid-20", "exact", steps=10)
    (tmp_path / "config.json").write_text(json.dumps(stored.to_json()))
    (tmp_path / "status.json").write_text('{"state": "finished", "step": 10}')
    same = ("train", "grid-20", "--method", "exact", "--steps", "10", "--out", str(tmp_path))
    code, out, _ = run(monkeypatch, capsys, *same)
    assert (code, "nothing to do" in out) == (0, True)
    code, _, err = run(monkeypatch, capsys, *same, "--seed", "4")
    assert code == 2
    assert "seed 0 and not 4; choose another --out" in err


def test_a_run_of_ones_own_is_continued_with_its_symmetry(monkeypatch, capsys, tmp_path):
    """Every command printed to a user works as it stands, but for names that only the user knows."""
    (tmp_path / "config.json").write_text(json.dumps(RunConfig("MyEnv-v0", symmetry="mine").to_json()))
    command = f"symbreak resume {tmp_path} --symmetry file.py:NAME"
    code, _, err = run(monkeypatch, capsys, "train", "grid-20", "--out", str(tmp_path))
    assert code == 2
    assert err.strip().endswith(command)
    code, _, err = run(monkeypatch, capsys, "verify", str(tmp_path))
    assert code == 5
    assert err.strip().endswith(command)
    (tmp_path / "config.json").write_text(json.dumps(RunConfig("grid-20").to_json()))
    assert (
        run(monkeypatch, capsys, "train", "grid-20", "--out", str(tmp_path))[2]
        .strip()
        .endswith(command.split(" --")[0])
    )


def test_a_directory_where_a_run_is_going_on_is_told_at_once(monkeypatch, capsys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(RunConfig("grid-20").to_json()))
    with lock_run_directory(tmp_path):
        code, _, err = run(monkeypatch, capsys, "train", "grid-20", "--out", str(tmp_path))
    assert code == 5
    assert f"{tmp_path} is in use by host" in err
    assert "resume" not in err
    assert "continue it with" in run(monkeypatch, capsys, "train", "grid-20", "--out", str(tmp_path))[2]


def test_another_symmetry_than_that_of_the_run_is_refused(monkeypatch, capsys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(RunConfig("swimmer").to_json()))
    for command in ("evaluate", "resume"):
        code, _, err = run(monkeypatch, capsys, command, str(tmp_path), "--symmetry", "exact")
        assert code == 2
        assert "started under symmetry 'paper' and not under 'exact'" in err


def test_tasks_are_listed_with_their_symmetries(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "tasks", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    assert {"grid-0", "grid-40-slip", "hopper", "swimmer", "ant", "fetch-reach", "ur5e-reach"} <= set(rows)
    assert set(rows["ant"]["symmetries"]) == {"paper", "exact"}


def test_audit_tells_a_symmetry_from_none(monkeypatch, capsys):
    for symmetry, code, verdict in (("paper", 2, "not a symmetry"), ("exact", 0, "exact")):
        found, out, _ = run(monkeypatch, capsys, "audit", "swimmer", "--symmetry", symmetry, "--states", "30", "--json")
        assert (found, json.loads(out)["verdict"]) == (code, verdict)


@pytest.mark.slow
def test_theory_prints_one_object_per_layout_and_draws(monkeypatch, capsys, tmp_path):
    code, out, _ = run(monkeypatch, capsys, "theory", "grid-20", "--json", "--out", str(tmp_path))
    rows = json.loads(out)
    assert code == 0
    assert [row["layout"] for row in rows] == ["grid-0", "grid-10", "grid-20", "grid-30", "grid-40"]
    names = {"broken_share", "value_gap", "value_gap_bound", "oracle_gap", "equivariant_return", "optimal_return"}
    assert all(names <= set(row) for row in rows)
    assert {"exact", "oracle-minority", "oracle-strict"} <= set(rows[0]["ceiling"])
    assert (tmp_path / "error-propagation.png").stat().st_size > 10_000


def test_means_over_floors_begin_with_the_tasks_own(monkeypatch, capsys):
    monkeypatch.setattr("symbreak.tasks.gridworld.GridWorld.tabular", lambda world: float(world.layout_seed))
    monkeypatch.setattr("symbreak.theory.summarise", lambda seed, gamma, layout: {"layout": layout, "seed": seed})
    code, out, _ = run(monkeypatch, capsys, "theory", "grid-20-slip-floor3", "--layouts", "3", "--json")
    assert code == 0
    means = {row["layout"]: row["seed"] for row in json.loads(out)}
    assert means["grid-20-slip-floor3"] == means["grid-40-slip-floor3"] == 4  # of floors 3, 4 and 5


@pytest.mark.slow
def test_the_moves_of_an_agent_are_judged_in_the_world_that_it_was_trained_in(monkeypatch, capsys, tmp_path):
    from symbreak.tasks import get_task
    from symbreak.theory import TabularMDP, policy_iteration

    world = get_task("grid-10").jax_env()
    best = policy_iteration(TabularMDP.from_tables(world.tabular(), 0.99)).values.argmax(axis=1)
    floor, pairs = world.floor(), np.zeros((world.cells**2, 4), bool)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(RunConfig("grid-10", "exact", steps=100).to_json()))
    write_grid_record(
        tmp_path / "run",
        size=world.size,
        blocked=floor.blocked,
        penalty=np.zeros_like(floor.blocked),
        minority=pairs,
        strict=pairs,
        greedy=best,
    )
    drawing = ("--run", str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    code, out, _ = run(monkeypatch, capsys, "theory", "grid-10", *drawing)
    assert code == 0
    assert "0 of the 214 moves drawn are not optimal" in out  # the best moves are the best where they were learned
    code, _, err = run(monkeypatch, capsys, "theory", "grid-10-slip", *drawing)
    assert code == 2
    assert "was trained on grid-10; name that task" in err


def test_the_help_of_studies_names_every_one(monkeypatch, capsys):
    from symbreak.studies.plans import STUDIES

    _, out, _ = run(monkeypatch, capsys, "study", "--help")
    said = " ".join(out.replace("│", " ").split())
    assert [name for name in STUDIES if name not in said] == []


def test_a_study_is_planned_made_and_reported(monkeypatch, capsys, tmp_path):
    """With runs that are there already; `tests/studies/test_launch.py` makes some."""
    from symbreak.studies.plans import plan
    from symbreak.studies.records import checksums

    asked = ("--seeds", "1", "--methods", "exact", "--settings", "grid-20")
    (job,) = plan("grid-obstacles", seeds=1, methods=["exact"], settings=["grid-20"])
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(monkeypatch, capsys, "study", "grid-obstacles", *asked, "--dry-run")
    assert code == 0
    assert "1 runs, 0 of them finished" in out
    record = tmp_path / "results" / "grid-obstacles" / "records" / job.name
    record.mkdir(parents=True)
    (record / "config.json").write_text(json.dumps(job.config.to_json()))
    (record / "status.json").write_text('{"state": "finished"}')
    (record / "metrics.jsonl").write_text('{"step": 100000, "eval/return": 0.5}\n')
    facts = {"digest": job.digest, "state": "finished", "fingerprint": "0123", "files": checksums(record)}
    (record / "record.json").write_text(json.dumps(facts))
    code, out, _ = run(monkeypatch, capsys, "study", "grid-obstacles", *asked)
    assert (code, "1 of 1 runs finished" in out) == (0, True)
    code, out, _ = run(monkeypatch, capsys, "report", "results", "--verify", "--figures", "figures")
    assert code == 0
    assert out.splitlines()[0] == "verified: 1 runs"
    for name in ("report.html", "figures/return.png", "figures/return.pdf", "results/summary.json"):
        assert (tmp_path / name).stat().st_size > 100


@pytest.mark.parametrize(("method", "says"), [("partial", True), ("exact", False)])
def test_a_run_says_what_its_gate_cannot_notice(monkeypatch, capsys, tmp_path, method, says):
    from symbreak.training.run import Run

    def advance(self, report, tick):
        tick(1)
        self.rows.append({"step": 0, "eval/return": 0.0})

    # What is said comes before the first step; what follows would be compiled for long.
    monkeypatch.setattr(Run, "advance", advance)
    monkeypatch.setattr("symbreak.progress.LINE", 0.0)
    tiny = ("agent.width=8", "agent.batch=8", "agent.learning_starts=20", "agent.capacity=100", "agent.route=false")
    asked = ("grid-20", "--method", method, "--steps", "40", "--cores", "all", "--out", str(tmp_path / "run"))
    code, out, _ = run(monkeypatch, capsys, "train", *asked, "--set", *tiny)
    assert code == 0
    assert ("reward symmetry unchecked" in out) == says
    assert "--set" not in out  # a grid-world's predictors have no such choice
    assert "step 1/40  random steps" in out


def test_what_a_gate_cannot_notice_is_told_with_the_settings_that_change_it():
    from symbreak.agents.methods import get_method
    from symbreak.commands.training import _blind_spots
    from symbreak.tasks import get_task
    from symbreak.training.build import make_gate
    from symbreak.training.settings import parse_assignments

    def gate(changes):
        return make_gate(get_method("partial"), get_task("ant"), "exact", "default", 1_000, changes)

    told = _blind_spots(gate({}))
    assert told == (
        "reward and termination symmetry unchecked: the gate learns nothing about them, so they could break unnoticed; "
        "--set gate.reward_head=true gate.termination_head=true lets the gate learn them"
    )
    settings = [word for word in told.split() if "=" in word]
    assert gate(parse_assignments(settings)["gate"]).unchecked == ()
    alone = _blind_spots(gate({"termination_head": True}))
    assert alone.startswith("reward symmetry unchecked")
    assert alone.endswith("--set gate.reward_head=true lets the gate learn it")
