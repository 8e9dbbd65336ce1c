"""The `emlp` package's SO(3) block as a pure function, so that it can be compiled and differentiated like ours.

Needs the `dev` extra. Used only to be measured against.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

from symbreak.errors import InputError


def emlp_block() -> tuple[Callable[[Any, Any], Any], Any, int]:
    """(function of parameters and a batch, parameters, width) of an EMLP block with our SO(3) hidden representation."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            import emlp.nn.objax as peer
            from emlp.groups import SO
            from emlp.reps.representation import Scalar, V

            group = SO(3)
            hidden = (70 * Scalar + 23 * V + 7 * V**2 + 2 * V**3)(group)
            block = peer.EMLPBlock(hidden, hidden)
    except ImportError as problem:
        raise InputError(
            f"the emlp package is not installed ({problem}); in symbreak's directory: pip install '.[dev]'"
        ) from problem
    variables = block.vars()

    def apply(parameters: Any, x: Any) -> Any:
        # Set past objax's own check, which names a class that JAX no longer has.
        for variable, tensor in zip(variables, parameters, strict=True):
            variable._value = tensor  # pyright: ignore[reportAttributeAccessIssue]
        return block(x)

    return apply, variables.tensors(), hidden.size()
