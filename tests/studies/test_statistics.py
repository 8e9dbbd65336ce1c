"""Figures over seeds: the estimators by hand, and intervals that hold what they promise in simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from symbreak.errors import InputError
from symbreak.studies import statistics
from symbreak.studies.statistics import (
    area_under_curve,
    curve_band,
    difference,
    interval,
    iqm,
    mean,
    performance_profile,
    probability_of_improvement,
)

ONES = np.ones
Draw = Callable[[np.random.Generator, int], np.ndarray]


# ---- estimators ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 8, 12, 40])
def test_iqm_is_the_quarter_trimmed_mean_where_four_divides(count):
    scores = np.random.default_rng(count).normal(size=(3, count))
    np.testing.assert_allclose(iqm(scores, ONES(count)), stats.trim_mean(scores, 0.25, axis=1))


def test_iqm_by_hand():
    # Five scores: a quarter is 1.25 of them, so the second and the fourth count three quarters.
    assert iqm(np.array([9.0, 0.0, 1.0, 5.0, 2.0]), ONES(5)) == pytest.approx((0.75 * 1 + 2 + 0.75 * 5) / 2.5)
    assert iqm(np.array([7.0]), ONES(1)) == 7.0


def test_weights_are_repetitions():
    scores, times = np.array([3.0, 1.0, 4.0, 1.5]), np.array([2, 1, 3, 4])
    repeated = np.repeat(scores, times)
    for statistic in (iqm, mean):
        assert statistic(scores, times.astype(float)) == pytest.approx(statistic(repeated, ONES(len(repeated))))


def test_an_outlier_moves_the_mean_and_not_the_iqm():
    scores = np.arange(8.0)
    wild = np.where(scores == 7, 1e6, scores)
    assert iqm(wild, ONES(8)) == iqm(scores, ONES(8))
    assert mean(wild, ONES(8)) > 1e5


def test_tasks_weigh_the_same_whatever_their_seeds():
    assert interval([np.zeros(2), ONES(8)], mean).value == pytest.approx(0.5)
    assert interval([np.array([0.0, 1.0]), np.tile([0.0, 1.0], 4)], iqm).value == pytest.approx(0.5)


@pytest.mark.parametrize("freedom", [1, 1.7, 2, 3, 4.4, 9, 45, 1000])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_students_quantile(freedom, level):
    assert statistics._student(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=2e-3)


def test_area_under_curve_is_the_mean_height():
    assert area_under_curve([10, 20, 40], [1, 1, 1]) == 1.0
    assert area_under_curve([0, 100], [0, 1]) == 0.5
    assert area_under_curve([0, 10, 30, 100], [0, 0.1, 0.3, 1.0]) == pytest.approx(0.5)  # more points, same line
    assert area_under_curve([0, 90, 100], [0, 0, 1]) == pytest.approx(0.05)  # by time, not by point
    assert area_under_curve([500], [0.3]) == 0.3


@pytest.mark.parametrize("steps", [[], [2, 1], [1, 1], [1, 2, 3]])
def test_a_curve_that_is_none_is_refused(steps):
    with pytest.raises(InputError, match="increasing"):
        area_under_curve(steps, [0.0, 1.0][: len(steps)])


def test_profile_by_hand():
    profile = performance_profile([np.array([0.0, 1.0]), np.array([1.0, 2.0, 3.0, 4.0])], [-1, 0, 1, 5])
    np.testing.assert_allclose(profile.share, [1.0, 0.75, 0.375, 0.0])
    assert (np.diff(profile.share) <= 0).all()
    assert (profile.low >= 0).all()
    assert (profile.high <= 1).all()
    assert (profile.low <= profile.share).all()
    assert (profile.share <= profile.high).all()


@pytest.mark.parametrize(("share", "seeds", "tasks"), [(0.9, 3, 4), (0.95, 5, 5), (0.9, 5, 3), (0.5, 3, 2)])
def test_bands_of_profiles_cover_also_where_all_runs_pass(share, seeds, tasks):
    rng = np.random.default_rng(0)
    bands = [performance_profile(list(rng.uniform(size=(tasks, seeds))), [1 - share]) for _ in range(400)]
    assert np.mean([band.low[0] <= share <= band.high[0] for band in bands]) >= 0.92
    assert all(band.high[0] - band.low[0] > 0.05 for band in bands)
    if share >= 0.9:  # the control: resampled ones are certain of themselves
        drawn = [(rng.uniform(size=(tasks, seeds)) > 1 - share).astype(float) for _ in range(400)]
        resampled = [interval(list(above), mean, resamples=200) for above in drawn]
        assert np.mean([found.low <= share <= found.high for found in resampled]) < 0.88


# ---- intervals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_interval_of_a_mean_is_students(seeds):
    """For the mean of one task theory knows the answer; the bootstrap comes within the lumps of its few values."""
    scores = np.random.default_rng(seeds).normal(size=seeds)
    ours = interval([scores], mean)
    low, high = stats.t.interval(0.95, seeds - 1, scores.mean(), stats.sem(scores))
    assert ours.value == pytest.approx(scores.mean())
    assert (ours.high - ours.low) / (high - low) == pytest.approx(1.0, abs=0.12)
    # The control: what an ordinary percentile bootstrap would say is far narrower at few seeds.
    drawn = np.random.default_rng(0).choice(scores, size=(5000, seeds)).mean(axis=1)
    plain = np.quantile(drawn, [0.025, 0.975])
    assert (plain[1] - plain[0]) / (high - low) < (0.5 if seeds == 3 else 0.9)


@pytest.mark.parametrize("statistic", [mean, iqm])
def test_intervals_follow_the_unit(statistic):
    strata = [np.random.default_rng(task).normal(size=5) for task in range(3)]
    one = interval(strata, statistic)
    other = interval([100 + 10 * scores for scores in strata], statistic)
    np.testing.assert_allclose(
        [other.value, other.low, other.high], 100 + 10 * np.array([one.value, one.low, one.high])
    )


def test_resampling_stays_within_a_task():
    """How far tasks lie apart is no uncertainty: tasks are fixed."""
    strata = [np.random.default_rng(task).normal(size=5) for task in range(3)]
    near, far = interval(strata, mean), interval([strata[0], strata[1] + 50, strata[2] - 80], mean)
    assert far.high - far.low == pytest.approx(near.high - near.low)
    pooled = interval([np.concatenate([strata[0], strata[1] + 50, strata[2] - 80])], mean)
    assert pooled.high - pooled.low > 10 * (near.high - near.low)  # the control forgets the strata


def test_one_seed_has_no_interval():
    alone = interval([np.array([1.0]), np.array([2.0, 3.0])])
    assert np.isfinite(alone.value)
    assert np.isnan([alone.low, alone.high]).all()
    assert not alone.excludes(100.0)
    assert alone.few_seeds
    assert not interval([np.arange(10.0)]).few_seeds


def test_bounds_cut_the_interval():
    scores = [np.array([0.9, 1.0, 1.0])]
    assert interval(scores, mean).high > 1.0
    assert interval(scores, mean, bounds=(0.0, 1.0)).high == 1.0


def test_equal_scores_have_no_width():
    flat = interval([np.full(5, 0.3)])
    assert flat.low == pytest.approx(0.3)
    assert flat.high == pytest.approx(0.3)


@pytest.mark.parametrize("strata", [[], [np.array([])], [np.array([1.0, np.nan])], [np.ones((2, 2))]])
def test_scores_that_are_none_are_refused(strata):
    with pytest.raises(InputError):
        interval(strata)


@pytest.mark.parametrize("statistic", [mean, iqm])
def test_a_band_is_the_interval_at_every_point(statistic):
    curves = np.random.default_rng(1).normal(size=(5, 4)).cumsum(axis=1)
    curves[2, 3] = np.nan  # this run has not come so far
    curves[1:, 0] = np.nan
    band = curve_band(curves, statistic)
    for place in (1, 2, 3):
        column = curves[:, place]
        alone = interval([column[np.isfinite(column)]], statistic, resamples=2000)
        np.testing.assert_allclose(band[:, place], [alone.value, alone.low, alone.high], rtol=1e-9, atol=1e-12)
    assert band[0, 0] == curves[0, 0]
    assert np.isnan(band[1:, 0]).all()
    assert np.isnan(curve_band(np.full((2, 1), np.nan))).all()
    cut = curve_band(curves, statistic, bounds=(-0.5, 0.5))
    np.testing.assert_array_equal(cut[0], band[0])
    np.testing.assert_array_equal(cut[1:], np.clip(band[1:], -0.5, 0.5))


def test_difference_is_between_the_two():
    first, second = [np.arange(6.0) + 10], [np.arange(6.0)]
    gap = difference(first, second, mean)
    assert gap.value == pytest.approx(10.0)
    assert gap.low < 10.0 < gap.high
    assert gap.excludes(0.0)
    back = difference(second, first, mean)
    assert back.value == pytest.approx(-10.0)
    assert not difference(first, first, mean).excludes(0.0)


# ---- probability of improvement --------------------------------------------------------------------------------------


def test_probability_of_improvement_by_hand():
    ours, theirs = [np.array([1.0, 3.0])], [np.array([0.0, 1.0, 2.0])]
    assert probability_of_improvement(ours, theirs).value == pytest.approx((1 + 0.5 + 0 + 3) / 6)
    two = probability_of_improvement([ours[0], np.zeros(2)], [theirs[0], ONES(3)])
    assert two.value == pytest.approx((4.5 / 6 + 0) / 2)
    assert two.tasks == 2


def test_probability_of_improvement_mirrors():
    rng = np.random.default_rng(4)
    ours, theirs = [rng.normal(size=5), rng.normal(size=4)], [rng.normal(size=6), rng.normal(size=3)]
    there, back = probability_of_improvement(ours, theirs), probability_of_improvement(theirs, ours)
    np.testing.assert_allclose([back.value, back.low, back.high], 1 - np.array([there.value, there.high, there.low]))


def test_winning_every_comparison_is_not_certainty():
    sweep = probability_of_improvement([np.arange(5.0) + 10], [np.arange(5.0)])
    assert sweep.value == sweep.high == 1.0
    assert 0.5 < sweep.low < 0.8
    # The control: a bootstrap sees nothing but wins and has no width.
    rng = np.random.default_rng(0)
    resampled = [
        (rng.choice(np.arange(5.0) + 10, 5)[:, None] > rng.choice(np.arange(5.0), 5)).mean() for _ in range(50)
    ]
    assert np.ptp(resampled) == 0.0
    # Three against three can sweep by luck one time in ten: not enough to call it.
    assert not probability_of_improvement([np.arange(3.0) + 10], [np.arange(3.0)]).excludes(0.5)


def test_rank_variance_is_exact_without_a_difference():
    for ours, theirs in ((3, 3), (5, 8), (10, 4)):
        exact = (ours + theirs + 1) / (12 * ours * theirs)
        assert statistics._rank_variance(np.array([0.5]), ours, theirs) == pytest.approx([exact])


def test_tasks_must_agree():
    with pytest.raises(InputError, match="same tasks"):
        probability_of_improvement([ONES(3)], [ONES(3), ONES(3)])


# ---- simulated coverage ----------------------------------------------------------------------------------------------

SCALES, SHIFTS = (1.0, 0.5, 2.0, 0.8, 1.5), (0.0, 0.3, -0.5, 0.1, 0.6)
SPREAD_SCORES: dict[str, Draw] = {
    "normal": lambda rng, count: rng.normal(size=count),
    "skewed": lambda rng, count: np.exp(0.5 * rng.normal(size=count)),
    "bounded": lambda rng, count: rng.beta(5, 1.2, size=count),
}


def two_humped(rng: np.random.Generator, count: int) -> np.ndarray:
    """Seeds that succeed seven times in ten, and fail otherwise."""
    return (rng.random(count) < 0.7) + 0.1 * rng.normal(size=count)


def sheet(draw: Draw, rng: np.random.Generator, seeds: int, tasks: int) -> list[np.ndarray]:
    """Scores of one method on tasks of different level and spread."""
    return [SCALES[task] * draw(rng, seeds) + SHIFTS[task] for task in range(tasks)]


def coverage(draw: Draw, statistic: statistics.Statistic, seeds: int, tasks: int, repeats: int) -> float:
    """How often the interval contains the statistic of the distribution itself."""
    every = np.concatenate(sheet(draw, np.random.default_rng(99), 200_000, tasks))
    truth = float(statistic(every, ONES(every.size)))
    rng = np.random.default_rng([seeds, tasks])
    drawn = (sheet(draw, rng, seeds, tasks) for _ in range(repeats))
    return float(
        np.mean(
            [not interval(scores, statistic, resamples=400, seed=i).excludes(truth) for i, scores in enumerate(drawn)]
        )
    )


def false_alarms(
    draw: Draw, seeds: int, tasks: int, repeats: int, compare: Callable[..., statistics.Estimate], no_effect: float
):
    """How often two sheets of the same method are told apart."""
    rng = np.random.default_rng([seeds, tasks, 1])
    pairs = ((sheet(draw, rng, seeds, tasks), sheet(draw, rng, seeds, tasks)) for _ in range(repeats))
    return float(np.mean([compare(ours, theirs).excludes(no_effect) for ours, theirs in pairs]))


@pytest.mark.parametrize("statistic", [mean, iqm])
def test_intervals_cover_at_five_seeds_on_three_tasks(statistic):
    assert 0.90 <= coverage(SPREAD_SCORES["normal"], statistic, seeds=5, tasks=3, repeats=300) <= 0.99


def test_without_the_corrections_they_do_not(monkeypatch):
    """The control: the ordinary percentile bootstrap at three seeds."""
    monkeypatch.setattr(statistics, "_stretch", lambda level, freedom: 1.0)
    draws = lambda scores, resamples, rng: scores[rng.integers(len(scores), size=(resamples, len(scores)))]  # noqa: E731
    monkeypatch.setattr(statistics, "_resampled", draws)
    assert coverage(SPREAD_SCORES["normal"], mean, seeds=3, tasks=1, repeats=300) < 0.85


@pytest.mark.parametrize(("seeds", "tasks"), [(3, 1), (5, 3), (10, 5)])
def test_a_method_is_not_told_from_itself(seeds, tasks):
    rate = false_alarms(SPREAD_SCORES["normal"], seeds, tasks, 1500, probability_of_improvement, 0.5)
    assert rate <= 0.07


def test_a_better_method_is_told_apart():
    """The control of the line above: with a large effect the same test does call it."""
    rng = np.random.default_rng(0)
    ours = [rng.normal(2.5, 1.0, size=(200, 5)) for _ in range(3)]
    theirs = [rng.normal(0.0, 1.0, size=(200, 5)) for _ in range(3)]
    called = [
        probability_of_improvement([task[i] for task in ours], [task[i] for task in theirs]).low > 0.5
        for i in range(200)
    ]
    assert np.mean(called) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", SPREAD_SCORES)
@pytest.mark.parametrize("statistic", [mean, iqm])
def test_coverage_at_realistic_sizes(name, statistic):
    """90-98 % in every cell; a cell of 600 repeats is known to one point, so two are allowed for."""
    draw = SPREAD_SCORES[name]
    found = {
        (seeds, tasks): coverage(draw, statistic, seeds, tasks, 600) for seeds in (3, 5, 10) for tasks in (1, 3, 5)
    }
    assert all(0.88 <= share <= 0.99 for share in found.values()), found
    assert 0.91 <= np.mean(list(found.values())) <= 0.975, found


@pytest.mark.slow
@pytest.mark.parametrize("statistic", [mean, iqm])
@pytest.mark.parametrize("tasks", [1, 3, 5])
def test_differences_of_a_method_with_itself(statistic, tasks):
    def compare(ours, theirs):
        return difference(ours, theirs, statistic, resamples=400)

    for draw in (*SPREAD_SCORES.values(), two_humped):
        rates = [false_alarms(draw, seeds, tasks, 250, compare, 0.0) for seeds in (3, 5, 10)]
        assert np.mean(rates) <= 0.07, (tasks, rates)


@pytest.mark.slow
def test_where_coverage_fails_is_known():
    """Seeds that either succeed or fail: three of them cannot show both, ten on five tasks can."""
    assert coverage(two_humped, mean, seeds=3, tasks=1, repeats=600) < 0.85
    assert coverage(two_humped, mean, seeds=10, tasks=5, repeats=600) >= 0.90


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.7, 1.8])
@pytest.mark.parametrize(("seeds", "tasks"), [(3, 1), (3, 5), (5, 1), (5, 5), (10, 1), (10, 5)])
def test_probability_of_improvement_covers(shift, seeds, tasks):
    rng = np.random.default_rng([seeds, tasks])
    truth = float(stats.norm.cdf(shift / np.sqrt(2)))
    caught = 0
    for _ in range(1000):
        ours, theirs = rng.normal(size=(2, tasks, seeds))
        caught += not probability_of_improvement(list(ours + shift), list(theirs)).excludes(truth)
    assert caught / 1000 >= 0.93
