"""Replies of hooks, JSON, exit codes, stored data and public names match the golden files.

See `regenerate.py` for what to do when one differs.
"""

import difflib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from golden import commands, hook_replies, stores
from golden.place import project
from golden.regenerate import FILES, HERE, as_text
from servers.server import running
from switchgear._cli import main


def told_apart(name: str, now: str) -> str:
    """The difference between a golden file and the present output, line by line."""
    golden = (HERE / name).read_text()
    if golden == now:
        return ""
    lines = difflib.unified_diff(
        golden.splitlines(), now.splitlines(), f"tests/golden/{name}", "now", lineterm="", n=2
    )
    how = f"if this is meant: python tests/golden/regenerate.py {name}"
    return "\n".join(["", *lines, "", how])


@pytest.mark.parametrize("name", FILES)
def test_public_interfaces_match_the_golden_files(name: str) -> None:
    differs = told_apart(name, FILES[name]())
    if differs:
        pytest.fail(differs, pytrace=False)


def test_every_agent_with_hooks_has_golden_replies() -> None:
    with project():
        done = CliRunner().invoke(main, ["hooks", "status", "--json"])
    assert {each["agent"] for each in json.loads(done.stdout)} == set(hook_replies.EVENTS)


def test_every_verb_has_a_golden_exit_code() -> None:
    assert set(main.commands) == {line.split()[0] for line in commands.ENDED if line[0] != "-"} - {
        "nonsense"
    }


def test_commands_end_with_their_documented_exit_codes() -> None:
    assert commands.exit_codes() == commands.ENDED


def stored(name: str) -> Any:
    return json.loads((HERE / f"{name}.facts.json").read_text())


def now(panel: Any) -> Any:
    return json.loads(as_text(stores.facts(panel)))


def test_a_golden_sqlite_file_loads_with_all_its_facts(tmp_path: Path) -> None:
    stores.restore_sqlite(tmp_path / "state.db", (HERE / f"{stores.SQLITE}.sql").read_text())
    with stores.sqlite_panel(tmp_path / "state.db") as panel:
        assert now(panel) == stored(stores.SQLITE)


def test_golden_redis_keys_load_with_all_their_facts() -> None:
    with running() as server:
        stores.restore_redis(server.url, (HERE / f"{stores.REDIS}.json").read_text())
        with stores.redis_panel(server.url) as panel:
            assert now(panel) == stored(stores.REDIS)


def test_the_stored_facts_are_complete() -> None:
    for name in (stores.SQLITE, stores.REDIS):
        facts = stored(name)
        circuits = [line["circuit"] for line in facts["export"] if line.get("type") == "circuit"]
        assert {each["phase"] for each in circuits} == {"closed", "tripping", "open", "half_open"}
        assert {each["mode"] for each in circuits} == {"auto", "held_open", "shadow"}
        assert len(facts["events"]) >= 5
        kinds = {line.get("type") for line in facts["export"]}
        assert len(kinds - {None, "circuit", "event"}) >= 1, kinds
        assert facts["audit"][0][0]
        assert facts["note"] == stores.NOTE_TEXT
