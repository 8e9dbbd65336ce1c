"""One job of a study in a process of its own: `python -m symbreak.studies.worker CONFIG.json DIRECTORY [CORE]`.

Begins the run, or continues it where it stopped; a finished one is left alone, one of another configuration is refused.
A directory that a dead node still seems to hold is waited for until its silence is long enough. It exits as the command
line does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from symbreak.errors import SymbreakError
from symbreak.process.cores import use_one_core
from symbreak.process.fast_start import prepare_process
from symbreak.process.watch import Watch

PAUSE = 2.0  # seconds between looks at a directory that is in use


def main(arguments: list[str]) -> int:
    config_path, directory = Path(arguments[0]), Path(arguments[1])
    if len(arguments) > 2:
        os.sched_setaffinity(0, {int(arguments[2])})
    use_one_core()
    prepare_process()  # with the compilation cache: the runs of a study differ in little but their seeds
    from symbreak.storage.directory import SILENCE, DirectoryInUse

    until = time.monotonic() + SILENCE + 60
    with Watch(owns_process=True) as watch:
        while True:
            try:
                watch.require_going_on()
                work(config_path, directory, watch)
            except SymbreakError as problem:
                if isinstance(problem, DirectoryInUse) and time.monotonic() < until:
                    time.sleep(PAUSE)
                    continue
                print(problem, file=sys.stderr)
                return problem.exit_code
            return 0


def work(config_path: Path, directory: Path, watch: Watch) -> None:
    """Begin, continue or leave alone the run of this configuration."""
    from symbreak.studies.records import note_code, refuse_another
    from symbreak.training.record import is_finished
    from symbreak.training.run import Run
    from symbreak.training.settings import parse_config

    config = parse_config(json.loads(config_path.read_text()), str(config_path))
    refuse_another(directory, config)
    if is_finished(directory):
        return
    begun = (directory / "config.json").exists()
    with Run.open(directory, watch=watch) if begun else Run.create(config, directory, watch=watch) as run:
        note_code(directory, afresh=not begun)
        run.advance()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
