"""Random streams by name, so that adding one reader never shifts what another one draws."""

import zlib

import jax
from jaxtyping import Array, PRNGKeyArray

Key = PRNGKeyArray | Array


def named_key(key: Key, *names: str | int) -> Key:
    """The stream of `key` for this name; different names give independent streams."""
    for name in names:
        key = jax.random.fold_in(key, zlib.crc32(name.encode()) if isinstance(name, str) else name)
    return key
