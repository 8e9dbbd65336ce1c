"""From errors to plain words.

A symmetry is *exact* when every image can be visited and nothing differs by more than rounding; *undecided* when
nothing differs by more than the environment does from itself, and that is much. It is *not a symmetry* when the
declaration itself is at fault: its images hardly ever occur, some field changes the opposite way, or a small change of
the declaration mends what it gets wrong in most states. Anything between is *locally broken*: true in places or in
part, which is what partial equivariance is for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from symbreak.audit.compare import Comparison, Errors
from symbreak.audit.mend import Mending

EXACT, UNDECIDED, LOCALLY_BROKEN, NOT_A_SYMMETRY = "exact", "undecided", "locally broken", "not a symmetry"
TELLING = 0.01  # share of a step's change up to which an environment may differ from itself for a symmetry to be exact
MOST = 0.9  # a declaration that is exact in a tenth of states has no slip: it is broken elsewhere
HARDLY_EVER = 0.02  # share of reachable images below which there is nothing to be symmetric
OPPOSED = -0.1  # agreement below which, by two standard errors, a field changes against its declaration
FEWEST = 8  # comparisons from which an opposition is believed
CLOSE = 0.8  # mean agreement of changes above which a field follows its declaration
FAR = 0.5  # a mean error above half a step's change is no approximation
NEARLY_ALL = 0.95
SLIGHT = 0.1  # a mean error below a tenth of a step's change is an approximation
MOSTLY = 0.2  # share of its pairs broken up to which an action follows the declaration
SOME, FAR_MORE = 0.3, 2.0  # a slip is mended where this share of pairs is exact, and this many times as many
TURNS_THE_TABLE = 3.0  # one change that lowers the mean error by this factor: the declaration has a slip


@dataclass(frozen=True)
class Finding:
    """One field, or the reward, or the termination.

    `error` is the mean over all images that could be made, relative to the size of a step's change (for the reward: to
    the spread of rewards); `reachable_error` is that over images that can be visited, NaN where these are too few.
    """

    error: float
    worst: float
    share_broken: float
    reachable_error: float
    share_noticeable: float  # share of pairs, among those judged, with an error above a tenth of a step's change
    agreement: float  # mean over those judged; 1 for what has no direction
    opposed: bool  # whether the field changes against its declaration, beyond chance
    words: str

    @property
    def is_exact(self) -> bool:
        return self.share_broken == 0.0

    @property
    def is_hidden(self) -> bool:
        """Nothing is broken as far as can be told beside what the environment differs from itself."""
        return self.is_exact and self.error > TELLING


def find(comparison: Comparison, errors: Errors, noun: str) -> Finding:
    """What the errors of one field say."""
    made = comparison.made
    if not made.any():
        return Finding(np.nan, np.nan, 1.0, np.nan, 1.0, np.nan, False, "no image could be made")
    enough = comparison.reachable.mean() >= HARDLY_EVER
    judged = made & comparison.reachable if enough else made
    noticeable = judged & (errors.relative > SLIGHT)
    directed = None if errors.agreement is None else errors.agreement[judged]
    finding = Finding(
        error=float(errors.relative[made].mean()),
        worst=float(errors.relative[made].max()),
        share_broken=comparison.broken_share([errors]),
        reachable_error=float(errors.relative[judged].mean()) if enough else np.nan,
        share_noticeable=float(noticeable.any(axis=1).sum() / judged.any(axis=1).sum()),
        agreement=1.0 if directed is None else float(directed.mean()),
        opposed=directed is not None and _is_opposed(directed),
        words="",
    )
    size = "a step's change" if errors.agreement is not None else "the rewards' spread"
    return replace(finding, words=_words(finding, noun, size))


def _is_opposed(agreement: np.ndarray) -> bool:
    if agreement.size < FEWEST:
        return False
    return bool(agreement.mean() + 2.0 * agreement.std() / np.sqrt(agreement.size) < OPPOSED)


def _words(finding: Finding, noun: str, size: str) -> str:
    """`size` names what the error is relative to."""
    if finding.is_exact:
        return "off by no more than without a transformation" if finding.is_hidden else "exact"
    if finding.opposed:
        return "not a symmetry: changes the opposite way"
    if finding.share_broken < NEARLY_ALL:
        return f"broken in {percent(finding.share_broken)} of {noun}"
    error = finding.error if np.isnan(finding.reachable_error) else finding.reachable_error
    if error >= 1.0:
        return f"broken in {'all' if finding.share_broken == 1.0 else 'nearly all'} {noun}"
    kind = "approximate" if error < SLIGHT else "broken"
    often = f"more than a tenth in {percent(finding.share_noticeable)} of {noun}"
    tenth = "" if finding.share_noticeable >= NEARLY_ALL else f", {often}" if finding.share_noticeable else ""
    return f"{kind}: off by {percent(error)} of {size}{tenth}"


def percent(share: float) -> str:
    """A share in words that rounds neither something to nothing nor nearly all to all."""
    if share in (0.0, 1.0):
        return f"{100 * share:.0f} %"
    if share < 0.001:
        return "below 0.1 %"
    if 0.995 <= share < 1.0:
        return f"{min(100 * share, 99.9):.1f} %"
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def is_good_approximation(fields: dict[str, Finding], reward: Finding, comparison: Comparison) -> bool:
    """Exact hardly anywhere, far off hardly anywhere: a limit of the environment, not a slip of the declaration.

    A slip either breaks a field badly or, like a centre that is off by a little, leaves most pairs exact. Where all
    fields follow and only the reward does not, something that never moves may be declared wrongly.
    """
    everywhere = any(finding.share_broken >= NEARLY_ALL for finding in fields.values())
    close = all(f.agreement > CLOSE and f.reachable_error < FAR for f in (*fields.values(), reward))
    return everywhere and close and float(comparison.reachable.mean()) > 0.5


def told_by_action(comparison: Comparison, actions: np.ndarray | None) -> list[str]:
    """Of discrete actions: which follow the declaration and which do not, where there are both."""
    if actions is None:
        return []
    broken = np.any([errors.broken for errors in comparison.fields.values()], axis=0)
    moved = [errors.moved for errors in comparison.fields.values() if errors.moved is not None]
    told = comparison.made & (np.any(moved, axis=0) if moved else True)
    counts = {int(action): told[actions == action].sum() for action in np.unique(actions)}
    shares = {a: broken[actions == a].sum() / count for a, count in counts.items() if count >= FEWEST}
    follow = [action for action, share in shares.items() if share <= MOSTLY]
    astray = [action for action, share in shares.items() if share >= MOST]
    if not follow or not astray:
        return []
    extreme = all(share in (0.0, 1.0) for share in shares.values())
    well, badly = ("always", "never") if extreme else ("mostly", "hardly ever")
    verb = "follows" if len(follow) == 1 else "follow"
    return [f"by action: {', '.join(map(str, follow))} {well} {verb}, {', '.join(map(str, astray))} {badly}"]


def judge(
    findings: dict[str, Finding],
    reward: Finding,
    termination: Finding,
    comparison: Comparison,
    action_bounds_invariant: bool,
    mending: Mending,
    control: float = 0.0,
) -> tuple[str, tuple[str, ...]]:
    """The verdict and the reasons for it, most telling first; `control` is how far the environment is from itself."""
    reachable = float(comparison.reachable.mean())
    everything = [*findings.values(), reward, termination]
    exact = reachable == 1.0 and action_bounds_invariant and all(finding.is_exact for finding in everything)
    hidden = [name for name, finding in findings.items() if finding.is_hidden]
    if exact and control <= TELLING and not hidden and not reward.is_hidden and not termination.is_hidden:
        return EXACT, ()
    reasons = []
    opposed = [name for name, finding in findings.items() if finding.opposed]
    if opposed:
        reasons.append(f"{', '.join(opposed)} change{'s' if len(opposed) == 1 else ''} against the declaration")
    if reachable < HARDLY_EVER:
        never = "no image of a visited state can" if reachable == 0.0 else "hardly any image of a visited state can"
        worst = sorted(findings, key=lambda name: -np.nan_to_num(findings[name].error))[:3]
        off = [f"{name} ({findings[name].error:.1f})" for name in worst if findings[name].error > SLIGHT]
        reasons.append(f"{never} itself be visited" + (f", and {', '.join(off)} are furthest off" if off else ""))
    changes = " and ".join(map(str, mending.changes))
    # With observations as declared, actions cannot follow in two ways: what mends them alone tells the right one.
    slip = mending.centres or mending.acts or not _holds_in_places(comparison, mending)
    if slip and mending.exact:
        reasons.append(f"a small change makes it exact ({changes})")
    elif slip and not reasons and not mending.centres and _removes_most(mending):
        reasons.append(f"a small change removes most of the error ({changes})")
    if not reasons and _only_the_reward(findings, reward):
        often = "every state" if reward.share_broken == 1.0 else "nearly every state"
        reasons.append(f"the reward is broken in {often} while all that is seen follows: suspect the declaration")
    if exact and not reasons:
        if control <= TELLING and hidden:
            return UNDECIDED, (f"{', '.join(hidden)}: numbers so large that rounding hides what a step changes",)
        if control <= TELLING and termination.is_hidden:
            return UNDECIDED, ("one and the same step ends the episode at one time and not at another",)
        itself = f"up to {percent(control)} of a step's change"
        return UNDECIDED, (f"nothing differs by more than the environment does from itself, {itself}",)
    if reasons:
        return NOT_A_SYMMETRY, tuple(reasons)
    return LOCALLY_BROKEN, _how_locally({**findings, "reward": reward, "termination": termination}, comparison)


def _how_locally(rows: dict[str, Finding], comparison: Comparison) -> tuple[str, ...]:
    """What the words "locally broken" alone would not let a reader expect."""
    leaving = 0.0 if comparison.leaving is None else float(comparison.leaving.mean())
    if leaving and comparison.reachable.all() and all(finding.is_exact for finding in rows.values()):
        return (f"only where the image of an action leaves the action bounds, in {percent(leaving)} of comparisons",)
    always = [name for name, finding in rows.items() if finding.share_broken == 1.0]
    if not always:
        return ()
    named = ", ".join(always) if len(always) <= 3 else f"{', '.join(always[:2])} and {len(always) - 2} more"
    return (f"{named} in every state, so an approximation at best",)


def _removes_most(mending: Mending) -> bool:
    """Whether changes mend most of what is wrong: in the mean, or exactly in far more pairs than before."""
    before, after = mending.exact_shares
    far_more = after >= max(SOME, FAR_MORE * before)
    return bool(mending.changes) and (mending.factor >= TURNS_THE_TABLE or far_more)


def _only_the_reward(findings: dict[str, Finding], reward: Finding) -> bool:
    """Whether the reward alone is off, by much and nearly everywhere: nothing is local there."""
    follow = all(finding.is_exact for finding in findings.values())
    return follow and reward.share_broken >= NEARLY_ALL and reward.error >= SLIGHT


def _holds_in_places(comparison: Comparison, mending: Mending) -> bool:
    """Whether dynamics are broken here and exact there, also where those fields move that a change concerns.

    A slip is wrong nearly wherever they move; a declaration that holds in places has another symmetry besides.
    """
    names = [name for change in mending.changes for name in change.fields]
    moved = [errors.moved for name, errors in comparison.fields.items() if name in names and errors.moved is not None]
    if not np.any([errors.broken for errors in comparison.fields.values()]) and not np.any(moved):
        return False  # such as a goal that was forgotten: rewards alone can tell, and may be rare
    told = comparison.made.any(axis=1)
    if moved:
        told &= np.any(moved, axis=0).any(axis=1)
    broken = np.any([errors.broken for errors in comparison.everything], axis=0).any(axis=1)
    return bool(told.any()) and float(broken[told].mean()) <= MOST


def accuse(findings: dict[str, Finding], mending: Mending) -> dict[str, Finding]:
    """The findings with what should change written beside the fields concerned."""
    accused = {field: change.predicate(single=True) for change in mending.changes for field in change.fields}
    return {
        name: replace(finding, words=f"{NOT_A_SYMMETRY}: {accused[name]}?") if name in accused else finding
        for name, finding in findings.items()
    }
