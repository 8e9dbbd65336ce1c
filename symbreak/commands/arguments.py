"""What several commands are given: directories, names, and a user's own files and packages."""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import tyro

from symbreak.errors import InputError

RunDirectory = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
TaskName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]


def import_packages(names: Sequence[str]) -> list[ModuleType]:
    """Import what registers a user's environments: installed, or in the current directory."""
    here = str(Path.cwd())
    if names and here not in sys.path:
        sys.path.insert(0, here)
    modules = []
    for name in names:
        try:
            modules.append(importlib.import_module(name))
        except ModuleNotFoundError as problem:
            if problem.name is None or not (name == problem.name or name.startswith(f"{problem.name}.")):
                raise _failed(name, problem) from problem  # the package is there, something that it needs is not
            raise InputError(
                f"--env-import {name}: there is no such module; install it, or go to the directory that holds it"
            ) from None
        except Exception as problem:
            raise _failed(name, problem) from problem
    return modules


def _failed(name: str, problem: Exception) -> InputError:
    text = " ".join(str(problem).split())[:200]
    return InputError(f"--env-import {name}: importing it raised {type(problem).__name__}: {text}; mend it first")


def declared(symmetry: str | None, packages: Sequence[str]) -> Any:
    """The symmetry as given: a name, or the object of `file.py:NAME` (the file is executed)."""
    from symbreak.tasks.user_file import load_symmetry, names_a_file

    imported = import_packages(packages)
    if symmetry is not None and names_a_file(symmetry):
        return load_symmetry(symmetry, imported)
    return symmetry


def again(symmetry: str | None, packages: Sequence[str]) -> str:
    """The flags that a later command needs, because a run does not store them."""
    from symbreak.tasks.user_file import names_a_file

    own = f" --symmetry {shlex.quote(symmetry)}" if symmetry is not None and names_a_file(symmetry) else ""
    return own + (f" --env-import {' '.join(packages)}" if packages else "")
