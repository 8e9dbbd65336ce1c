"""The results in this repository follow from its records, and its pages show them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from symbreak.studies.markdown import put_into, sections_of
from symbreak.studies.plans import plan
from symbreak.studies.records import refuse_replacing
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


STUDY = re.compile(r"`symbreak study ([^`]*)`")
OWN_PLACE = ("NAME", "--out")  # commands that are not about the committed results


@pytest.mark.parametrize("name", ["README.md", "docs/reproduction.md"])
def test_studies_that_pages_name_go_on_where_the_results_are(name):
    """None is refused for a run that stands in its place with other settings."""
    told = {command for command in STUDY.findall((ROOT / name).read_text()) if not any(w in command for w in OWN_PLACE)}
    assert len(told) > 5
    for command in told:
        study, *arguments = command.split()
        narrowed: dict[str, list[str]] = {}
        for word in arguments:
            if word.startswith("--"):
                values = narrowed.setdefault(word.removeprefix("--"), [])
            else:
                values.append(word)
        numbers = {key: int(narrowed[key][0]) for key in ("seeds", "steps") if key in narrowed}
        chosen = {key: narrowed[key] for key in ("methods", "settings") if key in narrowed}
        refuse_replacing(ROOT / "results" / study, plan(study, **numbers, **chosen))


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
