"""Reinforcement learning that uses a symmetry where it holds and drops it where it breaks."""

from symbreak.api import DQN, SAC, audit, load
from symbreak.symmetry import SO2, SO3, Atom, C, D, Element, Field, Group, Layout, Rep, Symmetry, Z, product

__all__ = [
    "DQN",
    "SAC",
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
    "audit",
    "load",
    "product",
]
