"""Groups, given by what generates them.

A group is a set of matrices: finitely many *generators*, and for continuous groups a basis of the Lie algebra. An
element is a product of generators and exponentials, kept as the recipe (`Element`) rather than as a matrix, so that
every representation of the group can read it. Any other representation must satisfy the same *relations*; they are
checked in float64 when a representation is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import block_diag

from symbreak.errors import InputError
from symbreak.symmetry.relations import LARGEST_FINITE_ORDER, check_representation, evaluate, require_orthogonal

if TYPE_CHECKING:
    from symbreak.symmetry.rep import Atom

Matrix = np.ndarray
Word = tuple[tuple[int, int], ...]  # (generator, power) pairs whose product is the identity


@dataclass(frozen=True)
class Element:
    """A product of steps, leftmost applied last; a step is a generator's index or Lie-algebra coefficients."""

    steps: tuple[int | tuple[float, ...], ...] = ()

    def __matmul__(self, other: Element) -> Element:
        return Element(self.steps + other.steps)


def frozen(matrix: Matrix) -> Matrix:
    """A read-only float64 copy, safe to share and to hash."""
    copy = np.array(matrix, dtype=np.float64)
    copy += 0.0  # turns -0.0 into 0.0, so that equal matrices have equal bytes
    copy.setflags(write=False)
    return copy


class Group:
    """Generators and Lie-algebra generators with the relations that every representation must satisfy.

    `matrices` must be a faithful representation: the group *is* the group of these matrices. Without `relations` the
    whole multiplication table of a finite group is used, which is always enough.
    """

    def __init__(
        self,
        name: str,
        matrices: Sequence[Matrix] = (),
        *,
        lie: Sequence[Matrix] = (),
        relations: Sequence[Word] = (),
        circles: Sequence[tuple[int, ...]] | None = None,
        factors: tuple[Group, ...] = (),
    ) -> None:
        self.name = name
        self.factors = factors
        self.matrices = tuple(frozen(matrix) for matrix in matrices)
        self.lie = tuple(frozen(matrix) for matrix in lie)
        # Which Lie generators form one compact factor: needed only to draw uniformly distributed elements.
        self.circles = tuple(circles) if circles is not None else tuple((i,) for i in range(len(lie)))
        everything = self.matrices + self.lie
        if not everything:
            raise InputError(f"group {name!r} has no generators: give at least one matrix")
        self.size = everything[0].shape[0]
        for matrix in everything:
            if matrix.shape != (self.size, self.size):
                raise InputError(f"group {name!r}: generator shapes {[m.shape for m in everything]} differ; make them equal")
        self.relations = tuple(relations)
        require_orthogonal(self, self.matrices, self.lie, f"group {name!r}")
        check_representation(self, self.matrices, self.lie, f"group {name!r}")

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
    def discrete(self) -> tuple[Element, ...]:
        """All products of the finite generators, identity first, found breadth first."""
        return tuple(self._found.values())

    @cached_property
    def _found(self) -> dict[bytes, Element]:
        found: dict[bytes, Element] = {}
        frontier = [(np.eye(self.size), Element())]
        while frontier:
            matrix, element = frontier.pop(0)
            key = _rounded(matrix)
            if key in found:
                continue
            found[key] = element
            if len(found) > LARGEST_FINITE_ORDER:
                raise InputError(
                    f"group {self.name!r}: the generators give more than {LARGEST_FINITE_ORDER} elements; "
                    "check them, or describe a continuous group by Lie generators"
                )
            frontier += [(matrix @ m, element @ Element((i,))) for i, m in enumerate(self.matrices)]
        return found

    @cached_property
    def _position(self) -> dict[bytes, int]:
        return {key: i for i, key in enumerate(self._found)}

    def index(self, matrix: Matrix) -> int:
        """Which of the `discrete` elements has this base matrix."""
        return self._position[_rounded(matrix)]

    def elements(self) -> tuple[Element, ...]:
        """Every element of a finite group, identity first."""
        if not self.is_finite:
            raise InputError(f"group {self.name!r} is continuous and cannot be enumerated: use sample(rng)")
        return self.discrete

    def sample(self, rng: np.random.Generator) -> Element:
        """A uniformly distributed element (for Lie groups of unknown kind: a product of random turns)."""
        element = self.discrete[int(rng.integers(len(self.discrete)))]
        for circle in self.circles:
            for coefficients in _random_turns(circle, len(self.lie), rng):
                element = element @ Element((coefficients,))
        return element

    def table(self) -> np.ndarray:
        """Multiplication table of a finite group: entry (i, j) is the index of element_i · element_j."""
        matrices = [evaluate(self.matrices, self.lie, g, self.size) for g in self.elements()]
        return np.array([[self.index(a @ b) for b in matrices] for a in matrices])

    # --- atoms -------------------------------------------------------------------------------------------------

    def atom(self, name: str, matrices: Sequence[Matrix] = (), lie: Sequence[Matrix] = ()) -> Atom:
        """Any orthogonal representation, one matrix per generator; refused unless it satisfies the relations."""
        from symbreak.symmetry.rep import Atom

        return Atom(self, name, matrices, lie)

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
        for generator in self.matrices:
            image = np.zeros(table.shape)
            image[table[self.index(generator)], np.arange(len(table))] = 1.0
            images.append(image)
        return self.atom("regular", images)

    def rotation(self, frequency: int = 1) -> Atom:
        """Plane rotation `frequency` times as fast as the group's own; for C(n), D(n) and SO(2)."""
        images, lie = [], []
        for matrix in self.matrices:
            if self.size == 2 and self.name.startswith("D"):
                reflection = np.linalg.det(matrix) < 0
                angle = 0.0 if reflection else frequency * np.arctan2(matrix[1, 0], matrix[0, 0])
                images.append(_turn(angle) @ (np.diag([1.0, -1.0]) if reflection else np.eye(2)))
            else:
                images.append(_turn(2 * np.pi * frequency / self.order))
        for _ in self.lie:
            lie.append(frequency * _QUARTER)
        if len(images) + len(lie) > 2 or (self.lie and self.size != 2):
            raise InputError(f"group {self.name!r} has no plane rotations: use atom(name, matrices)")
        return self.atom(f"rotation({frequency})", images, lie)

    def permutation(
        self, name: str, permutations: Sequence[Sequence[int]], signs: Sequence[Sequence[float]] | None = None
    ) -> Atom:
        """(ρx)[i] = sign[i]·x[permutation[i]], one permutation (and optionally one row of ±1) per generator."""
        images = []
        for i, permutation in enumerate(permutations):
            if sorted(permutation) != list(range(len(permutation))):
                raise InputError(f"atom {name!r}: {list(permutation)} is no permutation of 0..{len(permutation) - 1}")
            sign = np.ones(len(permutation)) if signs is None else np.asarray(signs[i], dtype=float)
            if sign.shape != (len(permutation),) or not np.all(np.abs(sign) == 1):
                raise InputError(f"atom {name!r}: signs {sign.tolist()} must be {len(permutation)} entries of +1 or -1")
            images.append(sign[:, None] * np.eye(len(permutation))[list(permutation)])
        return self.atom(name, images, [np.zeros((len(permutations[0]),) * 2) for _ in self.lie])

    def mirrored(
        self, joints: Sequence[str], swap: dict[str, str], flip: Sequence[str] = (), name: str = "joints"
    ) -> Atom:
        """Joints by name under one reflection: `swap` exchanges name parts, joints containing a `flip` part change sign.

        `mirrored(["L_hip", "R_hip"], swap={"L_": "R_"}, flip=["hip"])` sends the left hip to minus the right one.
        """
        exchange = {**swap, **{new: old for old, new in swap.items()}}
        position = {joint: i for i, joint in enumerate(joints)}
        permutation = []
        for joint in joints:
            part = next((part for part in exchange if part in joint), None)
            image = joint if part is None else joint.replace(part, exchange[part])
            if image not in position:
                raise InputError(f"joint {joint!r} should be mirrored to {image!r}, which is not among {list(joints)}")
            permutation.append(position[image])
        signs = [-1.0 if any(part in joint for part in flip) else 1.0 for joint in joints]
        return self.permutation(name, [permutation], [signs])

    def lift(self, factor: int, atom: Atom) -> Atom:
        """An atom of one factor of a product, as an atom of the product on which the other factor does nothing."""
        if len(self.factors) != 2 or atom.group != self.factors[factor]:
            raise InputError(f"{atom.name!r} is an atom of {atom.group}, which is not factor {factor} of {self}")
        one, zero = np.eye(atom.size), np.zeros((atom.size, atom.size))
        other = self.factors[1 - factor]
        matrices, lie = [one for _ in other.matrices], [zero for _ in other.lie]
        if factor == 0:
            return self.atom(atom.name, [*atom.matrices, *matrices], [*atom.lie, *lie])
        return self.atom(atom.name, [*matrices, *atom.matrices], [*lie, *atom.lie])


_QUARTER = np.array([[0.0, -1.0], [1.0, 0.0]])


def _rounded(matrix: Matrix) -> bytes:
    return (np.round(matrix, 5) + 0.0).tobytes()


def _turn(angle: float) -> Matrix:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _random_turns(circle: tuple[int, ...], size: int, rng: np.random.Generator) -> list[tuple[float, ...]]:
    """Lie coefficients whose exponentials multiply to a random element of one compact factor."""

    def spread(values: np.ndarray) -> tuple[float, ...]:
        coefficients = np.zeros(size)
        coefficients[list(circle)] = values
        return tuple(coefficients.tolist())

    if len(circle) == 1:
        return [spread(rng.uniform(-np.pi, np.pi, 1))]
    if len(circle) == 3:  # a uniformly distributed unit quaternion as a rotation vector
        quaternion = rng.normal(size=4)
        quaternion /= np.linalg.norm(quaternion)
        angle = 2 * np.arctan2(np.linalg.norm(quaternion[1:]), quaternion[0])
        return [spread(angle * quaternion[1:] / max(np.linalg.norm(quaternion[1:]), 1e-300))]
    return [spread(rng.normal(size=len(circle)) * np.pi) for _ in range(4)]


# --- the usual groups --------------------------------------------------------------------------------------------


@lru_cache
def C(n: int) -> Group:
    """Cyclic group of n elements; its base representation shifts coordinates, (ρx)_i = x_{i-1}."""
    if n < 2:
        raise InputError(f"C({n}): a cyclic group needs n ≥ 2")
    return Group(f"C{n}", [np.roll(np.eye(n), 1, axis=0)], relations=[((0, n),)])


def Z(n: int) -> Group:
    """The same as C(n)."""
    return C(n)


@lru_cache
def D(n: int) -> Group:
    """Symmetries of the regular n-gon (2n elements): rotation and reflection of the plane."""
    if n < 3:
        raise InputError(f"D({n}): a dihedral group needs n ≥ 3; use Z(2) or a product for smaller ones")
    words: list[Word] = [((0, n),), ((1, 2),), ((0, 1), (1, 1), (0, 1), (1, 1))]
    return Group(f"D{n}", [_turn(2 * np.pi / n), np.diag([1.0, -1.0])], relations=words)


@lru_cache
def SO2() -> Group:
    """Rotations of the plane."""
    return Group("SO(2)", lie=[_QUARTER], circles=[(0,)])


@lru_cache
def SO3() -> Group:
    """Rotations of space; Lie generators turn about x, y and z."""
    lie = np.zeros((3, 3, 3))
    for i, j, k in [(0, 1, 2), (1, 2, 0), (2, 0, 1)]:
        lie[i, k, j], lie[i, j, k] = 1.0, -1.0
    return Group("SO(3)", lie=list(lie), circles=[(0, 1, 2)])


@lru_cache
def product(first: Group, second: Group) -> Group:
    """Direct product: the elements of both groups, acting on separate coordinates and commuting."""
    one, two = np.eye(first.size), np.eye(second.size)
    zero_one, zero_two = np.zeros_like(one), np.zeros_like(two)
    matrices = [block_diag(m, two) for m in first.matrices] + [block_diag(one, m) for m in second.matrices]
    lie = [block_diag(m, zero_two) for m in first.lie] + [block_diag(zero_one, m) for m in second.lie]
    circles = list(first.circles) + [tuple(i + len(first.lie) for i in circle) for circle in second.circles]
    return Group(f"{first.name}×{second.name}", matrices, lie=lie, circles=circles, factors=(first, second))
