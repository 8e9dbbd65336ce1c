"""Where a run's bits come from besides its configuration: versions, processor, number of cores."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from pathlib import Path
from typing import Any

from symbreak.process.cores import visible_cores

PACKAGES = ("symbreak", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco")


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in PACKAGES}


def provenance() -> dict[str, Any]:
    """Two runs with equal configuration are bit-identical where this is equal."""
    return {"versions": versions(), "processor": _processor(), "cores": visible_cores()}


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.machine()


def differences(saved: Any, now: dict[str, Any]) -> list[str]:
    """What changed since a checkpoint was saved, in words."""
    if not isinstance(saved, dict):
        return ["where the checkpoint was saved is not known"]
    found = []
    if saved.get("cores") != now["cores"]:
        found.append(f"resumed on {now['cores']} visible cores, saved on {saved.get('cores')}")
    if saved.get("processor") != now["processor"]:
        found.append(f"resumed on {now['processor']}, saved on {saved.get('processor')}")
    before = saved.get("versions")
    before = before if isinstance(before, dict) else {}
    for name, version in now["versions"].items():
        if before.get(name) != version:
            found.append(f"resumed with {name} {version}, saved with {before.get(name)}")
    return found
