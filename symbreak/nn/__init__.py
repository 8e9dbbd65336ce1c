"""Layers and networks that respect, relax or ignore a symmetry."""

from symbreak.nn.hidden import Style, hidden_rep
from symbreak.nn.keys import Key, named_key
from symbreak.nn.linear import Dense, Equivariant, Linear, Relaxed, Residual
from symbreak.nn.mlp import Family, Network, ensemble

__all__ = [
    "Dense",
    "Equivariant",
    "Family",
    "Key",
    "Linear",
    "Network",
    "Relaxed",
    "Residual",
    "Style",
    "ensemble",
    "hidden_rep",
    "named_key",
]
