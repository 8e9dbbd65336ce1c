"""States that a policy visits in a simulator, and steps from them and from their images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from symbreak.audit.compare import TOLERANCE, Comparison, Errors, Evidence
from symbreak.audit.declaration import Acting
from symbreak.audit.simulators import Outcome, Simulator
from symbreak.errors import InputError, NumericFault

Policy = Callable[[np.ndarray], Any]
KEEP = 0.25  # share of a rollout's states that are audited, so that they differ from one another
LONGEST_ROLLOUT = 200
REPEATED = 1e-6  # share of a step's change up to which two steps from one state are the same
ASTRAY = 0.1  # share of a step's change by which setting a state may miss it on average


@dataclass(frozen=True, eq=False)
class Situation:
    """A visited state, what it showed, an action, and what the step did: from the state when set, and when met."""

    state: Any
    observation: np.ndarray
    action: np.ndarray | int
    outcome: Outcome
    met: Outcome


@dataclass(frozen=True, eq=False)
class _Differences:
    """Of steps without a transformation, per number shown: means in shares of a step's change, and the largest."""

    noise: np.ndarray  # between two steps from one state
    astray: np.ndarray  # between a step from a state that was set and the one taken when it was met
    missed: np.ndarray  # the same, where its image under the identity was set
    largest: np.ndarray  # of the last, as it is
    reward: float  # the largest, relative to the spread of rewards
    reward_noise: float  # the same between two steps from one state
    ends: bool  # whether two steps from one state end an episode alike

    @property
    def repeats(self) -> bool:
        return bool(self.noise.max() <= REPEATED)


class VisitedStates(Evidence):
    """States that a policy visits in a simulator, each with one action."""

    noun = "states"

    def __init__(self, simulator: Simulator, states: int, seed: int, policy: Policy | None = None) -> None:
        if states < 1:
            raise InputError(f"states={states}: audit at least one state")
        if seed < 0:
            raise InputError(f"seed {seed} is negative; use 0 or more")
        self.simulator = simulator
        self.situations = _visit(simulator, states, seed, policy)
        self.pairs = states
        self._shown = self.situations[0].observation.size  # how many numbers an observation has
        self.how = simulator.how
        found = self._require_return()
        self._repeats, self._reward_floor, self._ends = found.repeats, found.reward, found.ends
        self._rewards_repeat = found.repeats and found.reward_noise <= REPEATED
        self.allowance = "ten times" if self._repeats else "twice"
        self._floor = np.maximum(found.largest, self._rounding)
        self.control = max(float((found.largest / self._sizes).max()), found.reward)

    def observations(self) -> np.ndarray:
        return np.array([situation.observation for situation in self.situations])

    def compare(self, acting: Acting, centre: np.ndarray | None = None, chosen: np.ndarray | None = None) -> Comparison:
        situations = self.situations if chosen is None else [self.situations[i] for i in chosen]
        shape = (len(situations), len(acting.observation))
        wanted, change = np.full((*shape, self._shown), np.nan), np.full((*shape, self._shown), np.nan)
        reward, termination, reachable = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        hindrances: Counter[str] = Counter()
        for j, matrix in enumerate(acting.observation):
            offset = 0.0 if centre is None else centre - matrix @ centre
            actions = self._image_actions(acting, j, situations)
            for i, situation in enumerate(situations):
                start = matrix @ situation.observation + offset
                image = self.simulator.image(situation.state, start)
                hindrance = "no state shows the image"
                if image is not None:
                    hindrance = self.simulator.hindrance(situation.state, image)
                reachable[i, j] = not hindrance
                hindrances.update([hindrance] if hindrance else [])
                if image is None or (hindrance and chosen is not None):
                    continue  # of a few chosen pairs only those count whose images can be visited
                self.simulator.place(image)
                try:
                    outcome, first = self.simulator.step(actions[i]), situation.outcome
                except NumericFault:
                    if hindrance or chosen is not None:
                        continue  # what does not occur, or is only tried, may show anything
                    raise
                wanted[i, j] = matrix @ (first.observation - situation.observation)
                change[i, j] = outcome.observation - start
                reward[i, j] = abs(outcome.reward - first.reward) / self._spread
                termination[i, j] = outcome.terminated != first.terminated
        return Comparison(
            fields={name: self._errors(wanted, change, index) for name, index in acting.fields.items()},
            reward=Errors(reward, tolerance=self._above(self._reward_floor, self._rewards_repeat)),
            # Where the same step now ends an episode and now does not, no difference means anything.
            termination=Errors(termination) if self._ends else Errors(termination, tolerance=1.0),
            reachable=reachable,
            hindrances=hindrances,
        )

    def _errors(self, wanted: np.ndarray, change: np.ndarray, index: list[int]) -> Errors:
        """Of one field, from the changes that the images should have shown and those that they did."""
        # The size of a change is taken from all visited states, so that few and many of them are judged alike.
        size = self._size(index)
        wanted, change = wanted[..., index], change[..., index]
        missed = np.linalg.norm(wanted - change, axis=-1)
        both = (wanted**2).sum(axis=-1) + (change**2).sum(axis=-1)
        agreement = 1.0 - missed**2 / np.where(both > 0.0, both, 1.0)
        agreement = np.where(missed <= TOLERANCE * size, 1.0, agreement)
        floor = float(np.linalg.norm(self._floor[index])) / size
        return Errors(missed / size, agreement, self._above(floor, self._repeats), both > (TOLERANCE * size) ** 2)

    def _image_actions(self, acting: Acting, element: int, situations: list[Situation]) -> list[Any]:
        images = acting.act(element, np.array([situation.action for situation in situations]))
        space = self.simulator.env.action_space
        if isinstance(space, Box):
            # An action outside the bounds cannot be taken; what would be done instead is the nearest one inside.
            return list(np.clip(images, space.low, space.high))
        return images.tolist()

    @cached_property
    def _changes(self) -> tuple[np.ndarray, np.ndarray]:
        before = self.observations()
        return before, np.array([situation.outcome.observation for situation in self.situations]) - before

    def _size(self, index: list[int]) -> float:
        """Mean size of the field's change; of the field itself where it never changes."""
        before, change = (np.linalg.norm(values[:, index], axis=1).mean() for values in self._changes)
        return float(change if change > 1e-9 * before else before) or 1.0

    @cached_property
    def _spread(self) -> float:
        rewards = np.array([situation.outcome.reward for situation in self.situations])
        return float(rewards.std() if rewards.std() > 1e-9 * np.abs(rewards).max() else np.abs(rewards).max()) or 1.0

    @cached_property
    def _rounding(self) -> np.ndarray:
        """What the observation's precision leaves open, per number shown."""
        precision = np.finfo(self.simulator.env.observation_space.dtype or float).eps
        return precision * np.abs(self.observations()).max(axis=0)

    @cached_property
    def _sizes(self) -> np.ndarray:
        return np.array([self._size([i]) for i in range(self._shown)])

    def _set_again(self, situations: list[Situation]) -> _Differences:
        """How far steps without a transformation are from those compared with.

        Zero up to rounding, where states are set exactly and nothing is drawn at random.
        """
        shape = len(situations), self._shown
        twice, astray, returned = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        reward, reward_noise, ends = 0.0, 0.0, True
        for i, situation in enumerate(situations):
            first = situation.outcome
            self.simulator.place(situation.state)
            second = self.simulator.step(situation.action)
            twice[i] = second.observation - first.observation
            reward_noise = max(reward_noise, abs(second.reward - first.reward) / self._spread)
            astray[i] = situation.met.observation - first.observation
            self.simulator.place(self._itself(situation))
            again = self.simulator.step(situation.action)
            returned[i] = again.observation - first.observation
            reward = max(reward, abs(again.reward - first.reward) / self._spread)
            ends &= first.terminated == second.terminated == again.terminated
        beyond = (np.maximum(np.abs(off) - 4.0 * self._rounding, 0.0) for off in (twice, astray, returned))
        noise, missing, missed = (off.mean(axis=0) / self._sizes for off in beyond)
        return _Differences(noise, missing, missed, np.abs(returned).max(axis=0), reward, reward_noise, ends)

    def _require_return(self) -> _Differences:
        """What steps differ by without a transformation. Setting states must lead to where they were."""
        found = self._set_again(self.situations)
        if found.repeats and found.astray.max() > ASTRAY:
            raise InputError(
                f"a step from a state that was set differs by {_told(found.astray)} from the step taken when it was "
                f"visited: {self.simulator.source} must return, and set_state set, all that the next step depends on"
            )
        if found.repeats and found.missed.max() > ASTRAY:
            raise InputError(
                "state_from_observation does not lead back to the state that showed the observation: a step from there "
                f"is off by {_told(found.missed)}; it must set all that is shown, and may copy the rest from there"
            )
        return found

    def _itself(self, situation: Situation) -> Any:
        """The image of a state under the identity."""
        image = self.simulator.image(situation.state, situation.observation)
        if image is None:
            raise InputError(
                "state_from_observation returned None for an observation the environment had just shown: "
                "it must find a state for every observation that occurs"
            )
        return image

    def _above(self, floor: float, repeats: bool) -> float:
        """The tolerance for errors whose control is `floor`: well above rounding, or just above all noise seen."""
        return max(TOLERANCE, (10.0 if repeats else 2.0) * floor)


def _told(shares: np.ndarray) -> str:
    return f"{100 * shares.max():.0f} % of a step's change (entry {int(shares.argmax())} of the observation)"


def _visit(simulator: Simulator, states: int, seed: int, policy: Policy | None) -> list[Situation]:
    """States met on rollouts, each stepped once from where it was set, as its images will be."""
    rng = np.random.default_rng(seed)
    space = simulator.env.action_space
    simulator.reset(seed=seed)
    met: list[tuple[Any, np.ndarray, Any, Outcome]] = []
    time = 0
    while len(met) < states:
        observation = simulator.observation().copy()
        action = _random_action(space, rng) if policy is None else _taken(space, policy(observation))
        state = [simulator.capture()] if rng.random() < KEEP else []
        outcome = simulator.step(action)
        met += [(kept, observation, action, outcome) for kept in state]
        time += 1
        if outcome.terminated or outcome.truncated or time >= LONGEST_ROLLOUT:
            simulator.reset()
            time = 0
    situations = []
    for state, observation, action, outcome in met:
        simulator.place(state)
        situations.append(Situation(state, observation, action, simulator.step(action), outcome))
    return situations


def _taken(space: Any, action: Any) -> np.ndarray | int:
    predicted = isinstance(action, tuple) and len(action) == 2 and action[1] is None  # as agents do
    action = np.asarray(action[0] if predicted else action)
    return int(action) if isinstance(space, Discrete) else np.asarray(action, dtype=float)


def _random_action(space: Any, rng: np.random.Generator) -> np.ndarray | int:
    if isinstance(space, Discrete):
        return int(rng.integers(space.n))
    if not isinstance(space, Box):
        raise InputError(f"the action space {space} is neither Box nor Discrete; only these can be audited")
    low, high = np.where(np.isfinite(space.low), space.low, -1.0), np.where(np.isfinite(space.high), space.high, 1.0)
    return rng.uniform(low, high)
