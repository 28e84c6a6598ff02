"""Faults that a test of `make test` covers: what must hold, and where it is tested."""

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

COVERED = {
    "results that would be wrong without a word": {
        "evaluation, video and export play the task of the training, its arguments included": (
            "tests/test_same_task.py::test_evaluation_and_video_play_the_task_of_the_training",
            "tests/test_same_task.py::test_an_export_tells_and_plays_the_task_of_the_training",
        ),
        "what cannot be rebuilt is asked for, and is never equal to another": (
            "tests/test_same_task.py::test_a_wrapped_environment_is_never_replaced_by_the_one_inside",
            "tests/test_same_task.py::test_one_lambda_never_returns_the_result_of_another",
        ),
        "a run names the weights that it began with, and is not averaged with runs from scratch": (
            "tests/test_origin.py::test_config_and_checkpoint_name_the_run_the_step_and_the_weights",
            "tests/test_origin.py::test_a_config_whose_parent_is_gone_changed_or_in_no_file_says_so",
            "tests/test_origin.py::test_a_report_keeps_children_apart_from_runs_from_scratch",
        ),
        "runs that begin in one second have folders of their own": (
            "tests/test_same_task.py::test_runs_that_begin_in_one_second_have_folders_of_their_own",
        ),
        "a resumed run is called exact only where a rehearsal held": (
            "tests/envs/test_rehearsal.py::test_state_that_no_snapshot_holds_is_found_by_name",
            "tests/envs/test_rehearsal.py::test_a_resumed_run_claims_what_held",
        ),
        "updates that are skipped are counted and reported, and stop a run": (
            "tests/loop/test_agent_base.py::test_an_update_that_is_not_finite_is_undone_and_reported",
            "tests/trainers/mpo/test_mpo_trainer.py::test_a_run_that_skips_every_update_stops_and_says_so",
        ),
        "a seed also seeds the global generators of environments in processes of their own": (
            "tests/envs/test_subprocesses.py::test_a_seed_seeds_the_generators_of_every_process",
        ),
        "bounds, rewards and actions that overflow are refused or kept within the bounds": (
            "tests/envs/test_vector.py::test_the_widest_bounds_are_reached_from_end_to_end",
            "tests/envs/test_vector.py::test_a_reward_that_float32_cannot_hold_is_non_finite",
            "tests/test_policy.py::test_no_rounding_to_float32_carries_an_action_out_of_its_bounds",
        ),
        "rewards and ends of another type are refused": (
            "tests/envs/test_vector.py::test_a_value_of_another_type_is_refused_with_the_type_that_was_expected",
        ),
    },
    "runs that would end wrongly": {
        "a script that trains learns of SIGTERM and SIGINT": (
            "tests/runs/test_signals_in_scripts.py::test_a_script_that_does_not_expect_it_ends_there_by_the_signal",
            "tests/runs/test_signals_in_scripts.py::test_a_script_that_catches_it_learns_where_the_run_is",
        ),
        "a closed, full or ASCII output does not end a run": (
            "tests/runs/test_output.py::test_a_reader_that_leaves_does_not_end_the_run_and_is_reported_once",
            "tests/runs/test_output.py::test_a_closed_or_full_output_does_not_change_the_exit_status",
            "tests/runs/test_output.py::test_what_ascii_lacks_is_spelled_otherwise",
        ),
        "evaluations of endless episodes are cut": (
            "tests/test_evaluation.py::test_a_run_on_an_endless_environment_is_cut_and_says_so_once",
        ),
        "a replay that does not fit is refused, and saving and resuming stream it": (
            "tests/data/test_replay.py::test_a_replay_that_does_not_fit_is_refused_with_its_bytes_and_the_setting",
            "tests/runs/test_store.py::test_saving_and_loading_take_little_memory_beside_the_replay",
        ),
        "a policy that was never evaluated can be shown": (
            "tests/test_policy.py::test_a_run_that_was_killed_before_its_first_evaluation_says_so",
        ),
        "an observation that is not finite is named as the cause": (
            "tests/test_policy.py::test_an_observation_that_is_not_finite_is_named_as_the_cause",
        ),
    },
    "folders and files that somebody sent": {
        "a module that a file names is imported only when the person says so": (
            "tests/test_same_task.py::test_a_module_named_by_a_run_is_imported_only_when_the_person_says_so",
            "tests/lab/benchmark/test_grids.py::test_a_module_named_by_a_grid_is_imported_only_when_the_person_says_so",
        ),
        "worker processes import nothing that lies in the working directory": (
            "tests/envs/test_subprocesses.py"
            "::test_a_worker_imports_its_parents_packages_and_none_that_lie_in_the_folder",
        ),
        "links lead nothing into an export or out of it": (
            "tests/lab/export/test_export_folder.py"
            "::test_a_link_in_a_run_leads_nothing_out_of_another_folder_or_into_it",
        ),
        "sizes and bounds that the tensors contradict are refused before memory is taken": (
            "tests/test_policy.py::test_sizes_that_the_tensors_contradict_are_refused_before_memory_is_taken",
            "tests/test_policy.py::test_bounds_that_no_action_has_are_refused",
            "tests/runs/test_checkpoint.py::test_more_tensors_than_any_run_has_are_refused_unread",
        ),
        "a bad run is one line in the report of the good ones": (
            "tests/cli/test_cli_received.py::test_each_bad_run_is_a_line_in_the_report_of_the_good_ones",
        ),
        "every input of config, checkpoint, metrics, evaluations, result, grid, preset and peers is read or refused "
        "in one line": ("tests/fuzz/test_fuzz_readers.py::test_every_input_is_read_or_refused",),
        "no escape sequence reaches the terminal, and printed commands are quoted": (
            "tests/cli/test_cli_received.py::test_no_escape_sequence_of_a_file_reaches_the_terminal",
            "tests/cli/test_cli_received.py::test_the_printed_commands_name_the_folder_whatever_its_name_is",
        ),
        "a model card shows what a checkpoint says as text": (
            "tests/lab/export/test_export_folder.py::test_the_card_shows_what_a_checkpoint_says_as_text",
        ),
    },
}
"""By chapter: what must hold, and the tests of it."""


def chapters() -> list[str]:
    """Return the lines of a table of all that tests cover."""
    lines = ["| what must hold | tests |", "|---|---|"]
    for chapter, facts in COVERED.items():
        lines.append(f"| **{chapter}** | |")
        lines += [f"| {fact} | {'<br>'.join(f'`{test}`' for test in tests)} |" for fact, tests in facts.items()]
    return lines


def missing() -> list[str]:
    """Return the tests named here that do not exist."""
    named = [test for facts in COVERED.values() for tests in facts.values() for test in tests]
    return [test for test in named if test.partition("::")[2] not in _functions(test.partition("::")[0])]


def _functions(path: str) -> set[str]:
    file = REPOSITORY / path
    tree = ast.parse(file.read_text()) if file.is_file() else ast.Module([], [])
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
