"""One run: from a configuration to a directory, in pieces as large as one likes, killed and resumed wherever.

A run is a state machine over environment steps. At fixed steps it folds its sums, writes a row, or saves; everything
that decides what happens next is in the checkpoint, so a resumed run does what the uninterrupted one would have done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from symbreak.errors import EnvironmentFault, InputError, Interrupted, NumericFault, StorageFault, SymbreakError
from symbreak.process.provenance import provenance, versions
from symbreak.process.watch import Watch
from symbreak.storage.directory import DirectoryInUse
from symbreak.storage.files import read_file
from symbreak.storage.strict_json import from_json
from symbreak.training.record import (
    MOST_METRICS,
    Record,
    is_finished,
    read_config,
    read_status,
    refuse_existing,
    resume_command,
)
from symbreak.training.schedule import Schedule
from symbreak.training.settings import RunConfig, parse_config, parse_parts

__all__ = ["Run", "RunConfig", "resume", "train"]

Report = Callable[[dict[str, float]], None]
Tick = Callable[[int], None]  # takes the number of steps made


def train(
    config: RunConfig, directory: Path | None = None, report: Report | None = None, watch: Watch | None = None
) -> list[dict[str, float]]:
    """Run to the end; rows of metrics are returned, written to `directory`, and passed to `report` as they come."""
    with Run.create(config, directory, watch=watch) as run:
        run.advance(report=report)
    return run.rows


def resume(directory: Path, report: Report | None = None, watch: Watch | None = None) -> list[dict[str, float]]:
    """Continue a run from its newest undamaged checkpoint to the end; of a finished one the rows are read."""
    if is_finished(directory):
        lines = read_file(directory / "metrics.jsonl", MOST_METRICS).splitlines()
        return [from_json(line, "metrics.jsonl") for line in lines]
    with Run.open(directory, watch=watch) as run:
        run.advance(report=report)
    return run.rows


class Run:
    """A run that can be advanced piece by piece. Use `create` or `open`, in a `with` block."""

    def __init__(self, config: RunConfig, record: Record, task: Any, watch: Watch | None) -> None:
        from symbreak.tasks import get_task
        from symbreak.training.build import build_agent
        from symbreak.training.drivers import make_driver
        from symbreak.training.tally import Ledger

        self.config, self.record = config, record
        task = task or get_task(config.task)
        self.schedule = Schedule(config, task.training_steps if config.steps is None else config.steps)
        agent, gate = parse_parts(config, task.algorithm)
        self.agent = build_agent(
            task,
            config.method,
            symmetry_name=config.symmetry,
            preset=config.preset,
            steps=self.schedule.end,
            config=agent,
            gate=gate,
        )
        self.watch = watch or Watch()
        self.watch.timeout = config.environment_timeout
        self.driver = make_driver(self.agent, task, config, self.watch.limit)
        self.ledger = Ledger()
        self.step = 0
        self.row_step = 0  # of the last row
        self.saved_step = -1  # of the last checkpoint
        self.finished = False
        self.torn = False  # it broke off in the middle of a step or row: that state is neither saved nor continued
        self._segments: Any = None
        self._speed = 1.0  # environment steps per second
        self.provenance = provenance()

    @classmethod
    def create(
        cls, config: RunConfig, directory: Path | None = None, *, task: Any = None, watch: Watch | None = None
    ) -> Run:
        """A new run. The configuration is checked before anything is written."""
        if directory is not None:
            refuse_existing(directory)
        config = parse_config(config.to_json())
        run = cls(config, Record(None), task, watch)
        try:
            if run.agent.method.uses_symmetry:
                run.driver.require_bounds()
            run.record = Record.create(config, directory, versions())
            run.say_beside_results()
            run.driver.begin()
            run._follow(())
        except BaseException as problem:
            run._leave(problem)
            raise
        return run

    @classmethod
    def open(
        cls, directory: Path, *, task: Any = None, watch: Watch | None = None, environment_timeout: float | None = None
    ) -> Run:
        """An existing run, where its newest undamaged checkpoint left it; without one, at its beginning."""
        config = read_config(directory)
        if environment_timeout is not None:
            config = parse_config({**config.to_json(), "environment_timeout": environment_timeout})
        record = Record.open(directory)
        try:
            run = cls(config, record, task, watch)
        except BaseException:
            record.close()
            raise
        run.say_beside_results()
        try:
            run._load()
        except BaseException:
            run._leave(None)  # what could not be opened is not touched
            raise
        return run

    @property
    def notes(self) -> tuple[str, ...]:
        """To be read beside the results."""
        from symbreak.gates.gate import caveats
        from symbreak.training.quality import doubts, too_short

        gate = self.agent.gate
        return (*caveats(gate), *too_short(gate, self.schedule.end), *doubts(self.rows))

    def say_beside_results(self) -> None:
        """Take note of what belongs beside results, and of what an interruption has to say."""
        self.record.notes = self.notes
        if self.record.directory is None:
            self.watch.kept, self.watch.resume = "nothing is lost", "learn again to go on, or save"
        else:
            self.watch.resume = f"continue with: {resume_command(self.record.directory)}"

    @property
    def rows(self) -> list[dict[str, float]]:
        return self.record.rows

    # --- going on -----------------------------------------------------------------------------------------------------

    def advance(self, until: int | None = None, report: Report | None = None, tick: Tick | None = None) -> None:
        """Go on to step `until`, by default to the end, which finishes the run. A signal saves and raises.

        `report` takes every row, `tick` the number of steps made, about twice a second.
        """
        self.require_whole()
        end = self.schedule.end if until is None else min(until, self.schedule.end)
        starts = self.agent.config.learning_starts
        with self.watch:
            try:
                while not self.finished and self.step < end:
                    self._do_what_is_due(report)
                    self._advance_to(min(end, self.schedule.next_border(self.step, starts)), tick)
                self._do_what_is_due(report)
                if self.step == self.schedule.end and not self.finished:
                    self._finish()
            except Interrupted:
                self.save()
                raise

    def require_whole(self) -> None:
        """Refuse what broke off in the middle of a step or row: no run ever is in that state."""
        if self.torn:
            memory = self.record.directory is None
            advice = (
                "load what was saved before, or begin anew" if memory else "go on from its checkpoint with Run.open"
            )
            raise InputError(f"this run broke off after step {self.step}; {advice}")

    def _do_what_is_due(self, report: Report | None) -> None:
        """At a border, in this order; each only if it is not done yet, so that a run may stop between any two."""
        step, schedule = self.step, self.schedule
        if schedule.is_fold(step) and self.ledger.folded < step:
            from symbreak.training.tally import require_finite_state

            require_finite_state(self.driver.agent_state, step)
            self.ledger.fold(self.driver.tally, step)
            self.driver.fresh_tally()
        evaluate = schedule.is_evaluation(step)
        if (evaluate or schedule.is_log(step)) and self.row_step < step:
            evaluated = self._evaluate() if evaluate else {}
            row = {"step": step, **evaluated, **self.ledger.row(self.driver.tally, step)}
            self.torn = True  # as long as the row stands neither in the sums nor in the file
            self.record.write(row)
            self.torn = False
            self.record.notes = self.notes
            self.row_step, self.saved_step = step, -1  # a checkpoint of this step lacks the row
            if report is not None:  # the speed is told, not recorded: equal runs have equal records
                report({**self.rows[-1], "steps_per_second": self._speed})
        if schedule.is_checkpoint(step) and self.saved_step < step:
            self.save()
        self.watch.require_going_on()

    def _evaluate(self) -> dict[str, float]:
        try:
            return self.driver.evaluate(self.step, self.watch.require_going_on)
        except (EnvironmentFault, NumericFault):
            with suppress(SymbreakError):  # the fault is what has to be told
                self.save()  # the training is whole, and nothing of it need be lost
            raise

    def _advance_to(self, border: int, tick: Tick | None) -> None:
        """In pieces of about half a second, between which signals are heard; the pieces leave no trace."""
        begun, first = time.perf_counter(), self.step
        piece = 1
        while self.step < border:
            started = time.perf_counter()
            count = min(piece, border - self.step)
            try:
                self.driver.run(self.step, count)
            except BaseException:
                self.step, self.torn = self.driver.reached(self.step), True
                raise
            self.step += count
            speed = count / (time.perf_counter() - started)
            piece = max(1, min(1_000, 4 * piece, round(speed / 2)))
            self.record.beat(self.step)
            if tick is not None:
                tick(self.step)
            self.watch.require_going_on()
        self._speed = (border - first) / (time.perf_counter() - begun)

    def _finish(self) -> None:
        if self.record.directory is not None:
            self.driver.write_maps(self.record.directory)
        self.record.status("finished", self.step)
        self.finished = True

    # --- saving and loading -------------------------------------------------------------------------------------------

    def save(self) -> None:
        """A checkpoint of this moment. What is not finite is refused: the last good checkpoint stays.

        After a fault in the middle of a step nothing is saved either: no run ever is in that state.
        """
        if self.record.directory is None or self.torn or self.saved_step == self.step:
            return
        from symbreak.training.saving import meta_of
        from symbreak.training.tally import require_finite_state

        require_finite_state(self.driver.agent_state, self.step)
        self.record.beat(always=True)
        trees, replay, facts = self.driver.save()
        self._segments.follow(replay)
        self.record.checkpoints.save(self.step, trees, meta_of(self, facts), self._segments.seal())
        self.saved_step = self.step

    def _follow(self, references: Any) -> None:
        from symbreak.storage.segment_writer import SegmentWriter

        if self.record.directory is not None:
            config = self.agent.config
            self._segments = SegmentWriter(
                self.record.directory / "replay", config.capacity, config.discount, references
            )

    def _load(self) -> None:
        from symbreak.training.saving import newest, rows_until, take_up

        directory = self.record.directory
        assert directory is not None
        trees, replay = self.driver.templates()
        loaded = newest(directory, trees)
        if loaded is None:
            reached = read_status(directory).get("step")
            if isinstance(reached, int) and reached > self.config.checkpoint_every:
                raise StorageFault(f"{directory} reached step {reached} and has no checkpoint; restore it from a copy")
            self.record.continue_at(0, None)
            self.driver.begin()
            self._follow(())
            return
        meta = take_up(self, loaded, replay, directory)
        self.saved_step = loaded.step
        self._follow(loaded.segments)
        if self.finished:
            self.record.rows = rows_until(meta, directory)
            return
        self.record.continue_at(loaded.step, meta.metrics)
        self.record.notes = self.notes

    # --- leaving ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        self._leave(problem)

    def _leave(self, problem: BaseException | None) -> None:
        try:
            if problem is not None and not self.finished and not isinstance(problem, DirectoryInUse):
                state = "interrupted" if isinstance(problem, Interrupted | KeyboardInterrupt) else "failed"
                self.record.status(state, self.step, f"{type(problem).__name__}: {problem}")
        except StorageFault:
            pass  # the disk may be what failed; the first problem is the one to report
        finally:
            try:
                self.driver.close()
            except Exception as fault:
                if problem is None:
                    raise EnvironmentFault(f"closing the environment raised {type(fault).__name__}: {fault}") from fault
            finally:
                self.record.close()

    def close(self) -> None:
        """Save and let go of the directory; the run can be opened again."""
        try:
            self.save()
        finally:
            self._leave(None)
