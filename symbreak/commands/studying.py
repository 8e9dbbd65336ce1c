"""`symbreak study` and `symbreak report`: many runs, and what they say together."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from symbreak.errors import InputError

if TYPE_CHECKING:
    from symbreak.studies.launch import Progress


def study(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")],
    out: Path | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    methods: tuple[str, ...] = (),
    settings: tuple[str, ...] = (),
    workers: int | None = None,
    ray: str | None = None,
    dry_run: bool = False,
    keep_runs: bool = False,
) -> int:
    """Make the runs of a study; the same command again goes on where it stopped.

    Args:
        name: grid-obstacles, grid-floors, grid-oracles, grid-reward, grid-slip, grid-paper, grid-coin, propagation,
            predictor-steps, locomotion, manipulation, stability, unrouted, ablation-routing, ablation-actor,
            ablation-trunks or ablation-threshold.
        out: Directory for records and runs; by default results/STUDY. The summary is written beside it.
        seeds: How many; by default the study's own number.
        steps: Environment steps per run; by default the study's own.
        methods: Only these methods.
        settings: Only these settings, such as grid-20.
        workers: Runs side by side, one core each; by default, and at most, as many as there are cores.
        ray: Address of a Ray cluster to use instead of this machine; auto finds a running one.
        dry_run: Only print what would be run, with an estimate of core-hours.
        keep_runs: Keep checkpoints and replay of finished runs.
    """
    from symbreak.process.cores import visible_cores
    from symbreak.process.watch import raising_on_sigterm
    from symbreak.storage.directory import lock_run_directory
    from symbreak.storage.files import storage_faults
    from symbreak.studies.launch import run_local
    from symbreak.studies.plans import plan
    from symbreak.studies.progress import LiveTable, print_plan
    from symbreak.studies.records import refuse_replacing, take_over
    from symbreak.studies.summary import add_to_plan, require_summary, write_summary

    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: at least one run goes on at a time; use 1 or more")
    if ray is None and workers is not None and workers > visible_cores():
        raise InputError(f"--workers {workers}: each run has a core of its own, and there are {visible_cores()}")
    if workers is not None and ray is not None:
        raise InputError("--workers and --ray: a cluster has its own number of runs side by side; give one of them")
    jobs = plan(name, seeds=seeds, steps=steps, methods=methods, settings=settings)
    out = Path("results", name) if out is None else Path(os.path.abspath(out))  # of "." there is no directory beside it
    refuse_replacing(out, jobs)
    if dry_run:
        print_plan(name, jobs, out)
        return 0
    with storage_faults(f"create {out}"):
        out.mkdir(parents=True, exist_ok=True)
    with raising_on_sigterm("start again with the same command"), lock_run_directory(out) as lock:
        refuse_replacing(out, jobs)  # what another process has made since
        require_summary(out.parent)
        add_to_plan(out, jobs)
        if taken := take_over(out, jobs):
            print(f"{taken} runs were made by other studies; their records are taken over")
        with LiveTable(name) as display:

            def show(table: list[Progress]) -> None:
                lock.beat()
                display(table)

            if ray is not None:
                from symbreak.studies.cluster import run_on_ray

                table = run_on_ray(jobs, out, address=ray, show=show, keep_runs=keep_runs)
            else:
                table = run_local(jobs, out, workers=workers, show=show, keep_runs=keep_runs)
        write_summary(out.parent)
    failed = [entry for entry in table if entry.state == "failed"]
    for entry in failed:
        print(f"failed: {entry.job.name}: {entry.reason}", file=sys.stderr)
    print(f"{name}: {len(table) - len(failed)} of {len(table)} runs finished; records in {out / 'records'}")
    return 0  # a run that failed is a result, and counted


def report(
    runs: Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    figures: Path | None = None,
    verify: bool = False,
    into: tuple[Path, ...] = (),
) -> int:
    """Make one HTML page from run directories.

    Args:
        runs: Directories of runs or of studies.
        output: The page.
        figures: Also write learning curves, one figure per metric, as PNG and PDF into this directory.
        verify: First check that studies are complete and that their summary follows from the raw logs.
        into: Also write the tables of the summary into these Markdown pages, between their marks.
    """
    from symbreak.studies.report import make_report
    from symbreak.studies.report_figures import draw_figures

    if verify:
        from symbreak.studies.summary import verify as check

        print(f"verified: {sum(check(directory) for directory in runs)} runs")
    print(f"report: {make_report(runs, output)}")
    if figures is not None:
        for path in draw_figures(runs, figures):
            print(f"figure: {path}")
    if into:
        from symbreak.studies.markdown import put_into, sections_of
        from symbreak.studies.summary import summary_of

        found = {name: study for directory in runs for name, study in summary_of(directory).items()}
        if not found:
            raise InputError(f"{', '.join(map(str, runs))}: no study is there whose tables could be written")
        for page in into:
            put_into(page, sections_of(found))
            print(f"tables: {page}")
    return 0
