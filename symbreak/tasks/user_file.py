"""A symmetry from a user's own file, named `file.py:NAME`.

Loading runs the file, and modules beside it can be imported: give only files you trust. Nothing that symbreak stores (a
config, a checkpoint) ever names such a file, so this happens only when a user types it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from symbreak.errors import InputError
from symbreak.symmetry import Symmetry


def names_a_file(text: str) -> bool:
    """Whether a symmetry given as text is `file.py:NAME` rather than one of a task's names."""
    return ".py:" in text or text.endswith(".py")


def load_symmetry(text: str, imported: Sequence[ModuleType] = ()) -> Symmetry:
    """The symmetry NAME of `file.py:NAME`; NAME may also be a function without arguments that returns one.

    A file that is one of the `imported` modules is not run again: it may have registered its environments.
    """
    path_text, _, name = text.rpartition(":")
    if not path_text or not name or name.endswith(".py"):
        raise InputError(f"symmetry {text!r} names no object: write it as file.py:NAME")
    path = Path(path_text)
    if not path.is_file():
        raise InputError(f"symmetry {text!r}: there is no file {path}; give the path from the current directory")
    same = (module for module in imported if Path(getattr(module, "__file__", None) or "").resolve() == path.resolve())
    module = next(same, None) or _run(path, text)
    if not hasattr(module, name):
        near = get_close_matches(name, vars(module), n=1) or [
            n for n, v in vars(module).items() if isinstance(v, Symmetry)
        ]
        hint = f"did you mean {near[0]}?" if near else "define a Symmetry there"
        raise InputError(f"symmetry {text!r}: {path} defines no {name}; {hint}")
    value = getattr(module, name)
    with _in_one_line(f"symmetry {text!r}: calling {name}"):
        symmetry = value() if callable(value) and not isinstance(value, Symmetry) else value
    if not isinstance(symmetry, Symmetry):
        raise InputError(f"symmetry {text!r}: {name} is {type(symmetry).__name__}, it must be a symbreak Symmetry")
    return symmetry


def _run(path: Path, text: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"symbreak_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"symmetry {text!r}: {path} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling inside the file look their module up by name
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.append(beside)  # last: a module there never hides an installed one
    with _in_one_line(f"symmetry {text!r}: running {path}"):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _in_one_line(doing: str) -> Iterator[None]:
    """What a user's own code raises is the user's to mend."""
    try:
        yield
    except InputError:
        raise  # already one line that says what is wrong with the symmetry
    except Exception as problem:
        written = " ".join(str(problem).split())
        raise InputError(f"{doing} raised {type(problem).__name__}: {written}") from problem
