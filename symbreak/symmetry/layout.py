"""Names for the parts of a flat vector, and how each part transforms.

A `Layout` assigns every index of an observation or action vector to exactly one named field. A `Symmetry` is a layout
of the observation and one of the action under the same group: all that a user has to declare.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from symbreak.errors import InputError
from symbreak.symmetry.elements import Element, Matrix, whole_numbers
from symbreak.symmetry.group import Group
from symbreak.symmetry.rep import Atom, Rep, as_rep


@dataclass(frozen=True)
class Field:
    """A representation on the given indices of the vector (or, without indices, on those that come next)."""

    rep: Rep | Atom
    indices: Sequence[int] | None = None


class Layout:
    """Ordered named fields that together cover each index of a flat vector once."""

    def __init__(self, fields: Mapping[str, Field | Rep | Atom], size: int | None = None) -> None:
        if not fields:
            raise InputError("a layout needs at least one field")
        self.fields: dict[str, Field] = {}
        owner: dict[int, str] = {}
        following = 0
        for name, value in fields.items():
            field = value if isinstance(value, Field) else Field(value)
            if not isinstance(field.rep, Rep | Atom):
                raise InputError(f"field {name!r} is {field.rep!r}: give an atom, a sum of atoms, or a Field of one")
            rep = as_rep(field.rep)
            indices = range(following, following + rep.size) if field.indices is None else field.indices
            indices = whole_numbers(indices, f"field {name!r}")
            if len(indices) != rep.size:
                raise InputError(
                    f"field {name!r} has {len(indices)} indices {indices} but its representation {rep} has size "
                    f"{rep.size}; give as many"
                )
            for index in indices:
                if index in owner:
                    raise InputError(
                        f"field {name!r}: index {index} already belongs to field {owner[index]!r}; use it once"
                    )
                if index < 0:
                    raise InputError(f"field {name!r}: index {index} is negative; count from 0")
                owner[index] = name
            following = max(owner) + 1
            self.fields[name] = Field(rep, indices)
        self.size = following if size is None else size
        missing = [i for i in range(self.size) if i not in owner]
        if missing:
            raise InputError(f"layout of size {self.size}: indices {missing} belong to no field of {list(self.fields)}")
        excess = {i: name for i, name in sorted(owner.items()) if i >= self.size}
        if excess:
            raise InputError(f"layout of size {self.size}: indices {excess} lie outside; make the layout larger")
        groups = {as_rep(field.rep).group for field in self.fields.values()}
        if len(groups) != 1:
            described = {name: as_rep(field.rep).group for name, field in self.fields.items()}
            raise InputError(f"the fields of one layout belong to different groups, {described}: use one group")
        self.group: Group = groups.pop()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.fields)

    def owner(self, index: int) -> str:
        """The name of the field that an entry belongs to."""
        return next(name for name, field in self.fields.items() if index in (field.indices or ()))

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """A name for every entry of the vector: its field's, and which of the field it is where there are several."""
        names = [""] * self.size
        for name, field in self.fields.items():
            labels = _labels(as_rep(field.rep))
            for index, label in zip(field.indices or (), labels, strict=True):
                names[index] = name if len(labels) == 1 else f"{name}[{label}]"
        return tuple(names)

    @cached_property
    def rep(self) -> Rep:
        """The sum of the fields' representations; `order` brings the flat vector into its order."""
        return Rep([block for field in self.fields.values() for block in as_rep(field.rep).blocks])

    @cached_property
    def order(self) -> tuple[int, ...]:
        """`vector[order]` is the vector in the order of `rep`."""
        return tuple(i for field in self.fields.values() for i in field.indices or ())

    def beside(self, other: Layout) -> Layout:
        """The layout of this vector followed by another one; a name that is taken gets a dash."""
        fields = dict(self.fields)
        for name, field in other.fields.items():
            while name in fields:
                name += "'"
            fields[name] = Field(field.rep, tuple(self.size + i for i in field.indices or ()))
        return Layout(fields, self.size + other.size)

    def matrix(self, element: Element) -> Matrix:
        """The element's matrix on the flat vector, in the vector's own order."""
        result = np.zeros((self.size, self.size))
        result[np.ix_(self.order, self.order)] = self.rep.matrix(element)
        return result

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return (self.size, *self.fields.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return ", ".join(f"{name}: {field.rep}" for name, field in self.fields.items())


class Symmetry:
    """How a group acts on observations and actions of an environment.

    With `discrete`, the action layout is a permutation of the action numbers.
    """

    def __init__(
        self,
        observation: Layout | Rep | Atom,
        action: Layout | Rep | Atom,
        *,
        discrete: bool = False,
        name: str = "declared",
    ) -> None:
        self.observation = observation if isinstance(observation, Layout) else Layout({"observation": observation})
        self.action = action if isinstance(action, Layout) else Layout({"action": action})
        self.discrete = discrete
        self.name = name
        if self.observation.group != self.action.group:
            raise InputError(
                f"symmetry {name!r}: observation is under {self.observation.group}, action under {self.action.group}"
            )
        self.group = self.observation.group
        if discrete and not self.action.rep.is_permutation:
            raise InputError(f"symmetry {name!r}: discrete actions need permutations, but the action is {self.action}")

    def action_permutation(self, element: Element) -> np.ndarray:
        """Entry a is the image of the discrete action a."""
        if not self.discrete:
            raise InputError(f"symmetry {self.name!r} has continuous actions; use action.matrix(element)")
        return np.argmax(self.action.matrix(element), axis=0)

    def require(self, observation_size: int, action_size: int, discrete: bool) -> None:
        """Refuse an environment whose spaces this symmetry does not describe, showing both sides."""
        problems = []
        if observation_size != self.observation.size:
            problems.append(
                f"the observation has {observation_size} entries, the symmetry {_described(self.observation)}"
            )
        if discrete != self.discrete:
            kinds = {True: "discrete", False: "continuous"}
            hint = ": declare it with Symmetry(…, discrete=True)" if discrete else ""
            problems.append(f"the actions are {kinds[discrete]}, the symmetry's {kinds[self.discrete]}{hint}")
        if action_size != self.action.size:
            has = f"there are {action_size} actions" if discrete else f"the action has {action_size} entries"
            problems.append(f"{has}, the symmetry {_described(self.action)}")
        if problems:
            raise InputError(f"symmetry {self.name!r} does not fit the environment: " + "; ".join(problems))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that is declared but the name; rounded, so that it is the same on every machine."""
        sha = hashlib.sha256(repr((self.group.name, self.discrete)).encode())
        _absorb(sha, (*self.group.matrices, *self.group.lie))
        for layout in (self.observation, self.action):
            sha.update(repr(layout.size).encode())
            for name, field in layout.fields.items():
                for atom, count in as_rep(field.rep).blocks:
                    sha.update(repr((name, field.indices, atom.name, atom.size, count)).encode())
                    _absorb(sha, (*atom.matrices, *atom.lie))
        return sha.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symmetry) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Symmetry({self.name}: {self.group}; observation {self.observation}; action {self.action})"


def _labels(rep: Rep) -> list[str]:
    """Of every coordinate: the name its atom gave it, else its number.

    Of several copies of an atom each coordinate has its number: equal atoms were put together, whatever their names.
    """
    labels: list[str] = []
    for atom, count in rep.blocks:
        numbers = range(len(labels), len(labels) + count * atom.size)
        labels += atom.entries if count == 1 and atom.entries else map(str, numbers)
    return labels


def _described(layout: Layout) -> str:
    return f"{layout.size} ({', '.join(f'{name} {len(field.indices or ())}' for name, field in layout.fields.items())})"


def _absorb(sha: hashlib._Hash, matrices: tuple[Matrix, ...]) -> None:
    for matrix in matrices:
        sha.update((np.round(matrix, 9) + 0.0).astype("<f8").tobytes())
