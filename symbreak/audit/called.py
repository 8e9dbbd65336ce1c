"""`symbreak.audit(environment, symmetry)`: the package is also the function that it is about.

Importing the package puts it where the name `symbreak.audit` stood before, so both have to answer a call.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from symbreak.audit.report import AuditReport
from symbreak.audit.run import audit

PACKAGE = "symbreak.audit"


class CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> AuditReport:
        return audit(*arguments, **options)


sys.modules[PACKAGE].__class__ = CallablePackage
