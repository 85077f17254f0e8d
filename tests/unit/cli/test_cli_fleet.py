"""`switchgear fleet`: what it shows about agents, models and locks."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear import Panel, Signal
from switchgear._cli import main
from switchgear._config import load_config
from switchgear._fleet.fleet import Fleet
from switchgear.testing import FakeClock

CONFIG = """
store: sqlite:///{}/state.db
agents:
  coder: {{owner: ana, provider: p, model: m, fallback_models: [q/n], fallback_chain: [junior]}}
  junior: {{owner: ben, provider: r, model: s}}
"""


def run(folder: Path, *args: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*args, "--config", str(folder / "switchgear.yaml")])
    return done.exit_code, done.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "switchgear.yaml").write_text(CONFIG.format(tmp_path))
    return tmp_path


def tell(folder: Path, circuit: str, **facts: Any) -> None:
    with Fleet.from_config(load_config(folder / "switchgear.yaml")) as fleet:
        fleet.panel.breaker(circuit).record(Signal(**facts))


def test_an_agent_on_another_model_is_rerouted_and_back_when_its_provider_heals(
    folder: Path,
) -> None:
    assert run(folder, "fleet", "status")[1].startswith("agent coder (ana): works, coder on p/m\n")
    tell(folder, "provider/p", ok=False, retry_after_s=3600.0)
    code, text = run(folder, "fleet", "status")
    assert code == 0
    assert text.startswith(
        "agent coder (ana): rerouted, coder on q/n\n"
        "  not coder on p/m: provider/p: 1 response with Retry-After in a row (threshold 1); next try at 20"
    )
    assert run(folder, "reset", "provider/p", "--why", "it healed")[0] == 0
    assert "agent coder (ana): works, coder on p/m\n" in run(folder, "fleet", "status")[1]


def test_a_route_is_printed_as_text_and_json_and_no_available_agent_is_exit_code_1(
    folder: Path,
) -> None:
    assert run(folder, "fleet", "route", "junior") == (0, "junior: junior on r/s\n")
    tell(folder, "rules/junior", violation="rule x")
    code, text = run(folder, "fleet", "route", "junior", "--json")
    assert code == 1
    found = json.loads(text)
    assert (found["agent"], found["state"], found["works"]) == ("junior", "halted", None)
    assert found["why"] == ["junior: rules/junior: rule x; it stays open until it is reset"]
    code, text = run(folder, "fleet", "route", "junior")
    assert (code, text) == (
        1,
        "junior: no agent available\n  not junior: rules/junior: rule x; it stays open until it is reset\n",
    )


def test_holders_and_waiters_are_in_the_status_and_the_world_state() -> None:
    clock = FakeClock(1000.0)
    panel = Panel("memory:", clock=clock)

    def status(*options: str) -> str:
        return CliRunner().invoke(main, ["fleet", "status", *options], obj=panel).output

    panel.lock("press", owner="ada \x1b[31m", lease_s=600.0).acquire()
    steps = panel.lock("press", owner="bob", lease_s=600.0)._steps()  # in line, not waiting here
    next(steps)
    clock.advance(4.0)
    assert status().endswith("\nlock press: closed, held by ada, 1 waiting for up to 4 s\n")
    found = json.loads(status("--json"))["locks"]["press"]
    assert found["holder"]["since_s"] == 1000.0
    assert found["waiting"] == [
        {"owner": "bob", "since": "1970-01-01T00:16:40+00:00", "since_s": 1000.0}
    ]
    steps.close()
    assert status().endswith("\nlock press: closed, held by ada\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["budgets", "set", "atlas", "-3"], "DOLLARS is '-3': it must be dollars such as 5"),
        (["budgets", "set", "atlas", "--fre"], "DOLLARS is '--fre': it must be dollars"),
        (["budgets", "set", "atlas", "nan"], "DOLLARS is 'nan'"),
        (["budgets", "set", "atlas", "5", "--by", ""], "--by must not be empty"),
    ],
)
def test_an_invalid_amount_is_reported_and_no_budget_is_opened(
    folder: Path, args: list[str], message: str
) -> None:
    code, text = run(folder, *args)
    assert (code, message in text) == (2, True), text
    assert run(folder, "budgets", "list")[1].startswith("No budgets yet.")


def test_the_account_names_the_operator_of_a_budget(folder: Path) -> None:
    assert run(folder, "budgets", "set", "atlas", "5", "--by", "ada")[0] == 0
    assert run(folder, "budgets", "set", "atlas", "7")[0] == 0
    lines = json.loads(run(folder, "budgets", "show", "atlas", "--json")[1])["lines"]
    assert lines[0]["who"] == "ada"
    assert lines[1]["who"] not in {"", "ada", "switchgear budgets set"}


def test_a_provider_that_is_held_is_shown_as_held_and_not_by_its_evidence(folder: Path) -> None:
    assert run(folder, "hold", "open", "provider/p", "--create", "--why", "maintenance")[0] == 0
    assert "\nprovider p: held open by " in run(folder, "fleet", "status")[1]
