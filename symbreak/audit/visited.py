"""States that a policy visits in a simulator, and steps from them and from their images."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from symbreak.audit.compare import TOLERANCE, Comparison, Errors, Evidence
from symbreak.audit.control import Scales, control
from symbreak.audit.declaration import Acting
from symbreak.audit.rollout import Policy, Situation, visit
from symbreak.audit.simulators import Outcome, Simulator
from symbreak.errors import EnvironmentFault, InputError, NumericFault

NOWHERE = "no state shows the image"
SLACK = 1e-6  # by which the image of an action may pass its bounds and still be taken there
MOST_LEAVE = 0.9  # where more images of actions than this leave their bounds, all are compared, at the bounds


@dataclass(eq=False)
class _Seen:
    """What steps from images showed, (pairs, elements); NaN where none was taken."""

    wanted: np.ndarray  # the change that the image should show,
    change: np.ndarray  # and the one that it did
    reward: np.ndarray
    termination: np.ndarray
    reachable: np.ndarray
    hindrances: Counter[str] = dataclass_field(default_factory=Counter)

    @staticmethod
    def nothing(pairs: int, elements: int, shown: int) -> _Seen:
        changes = np.full((2, pairs, elements, shown), np.nan)
        scalars = np.full((2, pairs, elements), np.nan)
        return _Seen(*changes, *scalars, reachable=np.zeros((pairs, elements), dtype=bool))


class VisitedStates(Evidence):
    """States that a policy visits in a simulator, each with one action."""

    noun = "states"

    def __init__(self, simulator: Simulator, states: int, seed: int, policy: Policy | None = None) -> None:
        if states < 1:
            raise InputError(f"states={states}: audit at least one state")
        if seed < 0:
            raise InputError(f"seed {seed} is negative; use 0 or more")
        self.simulator = simulator
        self.how = simulator.how
        visited = visit(simulator, states, seed, policy)
        self._before = np.array([situation.observation for situation in visited])
        self._changes = np.array([situation.outcome.observation for situation in visited]) - self._before
        self._rewards = np.array([situation.outcome.reward for situation in visited])
        self._control = control(simulator, visited, self._scales)
        self.situations = [situation for situation, kept in zip(visited, self._control.kept, strict=True) if kept]
        self.pairs, self.left_out = len(self.situations), states - len(self.situations)
        if isinstance(simulator.env.action_space, Discrete):
            self.few, self.more = 15, 60  # a handful would not show every action
        self.allowance = "ten times" if self._control.repeats else "twice"
        self._floor = np.maximum(self._control.largest, self._scales.rounding)
        self.control = max(float((self._control.largest / self._scales.sizes).max()), self._control.reward)

    def observations(self) -> np.ndarray:
        return np.array([situation.observation for situation in self.situations])

    def actions(self) -> np.ndarray | None:
        discrete = isinstance(self.simulator.env.action_space, Discrete)
        return np.array([situation.action for situation in self.situations]) if discrete else None

    def compare(self, acting: Acting, centre: np.ndarray | None = None, chosen: np.ndarray | None = None) -> Comparison:
        situations = self.situations if chosen is None else [self.situations[i] for i in chosen]
        seen = _Seen.nothing(len(situations), len(acting.observation), self._before.shape[1])
        leaving = self._leaving(acting, situations)
        for j, matrix in enumerate(acting.observation):
            offset = 0.0 if centre is None else centre - matrix @ centre
            actions = self._image_actions(acting, j, situations)
            for i, situation in enumerate(situations):
                start, first = matrix @ situation.observation + offset, situation.outcome
                action = None if leaving[i, j] else actions[i]
                outcome, hindrance = self._step_from_image(situation, start, action, tried=chosen is not None)
                seen.reachable[i, j] = not hindrance
                seen.hindrances.update([hindrance] if hindrance else [])
                if outcome is None:
                    continue
                seen.wanted[i, j] = matrix @ (first.observation - situation.observation)
                seen.change[i, j] = outcome.observation - start
                seen.reward[i, j] = abs(outcome.reward - first.reward) / self._scales.spread
                seen.termination[i, j] = outcome.terminated != first.terminated
        return replace(self._comparison(seen, acting), leaving=leaving)

    def _step_from_image(
        self, situation: Situation, start: np.ndarray, action: Any, tried: bool
    ) -> tuple[Outcome | None, str]:
        """What a step from the image that shows `start` does, if it is taken, and what keeps it from being visited.

        None as an action takes no step. Where a changed declaration is only `tried`, images may be anything, and only
        those that can be visited count.
        """
        try:
            image = self.simulator.image(situation.state, start)
            unlike = "" if image is None else self.simulator.unlike(image, start)
            if unlike and not tried:
                raise InputError(unlike)
            if image is None or unlike:
                return None, NOWHERE
            hindrance = self.simulator.hindrance(situation.state, image)
            if action is None or (hindrance and tried):
                return None, hindrance
            self.simulator.place(image)
        except EnvironmentFault:
            if tried:
                return None, NOWHERE
            raise
        try:
            return self.simulator.step(action), hindrance
        except (NumericFault, EnvironmentFault):
            if hindrance or tried:
                return None, hindrance  # what does not occur, or is only tried, may show anything
            raise

    def _comparison(self, seen: _Seen, acting: Acting) -> Comparison:
        found = self._control
        reward_floor = max(found.reward, self._reward_rounding)
        return Comparison(
            fields={name: self._errors(seen.wanted, seen.change, index) for name, index in acting.fields.items()},
            reward=Errors(seen.reward, tolerance=_above(reward_floor, found.rewards_repeat)),
            # Where the same step now ends an episode and now does not, no difference means anything.
            termination=Errors(seen.termination) if found.ends_repeat else Errors(seen.termination, tolerance=1.0),
            reachable=seen.reachable,
            hindrances=seen.hindrances,
        )

    def _errors(self, wanted: np.ndarray, change: np.ndarray, index: list[int]) -> Errors:
        """Of one field, from the changes that the images should have shown and those that they did."""
        size = self._size(index)
        wanted, change = wanted[..., index], change[..., index]
        missed = np.linalg.norm(wanted - change, axis=-1)
        both = (wanted**2).sum(axis=-1) + (change**2).sum(axis=-1)
        agreement = 1.0 - missed**2 / np.where(both > 0.0, both, 1.0)
        agreement = np.where(missed <= TOLERANCE * size, 1.0, agreement)
        floor = float(np.linalg.norm(self._floor[index])) / size
        return Errors(missed / size, agreement, _above(floor, self._control.repeats), both > (TOLERANCE * size) ** 2)

    def _image_actions(self, acting: Acting, element: int, situations: list[Situation]) -> list[Any]:
        images = acting.act(element, np.array([situation.action for situation in situations]))
        space = self.simulator.env.action_space
        if isinstance(space, Box):
            # An action outside the bounds cannot be taken; what would be done instead is the nearest one inside.
            return list(np.clip(images, space.low, space.high).astype(space.dtype))
        return images.tolist()

    def _leaving(self, acting: Acting, situations: list[Situation]) -> np.ndarray:
        """Where the image of an action cannot be taken, (pairs, elements): there the box is not symmetric."""
        leaving = np.zeros((len(situations), len(acting.observation)), dtype=bool)
        space = self.simulator.env.action_space
        if isinstance(space, Box):
            actions = np.array([situation.action for situation in situations])
            low, high = space.low - SLACK * (1.0 + np.abs(space.low)), space.high + SLACK * (1.0 + np.abs(space.high))
            for j in range(leaving.shape[1]):
                images = acting.act(j, actions)
                leaving[:, j] = ((images < low) | (images > high)).any(axis=1)
        return leaving if leaving.mean() <= MOST_LEAVE else np.zeros_like(leaving)

    def _size(self, index: list[int]) -> float:
        """Mean size of the field's change; of the field itself where it never changes.

        It is taken from all visited states, so that few and many of them are judged alike.
        """
        before, change = (np.linalg.norm(values[:, index], axis=1).mean() for values in (self._before, self._changes))
        return float(change if change > 1e-9 * before else before) or 1.0

    @property
    def _reward_rounding(self) -> float:
        """What the precision of actions leaves open in a reward that is computed from them, of the rewards' spread."""
        space = self.simulator.env.action_space
        precision = np.finfo(space.dtype).eps if isinstance(space, Box) else 0.0
        return float(precision * np.abs(self._rewards).max() / self._scales.spread)

    @cached_property
    def _scales(self) -> Scales:
        largest, spread = np.abs(self._rewards).max(), self._rewards.std()
        precision = np.finfo(self.simulator.env.observation_space.dtype or float).eps
        return Scales(
            sizes=np.array([self._size([i]) for i in range(self._before.shape[1])]),
            rounding=precision * np.abs(self._before).max(axis=0),
            spread=float(spread if spread > 1e-9 * largest else largest) or 1.0,
        )


def _above(floor: float, repeats: bool) -> float:
    """The tolerance for errors whose control is `floor`: well above rounding, or just above all noise seen."""
    return max(TOLERANCE, (10.0 if repeats else 2.0) * floor)
