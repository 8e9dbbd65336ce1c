"""What transforms how: groups, representations, intertwiners, layouts. NumPy only."""

from symbreak.symmetry.basis import intertwiners, split_into_irreducibles
from symbreak.symmetry.group import SO2, SO3, C, D, Element, Group, Z, product
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
