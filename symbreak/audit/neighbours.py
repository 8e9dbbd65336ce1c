"""Symmetries that differ from a declared one in a single sign, order or kind of field.

Most wrong declarations are one slip away from the right one: a velocity that should flip, legs counted the other way
round, a goal that was forgotten. A neighbour changes one field, or all fields that belong together (same name up to the
dot, or same transformation), or flips all that moves, and is again a representation of the same group.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from symbreak.audit.declaration import Declaration, Images, Place, joined
from symbreak.symmetry import Atom, Group

FULLY_PERMUTED = 4  # up to this size all signs and orders are tried, above only single and double changes
LARGEST_CHANGED = 12


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A changed declaration, which fields were changed, and what should happen to them in words.

    The words leave room for one field or several: "need{s} the opposite sign".

    `freezes` says that several numbers stop transforming at all: this lowers errors by asking for less, so it is
    believed only where it makes the symmetry exact. `recasts` says that a field got another kind of transformation
    rather than another sign or order, `acts` that only actions are changed.
    """

    declaration: Declaration
    fields: tuple[str, ...]
    words: str
    freezes: bool
    recasts: bool
    acts: bool


def units(declaration: Declaration) -> list[tuple[Place, ...]]:
    """Fields that are changed together: each alone, those of one name up to the dot, those that transform alike.

    The last on each side, and on both.
    """
    kinds = {place: joined(images) for place, images in declaration.images.items()}
    found: dict[tuple[Place, ...], None] = {(place,): None for place in kinds}
    for place, kind in kinds.items():
        alike = [other for other in kinds if kinds[other] == kind]
        found[tuple(p for p in alike if p[1].split(".")[0] == place[1].split(".")[0])] = None
        found[tuple(p for p in alike if p[0] == place[0])] = None
        found[tuple(alike)] = None
    return list(found)


def neighbours(declaration: Declaration) -> Iterator[Neighbour]:
    """Every change of every unit that leaves a representation; what moved, observations or actions, still does."""
    for unit in units(declaration):
        old = declaration.images[unit[0]]
        fields = tuple(dict.fromkeys(name for _, name in unit))
        tried = {joined(old)}
        for new, words in _variants(old, declaration.group, declaration.names[unit[0]]):
            if joined(new) in tried:
                continue
            tried.add(joined(new))
            changed = declaration.with_images(unit, new)
            if changed is not None:
                freezes = len(new[0]) > 1 and declaration.moves(old) and not declaration.moves(new)
                recasts = "should transform" in words or "should turn" in words
                yield Neighbour(changed, fields, words, freezes, recasts, all(side == "action" for side, _ in unit))
    yield from _flipped_together(declaration)


def _flipped_together(declaration: Declaration) -> Iterator[Neighbour]:
    """All that moves with the opposite sign: forgetting signs everywhere is one slip, whatever the fields are like."""
    moved = {place: images for place, images in declaration.images.items() if declaration.moves(images)}
    if declaration.discrete:
        moved = {place: images for place, images in moved.items() if place[0] != "action"}
    for k in range(len(declaration.group.matrices)):
        changed = declaration.changed({place: (*m[:k], -m[k], *m[k + 1 :]) for place, m in moved.items()})
        if changed is not None and moved:
            fields = tuple(dict.fromkeys(name for _, name in moved))
            yield Neighbour(changed, fields, "need{s} the opposite sign", freezes=False, recasts=False, acts=False)


def _order(matrix: np.ndarray) -> int:
    """How often a transformation must be repeated to be undone; a change that alters this asks for less than before."""
    power = matrix
    for order in range(1, 2 * LARGEST_CHANGED + 1):
        if np.abs(power - np.eye(len(matrix))).max() < 1e-6:
            return order
        power = power @ matrix
    return 0


def _variants(old: Images, group: Group, names: tuple[str, ...]) -> Iterator[tuple[Images, str]]:
    size = len(old[0])
    if size > LARGEST_CHANGED:
        return
    for k in range(len(group.matrices)):
        for matrix, words in _variants_of_one(old[k], names):
            if _order(matrix) == _order(old[k]) or _order(old[k]) <= 2:
                yield (*old[:k], matrix, *old[k + 1 :]), words
    yield tuple(m.T for m in old), "turn{s} the wrong way round"
    for atom, words in _kinds(group):
        if size % atom.size == 0:
            copies = np.eye(size // atom.size)
            yield tuple(np.kron(copies, m) for m in (*atom.matrices, *atom.lie)), words


def _kinds(group: Group) -> Iterator[tuple[Atom, str]]:
    yield group.trivial, "should stay unchanged"
    yield group.vector, "should transform like the group's own vectors"
    if group.is_finite and group.size > 2 and not group.factors:
        yield group.rotation(1), "should turn like a vector of the plane"


def _variants_of_one(old: np.ndarray, names: tuple[str, ...]) -> Iterator[tuple[np.ndarray, str]]:
    size = len(old)
    identity = np.allclose(old, np.eye(size))
    flipped = np.allclose(old, -np.eye(size))
    yield -old, "should flip" if identity else "should not flip" if flipped else "need{s} the opposite sign"
    if size == 1 or not np.all(np.isclose(np.abs(old), 0) | np.isclose(np.abs(old), 1)):
        return
    for sign in _signs(size):
        new = sign[:, None] * old
        yield new, f"need{{s}} {_sign_words(sign, new, old, names)}"
    old_order, old_signs = _written(old, names)
    for order in _orders(size):
        shuffle = np.eye(size)[list(order)]
        for new in (shuffle @ old @ shuffle.T, *([shuffle @ old] if _order(old) <= 2 else [])):
            new_order, new_signs = _written(new, names)
            signs = "" if new_signs == old_signs else f" and the signs {new_signs}"
            yield new, f"need{{s}} the order {new_order} instead of {old_order}{signs}"


def _signs(size: int) -> Iterator[np.ndarray]:
    most = size if size <= FULLY_PERMUTED else 2
    for count in range(1, most + 1):
        for flipped in itertools.combinations(range(size), count):
            sign = np.ones(size)
            sign[list(flipped)] = -1.0
            yield sign


def _orders(size: int) -> Iterator[tuple[int, ...]]:
    if size <= FULLY_PERMUTED:
        yield from itertools.permutations(range(size))
        return
    for i, j in itertools.combinations(range(size), 2):
        order = list(range(size))
        order[i], order[j] = j, i
        yield tuple(order)


def _sign_words(sign: np.ndarray, new: np.ndarray, old: np.ndarray, names: tuple[str, ...]) -> str:
    if _are_numbers(names):
        return f"the signs {_written(new, names)[1]} instead of {_written(old, names)[1]}"
    return f"the opposite sign at {' and '.join(_escaped(names)[i] for i in np.flatnonzero(sign < 0))}"


def _written(matrix: np.ndarray, names: tuple[str, ...]) -> tuple[str, str]:
    """Where each entry comes from, and with which sign."""
    source = np.abs(matrix).argmax(axis=1)
    signs = matrix[np.arange(len(matrix)), source]
    order = " ".join(_escaped(names)[i] for i in source)
    return f"({order})", "(" + " ".join("+" if s > 0 else "−" for s in signs) + ")"


def _are_numbers(names: tuple[str, ...]) -> bool:
    return all(name.isdigit() for name in names)


def _escaped(names: tuple[str, ...]) -> list[str]:
    """Words are templates, in which a brace has a meaning."""
    return [name.replace("{", "{{").replace("}", "}}") for name in names]
