"""Named arrays as bytes, in the safetensors format: a JSON header, then the arrays one after the other.

The writer has one text for given arrays: larger items first (so all are aligned), then by name. The reader accepts no
gap, no overlap, no unknown type and no header beyond a fixed size, and it never builds anything but arrays.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import struct
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symbreak.errors import InputError, StorageFault
from symbreak.storage.files import Damaged, is_count
from symbreak.storage.strict_json import from_json, to_json

Arrays = dict[str, np.ndarray]

MOST_HEADER = 2 << 20
MOST_ARRAYS = 5_000
MOST_DIMENSIONS = 32
MOST_NAME = 1_000

CODES: dict[str, str] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
DTYPES: dict[str, np.dtype] = {code: np.dtype(getattr(jnp, name, name)) for name, code in CODES.items()}


def named_leaves(trees: Any) -> dict[str, Any]:
    """The leaves of a pytree by their path, such as `agent/critics/0/model/weight`."""
    leaves: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(trees)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in leaves or not 0 < len(name) <= MOST_NAME:
            raise InputError(f"two leaves, or one without a usable path, are called {name[:80]!r}; rename one of them")
        leaves[name] = leaf
    return leaves


def named_arrays(trees: Any) -> Arrays:
    """The same on the host; a leaf that is no array of a known type is refused by its name."""
    arrays: Arrays = {}
    for name, leaf in named_leaves(trees).items():
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
            raise InputError(f"{name} is a {type(leaf).__name__}, not an array; keep it out of what is saved")
        if str(leaf.dtype) not in CODES:
            raise InputError(f"{name} has type {leaf.dtype}, which cannot be saved; convert it to one that can")
        arrays[name] = np.asarray(leaf)
    return arrays


def as_bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def encode(arrays: Mapping[str, np.ndarray], where: str) -> list[bytes | memoryview]:
    """The parts of a file, to be written one after the other."""
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    entries: dict[str, Any] = {}
    offset = 0
    for name in names:
        array = arrays[name]
        end = offset + array.nbytes
        entries[name] = {"dtype": CODES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    header = to_json(entries, where)
    header += b" " * (-len(header) % 8)
    if len(header) > MOST_HEADER or len(names) > MOST_ARRAYS:
        raise StorageFault(f"{where}: {len(names)} arrays are more than one file may hold; merge some of them")
    return [struct.pack("<Q", len(header)), header, *(as_bytes(arrays[name]) for name in names)]


def decode(data: bytearray, where: str) -> Arrays:
    """The arrays, as views into `data`."""
    if len(data) < 8:
        raise Damaged(f"{where} is too short to hold arrays")
    (length,) = struct.unpack_from("<Q", data)
    if length > MOST_HEADER or 8 + length > len(data):
        raise Damaged(f"{where} announces a header of {length} bytes")
    entries = from_json(data[8 : 8 + length], f"the header of {where}")
    if not isinstance(entries, dict) or len(entries) > MOST_ARRAYS:
        raise Damaged(f"{where} has a header that is no table of at most {MOST_ARRAYS} arrays")
    body = memoryview(data)[8 + length :]
    arrays: Arrays = {}
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: _offsets(item[1], item[0], where)):
        start, end = _offsets(entry, name, where)
        dtype, shape = _kind(entry, name, where)
        if start != position or end - start != math.prod(shape) * dtype.itemsize or end > len(body):
            raise Damaged(f"{where}: array {name[:80]!r} does not lie where its type and shape need it")
        arrays[name] = np.frombuffer(body[start:end], dtype).reshape(shape)
        if dtype == np.bool_ and np.any(np.frombuffer(body[start:end], np.uint8) > 1):
            raise Damaged(f"{where}: array {name[:80]!r} holds a truth value that is neither 0 nor 1")
        position = end
    if position != len(body):
        raise Damaged(f"{where} holds {len(body) - position} bytes that belong to no array")
    return arrays


def _offsets(entry: Any, name: str, where: str) -> tuple[int, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"} or len(name) > MOST_NAME:
        raise Damaged(f"{where}: entry {name[:80]!r} of the header does not describe an array")
    offsets = entry["data_offsets"]
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(is_count(offset) for offset in offsets):
        raise Damaged(f"{where}: array {name[:80]!r} has impossible offsets")
    return offsets[0], offsets[1]


def _kind(entry: dict[str, Any], name: str, where: str) -> tuple[np.dtype, tuple[int, ...]]:
    code, shape = entry["dtype"], entry["shape"]
    if not isinstance(code, str) or code not in DTYPES:
        raise Damaged(f"{where}: array {name[:80]!r} is of an unknown type")
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS or not all(is_count(size) for size in shape):
        raise Damaged(f"{where}: array {name[:80]!r} has an impossible shape")
    # NumPy counts the items of an empty array as if no side of it were zero.
    if not is_count(math.prod(max(1, size) for size in shape) * DTYPES[code].itemsize):
        raise Damaged(f"{where}: array {name[:80]!r} has an impossible shape")
    return DTYPES[code], tuple(shape)


def describe(leaf: Any) -> str:
    """Type and shape, as in `float32[3,4]`."""
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"


def fit(templates: Any, arrays: Arrays, where: str) -> Any:
    """The templates' pytree filled with the arrays: the same names, types and shapes, or a refusal that names one.

    Leaves become JAX arrays with memory of their own (they may be donated), NumPy arrays where the template has those.
    """
    expected = named_leaves(templates)
    for name in sorted(expected.keys() | arrays.keys()):
        wanted = describe(expected[name]) if name in expected else "nothing"
        saved = describe(arrays[name]) if name in arrays else "nothing"
        if wanted != saved:
            raise StorageFault(
                f"{where} does not fit this configuration: it holds {saved} as {name}, where {wanted} is expected; "
                "resume with the configuration and version that saved it"
            )
    leaves = [
        arrays[name].copy() if isinstance(leaf, np.ndarray | np.generic) else jnp.array(arrays[name], copy=True)
        for name, leaf in expected.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(templates), leaves)


def fingerprint(trees: Any) -> str:
    """SHA-256 in 64 hex digits: equal iff names, types, shapes and all bits are."""
    digest = hashlib.sha256()
    for name, array in sorted(named_arrays(trees).items()):
        text = f"{name}\0{describe(array)}\0{array.nbytes}\n".encode()
        digest.update(text)
        digest.update(as_bytes(array))
    return digest.hexdigest()


def array_to_json(array: np.ndarray) -> dict[str, Any]:
    """A small array whose length is not known beforehand, such as the actions of the running episode, exact."""
    code = CODES[str(array.dtype)]
    return {"dtype": code, "shape": list(array.shape), "base64": base64.b64encode(as_bytes(array)).decode("ascii")}


def array_from_json(value: Any, where: str) -> np.ndarray:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "base64"}:
        raise Damaged(f"{where} does not describe an array")
    dtype, shape = _kind(value, "array", where)
    try:
        data = base64.b64decode(value["base64"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise Damaged(f"{where} is not base64") from error
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise Damaged(f"{where} has {len(data)} bytes, which its type and shape do not need")
    return np.frombuffer(data, dtype).reshape(shape).copy()
