"""When a run does what: all by environment steps, all known beforehand."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from symbreak.training.settings import RunConfig
from symbreak.training.tally import STRETCH


class Schedule:
    def __init__(self, config: RunConfig, end: int) -> None:
        self.config, self.end = config, end

    @cached_property
    def evaluations(self) -> list[int]:
        """Spread evenly, the last one at the end."""
        count = min(self.config.evaluations, self.end)
        return [round(self.end * (number + 1) / count) for number in range(count)]

    def is_evaluation(self, step: int) -> bool:
        place = bisect_right(self.evaluations, step)
        return place > 0 and self.evaluations[place - 1] == step

    def is_log(self, step: int) -> bool:
        every = self.config.log_every
        return every is not None and step > 0 and step % every == 0

    def is_checkpoint(self, step: int) -> bool:
        return step == self.end or (step > 0 and step % self.config.checkpoint_every == 0)

    def is_fold(self, step: int) -> bool:
        return step == self.end or step % STRETCH == 0

    def next_border(self, step: int, learning_starts: int = 0) -> int:
        """The next step at which something is due, or the last one before learning starts: that is compiled first."""
        every = [STRETCH, self.config.checkpoint_every, *([self.config.log_every] if self.config.log_every else [])]
        later = [step - step % period + period for period in every]
        random = [learning_starts - 1] if step < learning_starts - 1 else []
        return min(self.end, *later, *random, *self.evaluations[bisect_right(self.evaluations, step) :][:1])
