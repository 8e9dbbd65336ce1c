"""One job of a study in a process of its own: `python -m symbreak.studies.worker CONFIG.json DIRECTORY [CORE]`.

Begins the run, or continues it where it stopped; a finished one is left alone. It exits as the command
line does.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from symbreak.errors import SymbreakError
from symbreak.training.cores import use_one_core
from symbreak.training.fast_start import prepare_process


def main(arguments: list[str]) -> int:
    config_path, directory = Path(arguments[0]), Path(arguments[1])
    if len(arguments) > 2:
        os.sched_setaffinity(0, {int(arguments[2])})
    use_one_core()
    prepare_process()  # with the compilation cache: the runs of a study differ in little but their seeds
    from symbreak.training.record import is_finished
    from symbreak.training.run import resume, train
    from symbreak.training.settings import parse_config
    from symbreak.training.watch import Watch

    try:
        if is_finished(directory):
            return 0
        with Watch(owns_process=True) as watch:
            if (directory / "config.json").exists():
                resume(directory, watch=watch)
            else:
                config = parse_config(json.loads(config_path.read_text()), str(config_path))
                train(config, directory, watch=watch)
    except SymbreakError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
