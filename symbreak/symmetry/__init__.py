"""What transforms how: groups, representations, intertwiners, layouts. NumPy only."""

from symbreak.symmetry.basis import intertwiners, split_into_irreducibles
from symbreak.symmetry.elements import Element
from symbreak.symmetry.families import SO2, SO3, C, D, Z, product
from symbreak.symmetry.group import Group
from symbreak.symmetry.layout import Field, Layout, Symmetry
from symbreak.symmetry.rep import Atom, Rep

__all__ = [
    "SO2",
    "SO3",
    "Atom",
    "C",
    "D",
    "Element",
    "Field",
    "Group",
    "Layout",
    "Rep",
    "Symmetry",
    "Z",
    "intertwiners",
    "product",
    "split_into_irreducibles",
]
