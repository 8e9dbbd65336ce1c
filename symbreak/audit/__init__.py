"""Is a declared symmetry one? Found out on the simulator, state by state."""

from symbreak.audit.called import CallablePackage
from symbreak.audit.report import AuditReport
from symbreak.audit.run import audit, run_audit
from symbreak.audit.simulators import Outcome, Simulator

__all__ = ["AuditReport", "CallablePackage", "Outcome", "Simulator", "audit", "run_audit"]
