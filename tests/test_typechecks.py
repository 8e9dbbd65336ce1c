"""The hook of conftest is active: wrong types and wrong shapes are refused at test time, right ones are not."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from jaxtyping import TypeCheckError

from symbreak.symmetry import C, Element, Field, Group, Layout

PACKAGE = """
import jax.numpy as jnp
from jaxtyping import Array, Float


def pairwise(x: Float[Array, "batch size"], y: Float[Array, "batch size"]) -> Float[Array, " batch"]:
    return (x * y).sum(axis=1)


def lying(x: Float[Array, "batch size"]) -> Float[Array, " batch"]:
    return x
"""


def test_a_wrong_type_is_refused_in_the_package():
    with pytest.raises(TypeCheckError):
        C("four")  # pyright: ignore[reportArgumentType]
    assert C(4).order == 4


def test_shapes_are_checked_by_such_a_hook(tmp_path):
    """The package's own annotations may change, so the shapes are those of a package made here."""
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "__init__.py").write_text(PACKAGE)
    script = """
    import sys
    from jaxtyping import TypeCheckError, install_import_hook

    if sys.argv[1] == "hooked":
        install_import_hook("sample", "beartype.beartype")
    import jax.numpy as jnp
    import sample

    assert sample.pairwise(jnp.ones((2, 3)), jnp.ones((2, 3))).shape == (2,)
    for wrong in (lambda: sample.pairwise(jnp.ones((2, 3)), jnp.ones((1, 3))), lambda: sample.lying(jnp.ones((2, 3)))):
        try:
            wrong()
        except TypeCheckError:
            print("refused")
        else:
            print("accepted")
    """

    def run(mode: str) -> list[str]:
        command = [sys.executable, "-c", textwrap.dedent(script), mode]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    assert run("hooked") == ["refused", "refused"]
    assert run("plain") == ["accepted", "accepted"]  # so it is the hook that refuses


def test_dataclasses_work_under_the_hook():
    assert Element((0,)) @ Element((1,)) == Element((0, 1))
    field = Field(C(2).vector, indices=(1, 0))
    assert field == Field(C(2).vector, indices=(1, 0))
    assert Layout({"pair": field}).order == (1, 0)
    with pytest.raises(TypeCheckError):
        Group(3, [])  # pyright: ignore[reportArgumentType]


def test_x64_is_for_one_test(x64):
    import jax.numpy as jnp

    assert jnp.ones(1).dtype == "float64"


def test_float32_is_the_rule():
    import jax.numpy as jnp

    assert jnp.ones(1).dtype == "float32"
