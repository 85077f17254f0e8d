"""The hook as agents run it: a process, its input, its answer, and its records in the store."""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from depth import scaled
from e2e.hook_process import WAYS, command, hook, stop_residents, use
from switchgear._core.types import Mode, Override
from switchgear._hooks.client import RESIDENT_VARIABLE
from switchgear._hooks.command import AGENTS
from switchgear._hooks.handler import answer
from switchgear._hooks.hook_config import config_of
from switchgear._hooks.process import open_store
from switchgear._hooks.resident import FILES_CHECK_S
from switchgear._stores.sqlite import SqliteStore
from trusted_config import write_config
from unit.hook_calls import after, batch, before, claude, failed

HEAVY = {
    *("asyncio", "click", "dataclasses", "email", "inspect", "logging", "random", "rich"),
    *("socket", "subprocess", "tempfile", "traceback", "urllib", "uuid", "yaml"),
}
"""Modules that must not load while a hook process decides itself."""
CLIENT = {"switchgear", "switchgear._hooks", "switchgear._hooks.client"}
"""All of ours that a hook process loads if the resident process decides."""
OURS_NOT = {
    *(
        "switchgear.config",
        "switchgear._panel.panel",
        "switchgear._breaker.handle",
        "switchgear._cli",
    ),
    *("switchgear._hooks.compiler", "switchgear._hooks.install", "switchgear._stores.redis"),
    *("switchgear._stores.fallback", "switchgear._breaker.circuit_breaker", "switchgear._run"),
}
LARGEST_MB = 40


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(RESIDENT_VARIABLE, "30")
    use(request.param)
    return str(request.param)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def store_of(project: Path) -> SqliteStore:
    return SqliteStore(project / ".switchgear" / "state.db")


def undecided(project: Path) -> list[str]:
    entries = store_of(project).events(glob="hooks/*")
    return [entry.event.reason for entry in entries if entry.event.kind == "undecided"]


def hold(project: Path, key: str) -> None:
    known = config_of(str(project))
    order = Override("ada", "lunch", mode=Mode.HELD_OPEN)
    store_of(project).apply(key, known.policy_for(key), order, 0.0)


def test_a_call_is_recorded_from_its_start_to_its_end(project: Path) -> None:
    assert hook(project, before("Bash", {"command": "git push"})) == (0, "", "")
    assert hook(project, after("Bash", {"command": "git push"})) == (0, "", "")
    found = store_of(project).get("op/git_operations")
    assert found is not None
    assert found.circuit.totals.succeeded == 1


def test_an_open_circuit_refuses_in_the_agents_own_words(project: Path) -> None:
    hold(project, "op/git_operations")
    told = hook(project, before("Bash", {"command": "git push"})).told["hookSpecificOutput"]
    assert told["permissionDecision"] == "deny"
    assert "held open by ada: lunch" in told["permissionDecisionReason"]
    other = hook(project, before("Bash", {"command": "git push"}, agent_type="x"), "codex").told
    assert other["hookSpecificOutput"]["permissionDecision"] == "deny"
    gemini = claude("BeforeTool", tool_name="run_shell_command", tool_input={"command": "git pull"})
    assert hook(project, gemini, "gemini").told["decision"] == "deny"
    assert hook(project, before("Bash", {"command": "make"})) == (0, "", "")


def test_an_attempt_of_an_agent_to_release_its_circuit_is_refused(project: Path) -> None:
    ran = hook(project, before("Bash", {"command": "switchgear release session/s1"}))
    assert ran.told["hookSpecificOutput"]["permissionDecision"] == "deny"
    kinds = [entry.event.kind for entry in store_of(project).events()]
    assert "rule_broken" in kinds


def test_the_process_answers_as_the_library_does(tmp_path: Path) -> None:
    calls = [
        *(
            each
            for number in range(4)
            for each in (
                before("Bash", {"command": "false"}, f"t{number}"),
                failed(
                    "Bash",
                    {"command": "false"},
                    f"t{number}",
                    error="Exit code 1\nkey=sk-1234567890abcdef",
                ),
                batch(("Bash", {"command": "false"}, f"t{number}"), response="Exit code 1"),
            )
        ),
        before("Bash", {"command": "switchgear reset x"}, "r1"),
        claude("Stop"),
        claude("MadeUp"),
    ]
    answers: list[list[Any]] = []
    for name in ("process", "library"):
        folder = tmp_path / name
        (folder / ".git").mkdir(parents=True)
        answers.append([_answered(name, folder, call) for call in calls])
    assert answers[0] == answers[1]
    assert any("AGENT APPEARS STUCK" in text for text, _ in answers[0])


def _answered(name: str, folder: Path, call: Any) -> tuple[str, str]:
    call = {**call, "cwd": str(folder)}
    if name == "process":
        ran = hook(folder, call)
        told = ran.stdout, ran.stderr
    else:
        reply = answer("claude-code", json.dumps(call).encode(), str(folder), open_store)
        told = reply.stdout, reply.stderr
    # How long something waits is the only thing that differs.
    return _without_times(told[0]), _without_times(told[1])


def _without_times(text: str) -> str:
    words = text.strip().split(" ")
    return " ".join(word for word in words if not word.replace(".", "").isdigit())


# What must not happen


def bad_inputs() -> list[bytes]:
    chance = random.Random(7)
    good = json.dumps(before()).encode()
    cut = [good[: chance.randrange(len(good))] for _ in range(8)]
    noise = [bytes(chance.randrange(256) for _ in range(chance.randrange(400))) for _ in range(8)]
    values: list[Any] = [None, 5, "x", [], {}, [[]], True, {"hook_event_name": {}}, float("nan")]
    wrong: list[Any] = [None, 5, [], {}, ""]
    names = ("session_id", "hook_event_name", "tool_name")
    fields = [{**before(), name: value} for name in names for value in wrong]
    return [
        b"",
        b"{",
        b"\xff\xfe\x00\x00",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"x" * (5 * 1024 * 1024),
        *cut,
        *noise,
        *(json.dumps(value).encode() for value in values),
        *(json.dumps(each).encode() for each in fields),
    ]


@pytest.mark.deep
def test_input_that_cannot_be_read_is_refused_and_counted(project: Path) -> None:
    inputs = bad_inputs()[:: scaled(1, 3)]
    for raw in inputs:
        ran = hook(project, raw)
        assert (ran.code, ran.stdout) == (2, ""), (raw[:80], ran)
        assert "refused this call because it cannot be checked" in ran.stderr
        assert "Traceback" not in ran.stderr
    assert len(undecided(project)) == len(inputs)
    found = store_of(project).get("hooks/claude-code")
    assert found is not None
    assert found.circuit.totals.ignored == len(inputs)


@pytest.mark.parametrize("agent", AGENTS)
def test_unusual_valid_input_is_answered(project: Path, agent: str) -> None:
    strange = [
        before("Bash\x1b[2J\ud800", {"command": "echo \x00 \ud800"}, "\udfff" * 50),
        before("Edit", {"file_path": ["a", {"b": None}]}, "x" * 5000),
        before("Bash", {"command": "a;" * 50_000}),
        before("T" * 100_000, "text"),
        before("Bash", None, ""),
        after("Bash", 5, result={"x": [1e308, -1, None]}),
        after("Bash", result=["y" * 500_000]),
        batch(("Bash", {}, "a")),
    ]
    for data in strange:
        ran = hook(project, data, agent)
        assert ran.code in {0, 2}, (data["hook_event_name"], ran.stderr)
        assert ran.code == 0 or "cannot be checked" in ran.stderr
        assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("on_trouble", ["admit", "refuse"])
def test_unreadable_input_is_refused_whatever_is_configured_about_circuits(
    project: Path, on_trouble: str
) -> None:
    write_config(project / "switchgear.yaml", f"hooks: {{on_trouble: {on_trouble}}}\n")
    ran = hook(project, b"{")
    assert ran.code == 2
    assert "cannot be checked: claude-code sent an invalid event: it is not JSON" in ran.stderr
    assert hook(project, b"{", "pi").told["action"] == "deny"
    assert len(undecided(project)) == 2


def test_a_lost_store_is_reported_and_so_is_its_return(project: Path) -> None:
    hook(project, before())
    place = project / ".switchgear" / "state.db"
    for side in ("-wal", "-shm", ""):
        Path(f"{place}{side}").unlink(missing_ok=True)
    place.mkdir()
    for number in range(3):
        ran = hook(project, before(call=f"t{number}"))
        assert ran.code == 0
        assert "could not decide, and admitted: store sqlite" in ran.told["systemMessage"]
        assert "the path is a folder" in ran.stderr
    place.rmdir()
    assert hook(project, before(call="t9")) == (0, "", "")
    (told,) = undecided(project)
    assert told.startswith("while the store was unavailable (3 times): store sqlite")
    found = store_of(project).get("hooks/claude-code")
    assert found is not None
    assert found.circuit.totals.ignored == 3


def test_a_store_that_is_gone_refuses_where_that_is_configured(project: Path) -> None:
    write_config(project / "switchgear.yaml", "hooks: {on_trouble: refuse}\nstore: 'memory:'\n")
    told = hook(project, before()).told
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "each hook is a separate process" in told["systemMessage"]
    assert hook(project, after()).told.keys() == {"systemMessage"}


def test_a_configuration_that_cannot_be_read_is_reported_and_the_last_one_decides(
    project: Path,
) -> None:
    config = project / "home" / ".config" / "switchgear" / "switchgear.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("hooks: {on_trouble: refuse}\n")
    hook(project, before())
    config.write_text("hooks: {on_truoble: admit}\n")
    told = hook(project, before(call="t2")).told
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "on_truoble" in told["systemMessage"]
    assert "on_trouble" in told["systemMessage"]


def test_a_changed_configuration_takes_effect_at_once(project: Path) -> None:
    config = project / "switchgear.yaml"
    write_config(config, "circuits:\n  - {match: 'op/shell', policy: operation}\n")
    hook(project, before())
    first = (project / ".switchgear" / "hooks.json").read_bytes()
    hook(project, before(call="t2"))
    assert (project / ".switchgear" / "hooks.json").read_bytes() == first, "nothing changed"
    write_config(config, "hooks: {lease_s: 5}\n")
    hook(project, before(call="t3"))
    assert json.loads((project / ".switchgear" / "hooks.json").read_bytes())["lease_s"] == 5


def test_a_compiled_file_that_other_users_can_write_is_ignored(project: Path) -> None:
    hook(project, before())
    place = project / ".switchgear" / "hooks.json"
    forged = {**json.loads(place.read_bytes()), "rules": [], "on_trouble": "admit"}
    place.write_text(json.dumps(forged))
    place.chmod(0o666)
    ran = hook(project, before("Bash", {"command": "switchgear reset x"}))
    assert ran.told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert place.stat().st_mode & 0o777 == 0o600


def test_wrong_arguments_are_reported_in_a_sentence(project: Path) -> None:
    for words in ([], ["vim"], ["codex", "--root"], ["codex", "--rot", "x"]):
        line = [sys.executable, "-I", "-S", command(project)[3], *words]
        done = subprocess.run(line, input=b"{}", capture_output=True, check=False)
        assert done.returncode == 2, "an agent would take any other code for an approval"
        assert done.stderr.startswith(b"usage: entry.py claude-code|codex")


# What it costs


def test_no_heavy_module_is_loaded(project: Path, way: str) -> None:
    talk = project / "talk.jsonl"
    usage = {"input_tokens": 1000, "output_tokens": 20}
    answer = {"message": {"id": "m1", "model": "claude-sonnet-4-5", "usage": usage}}
    said = {"result": "made 12 of 30 in 3.2 s\nin /srv/x.py", "transcript_path": str(talk)}
    broken = {"error": "Exit code 2\nx.py:12: no rule\x1b[0m", "transcript_path": str(talk)}
    for number in range(2):
        with talk.open("a") as file:
            file.write(json.dumps(answer) + "\n")
        for data in (before(), after(**said), before(call="t2"), failed(call="t2", **broken)):
            hook(project, {**data, "tool_use_id": f"{data['tool_use_id']}-{number}"})
    talk.write_text(talk.read_text() + json.dumps(answer) + "\n")
    for data in (before(call="t3"), after(call="t3", **said), failed(call="t4", **broken)):
        words = command(project)
        line = [words[0], *words[1:3], "-X", "importtime", *words[3:]]
        environ = {**os.environ, "HOME": str(project / "home")}  # as above: another HOME recompiles
        done = subprocess.run(
            line, input=json.dumps(data).encode(), capture_output=True, check=True, env=environ
        )
        lines = [each for each in done.stderr.decode().splitlines() if "import time:" in each]
        names = {each.rpartition("|")[2].strip() for each in lines}
        roots = {name.partition(".")[0] for name in names}
        if way == "resident":
            assert {name for name in names if name.startswith("switchgear")} <= CLIENT
            assert not roots & {"json", "re", "typing", "socket", "enum", "functools"}
            continue
        assert "_sqlite3" in names
        assert not roots & HEAVY, roots & HEAVY
        assert not [name for name in names if name.startswith(tuple(OURS_NOT))]


def test_a_hook_takes_at_most_forty_megabytes(project: Path) -> None:
    hook(project, before())
    program = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], stdin=sys.stdin, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command(project)],
        input=json.dumps(before(args={"command": "x" * 100_000}, call="t2")).encode(),
        capture_output=True,
        check=True,
    )
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout) * unit <= LARGEST_MB * 1024 * 1024
    assert resource.RUSAGE_CHILDREN


def test_the_resident_process_ends_when_a_source_changes(tmp_path: Path) -> None:
    package, state = tmp_path / "lib" / "switchgear", tmp_path / "state"
    shutil.copytree(Path(command(tmp_path)[3]).parents[1], package)
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    entry = package / "hooks" / "entry.py"

    def run(data: Any) -> tuple[int, bytes, bytes]:
        line = [sys.executable, "-I", "-S", str(entry), "claude-code", "--root", str(project)]
        raw, env = json.dumps(data).encode(), {**os.environ, "XDG_STATE_HOME": str(state)}
        done = subprocess.run(line, input=raw, capture_output=True, check=False, env=env)
        return done.returncode, done.stdout, done.stderr

    try:
        for number in range(5):
            assert run(before(call=f"t{number}")) == (0, b"", b"")
            time.sleep(0.2)  # the resident process starts in the meantime
        kinds = package / "_hooks" / "inspect_call.py"
        text = kinds.read_text().replace('GIT = "git_operations"', 'GIT = "version_control"')
        assert text != kinds.read_text()
        kinds.write_text(text)
        time.sleep(FILES_CHECK_S)
        run(before("Bash", {"command": "git push"}, "g1"))
        run(after("Bash", {"command": "git push"}, "g1"))
        assert store_of(project).get("op/version_control") is not None
    finally:
        stop_residents(state)


def test_a_hook_works_with_an_empty_environment(project: Path) -> None:
    done = subprocess.run(
        command(project),
        input=json.dumps(before()).encode(),
        capture_output=True,
        check=False,
        cwd="/",
        env={RESIDENT_VARIABLE: "off"},  # else the resident process of this user would start
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (project / ".switchgear" / "state.db").exists()


def test_the_console_script_becomes_the_hook(project: Path) -> None:
    program = "import sys; from switchgear._hooks.command import run; run()"
    for words, code in ((["codex", "--root", str(project)], 0), (["vim"], 2), ([], 2)):
        line = [sys.executable, "-c", program, *words]
        done = subprocess.run(line, input=json.dumps(before()).encode(), check=False)
        assert done.returncode == code
    assert (project / ".switchgear" / "state.db").exists()
