"""The environments that a run learns from: one, or several that take turns.

Each keeps what is needed to bring it back: the seed and the actions of its running episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from symbreak.training.guarded import GuardedEnvironment

MOST_ACTIONS = 50_000  # of a running episode that are remembered; a longer one cannot be repeated
MOST_BYTES = 4 << 20  # of the actions of all running episodes: a checkpoint's facts take 8 MiB at most, in base64


@dataclass(frozen=True, eq=False)
class Episode:
    """A running episode: with its reset seed and actions the environment can be brought back to where it is."""

    number: int
    actions: tuple[np.ndarray, ...] | None  # none: there were too many to remember
    total: float  # reward so far
    observation: np.ndarray  # where it is


def reset_seed(seed: int, number: int) -> int:
    """Of the `number`-th episode of a run with that seed."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def remembered(copies: int, action_bytes: int) -> int:
    """How many actions of a running episode each of so many copies remembers."""
    return min(MOST_ACTIONS, MOST_BYTES // (copies * action_bytes))


class Seat:
    """One environment and its running episode. `begin` or `bring_back` comes first."""

    def __init__(self, environment: GuardedEnvironment, seed: int, most: int = MOST_ACTIONS) -> None:
        self.environment, self.seed, self.most = environment, seed, most

    def begin(self, number: int, step: int) -> None:
        """A new episode, the `number`-th of the run."""
        self.number, self.total = number, 0.0
        self._actions: list[np.ndarray] | None = []
        self.observation = self.environment.reset(reset_seed(self.seed, number), step)

    def play(self, action: np.ndarray, step: int) -> tuple[np.ndarray, np.float32, bool, bool]:
        """The run's `step`-th step: what followed, the reward, whether it was the end, and whether time ran out."""
        after, reward, terminated, truncated, _ = self.environment.step(action, step)
        self.total += float(reward)
        if self._actions is not None:
            self._actions.append(action)
            if len(self._actions) > self.most:
                self._actions = None
        self.observation = after
        return after, reward, terminated, truncated

    @property
    def episode(self) -> Episode:
        actions = None if self._actions is None else tuple(self._actions)
        return Episode(self.number, actions, self.total, self.observation)

    def bring_back(self, episode: Episode, step: int) -> bool:
        """Repeat a running episode. False if it did not lead back; then the seat is somewhere in a new one.

        Without its actions the episode begins anew, which is not the same run and is said so.
        """
        self.begin(episode.number, step)
        over: Any = False
        for played in episode.actions or ():
            if over:
                break
            _, _, terminated, truncated = self.play(played, step)
            over = terminated or truncated
        self.total = episode.total
        if over:
            self.begin(episode.number, step)
            return False
        return episode.actions is not None and self.observation.tobytes() == episode.observation.tobytes()
