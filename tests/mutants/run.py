"""Applies deliberate faults one by one and runs the test that must notice each.

    python tests/mutants/run.py [--jobs 2] [--quick] [--traps 5 28]

Each fault is put into a copy of the source tree; nothing is changed in place. Exits 0 when every fault is noticed, 1
when one survives, 2 when the table does not fit the source, a fault only crashes, or a test fails without any fault.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("mutants.toml")
COPIED = ("symbreak", "tests", "pyproject.toml")
LONGEST = 1_800  # seconds for one test


@dataclass(frozen=True)
class Edit:
    file: str
    old: str
    new: str

    def problem(self, root: Path) -> str | None:
        """Why the edit cannot be made, or none."""
        path = root / self.file
        if not path.is_file():
            return f"{self.file} does not exist"
        count = path.read_text().count(self.old)
        if count != 1:
            return f"the text to replace occurs {count} times in {self.file}"
        if self.old == self.new:
            return "nothing would change"
        try:
            ast.parse(self.applied(path))
        except SyntaxError as error:
            return f"{self.file} would not be Python any more: {error.msg}"
        return None

    def applied(self, path: Path) -> str:
        return path.read_text().replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    trap: int | str
    fault: str
    edits: tuple[Edit, ...]
    test: str
    quick: bool

    def problem(self, root: Path) -> str | None:
        problems = [edit.problem(root) for edit in self.edits]
        if not exists(root, self.test):
            problems.append(f"there is no test {self.test}")
        return next((problem for problem in problems if problem), None)


def exists(root: Path, node: str) -> bool:
    """Whether a test function of this name stands in its file."""
    path, _, name = node.partition("::")
    if not (root / path).is_file():
        return False
    functions = (part.name for part in ast.parse((root / path).read_text()).body if isinstance(part, ast.FunctionDef))
    return name.partition("[")[0] in functions


def read(table: Path = TABLE) -> list[Mutant]:
    """The entries of a table; `also` lists further edits (file, old, new) that belong to the same fault."""
    return [
        Mutant(
            entry["trap"],
            entry["fault"],
            (Edit(entry["file"], entry["old"], entry["new"]), *(Edit(*edit) for edit in entry.get("also", ()))),
            entry["test"],
            entry.get("quick", False),
        )
        for entry in tomllib.loads(table.read_text())["mutant"]
    ]


@contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = Path(directory)
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / name, copy / name)
        yield copy


def run_tests(copy: Path, nodes: Sequence[str], jobs: int = 0) -> subprocess.CompletedProcess[str]:
    # The copy's package comes before an installed one; what both compile alike is compiled once.
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "300"}
    environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    options = [
        "-q",
        "-x",
        "-m",
        "",
        "-n",
        str(jobs),
        "-p",
        "no:cacheprovider",
        "--timeout",
        str(LONGEST),
        "--tb",
        "line",
    ]
    command = [sys.executable, "-m", "pytest", *options, *nodes]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


def imported_from(copy: Path) -> Path:
    """Where tests in the copy take the package from."""
    command = [sys.executable, "-c", "import symbreak; print(symbreak.__file__)"]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    found = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def judge(mutant: Mutant, root: Path) -> tuple[str, str]:
    """`killed`, `survived`, `crashed` or `broken` (no test was run), and a word why."""
    started = time.perf_counter()
    with copy_of(root) as copy:
        for edit in mutant.edits:
            path = copy / edit.file
            path.write_text(edit.applied(path))
        result = run_tests(copy, [mutant.test])
    seconds = f"{time.perf_counter() - started:.0f} s"
    if result.returncode == 0:
        return "survived", seconds
    if result.returncode != 1:
        return "broken", (result.stdout + result.stderr).strip().splitlines()[-1]
    found = re.search(r"^(?:FAILED|ERROR) .* - (.*)$", result.stdout, re.MULTILINE)
    reason = found[1][:90] if found else "no reason given"
    # A fault that crashes is no fault that a test noticed: it must run, and its result must be found wrong.
    return "killed" if re.match("assert|AssertionError|Failed", reason) else "crashed", f"{seconds}, {reason}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Deliberate faults, and whether the tests notice them.")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--jobs", type=int, default=2, help="faults tried at the same time")
    parser.add_argument("--quick", action="store_true", help="only the entries marked quick")
    parser.add_argument("--traps", nargs="+", default=[], help="only these traps")
    chosen = parser.parse_args(arguments)
    mutants = [
        mutant
        for mutant in read(chosen.table)
        if (mutant.quick or not chosen.quick) and (str(mutant.trap) in chosen.traps or not chosen.traps)
    ]
    stale = [(mutant, problem) for mutant in mutants if (problem := mutant.problem(ROOT))]
    for mutant, problem in stale:
        print(f"stale     trap {mutant.trap}: {mutant.fault}: {problem}")
    if stale:
        return 2
    with copy_of(ROOT) as copy:
        if not imported_from(copy).is_relative_to(copy):
            print("the tests would import another copy of the package; run from a checkout")
            return 2
        healthy = run_tests(copy, sorted({mutant.test for mutant in mutants}), chosen.jobs if len(mutants) > 1 else 0)
    if healthy.returncode != 0:
        print(healthy.stdout, healthy.stderr, "the tests fail without any fault", sep="\n")
        return 2
    with ThreadPoolExecutor(chosen.jobs) as pool:
        verdicts = []
        for mutant, verdict in zip(mutants, pool.map(lambda m: judge(m, ROOT), mutants), strict=True):
            verdicts.append(verdict[0])
            print(f"{verdict[0]:9} trap {mutant.trap}: {mutant.fault} ({verdict[1]})", flush=True)
    print(f"{verdicts.count('killed')} of {len(verdicts)} killed")
    return 0 if set(verdicts) <= {"killed"} else 1 if set(verdicts) <= {"killed", "survived"} else 2


if __name__ == "__main__":
    sys.exit(main())
