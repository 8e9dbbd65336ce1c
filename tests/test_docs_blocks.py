"""Every block of the documentation runs, and prints what stands in the `output` block after it.

Python runs as it stands. Of shell blocks, commands of symbreak run with tiny sizes; `make` targets must exist, and
nothing else may stand there but what installs the package. Blocks that only show something are `text`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from symbreak import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.exists()]
FENCE = re.compile(
    r"^(?P<mark>`{3,})(?P<language>[\w+-]*)[^\n`]*\n(?P<text>.*?)^(?P=mark)[ \t]*$", re.MULTILINE | re.DOTALL
)


TINY = ("agent.width=16", "agent.batch=8", "agent.learning_starts=20")
TINY_GATE = ("gate.width=8", "gate.predictor_width=8")
SHORTER = {
    "train": ("--steps", "60", "--evaluations", "1", "--episodes", "1", "--set", *TINY),
    "evaluate": ("--episodes", "1"),
    "audit": ("--states", "20"),
}
ONLY_PARSED = {"theory", "bench"}  # slow, and tested elsewhere
INSTALLS = re.compile(r"(pip install|tensorboard) [-\w./ ]+")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks_of(text: str) -> list[Block]:
    return [Block(m["language"], m["text"], text.count("\n", 0, m.start("text"))) for m in FENCE.finditer(text)]


def run_shell(line: str, where: str) -> None:
    """One command of a shell block, made small."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets), f"{where}: {line}"
        return
    if words[0] != "symbreak":
        assert INSTALLS.fullmatch(" ".join(words)), f"{where}: who runs {line!r}?"
        return
    command = words[1]
    arguments = words[1:]
    if command == "train" and "--method" not in words:
        arguments += [*SHORTER["train"], *TINY_GATE]
    else:
        arguments += SHORTER.get(command, ())
    former, commands = sys.argv, dict(cli.COMMANDS)
    if command in ONLY_PARSED:
        cli.COMMANDS[command] = functools.wraps(commands[command])(lambda **options: 0)
    sys.argv = ["symbreak", *arguments]
    try:
        with pytest.raises(SystemExit) as stop:
            cli.main()
    finally:
        sys.argv = former
        cli.COMMANDS.update(commands)
    # An audit that answers "not a symmetry" ends with 2.
    assert stop.value.code == 0 or (command == "audit" and stop.value.code == 2), f"{where}: {line}"


def run_blocks(text: str, where: str) -> int:
    """Runs the blocks of a page one after the other, Python in one namespace; the count of Python ones.

    A Python block that begins with the comment `# NAME.py` is that file, for the commands that follow.
    """
    namespace: dict[str, object] = {"__name__": "__docs__"}
    printed: str | None = None
    count = 0
    for block in blocks_of(text):
        if block.language == "python":
            # The empty lines make a traceback point at the line of the page.
            code = compile("\n" * block.line + block.text, where, "exec", dont_inherit=True)
            captured = io.StringIO()
            with contextlib.redirect_stdout(captured):
                exec(code, namespace)
            printed, count = captured.getvalue(), count + 1
            if named := re.match(r"# (\w+\.py)\n", block.text):
                Path(named[1]).write_text(block.text)
        elif block.language == "bash":
            with contextlib.redirect_stdout(io.StringIO()):
                for number, line in enumerate(block.text.splitlines()):
                    run_shell(line, f"{where}:{block.line + number}")
        elif block.language == "output":
            assert printed is not None, f"{where}:{block.line}: output without a Python block before it"
            assert printed.split() == block.text.split(), f"{where}:{block.line}: the block above prints\n{printed}"
    return count


TRAINS = {"README.md", "tutorial.md", "python.md", "resume-and-faults.md"}  # compile agents with a gate for a while
SHOWN = [pytest.param(page, marks=[pytest.mark.slow] if page.name in TRAINS else []) for page in PAGES]


@pytest.mark.filterwarnings("ignore:.*Overriding environment")  # every command of a page runs in this process
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    from symbreak.training.drivers import CompiledDriver

    monkeypatch.setattr(CompiledDriver, "write_maps", lambda self, directory: None)  # slow, and tested elsewhere
    monkeypatch.chdir(tmp_path)  # what a page writes must not land in the repository
    run_blocks(page.read_text(encoding="utf-8"), str(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_code_hides_from_the_test(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert re.findall(r"^ {4,}(?:symbreak|make|pip|from|import|with) .*$", text, re.MULTILINE) == []
    known = {"python", "bash", "output", "text"}
    assert {block.language for block in blocks_of(page.read_text(encoding="utf-8"))} <= known


def test_pages_are_found():
    assert {page.name for page in PAGES} >= {"README.md", "declaring-a-symmetry.md"}


def test_a_quadruped_takes_fewer_than_fifteen_lines():
    text = (ROOT / "docs" / "declaring-a-symmetry.md").read_text(encoding="utf-8")
    quadruped = next(b for b in blocks_of(text) if b.language == "python" and "mirrored" in b.text)
    assert "Symmetry(" in quadruped.text
    assert len(quadruped.text.strip().splitlines()) < 15
    run_blocks(f"```python\n{quadruped.text}```\n", "the quadruped alone")  # nothing from elsewhere on the page


BROKEN = {
    "raises": ("```python\nx = 1\n```\ntext\n```python\nassert x == 2\n```\n", AssertionError),
    "order": ("```python\nprint(x)\n```\n```python\nx = 1\n```\n", NameError),
    "syntax": ("```python\nx =\n```\n", SyntaxError),
    "other output": ("```python\nprint(1)\n```\n```output\n2\n```\n", AssertionError),
    "no block before": ("```output\n2\n```\n", AssertionError),
    "shell": ("```bash\nfalse\n```\n", AssertionError),
    "no such target": ("```bash\nmake demmo\n```\n", AssertionError),
    "no such option": ("```bash\nsymbreak bench --jsn\n```\n", AssertionError),
    "no such task": ("```bash\nsymbreak train grid-2O   # typed wrongly\n```\n", AssertionError),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_page_is_caught(name):
    text, error = BROKEN[name]
    with pytest.raises(error):
        run_blocks(text, "fabricated.md")


def test_what_runs_and_what_does_not():
    text = "```python\nx = 1\n```\n```text\nfalse\n```\n```python\nassert x == 1\nprint(x)\n```\n```output\n1\n```\n"
    assert run_blocks(text, "fabricated.md") == 2
    with pytest.raises(NameError):
        run_blocks("```python\nprint(x)\n```\n", "another.md")  # a fresh namespace per page


def test_a_traceback_names_the_line_of_the_page():
    with pytest.raises(ZeroDivisionError) as caught:
        run_blocks("one\ntwo\n```python\nx = 1\n1 / 0\n```\n", "fabricated.md")
    assert caught.traceback[-1].lineno + 1 == 5
