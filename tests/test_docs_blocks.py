"""Every Python block of the documentation runs, and prints what stands in the `output` block after it."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.exists()]
FENCE = re.compile(
    r"^(?P<mark>`{3,})(?P<language>[\w+-]*)[^\n`]*\n(?P<text>.*?)^(?P=mark)[ \t]*$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks_of(text: str) -> list[Block]:
    return [Block(m["language"], m["text"], text.count("\n", 0, m.start("text"))) for m in FENCE.finditer(text)]


def run_blocks(text: str, where: str) -> int:
    """Runs the Python blocks of a page one after the other in one namespace; the count."""
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
        elif block.language == "output":
            assert printed is not None, f"{where}:{block.line}: output without a Python block before it"
            assert printed.split() == block.text.split(), f"{where}:{block.line}: the block above prints\n{printed}"
    return count


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what a page writes must not land in the repository
    run_blocks(page.read_text(encoding="utf-8"), str(page))


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
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_page_is_caught(name):
    text, error = BROKEN[name]
    with pytest.raises(error):
        run_blocks(text, "fabricated.md")


def test_what_runs_and_what_does_not():
    text = "```python\nx = 1\n```\n```bash\nfalse\n```\n```python\nassert x == 1\nprint(x)\n```\n```output\n1\n```\n"
    assert run_blocks(text, "fabricated.md") == 2
    with pytest.raises(NameError):
        run_blocks("```python\nprint(x)\n```\n", "another.md")  # a fresh namespace per page


def test_a_traceback_names_the_line_of_the_page():
    with pytest.raises(ZeroDivisionError) as caught:
        run_blocks("one\ntwo\n```python\nx = 1\n1 / 0\n```\n", "fabricated.md")
    assert caught.traceback[-1].lineno + 1 == 5
