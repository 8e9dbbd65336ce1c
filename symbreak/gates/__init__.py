"""Where a symmetry is trusted: none, fixed, oracle and learned gates, each with a gate for states."""

from symbreak.gates.gate import AbstractGate, FixedGate, NoGate, OracleGate, caveats
from symbreak.gates.learned import GateConfig, LearnedGate

__all__ = ["AbstractGate", "FixedGate", "GateConfig", "LearnedGate", "NoGate", "OracleGate", "caveats"]
