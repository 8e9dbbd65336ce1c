"""The orbit-tied operator, its fixed point and its greedy returns."""

import numpy as np
import pytest

from symbreak.errors import InputError
from symbreak.tasks.gridworld import GridWorld
from symbreak.theory import (
    PermutationAction,
    TabularMDP,
    backup,
    ceiling,
    contraction,
    group_average,
    minority_gate,
    orbit_mean,
    policy_iteration,
    standard_gates,
    strict_gate,
    tied_mdp,
    tied_weights,
)


class Setting:
    def __init__(self, gamma=0.8, **world):
        self.tables = GridWorld(**world).tabular()
        self.mdp = TabularMDP.from_tables(self.tables, gamma)
        self.action = PermutationAction.from_tables(self.tables)
        self.free = self.tables.free

    def entries(self, gate):
        """Index of the table entry of each pair, by enumeration: one per orbit, gated pairs on their own."""
        entry = {}
        for s in range(self.mdp.states):
            for a in range(self.mdp.actions):
                orbit = zip(self.action.states[:, s], self.action.actions[:, a], strict=True)
                tied = self.free[s] and not gate[s, a]
                entry[s, a] = ("orbit", *min((int(x), int(y)) for x, y in orbit)) if tied else ("own", s, a)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(entry.values()))}
        return np.array([numbers[name] for name in entry.values()]).reshape(self.mdp.reward.shape)


def tied_q_learning(setting, gate, updates=1_000_000, seed=0):
    """Q-learning as an agent does it: one table with shared entries, sampled pairs and successors, shrinking steps."""
    rng = np.random.default_rng(seed)
    mdp, entry = setting.mdp, setting.entries(gate)
    states = np.flatnonzero(setting.free)
    visits, table = np.zeros(entry.max() + 1), np.zeros(entry.max() + 1)
    next_state, cumulative = mdp.next_state, mdp.probability.cumsum(axis=-1)
    picks, actions = rng.choice(states, size=updates), rng.integers(0, mdp.actions, size=updates)
    slots = (rng.random(updates)[:, None] > cumulative[picks, actions]).sum(axis=1).clip(max=next_state.shape[-1] - 1)
    successors, rewards = next_state[picks, actions, slots], mdp.reward[picks, actions]
    ended = mdp.absorbing[successors]
    for chunk in np.array_split(np.arange(updates), updates // 64):  # a minibatch of 64, as replay gives it
        target = rewards[chunk] + mdp.gamma * np.where(ended[chunk], 0.0, table[entry[successors[chunk]]].max(axis=1))
        chosen = entry[picks[chunk], actions[chunk]]
        count, total = np.zeros_like(table), np.zeros_like(table)
        np.add.at(count, chosen, 1.0)
        np.add.at(total, chosen, target)
        seen = count > 0
        visits[seen] += count[seen]
        step = np.minimum(1.0, count[seen] / visits[seen] ** 0.8)
        table[seen] += step * (total[seen] / count[seen] - table[seen])
    return table[entry]


@pytest.mark.parametrize("slip", [0.0, 0.35])
@pytest.mark.parametrize("kind", ["exact", "oracle-minority"])
def test_fixed_point_is_where_tied_q_learning_ends(kind, slip):
    setting = Setting(size=4, obstacles=3, layout_seed=1, slip=slip)
    gate = np.zeros(setting.mdp.reward.shape, bool)
    if kind == "oracle-minority":
        gate = minority_gate(setting.mdp, setting.action, setting.free)
    learned = tied_q_learning(setting, gate)
    predicted = ceiling(setting.mdp, setting.action, gate, setting.free).values
    error = np.abs(learned - predicted)[setting.free].max()
    assert error < 0.04
    optimum = policy_iteration(setting.mdp).values
    assert np.abs(learned - optimum)[setting.free].max() > 2.0 * error  # control: it is not the optimum it finds


@pytest.mark.parametrize("gate_share", [0.0, 0.3, 1.0])
def test_tied_mdp_has_the_operator_average_after_backup(cases, gate_share):
    for case in cases[:50]:
        gate = case.rng.random(case.true.reward.shape) < gate_share
        weights = tied_weights(case.true, case.action, gate)
        tied = tied_mdp(case.true, case.action, weights)
        first, second = case.values(), case.values()
        composed = orbit_mean(backup(case.true, first), case.action, weights)
        np.testing.assert_allclose(backup(tied, first), composed, atol=1e-11)
        assert contraction(tied, first, second).holds(1e-10)
        fixed = policy_iteration(tied, 1e-11).values
        np.testing.assert_allclose(orbit_mean(backup(case.true, fixed), case.action, weights), fixed, atol=1e-9)


def test_replay_counts_keep_it_a_contraction_and_move_the_fixed_point(cases):
    moved = []
    for case in cases[:30]:
        gate = np.zeros(case.true.reward.shape, bool)
        counts = case.rng.integers(0, 5, size=gate.shape).astype(float)
        weighted = tied_mdp(case.true, case.action, tied_weights(case.true, case.action, gate, counts=counts))
        assert contraction(weighted, case.values(), case.values()).holds(1e-10)
        uniform = tied_mdp(case.true, case.action, tied_weights(case.true, case.action, gate))
        moved.append(np.abs(policy_iteration(weighted).values - policy_iteration(uniform).values).max())
    assert np.median(moved) > 1e-3


def test_gate_one_is_the_optimum_and_gate_zero_the_optimum_of_the_average(cases):
    for case in cases[:40]:
        ones, zeros = np.ones(case.true.reward.shape), np.zeros(case.true.reward.shape)
        optimum = policy_iteration(case.true).values
        np.testing.assert_allclose(
            policy_iteration(tied_mdp(case.true, case.action, tied_weights(case.true, case.action, ones))).values,
            optimum,
            atol=1e-7,
        )
        np.testing.assert_allclose(
            policy_iteration(tied_mdp(case.true, case.action, tied_weights(case.true, case.action, zeros))).values,
            policy_iteration(group_average(case.true, case.action)).values,
            atol=1e-7,
        )


def test_soft_gates_are_refused():
    setting = Setting(size=4, obstacles=2)
    with pytest.raises(InputError, match="zeros and ones"):
        ceiling(setting.mdp, setting.action, np.full(setting.mdp.reward.shape, 0.5), setting.free)


def test_strict_gate_does_not_make_the_tied_values_right():
    """A perfect one-step gate brings the proximity bound to zero, yet tied values are not the optimum."""
    setting = Setting(gamma=0.95, size=7, obstacles=10, layout_seed=1)
    gate = strict_gate(setting.mdp, setting.action, setting.free)
    reached = ceiling(setting.mdp, setting.action, gate, setting.free)
    optimum = policy_iteration(setting.mdp).values
    assert np.abs(reached.values - optimum)[setting.free].max() > 0.02


def test_more_obstacles_cost_more_and_gates_are_ordered():
    rows = {}
    for obstacles in (20, 40):
        setting = Setting(gamma=0.99, size=15, obstacles=obstacles)
        optimum = policy_iteration(setting.mdp).values
        gates = dict(standard_gates(setting.mdp, setting.action, optimum, setting.free))
        gates["free"] = np.ones(setting.mdp.reward.shape, bool)
        rows[obstacles] = {
            name: ceiling(setting.mdp, setting.action, gate, setting.free) for name, gate in gates.items()
        }
    reached = {key: {name: one.mean_return for name, one in row.items()} for key, row in rows.items()}
    assert reached[20]["free"] - 0.3 > reached[20]["exact"] > reached[40]["exact"] + 0.2
    for row in (reached[20], reached[40]):
        assert row["exact"] < row["oracle-minority"] < row["value-level"] < row["free"]
    at_forty = reached[40]
    assert at_forty["free"] - at_forty["oracle-strict"] > 0.1
    assert at_forty["free"] - at_forty["value-level"] < 0.5 * (at_forty["free"] - at_forty["oracle-minority"])
    assert rows[40]["exact"].gate_rate == 0.0
    assert rows[40]["free"].gate_rate == pytest.approx(1.0)
    assert rows[40]["oracle-minority"].gate_rate < rows[40]["oracle-strict"].gate_rate
