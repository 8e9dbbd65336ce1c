"""The page about a set of runs: it says what is in the files, survives what may be in them, and works in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from matplotlib.axes import Axes

from symbreak.errors import InputError, StorageFault
from symbreak.studies.report import make_report
from symbreak.studies.report_figures import draw_curves
from symbreak.studies.report_runs import find_runs, group_runs, holders_of, natural
from symbreak.studies.report_tables import compare, overall, summarise
from symbreak.tasks.gridworld import GridWorld
from symbreak.theory import PermutationAction, TabularMDP, minority_gate, strict_gate
from symbreak.training.gate_record import divide, write_gate_record
from symbreak.training.grid_record import read_grid_record, write_grid_record

LEVELS = {"partial": 0.72, "vanilla": 0.05, "augmented": 0.35, "exact": -0.12, "rpp": 0.3, "approximate": 0.2}


def write_run(directory: Path, *, task="grid-20", method="partial", seed=0, steps=100_000, state="finished", **config):
    """A run as `symbreak train` would leave it: a curve that rises to the method's level, and a gate that learns."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(list(f"{task} {method} {seed}".encode()))
    known = {"task": task, "symmetry": None, "method": method, "preset": "default", "steps": steps, "seed": seed}
    known |= {"evaluations": 20, "episodes": None, "agent": {}, "gate": {}}
    known |= {"versions": {"symbreak": "0.1.0", "jax": "0.10.2"}} | config
    (directory / "config.json").write_text(json.dumps(known))
    level = LEVELS.get(method, 0.4) - (0.3 if "40" in task else 0.0) + rng.normal(0, 0.06)
    rows = []
    for number in range(1, 21):
        step, share = steps * number // 20, number / 20
        value = -1.0 + (level + 1.0) / (1 + np.exp(-9 * (share - 0.4))) + rng.normal(0, 0.02)
        row = {"step": step, "eval/return": value, "eval/success": float(np.clip((value + 1) / 1.9, 0, 1))}
        row |= {"eval/length": 100 - 70 * (value + 1) / 2, "critic/value": 0.6 * share, "critic/loss": 0.02 / number}
        if method.startswith("partial"):
            row |= {"gate/rate": 0.5 if share < 0.15 else 0.06 + 0.3 * np.exp(-8 * share) + rng.normal(0, 0.004)}
            row |= {"gate/labels": 0.05, "gate/disagreement": 0.1, "gate/threshold": 0.45}
            row |= {
                "gate/auroc_minority": 1 - 0.5 * np.exp(-7 * share),
                "gate/auroc_strict": 0.9 - 0.4 * np.exp(-6 * share),
            }
        rows.append(row)
    if state != "finished":
        rows = rows[:9]
    status = {"state": state, "step": rows[-1]["step"]} | ({"reason": "NumericFault: …"} if state == "failed" else {})
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "status.json").write_text(json.dumps(status))
    return directory


@lru_cache(maxsize=4)
def grid_arrays(world: GridWorld) -> dict[str, np.ndarray]:
    """The true oracles of a floor, a gate and a disagreement that nearly know them, and shortest ways to every goal."""
    tables, cells = world.tabular(), world.cells
    mdp, action = TabularMDP.from_tables(tables, 0.99), PermutationAction.from_tables(tables)
    truth = {"minority": minority_gate(mdp, action, tables.free), "strict": strict_gate(mdp, action, tables.free)}
    rng = np.random.default_rng(0)
    noise = rng.beta(1, 9, size=truth["strict"].shape)
    images = truth["strict"] & ~truth["minority"]
    gate = np.select([truth["minority"], images], [1 - noise, 2.5 * noise], 0.4 * noise).clip(0, 1)
    disagreement = np.select([truth["minority"], images], [0.75 - noise / 2, 0.25 - noise / 4], noise / 3).clip(0)
    distance = np.where(np.eye(cells, dtype=bool), 0, 10_000)
    following = world.transition_table().next_cell[..., 0]
    for _ in range(6 * world.size):
        distance = np.minimum(distance, 1 + distance[following].min(axis=1))
    greedy = distance[following].argmin(axis=1)
    wrong = rng.random(greedy.shape) < 0.01
    return {**truth, "gate": gate, "disagreement": disagreement, "greedy": np.where(wrong, (greedy + 2) % 4, greedy)}


def add_grid(directory: Path, world: GridWorld, gated: bool = True) -> None:
    arrays = grid_arrays(world)
    if not gated:
        arrays = {name: values for name, values in arrays.items() if name not in ("gate", "disagreement")}
    floor = world.floor()
    write_grid_record(directory, size=world.size, blocked=floor.blocked, penalty=floor.penalty, **arrays)


AUDIT = {
    "verdict": "locally broken",
    "fields": {"agent": {"error": 0.11, "share_broken": 0.094}, "goal": {"error": 0.0, "share_broken": 0.0}},
    "reward": {"error": 0.02, "share_broken": 0.01},
    "termination": {"error": 1.7, "share_broken": 0.01},
    "action_bounds_invariant": True,
    "reachable_share": 0.83,
    "suggestions": [],
}


NOTED = {"state": "finished", "step": 100_000, "notes": ["reward symmetry unchecked"]}


def write_study(root: Path, *, seeds: int, tasks=("grid-20", "grid-40"), methods=tuple(LEVELS), size: int = 15) -> Path:
    for task in tasks:
        world = GridWorld(size=size, obstacles=int(task.split("-")[1]) * size**2 // 225, passable_penalty="40" in task)
        for method in methods:
            for seed in range(seeds):
                crashed = task == "grid-40" and method == "rpp" and seed == 1
                going = task == "grid-40" and method == "approximate" and seed == 2
                state = "failed" if crashed else "running" if going else "finished"
                run = write_run(root / f"{task}-{method}-{seed}", task=task, method=method, seed=seed, state=state)
                if seed == 0 and method in ("partial", "vanilla"):
                    add_grid(run, world, gated=method == "partial")
                if task == "grid-20" and method == "partial" and seed == 0:
                    add_gate(run)
                    (run / "status.json").write_text(json.dumps(NOTED))
                    (run / "audit.json").write_text(json.dumps(AUDIT))
    return root


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """Two settings, three methods, three seeds; one run failed, one still goes on."""
    return write_study(
        tmp_path_factory.mktemp("runs") / "study", seeds=3, methods=("partial", "rpp", "approximate"), size=9
    )


@pytest.fixture(scope="module")
def page(study) -> Path:
    return make_report([study], study.parent / "report.html")


def words_of(path: Path) -> str:
    """What a reader sees without scripts, in one line."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", path.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


# ---- reading runs ----------------------------------------------------------------------------------------------------


def test_runs_are_found_once_and_in_natural_order(tmp_path):
    for name in ("grid-100", "grid-20", "grid-3"):
        write_run(tmp_path / "deep" / name, task=name)
    (tmp_path / "deep" / "settings").mkdir()
    (tmp_path / "deep" / "settings" / "config.json").write_text("{}")  # no run
    runs = find_runs([tmp_path, tmp_path / "deep", tmp_path / "deep" / "grid-20"])
    assert [run.name for run in runs] == ["grid-3", "grid-20", "grid-100"]
    assert sorted(["b10", "b9", "a"], key=natural) == ["a", "b9", "b10"]


def test_labels_say_what_differs(tmp_path):
    write_run(tmp_path / "a", seed=0)
    write_run(tmp_path / "b", seed=1)
    write_run(tmp_path / "c", preset="paper")
    write_run(tmp_path / "d", gate={"rate": 0.01})
    write_run(tmp_path / "l", agent={"rate": 0.01})
    write_run(tmp_path / "m", gate={"warmup": 500})  # no agent has one
    write_run(tmp_path / "e", task="ant", symmetry="paper", gate={"rate": 0.01})  # of all its setting: needs no word
    write_run(tmp_path / "f", task="ant", symmetry="exact", steps=5000)
    write_run(tmp_path / "g", task="ant", symmetry="exact", steps=7000)
    for name, deviations in (("j", -0.5), ("k", 1.5)):
        write_run(tmp_path / name, task="hopper", gate={"threshold": {"kind": "sigma", "deviations": deviations}})
    write_run(tmp_path / "h", task="grid-0", environments=1)
    write_run(tmp_path / "i", task="grid-0", environments=8)
    for name, evaluations in (("n", 20), ("o", 4)):  # whose areas begin elsewhere
        write_run(tmp_path / name, task="swimmer", evaluations=evaluations)
    found = [(group.setting, group.label, len(group.runs)) for group in group_runs(find_runs([tmp_path]))]
    assert found == [
        ("ant · exact", "partial 5,000 steps", 1),
        ("ant · exact", "partial 7,000 steps", 1),
        ("ant · paper", "partial", 1),
        ("grid-0", "partial environments=1", 1),
        ("grid-0", "partial environments=8", 1),
        ("grid-20", "partial", 2),
        ("grid-20", "partial (paper)", 1),
        ("grid-20", "partial gate.rate=0.01", 1),
        ("grid-20", "partial rate=0.01", 1),
        ("grid-20", "partial warmup=500", 1),
        ("hopper", "partial threshold.deviations=1.5", 1),
        ("hopper", "partial threshold.deviations=-0.5", 1),
        ("swimmer", "partial evaluations=4", 1),
        ("swimmer", "partial evaluations=20", 1),
    ]


def test_runs_are_found_while_others_come_and_go(tmp_path):
    for name in ("a", "b"):
        write_run(tmp_path / name)
    found = holders_of("config.json", tmp_path)
    first = next(found)
    shutil.rmtree(tmp_path / "b" if first.name == "a" else tmp_path / "a")
    assert list(found) == []
    assert [run.directory for run in find_runs([tmp_path])] == [first]


def test_what_a_run_saves_is_no_other_run(tmp_path):
    for name in ("a", "a/checkpoints/step-5", "replay/seed-0"):  # the last one is somebody's name for a set of runs
        write_run(tmp_path / name)
    assert [run.directory for run in find_runs([tmp_path])] == [tmp_path / "a", tmp_path / "replay" / "seed-0"]


def test_half_a_last_line_is_a_run_that_writes(tmp_path):
    run = write_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 105000, "eval/ret')
    assert len(find_runs([run])[0].rows) == 20
    (run / "metrics.jsonl").write_text('{"step": 1, "eval/return": 0}\nnonsense\n{"step": 2, "eval/return": 0}\n')
    with pytest.raises(StorageFault, match="line 2"):
        find_runs([run])


def test_values_that_are_no_numbers_are_missing(tmp_path):
    run = write_run(tmp_path / "run")
    rows = [
        {"step": 1, "eval/return": None, "eval/gate": "x"},
        {"step": 2, "eval/return": float("nan"), "critic/loss": 1},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert find_runs([run])[0].rows == [{"step": 1.0}, {"step": 2.0, "critic/loss": 1.0}]


# ---- crashed and unfinished runs -------------------------------------------------------------------------------------


def group_of(root: Path, setting: str, label: str, **options):
    return next(g for g in group_runs(find_runs([root]), **options) if (g.setting, g.label) == (setting, label))


def test_a_finished_run_that_does_not_tell_success_is_not_a_failure(tmp_path):
    for seed in range(2):
        write_run(tmp_path / str(seed), seed=seed)
    rows = [json.loads(line) for line in (tmp_path / "1" / "metrics.jsonl").read_text().splitlines()]
    del rows[-1]["eval/success"]
    (tmp_path / "1" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = json.loads((tmp_path / "0" / "metrics.jsonl").read_text().splitlines()[-1])["eval/success"]
    assert group_of(tmp_path, "grid-20", "partial").final("eval/success").tolist() == [told]


def test_a_failed_run_counts_with_the_floor(study):
    group = group_of(study, "grid-40", "rpp")
    seen = [row["eval/return"] for run in find_runs([study]) if run.config["task"] == "grid-40" for row in run.rows]
    assert group.floors["eval/return"] == min(seen)
    assert group.final().size == 3
    assert group.final().min() == min(seen)
    assert group.final("eval/success").min() == 0.0
    curve = group.curves("eval/return")[1]
    assert curve[8] == group.runs[1].rows[8]["eval/return"]  # what it reached stays
    assert (curve[9:] == min(seen)).all()
    # The control: a run that vanished would flatter the method.
    survivors = [run.rows[-1]["eval/return"] for run in group.runs if run.state == "finished"]
    assert group.final().mean() < np.mean(survivors) - 0.2
    assert group_of(study, "grid-40", "rpp", floors={"grid-40": -7.5}).final().min() == -7.5


def test_a_run_that_failed_at_once_counts_too(tmp_path):
    write_run(tmp_path / "a", seed=0)
    gone = write_run(tmp_path / "b", seed=1, state="failed")
    (gone / "metrics.jsonl").write_text("")
    group = group_of(tmp_path, "grid-20", "partial")
    assert group.final().size == 2
    assert group.areas().min() == pytest.approx(group.floors["eval/return"])


def test_crashing_in_all_seeds_does_not_pay(tmp_path):
    """They were ahead when they stopped, and nothing of theirs shows how much was left to do."""
    for seed in range(3):
        write_run(tmp_path / f"good-{seed}", method="vanilla", seed=seed)
        write_run(tmp_path / f"bad-{seed}", method="partial", seed=seed, state="failed")
    found = summarise(group_runs(find_runs([tmp_path])))["grid-20"]
    lowest = min(value for run in find_runs([tmp_path]) for value in run.curve("eval/return")[1])
    assert found["partial"]["failed"] == 3
    assert found["partial"]["final"]["mean"] == pytest.approx(lowest)
    assert found["partial"]["auc"]["mean"] < found["vanilla"]["auc"]["mean"]
    (alone,) = group_runs(find_runs([tmp_path / "bad-0"]))
    assert alone.steps[-1] == 100_000
    for path in tmp_path.glob("*/config.json"):  # nor where the task's own number of steps was not written down
        path.write_text(json.dumps({**json.loads(path.read_text()), "steps": None}))
    assert summarise(group_runs(find_runs([tmp_path])))["grid-20"]["partial"] == found["partial"]
    (alone,) = group_runs(find_runs([tmp_path / "bad-0"]))
    assert alone.steps[-1] == 100_000


def test_a_crash_with_nothing_to_compare_is_still_told(tmp_path):
    gone = write_run(tmp_path / "a", state="failed")
    (gone / "metrics.jsonl").write_text("")
    said = words_of(make_report([tmp_path], tmp_path / "report.html"))
    assert "1 failed" in said
    assert "no run has finished yet" in said


def test_an_unfinished_run_is_drawn_and_not_scored(study):
    group = group_of(study, "grid-40", "approximate")
    assert group.final().size == 2
    assert group.unfinished == 1
    assert np.isfinite(group.curves("eval/return")[2, :9]).all()
    assert np.isnan(group.curves("eval/return")[2, 9:]).all()


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_summary_holds_what_was_measured(study):
    summary = summarise(group_runs(find_runs([study])))
    assert list(summary) == ["grid-20", "grid-40"]
    entry = summary["grid-20"]["partial"]
    finals = [run.rows[-1]["eval/return"] for run in group_of(study, "grid-20", "partial").runs]
    assert entry["final"]["mean"] == pytest.approx(np.mean(finals), rel=1e-5)
    assert entry["final"]["low"] < entry["final"]["iqm"] < entry["final"]["high"]
    assert set(entry["final"]) >= {"iqm", "low", "high", "mean"} <= set(entry["auc"])
    assert entry["auc"]["mean"] < entry["final"]["mean"]
    assert (entry["seeds"], summary["grid-40"]["rpp"]["failed"]) == (3, 1)
    assert (summary["grid-40"]["approximate"]["seeds"], summary["grid-40"]["approximate"]["unfinished"]) == (2, 1)
    json.dumps(summary, allow_nan=False)


def test_the_reference_is_compared_with_the_others(study):
    comparison = compare(group_runs(find_runs([study])))[0]
    assert comparison.reference == "partial"
    assert comparison.best is comparison.rows[0]
    assert comparison.rows[0].beaten is None
    assert comparison.rows[1].beaten is not None
    assert comparison.rows[1].beaten.value == 1.0


def test_settings_together_need_methods_in_all_of_them(study, tmp_path):
    together = overall(group_runs(find_runs([study])))
    assert together is not None
    assert all(0 <= scores.min() <= scores.max() <= 1 for strata in together.scores.values() for scores in strata)
    assert together.figures["partial"][0].value > together.figures["rpp"][0].value
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", task="grid-40", method="exact")
    assert overall(group_runs(find_runs([tmp_path]))) is None


def test_the_page_says_what_is_missing(page):
    said = words_of(page)
    assert "3 methods on 2 settings" in said
    assert "18 runs · 3 seeds each · 100,000 steps · 1 failed · 1 running" in said
    assert "3 seeds, fewer than 10" in said
    assert "1 failed run counted" in said
    assert "1 unfinished run not counted" in said
    assert "symbreak train grid-40 --method rpp --preset default --steps 100000 --seed 1" in said
    assert "locally broken" in said


def test_one_seed_has_no_interval_and_says_so(tmp_path):
    write_run(tmp_path / "run")
    said = words_of(make_report([tmp_path / "run"], tmp_path / "report.html"))
    assert "partial on grid-20" in said
    assert "one seed" in said
    assert "95 % interval" not in said.split("Learning curves")[0]


# ---- the grid record -------------------------------------------------------------------------------------------------


def test_a_grid_record_comes_back(tmp_path):
    world = GridWorld(size=9, obstacles=7)
    arrays, floor = grid_arrays(world), world.floor()
    add_grid(tmp_path, world)
    record = read_grid_record(tmp_path / "grid.json")
    pairs = (81, 81, 4)
    assert record.gate is not None
    assert record.disagreement is not None
    np.testing.assert_allclose(record.gate / 255, arrays["gate"].reshape(pairs), atol=0.5 / 255 + 1e-9)
    np.testing.assert_allclose(record.disagreement / 255, arrays["disagreement"].reshape(pairs), atol=0.5 / 255 + 1e-9)
    np.testing.assert_array_equal(record.minority, arrays["minority"].reshape(pairs))
    np.testing.assert_array_equal(record.strict, arrays["strict"].reshape(pairs))
    np.testing.assert_array_equal(record.greedy, arrays["greedy"].reshape(81, 81))
    np.testing.assert_array_equal(record.blocked, np.flatnonzero(floor.blocked))
    np.testing.assert_array_equal(record.live.ravel(), world.tabular().free)
    assert (tmp_path / "grid.json").stat().st_size < 1.5 * 81 * 81 * 4 * 2.25 + 81 * 81 * 1.4


def test_auroc_counts_pairs(tmp_path):
    world = GridWorld(size=5, obstacles=3)
    rng = np.random.default_rng(0)
    truth = rng.random((25, 25, 4)) < 0.1
    gate = np.round(0.4 * truth + 0.6 * rng.random((25, 25, 4)), 1)  # with ties
    empty = np.zeros(25, bool)
    known = {"size": 5, "penalty": empty, "minority": truth, "strict": truth, "greedy": np.zeros((25, 25))}
    write_grid_record(tmp_path, **known, blocked=world.floor().blocked, gate=gate)
    record = read_grid_record(tmp_path)
    score, broken = gate[record.live].ravel(), truth[record.live].ravel()
    lead = np.sign(score[broken][:, None] - score[~broken][None, :])
    assert record.auroc(record.minority) == pytest.approx((0.5 + 0.5 * lead).mean())
    assert record.auroc(record.minority) > 0.8
    assert np.isnan(record.auroc(np.zeros_like(truth)))
    write_grid_record(tmp_path, **known, blocked=empty, gate=rng.random(truth.shape))  # the control
    assert abs(read_grid_record(tmp_path).auroc(truth) - 0.5) < 0.1


def test_a_wrong_grid_record_is_refused(tmp_path):
    world = GridWorld(size=5, obstacles=3)
    arrays, floor = grid_arrays(world), world.floor()
    known = {"size": 5, "blocked": floor.blocked, "penalty": floor.penalty, **arrays}
    for name, wrong in (
        ("gate", arrays["gate"][:-1]),
        ("gate", arrays["gate"] + 1),
        ("disagreement", arrays["gate"] * np.nan),
    ):
        with pytest.raises(InputError, match=name):
            write_grid_record(tmp_path, **{**known, name: wrong})
    with pytest.raises(StorageFault):
        write_grid_record(tmp_path / "nowhere" / "grid.json", **known)
    path = write_grid_record(tmp_path, **known)
    good = json.loads(path.read_text())
    for change in ({"format": 2}, {"size": 6}, {"size": 10**6}, {"gate": "?"}, {"greedy": None}, {"blocked": [99]}):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(StorageFault):
            read_grid_record(path)
    path.write_text(json.dumps(good)[:1000])
    with pytest.raises(StorageFault):
        read_grid_record(path)


# ---- where a gate opens ----------------------------------------------------------------------------------------------


def add_gate(run: Path, names=("left elbow", "right elbow", "hand"), even: bool = False) -> None:
    """A gate that opens where the first two entries are large together."""
    rng = np.random.default_rng(0)
    entries = {name: rng.uniform(-1, 1, 2000) for name in names}
    first, second = (entries[name] for name in names[:2])
    gate = np.where((first > 0) & (second > 0.5), 0.9, 0.05)
    write_gate_record(run, divide(entries, np.full(2000, 0.2) if even else gate))


def test_the_page_shows_where_a_gate_opens(tmp_path):
    add_gate(write_run(tmp_path / "a", task="arm"))
    write_run(tmp_path / "b", task="arm", method="vanilla")
    page = make_report([tmp_path], tmp_path / "report.html")
    said = words_of(page)
    part = said.split("Where the gate says “broken”")[-1]
    assert "arm · partial seed 0 On 2,000 visited pairs" in part
    assert part.index("right elbow") < part.index("left elbow") < part.index("hand")  # by what they explain
    assert "right elbow over left elbow together they explain" in part or "left elbow over right elbow" in part
    assert re.search(r"gate 0\.90 on \d+ pairs", part)
    assert re.search(r"right elbow explains \d\d %, gate 0\.05 to 0\.\d\d", part)
    figures = (
        page.read_text().count('<figure class="card strip">'),
        page.read_text().count('<figure class="card both">'),
    )
    assert figures == (3, 1)
    (tmp_path / "a" / "gate.json").unlink()  # a run from before there were records
    assert 'id="where"' not in make_report([tmp_path], tmp_path / "report.html").read_text()


def test_a_gate_that_says_the_same_everywhere_is_not_drawn(tmp_path):
    add_gate(write_run(tmp_path / "a", task="arm"), even=True)
    page = make_report([tmp_path], tmp_path / "report.html")
    assert "the same nearly everywhere" in words_of(page)
    assert '<figure class="card strip">' not in page.read_text()
    (tmp_path / "a" / "gate.json").write_text("{}")
    with pytest.raises(StorageFault, match=r"gate\.json is no gate record"):
        make_report([tmp_path], tmp_path / "report.html")


def test_what_runs_have_to_say_stands_at_the_top(tmp_path):
    for number, notes in enumerate((["reward symmetry unchecked", "it rained"], ["reward symmetry unchecked"], "odd")):
        run = write_run(tmp_path / str(number), seed=number)
        (run / "status.json").write_text(json.dumps({"state": "finished", "step": 100_000, "notes": notes}))
    top = words_of(make_report([tmp_path], tmp_path / "report.html")).split("Learning curves")[0]
    assert top.count("reward symmetry unchecked (partial on grid-20)") == 1
    assert "it rained (partial on grid-20)" in top.replace(" )", ")")
    assert "can break unnoticed" in top
    (run / "status.json").write_text('{"state": "finished", "exact": false, "inexact": ["resumed with jax 9"]}')
    top = words_of(make_report([tmp_path], tmp_path / "report.html")).split("Learning curves")[0]
    assert "not what it would be without a stop: resumed with jax 9 (partial on grid-20)" in top
    quiet = write_run(tmp_path / "elsewhere" / "quiet")
    assert 'class="notice"' not in make_report([quiet], tmp_path / "r.html").read_text().split("<main")[0]


def test_a_method_without_a_gate_has_no_chart_of_one(tmp_path):
    for name, method in (("a", "vanilla"), ("b", "partial")):
        run = write_run(tmp_path / name, method=method)
        rows = [json.loads(line) | {"gate/used": 0.0} for line in (run / "metrics.jsonl").read_text().splitlines()]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def titles(run: str) -> set[str]:
        page = make_report([tmp_path / run], tmp_path / "report.html").read_text()
        return set(json.loads(Tags(page).scripts[1])["titles"])

    assert not any(metric.startswith("gate/") for metric in titles("a"))
    assert {"gate/used", "gate/rate"} <= titles("b")  # a control


# ---- the page as a file ----------------------------------------------------------------------------------------------


def test_equal_runs_give_an_equal_page(study, page, tmp_path):
    shutil.copytree(study, tmp_path / "elsewhere")
    again = make_report([tmp_path / "elsewhere"], tmp_path / "again.html")
    assert again.read_bytes() == page.read_bytes()
    assert str(study.parent) not in page.read_text()
    metrics = tmp_path / "elsewhere" / "grid-20-rpp-0" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("0.", "0.1", 1))
    assert make_report([tmp_path / "elsewhere"], again).read_bytes() != page.read_bytes()


class Tags(HTMLParser):
    """Every element of a page with its attributes, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data


def test_the_page_needs_no_network(page):
    tags = Tags(page.read_text())
    for tag, attributes in tags.found:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base"), tag
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert "@import" not in page.read_text().split("<style>")[1].split("</style>")[0]


def test_only_the_pages_own_scripts_may_run(page):
    tags = Tags(page.read_text())
    policy = next(a["content"] for tag, a in tags.found if tag == "meta" and "content-security" in str(a).lower()) or ""
    running = [
        text
        for (_, a), text in zip([f for f in tags.found if f[0] == "script"], tags.scripts, strict=True)
        if "type" not in a
    ]
    assert len(running) == 3
    for script in running:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert "default-src 'none'" in policy


HOSTILE = [
    "</script><script>window.pwned=1</script>",
    '"><img src=x onerror=window.pwned=1>',
    "<!--<script>",
    "{{plotly}} {%if x%}",
    "<b>bold</b> &amp; $x_1$ \u2028",
]


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory) -> Path:
    """Every text that a run can carry tries to be markup."""
    root = tmp_path_factory.mktemp("hostile")
    for number, evil in enumerate(HOSTILE):
        run = write_run(
            root / f"run {number} <i>&", task=evil, method=evil, symmetry=evil, preset=evil, seed=evil, **{evil: evil}
        )
        (run / "status.json").write_text(json.dumps({"state": evil, "step": 5, "reason": evil, "notes": [evil]}))
        add_gate(run, names=(evil, f"{evil} too", "hand"))
        rows = [
            json.loads(line) | {evil: 1.0, f"gate/{evil}": 0.5}
            for line in (run / "metrics.jsonl").read_text().splitlines()
        ]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        fields = {evil: {"error": 0.5, "share_broken": 0.5}}
        (run / "audit.json").write_text(json.dumps({"verdict": evil, "fields": fields, "suggestions": [evil]}))
    world = GridWorld(size=5, obstacles=3)
    add_grid(root / "run 0 <i>&", world)
    record = json.loads((root / "run 0 <i>&" / "grid.json").read_text())
    (root / "run 0 <i>&" / "grid.json").write_text(json.dumps({**record, "actions": HOSTILE[:4]}))
    return make_report([root], root / "report.html")


def test_hostile_words_stay_words(hostile_page, page):
    harmless, tags = Tags(page.read_text()), Tags(hostile_page.read_text())
    assert {tag for tag, _ in tags.found} <= {tag for tag, _ in harmless.found} | {"ul", "li"}
    assert len(tags.scripts) == len(harmless.scripts) == 4
    assert not any(name.startswith("on") for _, attributes in tags.found for name in attributes)
    assert json.loads(tags.scripts[1])["settings"]  # the data can still be read
    assert "window.pwned=1" in words_of(hostile_page).replace("&lt;", "<")  # and the words are shown


def test_mistakes_are_said_in_one_line(tmp_path):
    with pytest.raises(InputError, match="no directory"):
        make_report([tmp_path / "nowhere"], tmp_path / "report.html")
    with pytest.raises(InputError, match="no run"):
        make_report([tmp_path], tmp_path / "report.html")
    run = write_run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFault, match="cannot be written"):
        make_report([run], tmp_path / "file" / "report.html")
    for text in ("{", "[" * 100_000):
        (run / "config.json").write_text(text)
        with pytest.raises(StorageFault, match="config"):
            make_report([run], tmp_path / "report.html")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics.jsonl", '{"step": "5"}\n{"step": 6}\n'),
        ("metrics.jsonl", '{"step": NaN}\n{"step": 6}\n'),
        ("metrics.jsonl", '{"step": ' + 400 * "9" + '}\n{"step": 6}\n'),
        ("metrics.jsonl", "[" * 100_000 + '\n{"step": 6}\n'),
        ("metrics.jsonl", None),
        ("status.json", None),
        ("config.json", None),
    ],
)
def test_files_from_elsewhere_are_refused_in_one_line(tmp_path, name, text):
    run = write_run(tmp_path / "run")
    (run / name).unlink()
    if text is None:  # a link might lead to anything
        (tmp_path / "secret.json").write_text('{"state": "TOPSECRET", "step": 1, "task": "grid-20"}\n')
        (run / name).symlink_to(tmp_path / "secret.json")
    else:
        (run / name).write_text(text)
    with pytest.raises(StorageFault):
        make_report([run], tmp_path / "report.html")


def test_a_strange_number_of_environments_is_shown_as_it_is(tmp_path):
    for number, count in enumerate(([1], 4)):
        write_run(tmp_path / str(number), environments=count)
    labels = {group.label for group in group_runs(find_runs([tmp_path]))}
    assert labels == {"partial environments=[1]", "partial environments=4"}


def test_the_command_that_repeats_a_run_says_all_that_matters(tmp_path):
    write_run(tmp_path / "run", environments=4, log_every=50)
    said = words_of(make_report([tmp_path], tmp_path / "report.html"))
    assert "--environments 4 --log-every 50" in said
    shutil.rmtree(tmp_path / "run")
    write_run(tmp_path / "run", task="MyRobot-v0")
    assert "symbreak train" not in words_of(make_report([tmp_path], tmp_path / "report.html"))
    shutil.rmtree(tmp_path / "run")
    write_run(tmp_path / "run", symmetry="my own")
    assert "symbreak train" not in words_of(make_report([tmp_path], tmp_path / "report.html"))


def test_what_noise_hides_is_not_called_exact(tmp_path):
    fields = {"hand": {"error": 0.34, "share_broken": 0.0}, "elbow": {"error": 0.0, "share_broken": 0.0}}
    (tmp_path / "audit.json").write_text(json.dumps({**AUDIT, "verdict": "undecided", "fields": fields}))
    said = words_of(make_report([tmp_path], tmp_path / "report.html"))
    assert "0.34, no more than without a transformation" in said
    assert "elbow exact" in said  # a control


def test_an_audit_alone_makes_a_page(tmp_path):
    (tmp_path / "audit.json").write_text(json.dumps(AUDIT))
    said = words_of(make_report([tmp_path], tmp_path / "report.html"))
    assert "locally broken" in said
    assert "Learning curves" not in said


# ---- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_figures_are_drawn_and_equal(study, tmp_path, suffix):
    first = draw_curves([study], tmp_path / f"a{suffix}")
    second = draw_curves([study], tmp_path / f"b{suffix}")
    assert first.stat().st_size > 5000
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(("seeds", "bands"), [(1, 0), (2, 0), (3, 2)])
def test_two_seeds_have_no_band(tmp_path, monkeypatch, seeds, bands):
    drawn = []
    monkeypatch.setattr(Axes, "fill_between", lambda *_, **__: drawn.append(1))
    draw_curves(
        [write_study(tmp_path, seeds=seeds, tasks=("grid-20",), methods=("partial", "rpp"))], tmp_path / "a.svg"
    )
    assert len(drawn) == bands
    assert ("no interval" in (tmp_path / "a.svg").read_text()) == (bands == 0)


def test_a_figure_of_nothing_is_refused(study, tmp_path):
    with pytest.raises(InputError, match=r"\.png"):
        draw_curves([study], tmp_path / "a.bmp")
    with pytest.raises(InputError, match="nothing to draw"):
        draw_curves([study], tmp_path / "a.png", metric="eval/luck")
    assert draw_curves([study], tmp_path / "a.png", metric="gate/rate").exists()


# ---- the page in a browser -------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


def browse(address: str, profile: Path, *options: str) -> tuple[str, list[str]]:
    """The document after its scripts have run, and what they complained about."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
    ]
    command += ["--enable-logging=stderr", f"--user-data-dir={profile}", "--virtual-time-budget=6000", "--dump-dom"]
    done = subprocess.run([*command, *options, address], capture_output=True, text=True, timeout=180, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def with_script(page: Path, script: str, to: Path) -> Path:
    """A copy in which a visitor's actions are scripted; the policy would refuse them, so the copy has none."""
    text = re.sub(r"<meta http-equiv=.Content-Security-Policy[^>]*>", "", page.read_text())
    before, after = text.rsplit("</body>", 1)
    to.write_text(f"{before}<script>{script}</script></body>{after}")
    return to


def attribute(dom: str, name: str) -> str:
    found = re.search(rf'{name}="([^"]*)"', dom)
    assert found, f"the document has no {name}"
    return found[1]


@browser
def test_the_page_opens_at_a_goal_and_an_action(page, tmp_path):
    dom, complaints = browse(f"{page.as_uri()}#goal=37&action=2", tmp_path)
    assert complaints == []
    assert attribute(dom, "data-ready") == "true"
    assert (attribute(dom, "data-goal"), attribute(dom, "data-action")) == ("37", "2")
    assert "row 5, column 2" in dom
    assert dom.count('class="main-svg"') >= 5  # curves of two settings, gates of two, the profile
    assert re.findall(r'data-panel="(\w+)"', dom) == ["gate", "oracle", "disagreement", "greedy"]
    assert re.search(r'id="auroc-minority">(0\.9\d|1\.00)<', dom)


VISIT = """
const byName = (name) => document.getElementById(name);
const press = (target, key, more = {}) =>
  target.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true, ...more}));
const choose = (name, value) => {
  byName(name).value = value;
  byName(name).dispatchEvent(new Event("change"));
};
const twice = (target) => target.dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
const shown = () => document.querySelectorAll("#curve-charts .scatterlayer .trace").length;
const background = () => getComputedStyle(document.body).backgroundColor;

function visit() {
  const note = {};
  const panels = byName("map-panels");
  const state = () => [panels.dataset.goal, panels.dataset.action];
  note.start = state();
  press(panels, "ArrowDown"); note.down = state();
  press(panels, "2"); note.action = state();
  press(panels, "0"); note.any = state();
  press(panels, "ArrowLeft", {shiftKey: true}); note.agent = byName("map-readout").textContent;
  const svg = document.querySelector('[data-panel="gate"] svg');
  const box = svg.getBoundingClientRect();
  const corner = {clientX: box.left + box.width * 0.5 / 9, clientY: box.top + box.height * 8.5 / 9};
  svg.dispatchEvent(new MouseEvent("click", {bubbles: true, ...corner})); note.click = state();
  const squares = [...svg.querySelectorAll("rect.hot")].map((square) => square.getAttribute("fill-opacity"));
  note.opacity = new Set(squares).size;
  note.maps = byName("map-run").options.length;
  choose("map-run", "1"); note.other = document.querySelectorAll("[data-panel]").length;

  const chip = document.querySelector('[data-method="1"]');
  note.traces = shown();
  chip.click(); note.pressed = chip.getAttribute("aria-pressed"); note.fewer = shown();
  twice(chip); note.alone = shown();
  twice(chip); note.all = shown();
  byName("single").click(); note.seeds = shown();
  choose("curve-metric", "eval/success");
  const plot = document.querySelector("#curve-charts .plot");
  const range = () => [...plot.layout.xaxis.range];
  note.title = plot.layout.yaxis.title.text; note.range = range();
  press(plot, "+"); note.zoomed = range();
  chip.click(); note.kept = range();
  press(plot, "0"); note.home = range();
  note.light = background();
  byName("theme").click(); note.dark = background();
  note.hash = location.hash;
  document.body.dataset.note = encodeURIComponent(JSON.stringify(note));
}
addEventListener("load", () => setTimeout(visit, 500));
"""


@browser
def test_a_visitor_with_mouse_and_keyboard(page, tmp_path):
    visit = with_script(page, VISIT, tmp_path / "visit.html")
    dom, complaints = browse(f"{visit.as_uri()}#goal=37&action=2", tmp_path / "profile")
    assert complaints == []
    note = json.loads(unquote(attribute(dom, "data-note")))
    floor = GridWorld(size=9, obstacles=7).floor().blocked.ravel()
    below = next(cell for cell in range(46, 81, 9) if not floor[cell])  # walls are stepped over
    assert note["start"] == ["37", "2"]
    assert note["down"] == [str(below), "2"]
    assert note["action"] == [str(below), "1"]
    assert note["any"] == [str(below), "any"]
    assert "Agent at row" in note["agent"]
    assert "gate 0." in note["agent"]
    assert note["click"] == (["72", "any"] if not floor[72] else [str(below), "any"])
    assert note["opacity"] > 10
    assert (note["maps"], note["other"]) == (2, 4)
    assert note["fewer"] < note["traces"] == note["all"] < note["seeds"]
    assert note["alone"] < note["fewer"]
    assert note["pressed"] == "false"
    assert note["title"] == "success rate"
    low, high = note["range"]
    assert low < note["zoomed"][0] < note["zoomed"][1] < high
    assert note["kept"] == note["zoomed"]
    assert note["home"] == note["range"]
    assert note["light"] != note["dark"]
    assert note["hash"].startswith("#goal=")


@browser
def test_settings_without_the_metric_have_no_empty_chart(tmp_path):
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", task="grid-40", method="vanilla")
    page = make_report([tmp_path / "runs"], tmp_path / "report.html")
    dom, complaints = browse(page.as_uri(), tmp_path / "profile")
    assert complaints == []
    curves, gates = dom.split('id="curve-charts"')[1].split('id="gate-charts"')
    charts = [re.findall(r"<figure class=\"card\"( hidden)?", part.split("</section>")[0]) for part in (curves, gates)]
    assert [[bool(hidden) for hidden in part] for part in charts] == [[False, False], [False, True]]


@browser
def test_a_phones_width(page, tmp_path):
    """Nothing but tables may be wider than 390 pixels, and those scroll by themselves."""
    probe = """
    addEventListener("load", () => setTimeout(() => {
      const own = (node) => !node.closest(".scroll, nav, svg, .modebar-container") && node.getClientRects().length;
      const wide = [...document.querySelectorAll("body *")].filter(own)
        .filter((node) => node.getBoundingClientRect().right > innerWidth + 1)
        .map((node) => node.outerHTML.slice(0, 60));
      parent.postMessage([innerWidth, document.documentElement.scrollWidth, wide], "*");
    }, 800));
    """
    with_script(page, probe, tmp_path / "inner.html")
    outer = tmp_path / "outer.html"
    outer.write_text("""
    <iframe src="inner.html" style="width:390px;height:844px;border:0"></iframe>
    <script>
    addEventListener("message", (event) => {
      document.body.dataset.note = encodeURIComponent(JSON.stringify(event.data));
    });
    </script>""")
    dom, _ = browse(outer.as_uri(), tmp_path / "profile", "--window-size=800,900")
    width, needed, wide = json.loads(unquote(attribute(dom, "data-note")))
    assert width == 390
    assert wide == []
    assert needed <= 390


@browser
def test_hostile_words_do_nothing_in_a_browser(hostile_page, tmp_path):
    plain = with_script(
        hostile_page, "document.body.dataset.pwned = String(window.pwned === 1);", tmp_path / "plain.html"
    )
    dom, complaints = browse(plain.as_uri(), tmp_path / "profile")
    assert attribute(dom, "data-pwned") == "false"
    assert attribute(dom, "data-ready") == "true"
    assert complaints == []
    assert "<img" not in re.sub(r"<script\b.*?</script>", "", dom, flags=re.DOTALL)


@browser
def test_the_policy_stops_a_foreign_script(page, tmp_path):
    before, after = page.read_text().rsplit("</body>", 1)
    (tmp_path / "page.html").write_text(f"{before}<script>document.body.dataset.pwned='yes'</script></body>{after}")
    dom, complaints = browse((tmp_path / "page.html").as_uri(), tmp_path / "profile")
    assert "data-pwned" not in dom
    assert any("Content Security Policy" in line for line in complaints)
    assert attribute(dom, "data-ready") == "true"
