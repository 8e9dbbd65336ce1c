"""A symmetry as plain matrices, field by field, so that it can be compared and changed cheaply.

`Acting` is all that a comparison needs: what each element does to observations and actions. `Declaration` keeps the
images of the generators apart for every field, so that one of them can be exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.linalg import block_diag, expm

from symbreak.errors import InputError
from symbreak.symmetry import Element, Field, Group, Rep, Symmetry

Images = tuple[np.ndarray, ...]  # of the finite generators, then of the Lie generators
Place = tuple[str, str]  # ("observation" or "action", field name)
SMALLEST = 1e-6  # entries that differ by less are equal


@dataclass(frozen=True, eq=False)
class Acting:
    """Elements of a group as matrices on observations and actions, with the fields of the observation."""

    fields: dict[str, list[int]]
    observation: tuple[np.ndarray, ...]  # one matrix per element
    action: tuple[np.ndarray, ...]
    discrete: bool

    @staticmethod
    def of(symmetry: Symmetry, elements: Sequence[Element]) -> Acting:
        return Acting(
            fields={name: list(field.indices or ()) for name, field in symmetry.observation.fields.items()},
            observation=tuple(symmetry.observation.matrix(element) for element in elements),
            action=tuple(symmetry.action.matrix(element) for element in elements),
            discrete=symmetry.discrete,
        )

    def act(self, element: int, actions: np.ndarray) -> np.ndarray:
        """Images of actions: one per row, or one number each where they are discrete."""
        matrix = self.action[element]
        return matrix.argmax(axis=0)[actions] if self.discrete else actions @ matrix.T


@dataclass(frozen=True, eq=False)
class Declaration:
    """How each field of observation and action transforms under the generators."""

    group: Group
    indices: dict[Place, list[int]]
    images: dict[Place, Images]
    names: dict[Place, tuple[str, ...]]  # of the entries: as given, or else their numbers within the field
    discrete: bool

    @staticmethod
    def of(symmetry: Symmetry) -> Declaration:
        sides = {"observation": symmetry.observation, "action": symmetry.action}
        fields = {(side, name): field for side, layout in sides.items() for name, field in layout.fields.items()}
        return Declaration(
            group=symmetry.group,
            indices={place: list(field.indices or ()) for place, field in fields.items()},
            images={place: _images(field, symmetry.group) for place, field in fields.items()},
            names={place: _names(field) for place, field in fields.items()},
            discrete=symmetry.discrete,
        )

    def with_images(self, unit: tuple[Place, ...], new: Images) -> Declaration | None:
        """The same new images on some fields; None where these are no representation, or a side no longer moves."""
        return self.changed(dict.fromkeys(unit, new))

    def changed(self, new: dict[Place, Images]) -> Declaration | None:
        """New images on some fields; None where some are no representation, or where a side no longer moves."""
        for (side, _), images in new.items():
            if not _represents(self.group, len(images[0]), b"".join(m.tobytes() for m in images)):
                return None
            if self.discrete and side == "action" and any(np.any(m < -0.5) for m in images):
                return None
        changed = replace(self, images=self.images | new)
        return None if self._moved - changed._moved else changed

    @property
    def _moved(self) -> set[str]:
        """The sides of which something is declared to move."""
        return {side for (side, _), images in self.images.items() if self.moves(images)}

    def moves(self, images: Images) -> bool:
        """Whether some generator does something under these images."""
        finite, lie = images[: len(self.group.matrices)], images[len(self.group.matrices) :]
        turned = any(np.abs(m - np.eye(len(m))).max() > SMALLEST for m in finite)
        return turned or any(np.abs(m).max() > SMALLEST for m in lie)

    def acting(self) -> Acting:
        """What the generators do; Lie generators as a turn by one radian."""
        finite = len(self.group.matrices)
        matrices = {}
        for side in ("observation", "action"):
            places = [place for place in self.indices if place[0] == side]
            size = sum(len(self.indices[place]) for place in places)
            matrices[side] = [np.zeros((size, size)) for _ in self.images[places[0]]]
            for place in places:
                block = np.ix_(self.indices[place], self.indices[place])
                for k, image in enumerate(self.images[place]):
                    matrices[side][k][block] = image if k < finite else _exponential(len(image), image.tobytes())
        fields = {name: index for (side, name), index in self.indices.items() if side == "observation"}
        return Acting(fields, tuple(matrices["observation"]), tuple(matrices["action"]), self.discrete)


def joined(images: Images) -> bytes:
    """Equal for images that are equal up to rounding."""
    return b"".join((np.round(m, 6) + 0.0).tobytes() for m in images)


def _names(field: Field) -> tuple[str, ...]:
    assert isinstance(field.rep, Rep)
    given = [name for atom in field.rep.atoms() for name in atom.entries]
    return tuple(given) if len(given) == field.rep.size else tuple(map(str, range(field.rep.size)))


def _images(field: Field, group: Group) -> Images:
    assert isinstance(field.rep, Rep)
    finite = [field.rep.matrix(Element((i,))) for i in range(len(group.matrices))]
    blocks = field.rep.blocks
    lie = [block_diag(*(np.kron(np.eye(n), atom.lie[i]) for atom, n in blocks)) for i in range(len(group.lie))]
    return tuple(np.asarray(matrix, dtype=float) for matrix in (*finite, *lie))


@lru_cache(maxsize=4096)
def _represents(group: Group, size: int, images: bytes) -> bool:
    matrices = np.frombuffer(images).reshape(-1, size, size)
    try:
        group.atom("changed", list(matrices[: len(group.matrices)]), list(matrices[len(group.matrices) :]))
    except InputError:
        return False
    return True


@lru_cache(maxsize=256)
def _exponential(size: int, image: bytes) -> np.ndarray:
    return expm(np.frombuffer(image).reshape(size, size))
