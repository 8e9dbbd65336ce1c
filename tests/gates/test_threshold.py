"""Thresholds by hand: the smoothed sigma rule, quantiles and their convention, constants."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.gates.threshold import ThresholdRule, ThresholdState, observe

label = jax.jit(observe, static_argnums=0)


def sequence(rule: ThresholdRule, batches, steps, state: ThresholdState | None = None):
    """The threshold and the number of labels after each batch."""
    state, values, labels = state or ThresholdState.empty(), [], []
    for batch, step in zip(batches, steps, strict=True):
        state, marked = label(rule, state, jnp.asarray(batch, jnp.float32), jnp.int32(step))
        values.append(float(state.value))
        labels.append(int(marked.sum()))
    return state, values, labels


def test_five_values_of_the_sigma_rule_by_hand():
    rule = ThresholdRule("sigma", deviations=1.5, smoothing=0.2, every=100)
    batches = [[0.0, 2.0], [4.0, 2.0], [1.0, 3.0], [2.0, 2.0], [9.0, 1.0]]
    _, values, labels = sequence(rule, batches, range(100, 600, 100))
    seen, wanted = [], []
    for batch in batches:
        seen += batch
        raw = np.mean(seen) + 1.5 * np.std(seen)
        wanted.append(raw if not wanted else 0.2 * wanted[-1] + 0.8 * raw)
    np.testing.assert_allclose(values, wanted, rtol=1e-5)
    assert labels == [int((np.array(batch) > value).sum()) for batch, value in zip(batches, wanted, strict=True)]
    assert labels[-1] == 1
    # The weight is on the old value, not on the new one.
    swapped = [wanted[0]]
    for count in range(2, 6):
        raw = np.mean(seen[: 2 * count]) + 1.5 * np.std(seen[: 2 * count])
        swapped.append(0.8 * swapped[-1] + 0.2 * raw)
    assert not np.allclose(values, swapped, rtol=1e-3)


def test_a_threshold_is_recomputed_every_so_many_environment_steps():
    rule = ThresholdRule("sigma", deviations=0.0, smoothing=0.0, every=200)
    batches = [[1.0], [3.0], [5.0], [7.0], [9.0]]
    _, values, _ = sequence(rule, batches, [200, 300, 399, 400, 401])
    assert values == pytest.approx([1, 1, 1, 4, 4])  # the mean of all seen, at 200 and at 400
    _, every_hundred, _ = sequence(
        ThresholdRule("sigma", deviations=0.0, smoothing=0.0, every=100), batches, [200, 300, 399, 400, 401]
    )
    assert every_hundred == pytest.approx([1, 2, 2, 4, 4])


def test_a_period_that_is_no_multiple_of_the_stride_is_kept():
    """Batches every 4 steps, thresholds every 50: due at the first batch of each 50, not only at common multiples."""
    rule = ThresholdRule("sigma", deviations=0.0, smoothing=0.0, every=50)
    state, changes = ThresholdState.empty(), []
    for step in range(52, 252, 4):
        before = float(state.value)
        state, _ = observe(rule, state, jnp.array([float(step)]), jnp.int32(step), stride=4)
        if float(state.value) != before:
            changes.append(step)
    assert changes == [52, 100, 152, 200]


@pytest.mark.parametrize("kind", ["sigma", "error"])
def test_the_first_batch_sets_the_first_threshold_whatever_the_step(kind):
    """A warm-up may end between two values. Labels of no threshold would teach a gate that all is intact."""
    rule = ThresholdRule(kind, deviations=0.0, multiple=4.5, smoothing=0.0, every=200)
    batch, state, values, labels = np.arange(1.0, 9.0), ThresholdState.empty(), [], []
    for step, factor in [(197, 1.0), (198, 3.0), (199, 3.0), (200, 3.0)]:
        batches = jnp.asarray(factor * batch, jnp.float32)
        state, marked = label(rule, state, batches, jnp.int32(step), jnp.float32(factor))
        values.append(float(state.value))
        labels.append(int(marked.sum()))
    later = 13.5 if kind == "error" else (1 + 3 + 3 + 3) / 4 * 4.5  # three times the error; the mean of all seen
    assert values == pytest.approx([4.5, 4.5, 4.5, later])
    assert labels == [4, 7, 7, int((3 * batch > later).sum())]
    assert not bool(ThresholdState.empty().known)


def test_the_first_threshold_is_not_smoothed_with_the_zero_it_starts_from():
    rule = ThresholdRule("sigma", deviations=0.0, smoothing=0.9, every=1)
    _, values, _ = sequence(rule, [[2.0], [2.0]], [1, 2])
    assert values == pytest.approx([2, 2])
    assert values[0] != pytest.approx(0.1 * 2)


@pytest.mark.parametrize("scale", [1.0, 1e-4, 37.0])
def test_level_six_tenths_of_256_distinct_values_labels_102(scale):
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.permutation(np.linspace(0.1, 1, 256) * scale)
        _, _, labels = sequence(ThresholdRule("quantile", level=0.6), [values], [7])
        assert labels == [102]
    _, _, upper = sequence(ThresholdRule("quantile", level=0.6, upper=True), [values], [7])
    assert upper == [153]  # the other reading labels the top 60 %
    _, _, fewer = sequence(ThresholdRule("quantile", level=0.3), [values], [7])
    assert fewer[0] == 179


def test_equal_values_give_no_label():
    rng = np.random.default_rng(1)
    for value in rng.uniform(0, 1, size=50).astype(np.float32):
        for level in (0.3, 0.6, 0.77):
            _, _, labels = sequence(ThresholdRule("quantile", level=level), [np.full(256, value)], [1])
            assert labels == [0]
    _, _, one = sequence(ThresholdRule("quantile"), [np.r_[np.full(255, 0.3), 0.4]], [1])
    assert one == [1]


def test_an_absolute_threshold_labels_ties_and_minorities_of_an_orbit():
    """In an orbit of n pairs of which m deviate, a deviating pair is (n − m)/n away from the mean, another one m/n."""
    rule = ThresholdRule("absolute")
    for deviating in range(5):
        away, stays = (4 - deviating) / 4, deviating / 4
        state, values, labels = sequence(rule, [[away] * deviating + [stays] * (4 - deviating)], [1])
        assert labels == [{0: 0, 1: 1, 2: 4, 3: 1, 4: 0}[deviating]]
        assert values == [pytest.approx(0.45)]
        assert bool(state.known)


def test_not_a_number_is_never_above_a_threshold():
    """Why non-finite disagreements must be refused elsewhere: here they look perfectly symmetric."""
    for kind in ("sigma", "quantile", "absolute"):
        _, _, labels = sequence(ThresholdRule(kind, every=1), [[np.nan] * 4], [1])
        assert labels == [0]


def test_the_error_rule_follows_the_predictor_by_hand():
    rule = ThresholdRule("error", multiple=4.0, smoothing=0.9, every=100)
    state, values, labels = ThresholdState.empty(), [], []
    for step, error in zip(range(50, 300, 50), [1.0, 2.0, 7.0, 3.0, 7.0], strict=True):
        state, marked = label(rule, state, jnp.asarray([3.0, 4.0, 5.0]), jnp.int32(step), jnp.float32(error))
        values.append(float(state.value))
        labels.append(int(marked.sum()))
    second, third = 0.9 * 4 + 0.1 * 8, 0.9 * 4.4 + 0.1 * 12
    assert values == pytest.approx([4, second, second, third, third])
    assert labels == [1, 1, 1, 0, 0]  # at the threshold is not above it
    with pytest.raises(ValueError, match="no error"):  # not zero, above which everything would be broken
        observe(rule, state, jnp.asarray([3.0]), jnp.int32(300))
