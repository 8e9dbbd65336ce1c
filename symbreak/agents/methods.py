"""Where the methods differ: all of it in one table.

A method is a value: which experts it has, what routes between them, and the few settings that belong to it. Adding one
means adding an entry (and at most one layer or gate); the algorithms stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from symbreak.agents.agent import Expert, Heads, Routing
from symbreak.errors import InputError
from symbreak.nn.linear import Dense, Equivariant, Relaxed, Residual
from symbreak.nn.mlp import Family

GateKind = Literal["none", "fixed", "learned", "oracle-minority", "oracle-strict"]


def Single(role: str, family: Family) -> Heads:
    return Heads((Expert(role, family),))


def Gated() -> Heads:
    # The roles are those of `exact` and `vanilla`, so that a gated agent contains the very same networks.
    return Heads((Expert("equivariant", Equivariant), Expert("free", Dense)))


@dataclass(frozen=True)
class Method:
    heads: Heads
    gate: GateKind = "none"
    routing: Routing = "hard"
    fixed: float = 0.0  # probability of a fixed gate
    augment: bool = False
    actor_penalty: float = 0.0  # on the squared norm of the policy's parameters
    adam_b1: float = 0.9
    state_gate: Literal["expectile", "sampled_max"] = "expectile"
    candidates: int = 4
    shared_trunk: bool = False  # of critics and policies
    shared_predictors: bool = False  # one trunk for both predictors, which are then both trained
    sample_when_evaluating: bool = False

    @property
    def uses_symmetry(self) -> bool:
        """Whether anything that it learns depends on how observations and actions transform."""
        return self.augment or any(expert.family is not Dense for expert in self.heads.experts)


METHODS: dict[str, Method] = {
    "vanilla": Method(Single("free", Dense)),
    "augmented": Method(Single("free", Dense), augment=True),
    "exact": Method(Single("equivariant", Equivariant)),
    "rpp": Method(Single("residual", Residual), actor_penalty=1e-6, adam_b1=0.5),
    "approximate": Method(Single("relaxed", Relaxed)),
    "partial": Method(Gated(), gate="learned"),
    # Gates that know the truth (grid-worlds), to tell gate quality from what the architecture can do.
    "oracle-minority": Method(Gated(), gate="oracle-minority"),
    "oracle-strict": Method(Gated(), gate="oracle-strict"),
    # A gate that knows nothing, drawn in evaluations too: what do two experts and chance do without it?
    "partial-coin": Method(Gated(), gate="fixed", fixed=0.5, sample_when_evaluating=True),
    # Ablations of the paper.
    "partial-soft": Method(Gated(), gate="learned", routing="soft"),
    "partial-fixed": Method(Gated(), gate="fixed", fixed=0.5, routing="soft"),
    "partial-max4": Method(Gated(), gate="learned", state_gate="sampled_max", candidates=4),
    "partial-max8": Method(Gated(), gate="learned", state_gate="sampled_max", candidates=8),
    "partial-shared-heads": Method(Gated(), gate="learned", shared_trunk=True),
    "partial-shared-predictors": Method(Gated(), gate="learned", shared_predictors=True),
    "partial-shared-all": Method(Gated(), gate="learned", shared_trunk=True, shared_predictors=True),
}

PAPER_METHODS = ("vanilla", "exact", "rpp", "approximate", "augmented", "partial")


def get_method(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    import difflib

    near = difflib.get_close_matches(name, METHODS, n=3) or list(METHODS)
    raise InputError(f"no method {name!r}: did you mean {', '.join(near)}?")


def as_published(method: Method) -> Method:
    """The method with the paper's inference: the gate is sampled also when evaluating."""
    return replace(method, sample_when_evaluating=True)
