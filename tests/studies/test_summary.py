"""What a set of studies has found follows from its logs, and a missing, foreign or changed run is noticed."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from symbreak.commands.studying import report
from symbreak.errors import InputError
from symbreak.studies import summary
from symbreak.studies.markdown import marks, put_into, sections_of
from symbreak.studies.plans import Job, plan
from symbreak.studies.records import checksums, refuse_replacing, take_over
from symbreak.studies.report import make_report
from symbreak.studies.report_figures import draw_figures
from symbreak.studies.report_runs import find_runs
from symbreak.studies.summary import add_to_plan, require_summary, summary_of, verify, write_summary


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two finished runs, as `symbreak study` leaves them."""
    study = tmp_path / "grid-obstacles"
    jobs = plan("grid-obstacles", seeds=2, methods=["exact"], settings=["grid-20"])
    add_to_plan(study, jobs)
    for job in jobs:
        write_record(study, job, final=0.25 + job.config.seed)
    write_summary(tmp_path)
    return tmp_path


def write_record(study: Path, job: Job, final: float) -> Path:
    record = study / "records" / job.name
    record.mkdir(parents=True)
    (record / "config.json").write_text(json.dumps(job.config.to_json()))
    (record / "status.json").write_text('{"state": "finished"}')
    rows = [{"step": job.config.steps // 2, "eval/return": 0.0}, {"step": job.config.steps, "eval/return": final}]
    (record / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts = {"digest": job.digest, "state": "finished", "fingerprint": job.name, "files": checksums(record)}
    (record / "record.json").write_text(json.dumps(facts))
    return record


def test_the_summary_holds_what_the_logs_say(results):
    found = json.loads((results / "summary.json").read_text())["grid-obstacles"]["grid-20"]["exact"]
    assert found["seeds"] == 2
    assert found["final"]["mean"] == pytest.approx((0.25 + 1.25) / 2)
    assert found["auc"]["mean"] == pytest.approx((0.25 + 1.25) / 4)  # a straight line from 0 to the last value
    assert {"iqm", "low", "high"} <= found["final"].keys()
    assert verify(results) == verify(results / "grid-obstacles") == 2


def test_what_has_no_score_is_no_seed_and_what_went_on_elsewhere_is_counted(results):
    """Half of a damaged set of records is neither a figure with an interval nor a crash of the table."""
    study = results / "grid-obstacles"
    records = study / "records" / "grid-20" / "exact"
    (records / "seed-0" / "status.json").write_text('{"state": "finished", "exact": false}')
    seal(records / "seed-0")
    (records / "seed-1" / "metrics.jsonl").unlink()
    seal(records / "seed-1")
    found = summary_of(results)["grid-obstacles"]["grid-20"]["exact"]
    assert (found["seeds"], found["inexact"]) == (1, 1)
    (other,) = plan("grid-obstacles", seeds=1, methods=["partial"], settings=["grid-20"])
    write_record(study, other, final=0.5)
    found = summary_of(results)
    assert found["grid-obstacles"]["grid-20"]["exact"]["less"]["partial"]["final"]["low"] is None
    for row in found["grid-obstacles"]["grid-20"].values():
        row["seeds"] = 3
    sections_of(found)


def seal(record: Path) -> None:
    """Its files are taken to be as they were recorded."""
    facts = json.loads((record / "record.json").read_text())
    (record / "record.json").write_text(json.dumps(facts | {"files": checksums(record)}))


def test_a_plan_grows_with_what_is_asked_for(results):
    add_to_plan(results / "grid-obstacles", plan("grid-obstacles", seeds=3, methods=["exact"], settings=["grid-20"]))
    with pytest.raises(InputError, match=r"lacks 1 of 3 runs \(grid-20/exact/seed-2\)"):
        verify(results)


def test_studies_that_start_and_end_together_lose_nothing_of_each_other(results, monkeypatch):
    """Between reading and writing there is time for the others, as on a slow disk."""
    for name in ("_plan_of", "summary_of"):
        slowly_after(monkeypatch, name)
    asked = plan("grid-obstacles", seeds=5, methods=["exact"], settings=["grid-20"])[2:]

    def one(job):
        add_to_plan(results / "grid-obstacles", [job])
        write_record(results / "grid-obstacles", job, final=0.0)
        write_summary(results)

    with ThreadPoolExecutor() as pool:
        list(pool.map(one, asked))
    assert verify(results) == 5


def slowly_after(monkeypatch, name):
    called = getattr(summary, name)

    def slow(directory):
        found = called(directory)
        time.sleep(0.05)
        return found

    monkeypatch.setattr(summary, name, slow)


def test_a_finished_run_is_not_replaced_and_budgets_are_not_mixed(results):
    study = results / "grid-obstacles"
    wanted = {"methods": ["exact"], "settings": ["grid-20"]}
    refuse_replacing(study, plan("grid-obstacles", seeds=3, **wanted))
    shorter = plan("grid-obstacles", seeds=3, steps=50, **wanted)
    with pytest.raises(InputError, match="seed-0 holds a run with steps 100000 and not 50; choose another --out"):
        refuse_replacing(study, shorter)
    write_record(study, shorter[2], final=0.5)
    add_to_plan(study, shorter[2:])
    write_summary(results)
    with pytest.raises(InputError, match="seed-2 was made with steps 50 and not 100000 as in seed-0"):
        verify(results)


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("metrics.jsonl", lambda text: text.replace("1.25", "1.75"), "metrics.jsonl is not what it was"),
        ("metrics.jsonl", lambda text: text.splitlines()[0] + "\n" + text, "metrics.jsonl is not what it was"),
        ("metrics.jsonl", lambda text: text + '{"step', "metrics.jsonl is not what it was"),
        ("status.json", lambda text: text.replace("}", ', "exact": false}'), "status.json is not what it was"),
        ("record.json", lambda text: text.replace('"files"', '"filed"'), "record.json is not what it was"),
        ("config.json", lambda text: text.replace("100000", "100001"), "lacks 1 of 2"),
        ("record.json", lambda text: text.replace('"digest": "', '"digest": "0'), "lacks 1 of 2"),
        ("record.json", lambda text: "", "lacks 1 of 2"),
        ("record.json", lambda text: text.replace("finished", "failed"), "failed by its record, finished by itself"),
        ("status.json", lambda text: text.replace("finished", "running"), "finished by its record, running by itself"),
        ("metrics.jsonl", lambda text: text.splitlines()[0] + "\n", "without a return of its last step"),
        ("metrics.jsonl", lambda text: text.replace("eval/return", "eval/other"), "without a return of its last step"),
        ("record.json", lambda text: text.replace('"fingerprint"', '"finger"'), "without a fingerprint"),
    ],
)
def test_what_was_changed_is_noticed(results, file, change, says):
    path = results / "grid-obstacles" / "records" / "grid-20" / "exact" / "seed-1" / file
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=says):
        verify(results)


def test_what_nobody_asked_for_does_not_count(results):
    study, claimed = results / "grid-obstacles", json.loads((results / "summary.json").read_text())
    (results / "summary.json").write_text(json.dumps(claimed | {"locomotion": {}}))
    with pytest.raises(InputError, match="does not follow from the records of locomotion"):
        verify(results)
    (strange,) = plan("grid-obstacles", seeds=3, methods=["exact"], settings=["grid-20"])[2:]
    write_record(study, strange, final=0.5)
    write_summary(results)
    with pytest.raises(InputError, match="seed-2 was not asked for"):
        verify(results)
    add_to_plan(study, [strange])
    assert verify(results) == 3
    shutil.copytree(study / "records", study / "another" / "records")  # pages about all runs would show it
    with pytest.raises(InputError, match="another/records/grid-20/exact/seed-0 was not asked for"):
        verify(results)


@pytest.mark.parametrize("place", ["notes", "grid-obstacles/extra"])
def test_a_run_beside_the_records_that_a_page_would_count_is_noticed(results, place):
    """Without a record of its own it is no study's, and its configuration alone makes it a run."""
    shutil.copytree(results / "grid-obstacles/records/grid-20/exact/seed-0", results / place / "seed-7")
    (results / place / "seed-7" / "record.json").unlink()
    assert len(find_runs([results])) == 3
    with pytest.raises(InputError, match="seed-7 is no run of a study"):
        verify(results)


def test_a_configuration_of_something_else_is_no_run(results):
    (results / "notes").mkdir()
    (results / "notes" / "config.json").write_text('{"rate": 1}')
    assert verify(results) == len(find_runs([results])) == 2


def test_a_run_in_the_making_is_no_reason_to_refuse(results):
    study = results / "grid-obstacles"
    shutil.copytree(study / "records/grid-20/exact/seed-0", study / "runs/grid-20/exact/seed-4")
    (study / "runs/grid-20/exact/seed-4/record.json").unlink()
    assert verify(results) == 2


def test_what_is_not_whole_is_not_summed_up(results):
    study = results / "grid-obstacles"
    record = study / "records" / "grid-20" / "exact" / "seed-1"
    whole = (record / "metrics.jsonl").read_text()
    (record / "metrics.jsonl").write_text(whole.replace("1.25", "9.25"))
    assert summary_of(results)["grid-obstacles"]["grid-20"]["exact"]["final"]["mean"] == 0.25
    (record / "metrics.jsonl").write_text(whole)
    assert summary_of(results)["grid-obstacles"]["grid-20"]["exact"]["seeds"] == 2
    (record / "record.json").unlink()  # a copy that was cut short
    assert json.loads(write_summary(results).read_text())["grid-obstacles"]["grid-20"]["exact"]["seeds"] == 1
    (study / "plan.json").unlink()
    add_to_plan(results / "unrouted", [])
    write_summary(results)
    with pytest.raises(InputError, match="grid-obstacles has records and no plan"):
        verify(results)


def test_a_file_of_the_summary_s_name_is_not_written_over(tmp_path):
    (tmp_path / "summary.json").write_text('{"notes": "of my own"}')
    for write in (write_summary, require_summary):
        with pytest.raises(InputError, match="no summary of studies"):
            write(tmp_path)
    assert "of my own" in (tmp_path / "summary.json").read_text()


def test_tables_of_one_study_are_its_own_and_of_none_are_refused(results):
    page, (begin, end) = results / "page.md", marks("results")
    page.write_text(f"{begin}\n{end}\n")
    report([results / "grid-obstacles"], output=results / "page.html", into=(page,))
    assert "| grid-20 | 0.75 (2) |" in page.read_text()
    with pytest.raises(InputError, match="no study is there"):
        report([results / "grid-obstacles" / "records"], output=results / "page.html", into=(page,))
    assert "| grid-20 | 0.75 (2) |" in page.read_text()


def test_a_record_that_two_studies_share_is_one_seed(results):
    """Ablations take over runs of the main studies; a page about both must not count them twice."""
    mine, theirs = results / "grid-obstacles", results / "ablation"
    (shared, other) = plan("grid-obstacles", seeds=2, methods=["exact"], settings=["grid-20"])
    for job in (shared, other):
        facts = mine / "records" / job.name / "record.json"
        facts.write_text(json.dumps({**json.loads(facts.read_text()), "fingerprint": f"of {job.name}"}))
    assert take_over(theirs, [shared]) == 1
    assert sorted(run.seed for run in find_runs([results])) == [0, 1]
    assert [run.seed for run in find_runs([theirs])] == [0]
    again = theirs / "records" / shared.name / "record.json"
    again.write_text(again.read_text().replace("of ", "made again of "))  # equal settings, another outcome
    assert sorted(run.seed for run in find_runs([results])) == [0, 0, 1]
    again.write_text("[]")  # no record, but still a run
    assert sorted(run.seed for run in find_runs([results])) == [0, 0, 1]


def test_a_summary_that_is_none_is_refused(results):
    (results / "summary.json").write_text("[]")
    with pytest.raises(InputError, match="does not follow"):
        verify(results)


def test_a_directory_without_studies_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no study"):
        verify(tmp_path)


def test_runs_in_the_making_are_not_counted_twice(results):
    study = results / "grid-obstacles"
    record = study / "records" / "grid-20" / "exact" / "seed-0"
    running = study / "runs" / "grid-20" / "exact" / "seed-0"
    running.mkdir(parents=True)
    (running / "config.json").write_text((record / "config.json").read_text())
    assert len(find_runs([results])) == len(find_runs([study])) == 2
    assert len(find_runs([running])) == 1  # asked for by itself
    (study / "plan.json").unlink()  # without a plan they are ordinary runs
    assert len(find_runs([study])) == 3


def test_tables_stand_between_the_marks_of_a_page(results):
    page = results / "page.md"
    (begin, end), (opened, closed) = marks("results"), marks("variants")
    page.write_text(f"before\n{begin}\nold\n{end}\nbetween\n{opened}\nold\n{closed}\nafter\n")
    for _ in range(2):
        put_into(page, sections_of(json.loads((results / "summary.json").read_text())))
        first, _, second = page.read_text().partition("between\n")
        assert first.startswith("before\n")
        assert second.endswith("after\n")
        assert "old" not in first + second
        assert "evaluation, less that" not in first + second  # a page without marks for differences has none
        assert "| grid-20 | 0.75 (2) |" in first  # the mean of both seeds, too few for an interval
        assert "| study |" in second
    page.write_text(f"{begin}\n{end}\n{opened}\nits end is lost\n")
    with pytest.raises(InputError, match="no line '<!-- /variants -->' after"):
        put_into(page, {"results": "", "variants": ""})
    page.write_text("no marks")
    with pytest.raises(InputError, match="no place for tables"):
        put_into(page, {"results": ""})


def test_differences_follow_from_the_seeds(tmp_path):
    """A shift of all seeds is found as it is; of two seeds no interval is told."""
    study = tmp_path / "grid-obstacles"
    for method, shift, seeds in (("partial", 0.5, 3), ("vanilla", -0.25, 3), ("exact", 0.5, 3), ("rpp", 0.0, 2)):
        jobs = plan("grid-obstacles", seeds=seeds, methods=[method], settings=["grid-20"])
        add_to_plan(study, jobs)
        for job in jobs:
            write_record(study, job, final=shift + 0.01 * job.config.seed)
    write_summary(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    less = summary["grid-obstacles"]["grid-20"]["vanilla"]["less"]
    assert less["partial"]["final"]["iqm"] == pytest.approx(-0.75)
    assert less["partial"]["auc"]["iqm"] == pytest.approx(-0.375)  # of straight lines that begin at 0
    assert less["partial"]["final"]["low"] < -0.75 < less["partial"]["final"]["high"] < -0.7
    assert "vanilla" not in less
    assert not summary["grid-obstacles"]["grid-20"]["partial"]["less"]  # each pair once
    lines = sections_of(summary)["differences"].splitlines()
    last = lines.index("Return of the last evaluation, less that of `vanilla`:")
    assert lines[last + 2] == "| | `exact` |"
    assert lines[last + 4].startswith("| grid-20 | +0.75 [+0.7")


def test_equal_records_give_equal_figures_and_pages(results, tmp_path_factory):
    written = []
    for _ in range(2):
        target = tmp_path_factory.mktemp("figures")
        figures = draw_figures([results], target)
        assert [path.name for path in figures] == ["return.png", "return.pdf"]
        page = make_report([results], target / "report.html")
        written.append([path.read_bytes() for path in (*figures, page)])
    assert written[0] == written[1]


def test_studies_of_one_setting_do_not_hide_each_other_in_tables():
    figures = {"final": {"iqm": 0.25, "low": None, "high": None}, "seeds": 1, "failed": 0, "inexact": 0, "less": {}}
    figures["auc"] = figures["final"]

    def worth(value):
        return {**figures, "final": {**figures["final"], "iqm": value}}

    summary = {
        "ablation-actor": {"fetch-reach": {"partial-max4": worth(0.25), "partial": worth(0.5)}},
        "manipulation": {"fetch-reach": {"partial": worth(0.75)}},
        "grid-oracles": {"grid-20": {"oracle-minority": worth(0.125)}},
        "grid-obstacles": {"grid-20": {"partial": worth(0.625), "vanilla": worth(0.375)}},
        "my-own": {"grid-20": {"partial": worth(0.875)}},
        "stability": {"ant": {"partial": worth(0.99)}},
    }
    sections = sections_of(summary)
    lines = sections["results"].splitlines()
    assert "| | `partial` | `vanilla` |" in lines
    assert "| grid-20 | 0.62 (1) | 0.38 (1) |" in lines
    assert "| fetch-reach | 0.75 (1) | – |" in lines
    assert sections["variants"].splitlines()[2:] == [  # what has no methods beside it to be compared with
        "| grid-oracles | grid-20 | `oracle-minority` | 0.12 (1) | – | 0.25 (1) | – |",
        "| ablation-actor | fetch-reach | `partial` | 0.50 (1) | – | 0.25 (1) | – |",
        "| ablation-actor | fetch-reach | `partial-max4` | 0.25 (1) | – | 0.25 (1) | – |",
        "| my-own | grid-20 | `partial` | 0.88 (1) | – | 0.25 (1) | – |",
    ]
    crashed = {"final": None, "auc": None, "seeds": 3, "failed": 3, "inexact": 0, "less": {}}
    lines = sections_of({"grid-obstacles": {"grid-20": {"partial": crashed}}})["results"].splitlines()
    assert "| grid-20 | – (3, 3 failed) |" in lines  # which is not the same as none
    continued = sections_of({"grid-obstacles": {"grid-20": {"partial": {**worth(0.5), "inexact": 1}}}})["results"]
    assert "| grid-20 | 0.50 (1, 1 inexact) |" in continued.splitlines()
    assert "0.99" not in "".join(sections.values())  # five thousand steps show that nothing diverges, no more
