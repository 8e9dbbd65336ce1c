"""The results in this repository follow from its records, and its pages show them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from symbreak.studies.markdown import put_into, sections_of
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
