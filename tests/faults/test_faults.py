"""The table of faults in small numbers; `make faults` has the large ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path += [
    str(Path(__file__).parents[1] / room) for room in ("faults", "storage", "training", "tasks", "symmetry", "audit")
]

from counting import Outcome, count, fails, problem_of, require
from rows import ROWS, judge

from symbreak.errors import InputError

KILLS = [name for name in ROWS if name.startswith("kill-")]


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # workers are started from this process, which has threads
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "cost" else []) for name in ROWS if name not in KILLS[1:]],
)
def test_a_small_number_of_faults_comes_out_as_it_must(name, tmp_path):
    """Of the kills one on a grid: elsewhere they take minutes."""
    outcome = judge(name, "small", tmp_path)
    assert outcome.holds, (outcome.good, outcome.of, outcome.wrong)


def test_what_goes_wrong_is_counted():
    def broken():
        require(False, "it was not noticed")

    outcome = count([problem_of(broken, "a case"), problem_of(lambda: None, "another")])
    assert (outcome.good, outcome.of) == (1, 2)
    assert outcome.wrong == ("a case: AssertionError: it was not noticed",)
    assert not outcome.holds
    assert not Outcome(0, 0).holds
    with pytest.raises(AssertionError, match="no InputError"):
        fails(lambda: None, InputError)


def test_a_row_with_too_few_cases_misses_its_figure(tmp_path, monkeypatch):
    monkeypatch.setitem(ROWS, "few", type(ROWS["save"])("few", lambda tier, scratch: Outcome(3, 3), 4))
    assert judge("few", "small", tmp_path).holds
    assert not judge("few", "full", tmp_path).holds
