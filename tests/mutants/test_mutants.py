"""The table of faults fits the source; a few of them are tried here, the others by `make mutants`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


def run(*arguments) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(RUN), *map(str, arguments)], capture_output=True, text=True, check=False)


ENTRY = """
[[mutant]]
trap = "a control"
fault = "{fault}"
file = "symbreak/gates/threshold.py"
old = "{old}"
new = "{new}"
test = "tests/gates/test_threshold.py::{test}"
"""
EQUAL = "test_equal_values_give_no_label"


def table(tmp_path, **fields) -> Path:
    path = tmp_path / "table.toml"
    path.write_text(ENTRY.format(**{"fault": "none", "test": EQUAL} | fields))
    return path


@pytest.mark.slow
def test_quick_faults_are_noticed():
    result = run("--quick", "--jobs", 1)
    assert result.returncode == 0, result.stdout
    assert "killed" in result.stdout
    assert "survived" not in result.stdout


def test_a_fault_that_its_test_does_not_see_survives(tmp_path):
    # The test named for it only looks at quantiles.
    result = run("--table", table(tmp_path, old="absolute: float = 0.45", new="absolute: float = 0.7"))
    assert result.returncode == 1, result.stdout
    assert "survived" in result.stdout


def test_a_fault_that_only_crashes_does_not_count_as_noticed(tmp_path):
    result = run("--table", table(tmp_path, old="(disagreement > value)", new="(disagreement > undefined)"))
    assert result.returncode == 2, result.stdout
    assert "crashed" in result.stdout
    assert "NameError" in result.stdout


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"old": "no such text", "new": "x"}, "occurs 0 times"),
        ({"old": "return", "new": "yield"}, "times in symbreak/gates/threshold.py"),
        ({"old": "(disagreement > value)", "new": "(disagreement >"}, "not be Python"),
        ({"old": "(disagreement > value)", "new": "(disagreement > value)"}, "nothing would change"),
        ({"old": "(disagreement > value)", "new": "(disagreement >= value)", "test": "test_nobody_wrote"}, "no test"),
    ],
)
def test_a_stale_entry_is_an_error(fields, said, tmp_path):
    result = run("--table", table(tmp_path, **fields))
    assert result.returncode == 2
    assert said in result.stdout


def test_the_whole_table_fits_the_source():
    sys.path.insert(0, str(RUN.parent))
    try:
        import run as runner
    finally:
        sys.path.remove(str(RUN.parent))
    problems = {mutant.fault: problem for mutant in runner.read() if (problem := mutant.problem(runner.ROOT))}
    assert not problems
    assert len(runner.read()) >= 40
