"""What is easy to get wrong without noticing: each such trap, the tests that hold it, and a fault that they notice.

The tests named here exist, and for every trap the table of faults in `tests/mutants` has one that some of them notice.
"""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = ROOT / "tests" / "mutants" / "mutants.toml"


@dataclass(frozen=True)
class Trap:
    """`tests`: file (below `tests`) and the names of functions in it."""

    words: str
    tests: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def nodes(self) -> list[str]:
        return [f"tests/{file}::{name}" for file, names in self.tests for name in names]


def trap(words: str, tests: dict[str, str]) -> Trap:
    return Trap(words, tuple((file, tuple(names.split())) for file, names in tests.items()))


GRADIENTS, ROUTING, TARGETS = "agents/test_gradients.py", "agents/test_routing.py", "agents/test_targets.py"
GATE, THRESHOLD, LOOPS = "gates/test_learned_gate.py", "gates/test_threshold.py", "training/test_loops.py"
GRID, DISAGREEMENT = "tasks/test_gridworld.py", "gates/test_disagreement.py"

TRAPS = {
    1: trap(
        "values and policies never train the gate that routes them",
        {
            GRADIENTS: "test_every_loss_reaches_its_own_parameters_and_no_others "
            "test_the_table_sees_a_gate_that_does_not_stop"
        },
    ),
    2: trap(
        "gates train neither predictors nor policies nor critics",
        {
            GRADIENTS: "test_every_loss_reaches_its_own_parameters_and_no_others "
            "test_the_table_sees_a_gate_that_does_not_stop"
        },
    ),
    3: trap(
        "each loss reaches its own parameters and no others",
        {
            GRADIENTS: "test_every_loss_reaches_its_own_parameters_and_no_others "
            "test_the_table_sees_a_gate_that_does_not_stop"
        },
    ),
    4: trap(
        "an expert learns only from what was routed to it",
        {
            GRADIENTS: "test_an_expert_learns_only_from_the_samples_routed_to_it "
            "test_the_expert_that_is_never_selected_gets_no_gradient"
        },
    ),
    5: trap(
        "a gate that is always closed or open is the exact or the vanilla agent, in every bit",
        {
            ROUTING: "test_a_gate_at_either_end_is_the_single_agent_bit_for_bit "
            "test_a_gated_agent_starts_with_the_networks_of_the_single_ones "
            "test_the_same_for_sac_at_the_size_of_a_real_run test_the_same_for_dqn_in_a_real_loop",
            "models/test_distribution.py": "test_a_binary_gate_selects_one_expert_bit_for_bit",
        },
    ),
    6: trap(
        "through the warm-up the gate and its optimiser stand still, with its end they move",
        {
            GATE: "test_before_the_warm_up_ends_the_gate_and_its_optimiser_do_not_move "
            "test_until_then_the_gate_answers_its_prior_everywhere"
        },
    ),
    7: trap(
        "the warm-up counts environment steps, also over a resume",
        {
            LOOPS: "test_learning_and_the_warm_up_are_counted_in_environment_steps",
            "training/test_resume.py": "test_killed_and_resumed_is_never_interrupted",
        },
    ),
    8: trap(
        "running statistics of a million values are those of all at once, the first included",
        {
            "models/test_statistics.py": "test_a_million_values_agree_with_float64 "
            "test_the_first_batch_counts_like_every_other test_the_textbook_sum_of_squares_fails_on_the_same_values"
        },
    ),
    9: trap(
        "what untrained predictors disagree about does not raise the threshold for ever",
        {GATE: "test_disagreement_from_before_the_warm_up_is_not_in_the_threshold"},
    ),
    10: trap(
        "a sequence of thresholds is the one computed by hand",
        {
            THRESHOLD: "test_five_values_of_the_sigma_rule_by_hand "
            "test_the_first_threshold_is_not_smoothed_with_the_zero_it_starts_from "
            "test_a_threshold_is_recomputed_every_so_many_environment_steps "
            "test_the_first_batch_sets_the_first_threshold_whatever_the_step"
        },
    ),
    11: trap(
        "a disagreement that is no number stops training instead of looking symmetric",
        {
            GATE: "test_a_disagreement_that_is_no_number_is_reported",
            THRESHOLD: "test_not_a_number_is_never_above_a_threshold",
            LOOPS: "test_a_disagreement_that_is_no_number_stops_a_hosted_run",
        },
    ),
    12: trap(
        "a quantile level counts from below, and equal values are not labelled",
        {
            THRESHOLD: "test_level_six_tenths_of_256_distinct_values_labels_102 test_equal_values_give_no_label",
        },
    ),
    13: trap(
        "where nothing is broken the trained gate is closed",
        {GATE: "test_without_obstacles_the_gate_closes test_a_frozen_gate_would_fail_both"},
    ),
    14: trap(
        "breaking of rewards is not seen without a reward head, and a run says so",
        {
            DISAGREEMENT: "test_reward_breaking_is_invisible_without_a_reward_head",
            "models/test_predictor.py": "test_an_outcome_names_what_it_does_not_predict",
        },
    ),
    15: trap(
        "the observation after the last step shows the agent on its goal",
        {GRID: "test_next_state_of_a_terminal_transition_is_the_goal_cell"},
    ),
    16: trap(
        "on an empty grid ends and rewards turn with the world, at every pair",
        {GRID: "test_empty_grid_commutes_with_every_element_at_every_pair test_inverted_action_order_is_caught"},
    ),
    17: trap(
        "where an episode is cut off, its true last observation is learned from",
        {
            LOOPS: "test_stored_transitions_are_steps_of_the_world_also_at_the_end_of_an_episode "
            "test_the_true_final_observation_is_stored_and_no_step_across_a_reset"
        },
    ),
    18: trap(
        "values stop at termination and only there",
        {
            TARGETS: "test_a_chain_of_two_states_ends_without_bootstrapping "
            "test_an_endless_chain_with_a_time_limit_keeps_its_value",
            LOOPS: "test_only_termination_ends_the_bootstrapping",
        },
    ),
    19: trap(
        "the soft value of a choice made once is the one in closed form",
        {TARGETS: "test_the_soft_value_of_a_one_step_bandit"},
    ),
    20: trap(
        "the slow gate is the exponential average of the gate",
        {GATE: "test_the_target_gate_is_the_exponential_average_of_the_gate"},
    ),
    21: trap(
        "both critics see the same draw of the gate",
        {ROUTING: "test_one_draw_of_the_gate_reaches_both_critics"},
    ),
    22: trap(
        "each next action has a draw of its own in the target of Q-learning",
        {ROUTING: "test_the_dqn_target_under_a_random_gate_has_the_enumerated_expectation"},
    ),
    23: trap(
        "an action's density is that of the expert that drew it, and a density",
        {
            "agents/test_acting.py": "test_log_prob_is_that_of_the_selected_expert",
            "models/test_distribution.py": "test_a_density_integrates_to_one "
            "test_without_the_volume_or_with_the_other_squash_it_does_not",
        },
    ),
    24: trap(
        "the gate of a state is an upper expectile",
        {"gates/test_state_gate.py": "test_the_upper_expectile_of_one_open_action_in_four"},
    ),
    25: trap(
        "half of the candidate actions come from each expert",
        {"agents/test_acting.py": "test_half_of_the_candidates_come_from_each_expert"},
    ),
    26: trap(
        "a step of the grid turns with the world, and actions in another order are noticed",
        {GRID: "test_empty_grid_commutes_with_every_element_at_every_pair test_inverted_action_order_is_caught"},
    ),
    27: trap(
        "the audit notices positions that are not centred",
        {
            "audit/test_wrong_specifications.py": "test_positions_that_are_not_centred_are_flagged",
            GRID: "test_observations_off_centre_are_caught",
        },
    ),
    28: trap(
        "constrained modules commute with the group at the start, after learning and after loading",
        {
            "agents/test_equivariance_of_agents.py": "test_constrained_modules_commute_with_the_group "
            "test_they_still_do_after_a_thousand_updates",
            "nn/test_layers.py": "test_equivariant_layer_commutes_and_sees "
            "test_bilinear_layer_commutes_and_is_quadratic test_gated_nonlinearity_commutes_and_bends "
            "test_gated_nonlinearity_of_permutations_beside_vectors",
            "nn/test_networks.py": "test_tensor_network_commutes_and_sees test_regular_network_commutes_and_sees "
            "test_training_keeps_the_symmetry_of_every_group",
        },
    ),
    29: trap(
        "the width of a policy moves as the action's size does",
        {"models/test_policy_and_critic.py": "test_an_equivariant_policy_turns_with_its_observation"},
    ),
    30: trap(
        "a prediction of cells is a distribution that turns, and with equal counts the mean of its orbit",
        {
            "models/test_predictor.py": "test_a_categorical_prediction_sums_to_one_and_an_equivariant_one_turns",
            DISAGREEMENT: "test_a_trained_equivariant_predictor_fits_the_mean_weighted_by_counts",
        },
    ),
    31: trap(
        "two hundred random decision processes keep all bounds",
        {
            "theory/test_bounds.py": "test_there_are_200_and_they_break_the_symmetry "
            "test_one_step_error_bounds_every_pair test_value_gap test_affinity_is_an_identity "
            "test_contraction_factor_is_at_most_gamma_and_gamma_is_attained test_proximity"
        },
    ),
    32: trap(
        "two seeds differ after one update",
        {"agents/test_methods.py": "test_two_seeds_differ_after_one_update_and_equal_seeds_do_not"},
    ),
    33: trap(
        "predictors learn as often as configured",
        {GATE: "test_predictors_and_gate_learn_as_often_as_configured"},
    ),
    34: trap(
        "the smaller of two values is taken after the experts are mixed",
        {ROUTING: "test_the_minimum_is_taken_after_mixing"},
    ),
}


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {part.name for part in tree.body if isinstance(part, ast.FunctionDef)}


@cache
def faults() -> dict[int | str, list[str]]:
    """The test of every fault, without its parameters, by trap."""
    found: dict[int | str, list[str]] = {}
    for entry in tomllib.loads(MUTANTS.read_text())["mutant"]:
        found.setdefault(entry["trap"], []).append(entry["test"].partition("[")[0])
    return found


def test_there_are_34_traps():
    assert list(TRAPS) == list(range(1, 35))


@pytest.mark.parametrize("number", TRAPS)
def test_a_trap_is_held_by_tests_that_exist(number):
    for file, names in TRAPS[number].tests:
        assert set(names) <= functions(file)
    assert "test_that_nobody_wrote" not in functions(file)


@pytest.mark.parametrize("number", TRAPS)
def test_one_of_these_tests_notices_a_fault(number):
    assert set(faults().get(number, ())) & set(TRAPS[number].nodes)
    assert set(faults()[number]) <= set(TRAPS[number].nodes)
