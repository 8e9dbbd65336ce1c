"""Groups, given by what generates them.

A group is a set of matrices: finitely many *generators*, and for continuous groups a basis of the Lie algebra. Any
other representation must satisfy the same *relations*; they are checked in float64 when a representation is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from symbreak.errors import InputError
from symbreak.symmetry.elements import (
    Element,
    Enumeration,
    Matrices,
    Matrix,
    Word,
    enumerate_products,
    frozen_squares,
    period,
    random_turns,
    whole_numbers,
)
from symbreak.symmetry.relations import check_representation, crossings, require_orthogonal, words_from_table

if TYPE_CHECKING:
    from symbreak.symmetry.rep import Atom

WHOLE = 1e-14  # entries of a turn that are whole up to this are whole


class Group:
    """Generators and Lie-algebra generators with the relations that every representation must satisfy.

    `matrices` must be a faithful representation: the group *is* the group of these matrices. `relations`, where given,
    must define the group; without them its whole multiplication table is used, which is always enough. `circles` says
    which Lie generators belong to one compact factor (one: a circle, three: rotations of space), for `sample` alone.
    """

    def __init__(
        self,
        name: str,
        matrices: Matrices = (),
        *,
        lie: Matrices = (),
        relations: Sequence[Word] = (),
        circles: Sequence[tuple[int, ...]] | None = None,
        factors: tuple[Group, ...] = (),
    ) -> None:
        self.name = name
        self.factors = factors
        what = f"group {name!r}"
        self.matrices = frozen_squares(matrices, what)
        self.lie = frozen_squares(lie, f"{what}, Lie generators")
        shapes = {m.shape for m in (*self.matrices, *self.lie)}
        if len(shapes) != 1:
            raise InputError(f"{what}: give at least one generator, all of one size; got shapes {sorted(shapes)}")
        self.size = next(iter(shapes))[0]
        self.circles = tuple(circles) if circles is not None else tuple((i,) for i in range(len(lie)))
        if sorted(i for circle in self.circles for i in circle) != list(range(len(lie))):
            raise InputError(f"{what}: circles {self.circles} must name each of the {len(lie)} Lie generators once")
        require_orthogonal(self, self.matrices, self.lie, what)
        if self.lie and np.linalg.svd([m.ravel() for m in self.lie], compute_uv=False).min() < 1e-3:
            raise InputError(f"{what}: Lie generators are zero or depend on each other; leave out or rescale one")
        # Given ones name what is broken in a user's words; whether they are enough only the table can tell.
        self.relations = tuple(dict.fromkeys((*relations, *words_from_table(self._enumeration))))
        self.periods = tuple(period(generator) for generator in self.lie)
        self.crossings = crossings(self._enumeration, self.lie)
        check_representation(self, self.matrices, self.lie, what)

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return (self.size, *(m.tobytes() for m in self.matrices), "lie", *(m.tobytes() for m in self.lie))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return self.name

    @property
    def is_finite(self) -> bool:
        return not self.lie

    @property
    def order(self) -> int:
        return len(self.elements())

    @cached_property
    def generators(self) -> tuple[Element, ...]:
        """The finite generators, then a turn by one radian along each Lie generator."""
        turns = tuple(Element((tuple(row),)) for row in np.eye(len(self.lie)).tolist())
        return tuple(Element((i,)) for i in range(len(self.matrices))) + turns

    @cached_property
    def _enumeration(self) -> Enumeration:
        return enumerate_products(self.matrices, self.size, f"group {self.name!r}")

    @property
    def discrete(self) -> tuple[Element, ...]:
        """All products of the finite generators, identity first, found breadth first."""
        return self._enumeration.elements

    def elements(self) -> tuple[Element, ...]:
        """Every element of a finite group, identity first."""
        if not self.is_finite:
            raise InputError(f"group {self.name!r} is continuous and cannot be enumerated: use sample(rng)")
        return self.discrete

    def sample(self, rng: np.random.Generator) -> Element:
        """A uniformly distributed element (for Lie groups of unknown kind: a product of random turns)."""
        element = self.discrete[int(rng.integers(len(self.discrete)))]
        for circle in self.circles:
            for coefficients in random_turns(circle, self.periods, rng):
                element = element @ Element((coefficients,))
        return element

    def table(self) -> np.ndarray:
        """Multiplication table of a finite group: entry (i, j) is the index of element_i · element_j."""
        self.elements()
        return self._enumeration.table()

    # --- atoms -------------------------------------------------------------------------------------------------

    def atom(self, name: str, matrices: Matrices = (), lie: Matrices = (), entries: Sequence[str] = ()) -> Atom:
        """Any orthogonal representation, one matrix per generator; refused unless it satisfies the relations."""
        from symbreak.symmetry.rep import Atom

        return Atom(self, name, matrices, lie, entries)

    @property
    def trivial(self) -> Atom:
        """R: unchanged by the group."""
        return self.atom("R", [np.eye(1) for _ in self.matrices], [np.zeros((1, 1)) for _ in self.lie])

    @property
    def sign(self) -> Atom:
        """P: changes sign with the determinant of the base representation."""
        signs = [np.round(np.linalg.det(m)).reshape(1, 1) for m in self.matrices]
        return self.atom("P", signs, [np.zeros((1, 1)) for _ in self.lie])

    @property
    def vector(self) -> Atom:
        """V: the base representation."""
        return self.atom("V", self.matrices, self.lie)

    @property
    def pseudovector(self) -> Atom:
        """The base representation times its determinant, as angular velocities transform."""
        return self.atom("pseudo-V", [m * np.linalg.det(m) for m in self.matrices], self.lie)

    @property
    def regular(self) -> Atom:
        """The permutation of a finite group's own elements by multiplication from the left."""
        table = self.table()
        images = []
        for element in self._enumeration.right[0]:  # where the generators stand among the elements
            image = np.zeros(table.shape)
            image[table[element], np.arange(len(table))] = 1.0
            images.append(image)
        return self.atom("regular", images)

    def rotation(self, frequency: int = 1) -> Atom:
        """Plane rotation `frequency` times as fast as the group's own; for C(n), D(n), SO(2) and other plane groups."""
        if self.is_finite and len(self.matrices) == 1:
            images = [turn(2 * np.pi * frequency / self.order)]
        elif self.size == 2:
            # A generator is a turn, or a turn after the reflection of the second axis.
            angles = [frequency * np.arctan2(m[1, 0], m[0, 0]) for m in self.matrices]
            mirrors = [np.diag([1.0, np.sign(np.linalg.det(m))]) for m in self.matrices]
            images = [turn(angle) @ mirror for angle, mirror in zip(angles, mirrors, strict=True)]
        else:
            raise InputError(f"group {self.name!r} has no plane rotations of its own: use atom(name, matrices)")
        return self.atom(f"rotation({frequency})", images, [frequency * m for m in self.lie])

    def permutation(
        self, name: str, permutations: Sequence[Sequence[int]], signs: Sequence[Sequence[float]] | None = None
    ) -> Atom:
        """(ρx)[i] = sign[i]·x[permutation[i]], one permutation (and optionally one row of ±1) per generator."""
        what = f"atom {name!r}"
        count = len(self.matrices)
        if not count or len(permutations) != count or (signs is not None and len(signs) != count):
            given = f"{len(permutations)} permutations and {'no' if signs is None else len(signs)} rows of signs"
            raise InputError(f"{what}: got {given} for the {count} finite generators of {self.name}; give one each")
        images = []
        for i, permutation in enumerate(permutations):
            places = whole_numbers(permutation, what)
            if sorted(places) != list(range(len(places))):
                raise InputError(
                    f"{what}: {list(places)} is no permutation of 0..{len(places) - 1}; name each index once"
                )
            sign = np.ones(len(places)) if signs is None else np.asarray(signs[i], dtype=float)
            if sign.shape != (len(places),) or not np.all(np.abs(sign) == 1):
                raise InputError(f"{what}: signs {sign.tolist()} must be {len(places)} entries of +1 or -1")
            images.append(sign[:, None] * np.eye(len(places))[list(places)])
        return self.atom(name, images, [np.zeros_like(images[0]) for _ in self.lie])

    def mirrored(
        self, joints: Sequence[str], swap: Mapping[str, str], flip: Sequence[str] = (), name: str = "joints"
    ) -> Atom:
        """Joints by name under a reflection: `swap` exchanges parts of names; joints with a `flip` part change sign.

        `mirrored(["L_hip", "R_hip"], swap={"L_": "R_"}, flip=["hip"])` sends the left hip to minus the right one. A
        part that occurs in no joint is refused, because it is more likely misspelled than meant.
        """
        flips = [flip] if isinstance(flip, str) else list(flip)
        exchange = {**swap, **{new: old for old, new in swap.items()}}
        position = {joint: i for i, joint in enumerate(joints)}
        if len(position) != len(joints):
            raise InputError(f"atom {name!r}: a joint is named twice in {list(joints)}; name each once")
        for part in (*exchange, *flips):
            if not any(part in joint for joint in joints):
                raise InputError(
                    f"atom {name!r}: {part!r} occurs in none of the joints {list(joints)}; check its spelling"
                )
        permutation = []
        for joint in joints:
            part = next((part for part in exchange if part in joint), None)
            image = joint if part is None else joint.replace(part, exchange[part])
            if image not in position:
                raise InputError(f"joint {joint!r} should be mirrored to {image!r}, which is not among {list(joints)}")
            permutation.append(position[image])
        signs = [-1.0 if any(part in joint for part in flips) else 1.0 for joint in joints]
        atom = self.permutation(name, [permutation], [signs])
        return self.atom(name, atom.matrices, atom.lie, entries=joints)

    def lift(self, factor: int, atom: Atom) -> Atom:
        """An atom of one factor of a product, as an atom of the product on which the other factor does nothing."""
        if not self.factors or factor not in (0, 1) or atom.group != self.factors[factor]:
            raise InputError(f"{atom.name!r} is an atom of {atom.group}, which is not factor {factor} of {self}")
        one, zero = np.eye(atom.size), np.zeros((atom.size, atom.size))
        other = self.factors[1 - factor]
        matrices, lie = [one for _ in other.matrices], [zero for _ in other.lie]
        if factor == 0:
            return self.atom(atom.name, [*atom.matrices, *matrices], [*atom.lie, *lie])
        return self.atom(atom.name, [*matrices, *atom.matrices], [*lie, *atom.lie])


def turn(angle: float) -> Matrix:
    """The rotation of the plane by an angle; quarter turns have entries 0, 1 and -1 exactly."""
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    whole = np.rint(matrix) + 0.0  # no negative zeros
    # An environment of whole numbers shall find whole numbers in an image.
    return np.where(np.abs(matrix - whole) < WHOLE, whole, matrix)
