"""What an equivariant layer costs: against a dense one of equal width, and against the `emlp` package."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from typing import Any

from symbreak.bench.timing import interleaved, jax_is_imported, pin_one_core
from symbreak.errors import InputError

BATCH = 256
TARGETS = {
    "c4_64": (0.55, "equivariant / dense, C4 with 64 channels"),
    "c4_128": (0.5, "equivariant / dense, C4 with 128 channels"),
    "z4_256": (0.7, "equivariant / dense, Z4 tensors, width 256"),
    "so3_256": (0.7, "equivariant / dense, SO(3) tensors, width 256"),
    "emlp_speedup": (10.0, "SO(3) block: emlp's time / ours"),
    "emlp_memory_ratio": (0.1, "SO(3) block: our memory / emlp's"),
}


def bench_layers(json: bool = False, repeats: int = 150) -> dict[str, float]:
    """Measure, print and return the ratios; forward and backward, batch 256, float32, one core."""
    if jax_is_imported():
        raise InputError("bench layers must pin its core before JAX is imported; run it as a command of its own")
    pin_one_core()
    results = {**_against_dense(repeats), **_against_emlp(max(3, repeats // 30))}
    if json:
        print(json_module.dumps(results))
        return results
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name, justify in (("ratio", "left"), ("measured", "right"), ("target", "right")):
        table.add_column(name, justify=justify)  # pyright: ignore[reportArgumentType]
    for name, (target, words) in TARGETS.items():
        sign = "≥" if name == "emlp_speedup" else "≤"
        table.add_row(words, f"{results[name]:.2f}", f"{sign} {target:g}")
    Console().print(table)
    return results


def _compiled(apply: Callable[[Any, Any], Any], parameters: Any, width: int) -> tuple[Any, tuple[Any, ...]]:
    """Forward and backward pass of a batch, with respect to parameters and input."""
    import jax

    x = jax.random.normal(jax.random.key(1), (BATCH, width))
    cotangent = jax.random.normal(jax.random.key(2), jax.eval_shape(apply, parameters, x).shape)

    def both(parameters: Any, x: Any, cotangent: Any) -> Any:
        value, pull = jax.vjp(apply, parameters, x)
        return value, pull(cotangent)

    arguments = (parameters, x, cotangent)
    return jax.jit(both).lower(*arguments).compile(), arguments


def _against_dense(repeats: int) -> dict[str, float]:
    import jax

    from symbreak.nn import Dense, Equivariant, hidden_rep
    from symbreak.symmetry import SO3, C

    cases = {
        "c4_64": hidden_rep(C(4), 256, "regular"),
        "c4_128": hidden_rep(C(4), 512, "regular"),
        "z4_256": hidden_rep(C(4), 256, "emlp"),
        "so3_256": hidden_rep(SO3(), 256, "emlp"),
    }
    results = {}
    for name, rep in cases.items():
        calls = {}
        for family in (Equivariant, Dense):
            layer = family(rep, rep, key=jax.random.key(0))
            run, arguments = _compiled(lambda layer, x: jax.vmap(layer)(x), layer, rep.size)
            calls[family.__name__] = lambda run=run, arguments=arguments: run(*arguments)
        times = interleaved(calls, repeats)
        results[name] = times["Equivariant"] / times["Dense"]
    return results


def _against_emlp(repeats: int) -> dict[str, float]:
    import jax

    from symbreak.bench.emlp_peer import emlp_block
    from symbreak.nn import Equivariant, hidden_rep
    from symbreak.nn.mlp import Block
    from symbreak.symmetry import SO3

    rep = hidden_rep(SO3(), 256, "emlp")
    block = Block(Equivariant, rep, rep, "emlp", key=jax.random.key(0))
    ours, our_arguments = _compiled(lambda block, x: jax.vmap(block)(x), block, rep.size)
    theirs, their_arguments = _compiled(*emlp_block())
    calls = {"ours": lambda: ours(*our_arguments), "theirs": lambda: theirs(*their_arguments)}
    # Ours several times in a row: the first call after theirs pays for giving back what theirs had allocated.
    times = interleaved(calls, repeats, inner={"ours": 20, "theirs": 1})
    return {
        "emlp_speedup": times["theirs"] / times["ours"],
        "emlp_memory_ratio": _memory(ours) / _memory(theirs),
    }


def _memory(compiled: Any) -> int:
    """Bytes that the compiled program needs at once: its arguments, its results and everything between."""
    sizes = compiled.memory_analysis()
    return sizes.temp_size_in_bytes + sizes.argument_size_in_bytes + sizes.output_size_in_bytes
