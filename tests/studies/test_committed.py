"""The results in this repository follow from its records, and its pages show them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from matplotlib.image import imread

from symbreak.studies.markdown import put_into, sections_of
from symbreak.studies.plans import plan
from symbreak.studies.records import recorded, refuse_replacing
from symbreak.studies.report_figures import draw_curves
from symbreak.studies.summary import verify

ROOT = Path(__file__).parents[2]


def test_every_figure_follows_from_the_raw_logs():
    plans = [json.loads(path.read_text()) for path in (ROOT / "results").glob("*/plan.json")]
    assert verify(ROOT / "results") == sum(map(len, plans)) > 200


@pytest.mark.parametrize("name", ["README.md", "docs/reproduction.md"])
def test_tables_are_those_of_the_summary(name, tmp_path):
    page = Path(shutil.copy(ROOT / name, tmp_path))
    put_into(page, sections_of(json.loads((ROOT / "results" / "summary.json").read_text())))
    assert page.read_text() == (ROOT / name).read_text(), "run `make results`"


def test_the_figure_of_the_front_page_follows_from_the_records(tmp_path):
    """Pixel by pixel, but for a few that another processor's last bits may move; with one seed less it is another."""
    study, shown = ROOT / "results" / "grid-obstacles", imread(ROOT / "docs/figures/results/return.png")
    drawn = imread(draw_curves([study], tmp_path / "return.png"))
    assert drawn.shape == shown.shape
    assert (drawn != shown).any(-1).mean() < 1e-4, "run `make results`"
    lacking = shutil.copytree(study, tmp_path / "lacking")
    shutil.rmtree(lacking / "records/grid-20/partial/seed-0")
    other = imread(draw_curves([lacking], tmp_path / "other.png"))
    assert other.shape != shown.shape or (other != shown).any(-1).mean() > 1e-3


STUDY = re.compile(r"`symbreak study ([^`]*)`")
OWN_PLACE = ("NAME", "--out")  # commands that are not about the committed results
OPEN = ("predictor-steps",)  # some of their runs are yet to be made


@pytest.mark.parametrize("name", ["README.md", "docs/reproduction.md"])
def test_studies_that_pages_name_made_the_results(name):
    """None is refused for a run that stands in its place with other settings, and none would make others."""
    lines = (ROOT / name).read_text().splitlines()
    told = {(command, "| not run" in line) for line in lines for command in STUDY.findall(line)}
    told = {(command, open_) for command, open_ in told if not any(w in command for w in OWN_PLACE)}
    assert len(told) > 5
    for command, open_ in told:
        study, *arguments = command.split()
        narrowed: dict[str, list[str]] = {}
        for word in arguments:
            if word.startswith("--"):
                values = narrowed.setdefault(word.removeprefix("--"), [])
            else:
                values.append(word)
        numbers = {key: int(narrowed[key][0]) for key in ("seeds", "steps") if key in narrowed}
        chosen = {key: narrowed[key] for key in ("methods", "settings") if key in narrowed}
        out, jobs = ROOT / "results" / study, plan(study, **numbers, **chosen)
        refuse_replacing(out, jobs)
        if not open_ and not any(w in command for w in OPEN):
            assert {recorded(out, job) for job in jobs} == {"finished"}, command


def test_intervals_that_are_quoted_stand_in_the_tables():
    """Claims are judged by hand; what they quote goes stale when runs are added. Numbers without a sign ("behind by")
    may be those of a table with the other one.
    """
    page = (ROOT / "docs" / "reproduction.md").read_text().replace("−", "-")
    number = r"([-+]?\d+\.\d\d)"
    found = re.compile(rf"{number} \[{number}, {number}\]")
    tables, _, claims = page.partition("## The paper's claims")
    told = {tuple(map(float, triple)) for triple in found.findall(tables)}
    turned = {(-value, -high, -low) for value, low, high in told}
    quoted = found.findall(claims)
    assert len(quoted) > 20
    for triple in quoted:
        assert tuple(map(float, triple)) in (told if triple[0][0] in "+-" else told | turned), triple
