"""What an agent is built from: the published tables under `paper`, and defaults that suit the task."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import symbreak
from symbreak.errors import InputError
from symbreak.gates import LearnedGate
from symbreak.gates.gate import OracleGate
from symbreak.gates.threshold import ThresholdRule
from symbreak.models.predictor import CellOutcome, IncrementOutcome
from symbreak.symmetry import SO2, C, Layout, Symmetry, Z
from symbreak.tasks import get_task, user_task
from symbreak.theory import PermutationAction, TabularMDP, minority_gate, strict_gate
from symbreak.training.build import build_agent
from symbreak.training.choice import choose_task
from symbreak.training.quality import GateJudge
from symbreak.training.run import Run
from symbreak.training.settings import parse_config
from symbreak.training.truth import action_on


def gate_of(name: str, preset="default", method="partial", **options):
    gate = build_agent(get_task(name), method, preset=preset, **options).gate
    assert isinstance(gate, LearnedGate)
    return gate


def cart() -> Symmetry:
    mirror = Z(2)
    return Symmetry(
        Layout({"state": 4 * mirror.sign}),
        Layout({"push": mirror.permutation("left and right", [[1, 0]])}),
        discrete=True,
        name="mirror",
    )


# The tables of the paper's appendix, read again for this test.
PUBLISHED = {
    "grid-0": {"kind": "sigma", "deviations": 1.5, "warmup": 20_000},
    "grid-10": {"kind": "sigma", "deviations": 1.5, "warmup": 20_000},
    "grid-20": {"kind": "sigma", "deviations": 1.5, "warmup": 20_000},
    "grid-30": {"kind": "quantile", "level": 0.6, "warmup": 20_000},
    "grid-40": {"kind": "quantile", "level": 0.3, "warmup": 40_000},
    "hopper": {"kind": "sigma", "deviations": 1.0, "warmup": 20_000},
    "ant": {"kind": "sigma", "deviations": 1.5, "warmup": 20_000},
    "swimmer": {"kind": "sigma", "deviations": 1.5, "warmup": 20_000},
    "fetch-reach": {"kind": "sigma", "deviations": -0.5, "warmup": 3_000},
    "ur5e-reach": {"kind": "sigma", "deviations": -0.5, "warmup": 20_000},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_paper_s_preset_is_its_tables(name):
    agent = build_agent(get_task(name), "partial", preset="paper")
    gate, rule, config = agent.gate.config, agent.gate.config.threshold, agent.config
    wanted = dict(PUBLISHED[name])
    assert gate.warmup == wanted.pop("warmup")
    assert {field: getattr(rule, field) for field in wanted} == wanted
    grid = name.startswith("grid")
    assert (rule.every, rule.smoothing) == ((200, 0.2) if grid else (100, 0.1))
    assert (gate.disagreement, gate.encoding, gate.standardise) == ("trained", "raw", False)
    assert gate.predictor_encoding == "raw"
    assert gate.classifier == "network"
    assert (gate.predictor_steps, gate.predictor_every, gate.gate_every) == (20 if grid else 2, 1, 1)
    assert (gate.rate, gate.predictor_rate, gate.largest_norm) == (1e-4, 3e-4, 1.0 if grid else 0.5)
    assert gate.polyak == 0.005
    assert (gate.width, gate.predictor_width, gate.prior) == (256 if grid else 128, 256, 0.5 if grid else 0.7685)
    assert (config.rate, config.width, config.batch, config.discount, config.polyak) == (3e-4, 256, 256, 0.99, 0.005)
    assert agent.method.sample_when_evaluating
    if grid:
        assert (config.capacity, config.exploration_steps, config.exploration_end) == (100_000, 50_000, 0.05)
    else:
        assert (gate.state_gate, agent.method.candidates, gate.expectile) == ("expectile", 4, 0.8)
        assert agent.gate.unchecked == ("reward", "termination")
        assert (config.largest_norm, config.radial) == (0.5, False)
        assert (config.entropy_per_action, config.first_temperature) == (-0.5, 1.0)


def test_the_one_exception_of_the_published_target_rates():
    rates = {
        (name, method, preset): build_agent(get_task(name), method, preset=preset).config.polyak
        for name in ("swimmer", "ant")
        for method in ("rpp", "exact")
        for preset in ("paper", "default")
    }
    assert {case for case, rate in rates.items() if rate != 0.005} == {("swimmer", "rpp", "paper")}
    assert rates["swimmer", "rpp", "paper"] == 0.004


def test_the_default_on_grids_and_robots():
    grid, slip, robot = gate_of("grid-20"), gate_of("grid-40-slip"), gate_of("swimmer")
    assert isinstance(grid.outcome, CellOutcome)
    assert isinstance(robot.outcome, IncrementOutcome)
    assert [gate.config.threshold.kind for gate in (grid, slip, robot)] == ["absolute", "sigma", "error"]
    assert [gate.config.encoding for gate in (grid, slip, robot)] == ["fourier", "fourier", "raw"]
    assert [gate.config.standardise for gate in (grid, slip, robot)] == [False, False, True]
    assert {gate.config.disagreement for gate in (grid, slip, robot)} == {"averaged"}


def test_predictors_have_heads_where_rewards_and_ends_break_and_where_they_are_asked_for():
    heads = {name: gate_of(name).outcome for name in ("hopper", "swimmer", "ant", "fetch-reach", "ur5e-reach")}
    assert {name for name, outcome in heads.items() if not outcome.unchecked} == {"hopper", "ant"}
    assert gate_of("ant", symmetry_name="exact").unchecked == ("reward", "termination")
    assert gate_of("ant", symmetry_name="exact", gate={"reward_head": True}).unchecked == ("termination",)
    assert gate_of("hopper", gate={"reward_head": False}).unchecked == ("reward",)
    own = build_agent(user_task("CartPole-v1", cart()), "partial", gate={"termination_head": True})
    assert own.gate.unchecked == ("reward",)
    with pytest.raises(InputError, match="grid-world"):
        gate_of("grid-20", gate={"reward_head": True})


@pytest.mark.parametrize(("name", "preset"), [("hopper", "default"), ("grid-10-reward", "paper")])
def test_a_threshold_that_is_a_probability_is_refused_where_disagreements_are_none(name, preset):
    absolute = {"threshold": ThresholdRule("absolute")}
    assert gate_of("grid-20", gate=absolute).config.threshold.kind == "absolute"
    with pytest.raises(InputError, match="predict numbers"):
        gate_of(name, preset=preset, gate=absolute)


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize(
    ("name", "said", "wanted"),
    [
        ("hopper", {"kind": "error", "multiple": 8.0}, {"multiple": 8.0, "smoothing": 0.9, "every": 100}),
        ("hopper", {"kind": "sigma"}, {"deviations": 1.0, "smoothing": 0.1, "every": 100}),
        ("fetch-reach", {"kind": "sigma", "every": 50}, {"deviations": -0.5, "smoothing": 0.1, "every": 50}),
        ("grid-40", {"kind": "quantile", "upper": True}, {"level": 0.3, "upper": True}),
        ("grid-20", {"kind": "sigma", "deviations": 1.0}, {"deviations": 1.0, "smoothing": 0.2, "every": 200}),
    ],
)
def test_what_is_not_said_of_a_threshold_is_usual_on_the_task(preset, name, said, wanted):
    """κ, level and pace are published per task; a change of one is no change of the others."""
    rule = gate_of(name, preset=preset, gate={"threshold": said}).config.threshold
    assert {field: getattr(rule, field) for field in wanted} == wanted
    assert rule.kind == said["kind"]


def test_numbered_actions_alone_do_not_make_a_grid():
    """Unbounded observations: no Fourier features, and no threshold that is only right for probabilities."""
    task = user_task("CartPole-v1", cart())
    gate = build_agent(task, "partial").gate
    assert isinstance(gate.outcome, IncrementOutcome)
    assert (gate.config.threshold.kind, gate.config.encoding, gate.config.standardise) == ("error", "raw", True)
    assert gate.config.state_gate == "none"


@pytest.mark.parametrize(
    ("name", "steps", "starts", "warmup"),
    [
        ("hopper", 1_000_000, None, 20_000),
        ("hopper", 100_000, None, 20_000),  # a tenth of the budget ends when learning starts
        ("fetch-reach", 30_000, None, 3_000),
        ("ur5e-reach", 5_000, 1_000, 2_000),
        ("grid-20", 100_000, None, 5_000),
        ("grid-20", 30_000, None, 3_000),
        ("grid-20", 10_000, None, 2_000),
    ],
)
def test_predictors_learn_before_the_gate_does(name, steps, starts, warmup):
    config = {} if starts is None else {"learning_starts": starts}
    if not name.startswith("grid"):  # there the published warm-up is a number of its own
        published = build_agent(get_task(name), "partial", steps=steps, config=config, preset="paper")
        assert published.gate.config.warmup == warmup
    agent = build_agent(get_task(name), "partial", steps=steps, config=config)
    assert agent.gate.config.warmup == warmup
    assert agent.gate.config.warmup - agent.config.learning_starts >= min(agent.config.learning_starts, steps // 20)


def test_a_run_that_is_too_short_for_its_gate_says_so(tmp_path):
    short = {"task": "grid-20", "steps": 300, "gate": {"warmup": 300, "width": 8, "predictor_width": 8}}
    for method, said in {"partial": True, "vanilla": False}.items():
        with Run.create(parse_config({**short, "method": method})) as run:
            assert any("learns nothing: its warm-up of 300 steps" in note for note in run.notes) == said
    with Run.create(parse_config({**short, "steps": 301})) as run:
        assert not any("learns nothing" in note for note in run.notes)


def test_a_user_s_environment_is_explored_at_random_for_a_tenth_of_the_budget():
    for method in ("vanilla", "partial"):
        agent = build_agent(choose_task("CartPole-v1", cart(), steps=500), method, steps=500)
        assert agent.config.learning_starts == 50
    assert agent.gate.config.warmup == 100


@pytest.mark.parametrize("method", ["partial-max4", "partial-max8", "partial-shared-heads", "partial-shared-all"])
def test_what_is_about_policies_is_refused_where_there_is_none(method):
    with pytest.raises(InputError, match=r"about policies.*use 'partial'"):
        build_agent(get_task("grid-20"), method)
    build_agent(get_task("fetch-reach"), method)


@pytest.mark.parametrize("prior", [0.0, 1.0, -1.0])
def test_a_prior_that_is_no_probability_is_refused(prior):
    with pytest.raises(InputError, match="no probability"):
        gate_of("grid-20", gate={"prior": prior})


def half_turn() -> Symmetry:
    turn = C(2)
    observation = Layout({"agent": 2 * turn.sign, "goal": 2 * turn.sign})
    moves = turn.permutation("moves", [[2, 3, 0, 1]])  # each move to the opposite one
    return Symmetry(observation, Layout({"move": moves}), discrete=True, name="half turn")


def test_what_is_broken_is_broken_under_the_symmetry_in_use():
    """Under half turns a pair is broken if it and its one image behave differently, and both are in the minority."""
    own = choose_task("grid-20", half_turn())
    assert own.jax_env is not None
    world = own.jax_env()
    tables = world.tabular()
    image, opposite = tables.state_permutations[2], np.array([2, 3, 0, 1])
    moved, carried = tables.next_state[..., 0], image[tables.next_state[..., 0]]  # no move slips
    both = tables.free & tables.free[image]  # an image that no agent can be in says nothing
    broken = (moved[image][:, opposite] != carried) & both[:, None]
    for method in ("oracle-strict", "oracle-minority"):
        gate = build_agent(own, method).gate
        assert isinstance(gate, OracleGate)
        table = np.asarray(gate.table)
        assert 0.05 < broken[tables.free].mean() < 0.2
        np.testing.assert_array_equal(table[tables.free] > 0.5, broken[tables.free])
        found = GateJudge(world, own.symmetry()).judge(gate, gate.init(jax.random.key(0)))
        assert [found[f"gate/{name}"] for name in ("auroc_minority", "precision", "recall", "auroc_strict")] == [1] * 4
        usual = GateJudge(world, get_task("grid-20").symmetry()).judge(gate, gate.init(jax.random.key(0)))
        assert usual["gate/auroc_minority"] < 0.9


def test_the_declared_quarter_turns_are_those_of_the_tables():
    for name in ("grid-20", "grid-40-slip"):
        task = get_task(name)
        assert task.jax_env is not None
        world = task.jax_env()
        action, tables = action_on(world, task.symmetry()), world.tabular()
        rows = {(s.tobytes(), a.tobytes()) for s, a in zip(action.states, action.actions, strict=True)}
        wanted = PermutationAction.from_tables(tables)
        assert rows == {(s.tobytes(), a.tobytes()) for s, a in zip(wanted.states, wanted.actions, strict=True)}


@pytest.mark.parametrize(("group", "said"), [(SO2(), "at most quarter turns"), (C(8), "does not send cells")])
def test_what_leaves_the_cells_of_a_grid_is_refused(group, said):
    action = group.trivial
    layout = Layout({"agent": group.rotation(1), "goal": group.rotation(1)})
    with pytest.raises(InputError, match=said):
        build_agent(choose_task("grid-20", Symmetry(layout, Layout({"move": 4 * action}), discrete=True)), "exact")


@pytest.mark.parametrize(("method", "truth"), [("oracle-minority", minority_gate), ("oracle-strict", strict_gate)])
def test_an_oracle_says_what_the_tables_say(method, truth):
    task = get_task("grid-20")
    agent = build_agent(task, method)
    assert isinstance(agent.gate, OracleGate)
    assert task.jax_env is not None
    world = task.jax_env()
    tables = world.tabular()
    wanted = truth(TabularMDP.from_tables(tables, 0.99), PermutationAction.from_tables(tables), tables.free)
    states = np.random.default_rng(0).choice(np.flatnonzero(tables.free), 500)
    places, goals = np.divmod(states, world.cells)
    state = agent.gate.init(jax.random.key(0))
    ask = jax.vmap(lambda observation: agent.gate.of_actions(state, observation))
    found = np.asarray(ask(jnp.asarray(world.observe(places, goals))))
    np.testing.assert_array_equal(found, wanted[states])
    assert 0.02 < found.mean() < 0.9
    swapped = np.asarray(ask(jnp.asarray(world.observe(goals, places))))
    assert not np.array_equal(swapped, wanted[states])
    pairs = jax.vmap(lambda observation: agent.gate.of_pair(state, observation, jnp.int32(2)))
    np.testing.assert_array_equal(pairs(jnp.asarray(world.observe(places, goals))), wanted[states][:, 2])


def test_oracles_need_a_grid():
    with pytest.raises(InputError, match="needs a grid-world"):
        build_agent(get_task("hopper"), "oracle-minority")


@pytest.mark.slow
def test_a_user_s_cart_is_learned_from_with_the_default_gate():
    small = {"batch": 16, "width": 16, "gate": {"width": 8, "predictor_width": 16}}
    agent = symbreak.DQN("CartPole-v1", cart(), method="partial", **small).learn(400)
    names = set().union(*agent.rows)
    assert {"gate/rate", "gate/threshold", "critic/loss"} <= names
