"""Hidden representations: how the width of a network is shared out among tensors of the group."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

from symbreak.errors import InputError
from symbreak.symmetry.basis import split_into_irreducibles
from symbreak.symmetry.group import Group
from symbreak.symmetry.rep import Atom, Rep

Style = Literal["plain", "regular", "emlp"]

# Copies of R, V, V⊗V, V⊗V⊗V at width 256.
_SHARES: dict[str, tuple[int, ...]] = {
    "C2": (126, 55, 5),
    "C4": (136, 30),
    "SO(3)": (70, 23, 7, 2),
}
WIDTH = 256


@lru_cache(maxsize=256)
def hidden_rep(group: Group, width: int, style: Style) -> Rep:
    """A hidden representation of about equal parts of the group's small tensors, exactly `width` wide."""
    if style == "plain":
        return width * group.trivial
    if style == "regular":
        if not group.is_finite or width % group.order:
            raise InputError(f"a regular network under {group} needs a finite group and a width divisible by its order")
        return (width // group.order) * group.regular
    # For other groups half scalars, the rest vectors and, where they are small, their products.
    copies = _SHARES.get(group.name) or (0, int(0.43 * WIDTH / group.size), int(0.08 * WIDTH / group.size**2))
    scaled = [max(1, round(count * width / WIDTH)) if count else 0 for count in copies[1:]]
    used = sum(count * group.size**power for power, count in enumerate(scaled, start=1))
    if used >= width:
        raise InputError(f"width {width} is too small for hidden tensors of {group}: use at least {2 * used}")
    rep = (width - used) * group.trivial
    for power, count in enumerate(scaled, start=1):
        if count:
            rep = rep + count * _tensor(group, power)
    return rep


def _tensor(group: Group, power: int) -> Atom:
    """V⊗…⊗V; where the group does more than permute its coordinates, in a basis that shows its irreducible parts."""
    atom = group.vector**power
    if power < 2 or atom.is_permutation:
        return atom
    smaller = tuple(group.vector**lower for lower in range(power))
    turn = split_into_irreducibles((*smaller, atom))[1][atom].transform
    images = [np.round(turn @ image @ turn.T, 14) for image in (*atom.matrices, *atom.lie)]
    return group.atom(atom.name, images[: len(group.matrices)], images[len(group.matrices) :])
