"""What steps differ by where nothing is transformed: the control of an audit.

Every visited state is set and stepped from once more, and once more as the image of itself. Where that does not lead
to what happened before, the environment draws at random or its methods for setting states are at fault; neither may be
counted as a broken symmetry. A few states that cannot be set back are left out, so that they hide nothing elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from symbreak.audit.rollout import Situation
from symbreak.audit.simulators import Outcome, Simulator
from symbreak.errors import InputError

REPEATED = 1e-6  # share of a step's change up to which two steps from one state are the same
ASTRAY = 0.1  # share of a step's change by which setting a state may miss it on average
RETURNED = 1e-3  # share of a step's change up to which a state counts as set back
FEW = 0.1  # share of states that may be left out because they cannot be set back


@dataclass(frozen=True, eq=False)
class Scales:
    """What differences are compared with: per number shown a step's mean change and rounding; the rewards' spread."""

    sizes: np.ndarray
    rounding: np.ndarray
    spread: float

    def beyond_rounding(self, differences: np.ndarray) -> np.ndarray:
        """Differences of what was shown, in shares of a step's change."""
        return np.maximum(np.abs(differences) - 4.0 * self.rounding, 0.0) / self.sizes


@dataclass(frozen=True, eq=False)
class Control:
    """How far the environment is from itself in those states that are kept.

    `repeats`, `rewards_repeat` and `ends_repeat` say whether nothing is drawn at random; `largest` (per number shown,
    as it is) and `reward` (relative to the spread) are the largest differences to a state's image under the identity.
    """

    kept: np.ndarray
    repeats: bool
    rewards_repeat: bool
    ends_repeat: bool
    largest: np.ndarray
    reward: float


@dataclass(frozen=True, eq=False)
class _Differences:
    """To the step from the state when set, one row per state, in shares."""

    shown: np.ndarray  # (states, numbers)
    largest: np.ndarray  # the same, as it is
    reward: np.ndarray
    ends: np.ndarray

    @staticmethod
    def between(outcomes: list[Outcome], situations: list[Situation], scales: Scales) -> _Differences:
        firsts = [situation.outcome for situation in situations]
        pairs = list(zip(outcomes, firsts, strict=True))
        shown = np.array([one.observation - two.observation for one, two in pairs])
        return _Differences(
            shown=scales.beyond_rounding(shown),
            largest=np.abs(shown),
            reward=np.array([abs(one.reward - two.reward) for one, two in pairs]) / scales.spread,
            ends=np.array([one.terminated != two.terminated for one, two in pairs]),
        )


def control(simulator: Simulator, situations: list[Situation], scales: Scales) -> Control:
    """Zero up to rounding, where states are set exactly and nothing is drawn at random."""

    def step_from(state: Any, situation: Situation) -> Outcome:
        simulator.place(state)
        return simulator.step(situation.action)

    # One after the other for each state: what a step leaves behind unseen would return if all were repeated in order.
    again = [(step_from(s.state, s), step_from(_itself(simulator, s), s), s.met) for s in situations]
    second, itself, met = (_Differences.between(list(o), situations, scales) for o in zip(*again, strict=True))
    repeats = bool(second.shown.mean(axis=0).max() <= REPEATED)
    rewards_repeat = repeats and bool(second.reward.max() <= REPEATED)
    ends_repeat = not second.ends.any()
    kept = np.ones(len(situations), dtype=bool)
    if repeats:
        kept = _set_back(itself, rewards_repeat, ends_repeat)
        _require_return(simulator, met.shown, itself.shown[kept])
        _require_rounding(simulator, [s for s, stays in zip(situations, kept, strict=True) if stays], scales)
    return Control(
        kept=kept,
        repeats=repeats,
        rewards_repeat=rewards_repeat,
        ends_repeat=ends_repeat and not itself.ends[kept].any(),
        largest=itself.largest[kept].max(axis=0),
        reward=float(itself.reward[kept].max()),
    )


def _set_back(itself: _Differences, rewards_repeat: bool, ends_repeat: bool) -> np.ndarray:
    """Which states lead back to themselves; all of them where those that do not are many."""
    fails = itself.shown.max(axis=1) > RETURNED
    if rewards_repeat:
        fails |= itself.reward > RETURNED
    if ends_repeat:
        fails |= itself.ends
    return ~fails if fails.mean() <= FEW else np.ones_like(fails)


def _itself(simulator: Simulator, situation: Situation) -> Any:
    """The image of a state under the identity."""
    image = simulator.image(situation.state, situation.observation)
    if image is None:
        raise InputError(
            "state_from_observation returned None for an observation the environment had just shown: "
            "it must find a state for every observation that occurs"
        )
    return image


def _require_return(simulator: Simulator, met: np.ndarray, itself: np.ndarray) -> None:
    """Setting states must lead to where they were."""
    astray, missed = met.mean(axis=0), itself.mean(axis=0)
    if astray.max() > ASTRAY:
        raise InputError(
            f"a step from a state that was set differs by {_told(astray)} from the step taken when it was "
            f"visited: {simulator.source} must return, and set_state set, all that the next step depends on"
        )
    if missed.max() > ASTRAY:
        raise InputError(
            "state_from_observation does not lead back to the state that showed the observation: a step from there "
            f"is off by {_told(missed)}; it must set all that is shown, and may copy the rest from there"
        )


def _require_rounding(simulator: Simulator, situations: list[Situation], scales: Scales) -> None:
    """The image of a state shows its numbers up to rounding, so what rounding changes must lead to the same step."""
    largest = np.abs([situation.observation for situation in situations]).max(axis=0)
    signs = np.where(np.arange(largest.size) % 2, 1.0, -1.0)
    outcomes, compared = [], []
    for i, situation in enumerate(situations):
        nearly = situation.observation + (-1.0) ** i * signs * 4.0 * np.finfo(float).eps * largest
        image = simulator.image(situation.state, nearly)
        if image is not None:
            simulator.place(image)
            outcomes.append(simulator.step(situation.action))
            compared.append(situation)
    if not compared:
        return
    missed = _Differences.between(outcomes, compared, scales).shown.mean(axis=0)
    if missed.max() > ASTRAY:
        raise InputError(
            f"{simulator.maker} leads elsewhere when an observation is off by rounding: the step differs by "
            f"{_told(missed)}; take the nearest number (np.rint), do not cut off (int)"
        )


def _told(shares: np.ndarray) -> str:
    return f"{100 * shares.max():.0f} % of a step's change (entry {int(shares.argmax())} of the observation)"
