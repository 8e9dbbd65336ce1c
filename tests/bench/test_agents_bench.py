"""Benchmarks measure what they say: the products are counted, the rate is imposed, the summary has every promise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symbreak.bench.agents import RATES, TASKS, summary
from symbreak.bench.figure import draw
from symbreak.bench.imposed import ImposedGate
from symbreak.bench.parts import PRODUCTS, STAGES, measure
from symbreak.bench.products import products
from symbreak.gates.gate import FixedGate
from symbreak.nn.keys import named_key


def test_products_are_counted_through_gradients_loops_and_batches():
    def twice(weights, x):
        return jnp.sum(jax.lax.fori_loop(0, 1, lambda _, y: y, x @ weights) ** 2)

    x, weights = jnp.ones((4, 3)), jnp.ones((3, 5))
    # The gradient is a product as well; which of its sides comes first is JAX's choice.
    assert products(jax.grad(twice), weights, x) in ({(4, 3, 5): 1, (3, 4, 5): 1}, {(4, 3, 5): 1, (5, 4, 3): 1})
    batched = products(jax.vmap(jnp.matmul), jnp.ones((7, 4, 3)), jnp.ones((7, 3, 5)))
    assert batched == {(4, 3, 5): 7}
    assert not products(lambda x: jnp.sum(x * x), x)  # negative control: nothing is multiplied as matrices


def test_an_imposed_gate_answers_its_rate_and_still_asks_the_learned_one():
    class Counting(FixedGate):
        asked = 0

        def of_pair(self, state, observation, action, *, target=False):
            type(self).asked += 1
            return super().of_pair(state, observation, action, target=target)

    gate = ImposedGate(Counting(0.9))
    state = gate.init(named_key(jax.random.key(0), "gate"))
    state = type(state)(state.learned, jnp.asarray(0.25, state.rate.dtype))
    assert float(gate.of_pair(state, jnp.zeros(3), jnp.zeros(1))) == 0.25
    assert Counting.asked == 1
    broken = ImposedGate(Counting(np.nan))  # negative control: the learned answer is not thrown away
    assert np.isnan(broken.of_pair(state, jnp.zeros(3), jnp.zeros(1)))


def test_parts_of_an_imposed_gate_can_be_left_out():
    class Busy(FixedGate):
        """Notices when it is asked or trained."""

        def of_pair(self, state, observation, action, *, target=False):
            raise AssertionError("asked")

        def update(self, state, sample, batch, step, key, propose):
            raise AssertionError("trained")

    whole = ImposedGate(Busy(0.9))
    state = whole.init(named_key(jax.random.key(0), "gate"))
    without = ImposedGate(Busy(0.9), asks=False, trains=False)
    assert float(without.of_pair(state, jnp.zeros(3), jnp.zeros(1))) == 0
    unused = lambda *_: None  # noqa: E731
    assert float(without.of_state(state, jnp.zeros(3), unused, jax.random.key(0))) == 0
    assert without.update(state, unused, None, jnp.int32(0), jax.random.key(0), None) == (state, {})
    with pytest.raises(AssertionError, match="asked"):
        whole.of_pair(state, jnp.zeros(3), jnp.zeros(1))
    with pytest.raises(AssertionError, match="trained"):
        whole.update(state, unused, None, jnp.int32(0), jax.random.key(0), None)


@pytest.mark.slow
def test_every_part_of_an_update_is_measured():
    """How long they take is no matter of tests: on a busy machine even their order is not."""
    found = measure("hopper", 1)
    assert set(found) == {*STAGES, *PRODUCTS}
    assert found["plain"] == 1
    assert all(0 < cost < np.inf for cost in found.values())


def _row(speed: float) -> dict[str, float]:
    starts = {"first_update_cold_s": 9.0, "first_update_warm_s": 3.0, "gemm_share": 0.8, "peak_memory_mb": 300.0}
    return {"steps_per_s": speed, "step_s": 1 / speed, "cost": 100 / speed, **starts}


def test_the_summary_holds_every_promise_and_can_be_drawn(tmp_path):
    speeds = {"vanilla": 100.0, "exact": 110.0, "partial": 80.0, "sb3": 40.0, "sbx": 50.0}
    speeds |= {f"partial at {rate:g}": 100 - 100 * rate for rate in RATES}
    details = {task: {name: _row(speed) for name, speed in speeds.items()} for task in TASKS}
    found = summary(details)
    assert found["vanilla_sac_vs_sbx"] == {"hopper": 2.0, "ant": 2.0}
    assert found["vanilla_sac_vs_sb3"]["ant"] == 2.5
    assert np.isclose(found["pe_sac_cost"]["ant"], 100 / 85)
    assert np.isclose(found["pe_sac_vs_sbx"]["ant"], 85 / 50)
    assert {"gemm_share", "pe_dqn_cost", "first_update_cold_s", "first_update_warm_s", "pe_sac_vs_sb3"} <= set(found)
    seeds = {how: {count: {"wall_s": 1e-3, "cpu_s": 1e-3} for count in (1, 2)} for how in ("vmap", "map", "processes")}
    draw({**found, "tasks": details, "seeds": seeds}, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 10_000
    without = {task: {k: v for k, v in rows.items() if k not in ("sb3", "sbx")} for task, rows in details.items()}
    assert "vanilla_sac_vs_sbx" not in summary(without)  # negative control: nothing is claimed without the peers
