"""All benchmarks in one file and one figure."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from symbreak.bench.figure import draw
from symbreak.errors import SymbreakError
from symbreak.process.follow import following

PARTS = ("layers", "agents", "parts", "scaling")


def bench_all(directory: Path, quick: bool = False) -> dict[str, Any]:
    """Each benchmark as a command of its own, because it chooses its core before JAX is imported."""
    results: dict[str, Any] = {}
    for part in PARTS:
        command = following("symbreak", "bench", part, "--json", *(["--quick"] if quick else []))
        print(f"bench {part} …", flush=True)
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if found.returncode:
            raise SymbreakError(f"bench {part} ended with exit code {found.returncode}; its message is above")
        results |= json.loads(found.stdout.splitlines()[-1])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "bench.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results, directory / "bench.png")
    print(f"{directory / 'bench.json'}\n{directory / 'bench.png'}")
    return results
