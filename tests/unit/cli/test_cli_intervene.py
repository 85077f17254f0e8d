"""`switchgear intervene`: the printed blocks, and the effect of every option."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear._agents.hook_protocol import Moment
from switchgear._cli import main
from switchgear._cli.views.terminal import ask, parse_choice
from switchgear._config import load_config, preset_policy
from switchgear._core.types import AgentStep, Phase, Record, Signal
from switchgear._hooks import session
from switchgear._hooks.session import Notes, after_event
from switchgear._panel.panel import Panel
from switchgear._stores.base import Transaction
from switchgear._stuck import messages
from switchgear._stuck.escalation import Interventions
from timeouts import LIMIT_S
from trusted_config import write_config

SESSION = "session/s1"
SPAWN = "op/agent_spawn"


class Desk:
    """A folder with a store in which one agent is stuck and one operation has tripped."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.folder = folder
        (folder / ".git").mkdir()
        write_config(folder / "switchgear.yaml", f"store: sqlite:///state.db\n{config}")

    def add(self, lines: str) -> None:
        """More lines for the configuration."""
        path = self.folder / "switchgear.yaml"
        write_config(path, path.read_text() + lines)

    def run(self, *args: str) -> Result:
        return CliRunner().invoke(main, ["intervene", *args])

    def with_panel(self, work: Callable[[Panel], object]) -> None:
        with Panel.from_config(load_config(self.folder / "switchgear.yaml")) as panel:
            work(panel)

    def notes(self) -> Notes:
        found: list[Notes] = []
        self.with_panel(
            lambda panel: found.append(
                panel.store.transact(SESSION, lambda tx: Notes.load(tx.note))
            )
        )
        return found[0]

    def phase(self, name: str) -> str:
        found: list[str] = []

        def look(panel: Panel) -> None:
            view = panel.view(name)
            assert view is not None
            found.append(view.circuit.phase.value)

        self.with_panel(look)
        return found[0]


def _stuck(panel: Panel) -> None:
    def work(tx: Transaction) -> None:
        notes = after_event(Notes(), Moment.PROMPT, tx.now_s, agent="codex", limit_s=600.0)
        tx.note = notes.dump()
        call = Signal(ok=True, step=AgentStep("Read", "a"), count=6)
        tx.apply(SESSION, preset_policy("stuck"), Record(call))

    panel.store.transact(SESSION, work)


def _stuck_again(panel: Panel) -> None:
    call = Signal(ok=True, step=AgentStep("Read", "a"), count=6)
    panel.breaker(SESSION).record(call)


def _tripped(panel: Panel) -> None:
    policy = preset_policy("operation")
    breaker = panel.breaker(SPAWN, policy)
    breaker.record(Signal(ok=False, error="Rate limit exceeded", count=3))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SWITCHGEAR_")]:
        monkeypatch.delenv(name)
    desk = Desk(tmp_path)
    desk.with_panel(_stuck)
    desk.with_panel(_tripped)
    return desk


# A stuck agent


def test_without_a_terminal_the_block_is_printed_and_the_escalation_decides(desk: Desk) -> None:
    done = desk.run("s1")
    assert done.exit_code == 0
    assert done.output.startswith("AGENT APPEARS STUCK\n\nAgent: codex (s1)\nStuck score: 40/100")
    assert (
        "- Read called 6 times in a row with the same outcome (more than 5 trips) (+40)"
        in done.output
    )
    assert done.output.endswith("no terminal: the configured escalation takes the step 'nudge'\n")
    assert "Try a different approach." in desk.notes().pending[0]


def test_an_agent_that_is_not_stuck_gets_no_intervention(desk: Desk) -> None:
    desk.with_panel(
        lambda panel: panel.breaker(SESSION).record(
            Signal(ok=True, step=AgentStep("Read", "b"), files_changed=1)
        )
    )
    done = desk.run("s1")
    assert done.exit_code == 0
    assert done.output.startswith("Session s1 (codex) is working.")
    assert done.output.endswith("No terminal, and the agent is not stuck now: nothing done.\n")
    assert desk.notes().pending == ()


def test_a_nudge_with_a_hint_is_delivered_at_the_next_step(desk: Desk) -> None:
    done = desk.run(SESSION, "--do", "nudge", "--hint", "Read the log first")
    assert done.output == "the agent receives the hint at its next step\n"
    assert "Read the log first." in desk.notes().pending[0]
    desk.with_panel(_stuck_again)
    assert desk.run("s1").output.endswith("takes the step 'reset'\n")  # the hint was given before


def test_more_time_is_granted(desk: Desk) -> None:
    assert desk.run("s1", "--do", "extend", "--for", "10m").exit_code == 0
    assert desk.notes().limit_s == 1200.0


def test_an_abort_stops_the_agent_at_its_next_step(desk: Desk) -> None:
    desk.run("s1", "--do", "abort")
    assert "The task is given up as blocked." in (desk.notes().stop or "")
    assert desk.phase(SESSION) == "open"


def test_without_a_configured_agent_there_is_no_hand_over(desk: Desk) -> None:
    done = desk.run("s1", "--do", "escalate")
    assert done.exit_code == 2 or done.exception is not None
    assert desk.notes().stop is None


def test_the_escalation_agent_takes_over_with_the_evidence(desk: Desk) -> None:
    script = desk.folder / "klaus.py"
    script.write_text(
        "import os, shutil, sys\n"
        "shutil.copy(os.environ['SWITCHGEAR_EVIDENCE'], 'seen.part')\n"
        "os.rename('seen.part', 'seen.txt')\n"
    )
    desk.add(f'interventions: {{escalate: "{sys.executable} {script} {{prompt}}"}}\n')
    done = desk.run("s1", "--do", "escalate")
    assert "the escalation agent takes over" in done.output
    seen = desk.folder / "seen.txt"
    _until(seen.exists)
    assert "AGENT APPEARS STUCK" in seen.read_text()
    [log] = (desk.folder / ".switchgear" / "help").glob("*.log")
    _until(lambda: "[end] exited, exit code 0" in log.read_text())


def _until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < until_s, "the help did not come"
        time.sleep(0.05)  # it is a separate process


# A tripped circuit


def test_a_tripped_circuit_is_shown_and_left_to_its_cooldown(desk: Desk) -> None:
    done = desk.run(SPAWN)
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines[:4] == [
        "CIRCUIT BREAKER TRIPPED",
        "",
        "Operation: agent_spawn",
        "Failures: 3 in last 60 seconds",
    ]
    assert lines[4].startswith("State: OPEN (will retry in ")
    assert lines[-1] == "[Abort batch]        - Stop execution"
    assert desk.phase(SPAWN) == "open"


def test_force_closes_the_circuit_with_a_reason(desk: Desk) -> None:
    assert desk.run(SPAWN, "--do", "force", "--why", "the key was renewed").exit_code == 0
    assert desk.phase(SPAWN) == "closed"


def test_skip_holds_the_circuit_open_and_informs_active_agents(desk: Desk) -> None:
    done = desk.run(SPAWN, "--do", "skip", "--why", "not needed today")
    assert done.output.startswith(f"{SPAWN} is held open; 1 agent notified to continue without it.")
    assert desk.notes().pending == (
        "agent_spawn is left out from now on. Continue without this operation.",
    )


def test_force_ends_the_hold_of_an_earlier_skip(desk: Desk) -> None:
    desk.run(SPAWN, "--do", "skip", "--why", "not needed today")
    desk.run(SPAWN, "--do", "force", "--why", "needed after all")

    def look(panel: Panel) -> None:
        view = panel.view(SPAWN)
        assert view is not None
        assert (view.circuit.phase, view.circuit.mode) == ("closed", "auto")

    desk.with_panel(look)


def test_abort_stops_every_active_agent(desk: Desk) -> None:
    assert desk.run(SPAWN, "--do", "abort").output == "1 agent will stop at the next step\n"
    assert (desk.notes().stop or "").startswith("The batch was aborted by an operator.")
    assert desk.phase(SESSION) == "open", "the next hook counts a closed circuit as a release"


@pytest.mark.parametrize(
    ("command", "code", "phase", "says"),
    [
        (
            "true",
            0,
            "closed",
            "Test result: SUCCESS\n\nCircuit CLOSED. Resuming normal operations.\n",
        ),
        ("echo no >&2; false", 1, "open", "Test result: FAILURE\n\nCircuit OPEN."),
    ],
)
def test_wait_ends_with_the_probe(
    desk: Desk, command: str, code: int, phase: str, says: str
) -> None:
    _open_long_ago(desk)
    done = desk.run(SPAWN, "--do", "wait", "--test", command)
    assert done.exit_code == code
    assert "Circuit: agent_spawn (OPEN)\nOpened: " in done.output
    assert "\nReset in: 0 seconds\n\nAttempting half-open test...\n\n" in done.output
    assert says in done.output
    assert desk.phase(SPAWN) == phase


def test_without_a_test_command_the_next_call_is_the_probe(desk: Desk) -> None:
    _open_long_ago(desk)
    assert desk.run(SPAWN, "--do", "wait").output.endswith("The next call is the probe.\n")


def _open_long_ago(desk: Desk) -> None:
    def age(panel: Panel) -> None:
        found = panel.store.get(SPAWN)
        assert found is not None
        outage = found.circuit.outage._replace(opened_at_s=0.0, retry_at_s=1.0)
        circuit = found.circuit._replace(outage=outage, version=found.circuit.version + 1)
        assert panel.store.inner.put(found._replace(circuit=circuit))

    desk.with_panel(age)


def test_a_closed_circuit_needs_no_intervention(desk: Desk) -> None:
    desk.with_panel(lambda panel: panel.breaker("op/git").record(Signal(ok=True)))
    assert desk.run("op/git").output == "op/git is closed: nothing to do\n"


def test_an_option_that_is_not_offered_is_refused(desk: Desk) -> None:
    assert desk.run(SPAWN, "--do", "nudge").exit_code != 0
    assert desk.phase(SPAWN) == Phase.OPEN


def test_an_unknown_circuit_is_reported(desk: Desk) -> None:
    assert desk.run("op/gti").exit_code != 0


# At a terminal


OPTIONS = messages.stuck_options(Interventions(escalate="codex"))


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("1", "nudge"),
        ("extend", "extend"),
        ("Hand over", "escalate"),
        ("[Abort task]", "abort"),
        ("a", "abort"),
    ],
)
def test_an_option_is_chosen_by_number_name_or_prefix(typed: str, key: str) -> None:
    assert parse_choice(typed, OPTIONS) == key


@pytest.mark.parametrize("typed", ["", "0", "9", "e", "quit", "\x1b[2J"])
def test_an_ambiguous_answer_chooses_no_option(typed: str) -> None:
    assert parse_choice(typed, OPTIONS) is None


def test_an_invalid_answer_prompts_again(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"what?\n2\n")
    assert ask("BLOCK", OPTIONS, 5.0, reading) == "extend"
    os.close(writing)
    assert ask("BLOCK", OPTIONS, 5.0, reading) is None  # the input has ended
    os.close(reading)
    said = capsys.readouterr().err
    first = "BLOCK\nWhat now (1 nudge/2 extend/3 escalate/4 abort, in 5 s the escalation decides)?"
    assert said.startswith(first)
    assert "'what?' is not one of the options" in said


def test_without_an_answer_no_option_is_chosen() -> None:
    reading, writing = os.pipe()
    assert ask("BLOCK", OPTIONS, 0.01, reading) is None
    os.close(reading)
    os.close(writing)


def test_interventions_need_the_operators_token_where_one_is_configured(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.add(f'operator_token_sha256: "{"0" * 64}"\n')
    before = desk.notes()
    assert desk.run("s1", "--do", "extend").exit_code != 0
    assert desk.run(SPAWN, "--do", "abort").exit_code != 0
    assert desk.notes() == before
    assert session.note_name("s1") == SESSION
