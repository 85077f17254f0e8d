"""`check` and `record`: exit codes, options, amounts, permits; over a panel in memory."""

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from switchgear._cli import main
from switchgear._cli.check import micros
from switchgear._console.permits import dump_permit, load_permit
from switchgear._core.policy import Latched, Policy
from switchgear._core.types import Permit
from switchgear._detectors import ConsecutiveFailures
from switchgear._panel.panel import Panel
from switchgear.testing import FakeClock


class Shell:
    """A panel in memory with a fake clock, and the command over it."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.panel = Panel("memory:", clock=self.clock, **options)

    def run(self, *args: str) -> Result:
        return CliRunner().invoke(main, args, obj=self.panel)


@pytest.fixture
def shell() -> Shell:
    return Shell()


def test_check_reports_admission_by_its_exit_code(shell: Shell) -> None:
    assert shell.run("check", "api").exit_code == 0
    shell.run("record", "api", "failure", "--count", "5")
    assert shell.run("check", "api").exit_code == 1
    assert shell.run("check", "").exit_code == 2


def test_check_of_an_unknown_circuit_creates_none(shell: Shell) -> None:
    assert "no results are recorded yet" in shell.run("check", "api").output
    assert shell.run("status").output.startswith("No circuits yet")


def test_a_refusal_names_the_wait_and_the_exact_commands(shell: Shell) -> None:
    shell.run("record", "my api", "failure", "--count", "5")
    shell.clock.advance(17.5)
    answers = json.loads(shell.run("check", "my api", "--json").output)["options"]
    commands = {answer["option"]: answer["command"] for answer in answers}
    assert commands["wait"] == "sleep 43 && switchgear check 'my api'"
    assert commands["force"] == "switchgear hold closed 'my api' --why WHY"
    assert list(commands) == ["wait", "force", "skip", "abort"]
    assert answers[0]["seconds"] == 42.5


def test_with_take_standard_output_contains_only_the_permit(shell: Shell) -> None:
    shell.run("record", "api", "failure", "--count", "5")
    refused = shell.run("check", "api", "--take")
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "circuit 'api' is open" in refused.stderr
    assert "force" in refused.stderr
    assert "circuit 'api' is open" in shell.run("check", "api").stdout


def test_waiting_for_a_latched_circuit_is_not_suggested() -> None:
    shell = Shell(policies=lambda _: Policy([ConsecutiveFailures(1)], recovery=Latched()))
    shell.run("record", "loop", "failure")
    refused = shell.run("check", "loop")
    assert refused.exit_code == 1
    assert "switchgear reset loop --why WHY" in refused.output


def test_a_held_circuit_names_its_operator(shell: Shell) -> None:
    shell.run("hold", "open", "api", "--create", "--why", "repairs", "--by", "ada")
    refused = shell.run("check", "api")
    assert "held open by ada: repairs" in refused.output
    assert "switchgear release api --why WHY" in refused.output


def test_a_hold_that_overrules_the_evidence_is_reported(shell: Shell) -> None:
    shell.run("record", "api", "failure", "--count", "5")
    shell.run("hold", "shadow", "api", "--why", "trying")
    admitted = shell.run("check", "api")
    assert admitted.exit_code == 0
    assert "admits, against the evidence" in admitted.output


def test_check_counts_a_refusal_only_with_take(shell: Shell) -> None:
    shell.run("record", "api", "failure", "--count", "5")
    shell.run("check", "api")
    shell.run("check", "api", "--take")
    view = shell.panel.view("api")
    assert view is not None
    assert view.circuit.totals.refused == 1


def test_after_the_lease_of_a_hung_probe_another_permit_is_issued(shell: Shell) -> None:
    shell.run("record", "api", "failure", "--count", "5")
    shell.clock.advance(60)
    assert shell.run("check", "api", "--take").exit_code == 0
    assert shell.run("check", "api").exit_code == 1
    shell.clock.advance(60)
    assert shell.run("check", "api").exit_code == 0


def test_an_operation_has_the_same_policy_as_in_hooks(shell: Shell) -> None:
    for _ in range(2):
        shell.run("record", "op/agent_spawn", "failure", "--error", "Rate limit exceeded")
    done = shell.run("record", "op/agent_spawn", "failure")
    assert "closed → open: 3 failures in" in done.output
    assert shell.run("check", "op/agent_spawn").exit_code == 1


def test_a_failure_that_trips_is_recorded_and_reported(shell: Shell) -> None:
    done = shell.run("record", "api", "failure", "--count", "5")
    assert done.exit_code == 0
    assert "recorded failure of api, 5 times" in done.output
    assert "open: 5 failures in a row (threshold 5); next try in 60 s" in done.output


def test_secrets_in_errors_are_redacted_before_they_are_stored(shell: Shell) -> None:
    shell.run("record", "api", "failure", "--error", "bad key sk-proj-abcdefghijklmnop")
    view = shell.panel.view("api")
    assert view is not None
    assert view.circuit.failures[-1].error == "bad key [redacted]"


def test_a_returned_permit_is_not_evidence(shell: Shell) -> None:
    shell.run("record", "api", "failure", "--count", "4")
    shell.run("record", "api", "ignored", "--count", "9")
    view = shell.panel.view("api")
    assert view is not None
    assert (view.circuit.totals.ignored, view.circuit.phase) == (9, "closed")


def test_costs_add_up_in_millionths(shell: Shell) -> None:
    shell.run("record", "api", "success", "--cost", "0.0125", "--count", "2")
    shell.run("record", "api", "failure", "--cost", "$1")
    view = shell.panel.view("api")
    assert view is not None
    assert view.circuit.totals.cost_micros == 1_025_000
    assert "cost       $1.025" in shell.run("show", "api").output


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("0.0125", 12_500),
        ("$3", 3_000_000),
        ("1e-7", 1),
        ("0.0000011", 2),
        ("1e3", 10**9),
    ],
)
def test_an_amount_of_dollars_is_exact_and_rounded_up(text: str, amount: int) -> None:
    assert micros(text) == amount


@pytest.mark.parametrize(
    "text", ["nan", "-1", "inf", "-0.01", "1e99999999", "free", "", "1,5", "sNaN"]
)
def test_an_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(click.ClickException, match="--cost is"):
        micros(text)


@pytest.mark.parametrize(
    "options",
    [
        ("--seconds", "-1"),
        ("--seconds", "nan"),
        ("--seconds", "soon"),
        ("--retry-after", "inf"),
        ("--count", "0"),
        ("--count", "x"),
        ("--permit", "nonsense"),
        ("--cost", "nan"),
    ],
)
def test_bad_facts_are_refused_and_nothing_is_recorded(shell: Shell, options: Any) -> None:
    done = shell.run("record", "api", "failure", *options)
    assert done.exit_code == 2
    assert done.stderr.startswith("switchgear: ")
    assert options[0] in done.stderr
    assert shell.panel.view("api") is None


def test_an_error_belongs_to_a_failure(shell: Shell) -> None:
    assert shell.run("record", "api", "success", "--error", "x").exit_code == 2


@pytest.mark.parametrize(
    "permit", [Permit(1), Permit(7, 0), Permit(3, 2, 1794739280.4590812), Permit(3, 1, 60.0)]
)
def test_a_permit_survives_the_shell(permit: Permit) -> None:
    assert load_permit("a/b", dump_permit("a/b", permit)) == permit


def test_a_permit_of_another_circuit_is_refused() -> None:
    with pytest.raises(ValueError, match="another circuit"):
        load_permit("a/c", dump_permit("a/b", Permit(1)))


def test_record_prints_the_state_of_the_circuit_as_json(shell: Shell) -> None:
    told = json.loads(shell.run("record", "api", "failure", "--count", "5", "--json").output)
    assert (told["phase"], told["admits"], told["retry_after_s"]) == ("open", False, 60.0)
    assert [event["after"] for event in told["events"]] == ["open"]
