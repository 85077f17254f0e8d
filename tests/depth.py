"""How many cases a test tries: a few in `make test`, all of them in `make stress`."""

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

DEEP = bool(os.environ.get("SWITCHGEAR_DEEP"))


def scaled(everything: int, few: int) -> int:
    """The number of cases; mark the test with `deep`, so that `make stress` runs it too."""
    return everything if DEEP else few


def some_of(cases: Iterable[str], kept: Collection[str]) -> list[Any]:
    """All cases as parameters of a test; `make test` runs only those that are kept."""
    every = list(cases)
    assert {*kept} <= {*every}, f"no such cases: {sorted({*kept} - {*every})}"
    return [
        case if case in kept else pytest.param(case, id=case, marks=pytest.mark.stress)
        for case in every
    ]


def for_each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Call the test with each value of a parameter. As `parametrize`, but all of them in one test.

    For tables of hundreds of values, where a test for each costs more than what it checks.
    """

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def for_all(**others: Any) -> None:
            for value in values:
                try:
                    test(**others, **{name: value})
                except BaseException as error:
                    error.add_note(f"with {name} = {value!r}")
                    raise

        whole = inspect.signature(test)
        rest = [each for each in whole.parameters.values() if each.name != name]
        vars(for_all)["__signature__"] = whole.replace(parameters=rest)
        return for_all

    return decorate


KEPT: dict[str, tuple[str, ...]] = {
    "test_a_removed_working_directory_does_not_switch_the_rules_off": ("True-claude-code", "codex"),
    "test_a_refusal_that_cannot_be_written_is_an_exit_code": ("claude-code", "/dev/full-codex"),
    "test_no_environment_switches_the_rules_off": ("{'HOME': ''}", "SWITCHGEAR_STORE': 'nonsense"),
    "test_a_part_of_the_core_that_cannot_be_imported_does_not_admit": ("_rules/rules.py",),
    "test_unusual_valid_input_is_answered": ("resident", "process-claude-code"),
    "test_an_open_standard_input_is_answered_when_its_json_is_complete": (
        "claude-code",
        "pi",
    ),
    "test_a_closed_standard_input_is_refused": ("claude-code", "pi"),
    "test_hooks_that_settings_have_lost_are_restored": ("claude-code", "codex"),
    "test_with_breakers_the_fault_is_detected_and_no_healthy_agent_is_halted": ("outage",),
    "test_the_real_hook_command_of_each_agent_refuses_and_stops": ("claude-code",),
    "test_the_hook_is_tested_with_the_configuration_of_the_project": ("agents:",),
    "test_a_guard_that_is_broken_on_purpose_is_a_failure": ("same-error", "overspend"),
    "test_a_breaker_out_of_reach_is_a_failure_with_what_it_reads": ("same-error",),
    "test_without_a_known_process_any_active_watcher_records_the_silence": ("verb1",),
    "test_each_timeout_policy_keeps_the_partial_work": ("resume", "skip"),
    "test_both_simulations_are_identical_until_the_fault_begins": ("dead-provider",),
    "test_without_breakers_the_fault_is_not_detected": ("dead-provider",),
    "test_a_signal_ends_an_agent_that_ignores_it_and_its_work_is_saved": ("SIGTERM",),
    "test_the_doctor_reports_whether_codex_will_run_the_hooks": ("0",),
    "test_a_drained_worker_finishes_its_task_and_exits": (),
    "test_a_second_sigterm_ends_a_worker_and_its_agent_at_once": (),
    "test_a_worker_that_ends_because_of_a_message_has_failed": (),
    "test_messages_of_the_queue_can_only_start_jobs": (),
    "test_a_host_that_cannot_read_the_repository_leaves_the_tasks_to_others": (),
    "test_draining_an_unknown_worker_is_reported": (),
    "test_work_is_pushed_to_the_repository_of_the_hosts": (),
    "test_a_project_without_a_store_gets_none": (),
    "test_a_self_test_changes_no_data_of_the_user": (),
    "test_the_corpus_makes_every_legal_move_and_no_other": (),
    "test_batches_at_once_cannot_overspend_a_node": (),
    "test_a_signal_ends_a_validation_that_ignores_it": (),
    "test_a_signal_ends_a_hook_of_a_commit": (),
    "test_a_signal_ends_a_wait": (),
    "test_one_signal_ends_a_tree_that_ignores_it_after_the_grace_period": (),
    "test_a_day_has_all_faults_and_each_is_detected": (),
    "test_four_times_the_text_takes_about_four_times_as_long": (),
    "test_a_tcp_client_that_does_not_read_is_dropped_and_resumes_where_it_stopped": (),
    "test_time_in_which_everything_was_suspended_is_not_silence": (),
}
"""Tests that take long, with the parts of the ids that `make test` runs; `make stress` runs all cases."""


def is_kept(name: str, case: str) -> bool:
    """Whether `make test` runs this case of a test."""
    return name not in KEPT or any(part in case for part in KEPT[name])
