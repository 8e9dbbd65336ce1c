"""Imports go one way, the rooms of the house have no cellar named `utils`, and `__init__` files only re-export."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "symbreak"

BELOW_TRAINING = {"symmetry", "nn", "models", "gates", "theory", "agents", "tasks", "storage", "process"}
BELOW_CLI = BELOW_TRAINING | {"audit", "training"}
# What each room may import besides itself and `errors`.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "process": set(),
    "symmetry": set(),
    "theory": {"symmetry"},
    "tasks": {"symmetry"},
    "nn": {"symmetry"},
    "models": {"symmetry", "nn"},
    "gates": {"symmetry", "nn", "models", "theory"},
    "agents": {"symmetry", "nn", "models", "gates", "theory"},
    "storage": {"nn", "agents"},
    "audit": {"symmetry", "tasks"},
    "training": BELOW_TRAINING,
    "studies": BELOW_CLI,
    "bench": BELOW_CLI,
    "progress": set(),
    "api": BELOW_CLI | {"progress"},
    "commands": BELOW_CLI | {"studies", "bench", "progress"},
    "cli": BELOW_CLI | {"studies", "bench", "progress", "commands"},
    "__main__": {"cli"},
    "__init__": BELOW_CLI | {"studies", "api"},
}
FOREIGN_ALLOWED = {"symmetry": {"numpy", "scipy"}, "theory": {"numpy", "scipy", "matplotlib"}}
FORBIDDEN_NAMES = {"utils", "util", "common", "base", "helpers", "misc"}


def imported(tree: ast.AST, module: str, *, skip_functions: bool) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of every import, also nested ones; of functions only unless they are skipped."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if skip_functions and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = module.split(".")[: -node.level] if node.level else []
            start = ".".join([*parents, *([node.module] if node.module else [])])
            # `from symbreak import nn` imports a room by its name alone.
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)
        pending.extend(ast.iter_child_nodes(node))


def problems_of(source: str, path: str) -> list[str]:
    """What a module at `path` (relative to the package) does that the house does not allow."""
    parts = path.removesuffix(".py").split("/")
    room = parts[0]
    found = [f"{path}: a module named {part!r}" for part in parts if part in FORBIDDEN_NAMES]
    if room not in ALLOWED:
        return [*found, f"{path}: room {room!r} has no place in the order of imports"]
    tree = ast.parse(source, filename=path)
    module = ".".join(["symbreak", *parts])
    for line, name in imported(tree, module, skip_functions=room == "cli"):
        top, *rest = name.split(".")
        if top == "symbreak":
            target = rest[0] if rest and rest[0] in ALLOWED else ""
            if target not in ALLOWED[room] | {room, "errors"}:
                found.append(f"{path}:{line}: {room} imports {name}")
        elif room in FOREIGN_ALLOWED and top not in FOREIGN_ALLOWED[room] | set(sys.stdlib_module_names):
            found.append(f"{path}:{line}: {room} imports {top}")
    if parts[-1] == "__init__":
        found += [f"{path}:{node.lineno}: does more than re-export" for node in tree.body if not _reexports(node)]
    return found


def _reexports(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return all(isinstance(name, ast.Name) and name.id in {"__all__", "__version__"} for name in node.targets)
    docstring = (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return docstring or isinstance(node, ast.ImportFrom)


MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES)
def test_module_keeps_to_the_order(path):
    assert problems_of((PACKAGE / path).read_text(encoding="utf-8"), path) == []


def test_modules_are_found():
    assert {"symmetry/group.py", "errors.py", "__init__.py"} <= set(MODULES)


def test_the_order_has_no_circle():
    remaining = {room: set(below) for room, below in ALLOWED.items()}
    while remaining:
        free = {room for room, below in remaining.items() if not below & set(remaining)}
        assert free, f"these rooms may import each other: {sorted(remaining)}"
        remaining = {room: below for room, below in remaining.items() if room not in free}


BAD = {
    "upwards": ("symmetry/group.py", "from symbreak.nn.linear import Dense\n"),
    "upwards, relative": ("symmetry/group.py", "from ..nn import linear\n"),
    "upwards, by the room's name": ("nn/mlp.py", "from symbreak import gates\n"),
    "sideways": ("theory/mdp.py", "from symbreak.tasks.gridworld import GridWorld\n"),
    "lazily": ("nn/mlp.py", "def f():\n    from symbreak.agents.dqn import update\n    return update\n"),
    "for types only": ("tasks/task.py", "if TYPE_CHECKING:\n    from symbreak.training.run import Run\n"),
    "the whole package": ("nn/mlp.py", "import symbreak\n"),
    "a framework": ("symmetry/basis.py", "import jax.numpy as jnp\n"),
    "a framework, lazily": ("theory/mdp.py", "def f():\n    import gymnasium\n"),
    "at the top of the command line's parts": ("studies/plans.py", "from symbreak.cli import main\n"),
    "a cellar": ("nn/utils.py", "x = 1\n"),
    "a foundation": ("base/x.py", "x = 1\n"),
    "an unknown room": ("garage/car.py", "x = 1\n"),
    "work in __init__": ("nn/__init__.py", "from symbreak.nn.linear import Dense\nDense.cache = {}\n"),
    "a call in __init__": ("tasks/__init__.py", "from symbreak.tasks.registry import register\nregister()\n"),
    "a function in __init__": ("nn/__init__.py", "def f():\n    return 1\n"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_module_is_caught(name):
    path, source = BAD[name]
    assert len(problems_of(source, path)) >= 1


GOOD = {
    "downwards": (
        "gates/learned.py",
        "from symbreak.theory.mdp import MDP\nimport jax\nfrom symbreak.errors import InputError\n",
    ),
    "inside a room": ("nn/mlp.py", "from symbreak.nn.linear import Dense\nfrom .keys import named\n"),
    "lazily on the command line": ("cli.py", "def bench():\n    from symbreak.bench.layers import main\n    main()\n"),
    "re-exports": ("nn/__init__.py", '"""Layers."""\nfrom symbreak.nn.linear import Dense\n__all__ = ["Dense"]\n'),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_module_is_not(name):
    path, source = GOOD[name]
    assert problems_of(source, path) == []


def test_symmetry_and_theory_load_no_framework():
    script = "import sys, symbreak.symmetry, symbreak.theory\nprint({'jax', 'gymnasium'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
