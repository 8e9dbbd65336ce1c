"""Hidden representations: how the width of a network is shared out among tensors of the group.

What a network reads or writes and its hidden layers do not contain, it is blind to: no equivariant map leads there. So
irreps of its two ends that the tensors lack are added.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

from symbreak.errors import InputError
from symbreak.nn.isotypic import isotypic
from symbreak.symmetry.basis import split_into_irreducibles
from symbreak.symmetry.group import Group
from symbreak.symmetry.rep import Atom, Rep, as_rep

Style = Literal["plain", "regular", "emlp"]

# Copies of R, V, V⊗V, V⊗V⊗V at width 256.
_SHARES: dict[str, tuple[int, ...]] = {
    "C2": (126, 55, 5),
    "C4": (136, 30),
    "SO(3)": (70, 23, 7, 2),
}
WIDTH = 256
ADDED = 0.25  # of the width, shared out among irreps that the tensors lack
SCARCE = 64  # an irrep outside of V that fills less than a part in so many is lacking too


@lru_cache(maxsize=256)
def hidden_rep(group: Group, width: int, style: Style, *ends: Rep) -> Rep:
    """A hidden representation of about equal parts of the group's small tensors, exactly `width` wide.

    `ends`: what the layers lead from and to; all of it can pass.
    """
    if style == "plain":
        return width * group.trivial
    if style == "regular":
        if not group.is_finite or width % group.order:
            raise InputError(f"a regular network under {group} needs a finite group and a width divisible by its order")
        return (width // group.order) * group.regular
    # For other groups half scalars, the rest vectors and, where they are small, their products.
    copies = _SHARES.get(group.name) or (0, max(1, int(0.43 * WIDTH / group.size)), int(0.08 * WIDTH / group.size**2))
    scaled = [max(1, round(count * width / WIDTH)) if count else 0 for count in copies[1:]]
    rep = _filled(group, width, [(_tensor(group, power), count) for power, count in enumerate(scaled, 1) if count])
    lacking = _lacking(rep, ends)
    if not lacking:
        return rep
    count = max(1, int(ADDED * width / sum(atom.size for atom in lacking)))
    return _filled(group, width, [*rep.blocks[1:], *((atom, count) for atom in lacking)])


def _filled(group: Group, width: int, blocks: list[tuple[Atom, int]]) -> Rep:
    """The blocks, and invariants up to the width before them."""
    used = sum(atom.size * count for atom, count in blocks)
    if used >= width:
        raise InputError(f"width {width} is too small for hidden tensors of {group}: use at least {2 * used}")
    rep = (width - used) * group.trivial
    for atom, count in blocks:
        rep = rep + count * atom
    return rep


def _lacking(rep: Rep, ends: tuple[Rep, ...]) -> list[Atom]:
    """An atom for each irrep of the ends that the representation has not, or hardly, got."""
    group, finite = rep.group, len(rep.group.matrices)
    inside, vectors, *outside = isotypic(rep, as_rep(group.vector), *ends)
    found = []
    for index, irrep in enumerate(inside.irreps):
        enough = 1 if vectors.multiplicity[index] else max(1, rep.size // (SCARCE * irrep.size))
        if inside.multiplicity[index] < enough and any(side.multiplicity[index] for side in outside):
            images = [np.round(image, 14) for image in irrep.images]
            found.append(group.atom(f"I{index}", images[:finite], images[finite:]))
    return found


def _tensor(group: Group, power: int) -> Atom:
    """V⊗…⊗V; where the group does more than permute its coordinates, in a basis that shows its irreducible parts."""
    atom = group.vector**power
    if power < 2 or atom.is_permutation:
        return atom
    smaller = tuple(group.vector**lower for lower in range(power))
    turn = split_into_irreducibles((*smaller, atom))[1][atom].transform
    images = [np.round(turn @ image @ turn.T, 14) for image in (*atom.matrices, *atom.lie)]
    return group.atom(atom.name, images[: len(group.matrices)], images[len(group.matrices) :])
