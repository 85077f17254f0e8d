"""Every exit of the hook process is an answer: agents treat silence, and any exit code but 2, as approval."""

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from depth import some_of
from e2e.hook_process import PATIENCE_S, WAYS, command, hook, stop_residents, use
from switchgear._hooks.client import RESIDENT_VARIABLE
from switchgear._hooks.command import AGENTS, OR_REFUSE
from unit.hook_calls import after, before, claude

FORBIDDEN = {"command": "rm -rf /etc"}


@pytest.fixture(params=WAYS, autouse=True)
def way(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    monkeypatch.setenv(RESIDENT_VARIABLE, "30")
    use(request.param)
    yield str(request.param)
    stop_residents(tmp_path / ".local" / "state")
    stop_residents(tmp_path / "state")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    return project


def call(agent: str, args: Any, **more: Any) -> dict[str, Any]:
    """A shell command about to run, as the agent sends it."""
    if agent == "opencode":
        asked = {"tool": "bash", "sessionID": "s1", "callID": "c1"}
        return {"k": "tool.execute.before", "input": asked, "output": {"args": args}, **more}
    if agent == "pi":
        event = {"toolName": "bash", "toolCallId": "c1", "input": args}
        return {"k": "tool_call", "event": event, "session": "s1", **more}
    if agent == "gemini":
        return claude("BeforeTool", tool_name="run_shell_command", tool_input=args, **more)
    return {**before("Bash", args), **more}


def installed(project: Path, agent: str = "claude-code") -> list[str]:
    """The command in the settings for events before a tool, run by a shell as the agent does."""
    return ["/bin/sh", "-c", shlex.join(command(project, agent)) + OR_REFUSE]


def start(words: list[str], **named: Any) -> "subprocess.Popen[bytes]":
    named = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | named
    process: Any = subprocess.Popen(words, **named)
    return cast("subprocess.Popen[bytes]", process)


def refuses(agent: str, code: int | None, stdout: bytes) -> bool:
    """Whether the agent would not call the tool; the plugins of Switchgear refuse every reply that they cannot read."""
    try:
        told = json.loads(stdout or b"{}")
    except ValueError:
        told = {}
    if agent in {"opencode", "pi"}:
        return bool(told.get("action") != "allow")
    specific = told.get("hookSpecificOutput", {})
    denied = specific.get("permissionDecision") == "deny" or told.get("decision") in {
        "deny",
        "block",
    }
    return code == 2 or (code == 0 and denied)


def finished(
    process: "subprocess.Popen[bytes]", raw: bytes | None = None
) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(raw, timeout=PATIENCE_S)
    assert b"Traceback" not in err
    return process.returncode, out, err


# Standard streams


@pytest.mark.parametrize("agent", AGENTS)
def test_a_closed_standard_input_is_refused(project: Path, agent: str) -> None:
    shell = ["/bin/sh", "-c", '"$@" <&-', "sh", *command(project, agent)]
    code, out, err = finished(start(shell, stdin=subprocess.DEVNULL))
    assert refuses(agent, code, out)
    assert b"it is empty" in err


def test_a_standard_input_that_cannot_be_read_is_refused(project: Path) -> None:
    with (project / "out").open("wb") as written:
        code, out, _ = finished(start(installed(project), stdin=written))
    assert refuses("claude-code", code, out)
    folder = os.open(project, os.O_RDONLY)
    try:
        code, out, _ = finished(start(installed(project), stdin=folder))
    finally:
        os.close(folder)
    assert refuses("claude-code", code, out)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_open_standard_input_is_answered_when_its_json_is_complete(
    project: Path, agent: str
) -> None:
    with start(command(project, agent)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        raw = json.dumps(call(agent, FORBIDDEN)).encode()
        process.stdin.write(raw[:40])
        process.stdin.flush()
        process.stdin.write(raw[40:] + b"\n")
        process.stdin.flush()
        out = process.stdout.read()  # ends with the process, though its input is open still
        assert refuses(agent, process.wait(PATIENCE_S), out)
        assert b"deletes/outside" in out


@pytest.mark.stress
def test_an_endless_input_that_is_not_json_is_refused_in_time(project: Path) -> None:
    for part in (b"", b'{"hook_event_name": "PreToolUse", "tool_input": {}'):
        with start(command(project)) as process:
            assert process.stdin is not None
            process.stdin.write(part)
            process.stdin.flush()
            began_s = time.monotonic()
            assert process.wait(PATIENCE_S) == 2
            assert time.monotonic() - began_s < 60, "it waits for its input without end"


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    "closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", ">/dev/full", ">/dev/full 2>/dev/full"]
)
def test_a_refusal_that_cannot_be_written_is_an_exit_code(
    project: Path, agent: str, closed: str
) -> None:
    if "full" in closed and not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("no /dev/full here")
    shell = ["/bin/sh", "-c", f'"$@" {closed}', "sh", *command(project, agent)]
    for _ in range(2):
        code, out, _ = finished(start(shell), json.dumps(call(agent, FORBIDDEN)).encode())
        if agent in {"opencode", "pi"}:
            assert refuses(agent, code, out)
        else:
            assert code == (
                0 if ">&-" not in closed.replace("2>&-", "") and "full" not in closed else 2
            )
            assert refuses(agent, code, out)


def test_nothing_is_written_to_a_file_that_reuses_the_descriptor_of_a_closed_stream(
    project: Path,
) -> None:
    shell = ["/bin/sh", "-c", '"$@" >&- 2>&-', "sh", *command(project)]
    finished(start(shell), json.dumps(before("Bash", FORBIDDEN)).encode())
    ran = hook(project, before("Bash", {"command": "make"}, "t2"))
    assert ran == (0, "", "")


# Its surroundings


def in_removed_folder(project: Path, tmp_path: Path) -> Callable[[], None]:
    folder = tmp_path / "gone"
    folder.mkdir(exist_ok=True)

    def enter() -> None:
        os.chdir(folder)
        folder.rmdir()

    return enter


@pytest.mark.parametrize("with_root", [True, False])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_removed_working_directory_does_not_switch_the_rules_off(
    project: Path, tmp_path: Path, agent: str, *, with_root: bool
) -> None:
    words = command(project, agent) if with_root else command(project, agent)[:-2]
    for cwd in (str(tmp_path / "gone"), str(project), "", 7):
        raw = json.dumps(call(agent, FORBIDDEN, cwd=cwd)).encode()
        process = start(
            words, preexec_fn=in_removed_folder(project, tmp_path), env={"HOME": str(tmp_path)}
        )
        code, out, _ = finished(process, raw)
        assert refuses(agent, code, out), (cwd, out)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"HOME": ""},
        {"HOME": "/nonexistent"},
        {"HOME": "relative"},
        {"HOME": "/dev/null"},
        {"HOME": "/proc"},
        {"HOME": "/", "TMPDIR": "/nonexistent", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"SWITCHGEAR_STORE": "redis://127.0.0.1:1/0"},
        {"SWITCHGEAR_STORE": "nonsense://"},
        {"SWITCHGEAR_STORE": "sqlite:////proc/x/state.db"},
        {"SWITCHGEAR_CONFIG": "/nonexistent.yaml"},
        {"SWITCHGEAR_CONFIG": "/proc/self/mem"},
        {"XDG_STATE_HOME": "/dev/null/x"},
        {"CLAUDE_PROJECT_DIR": "/nonexistent"},
        {"SWITCHGEAR_TIME": "x", "SWITCHGEAR_WATCHED": "1", "SWITCHGEAR_STORY": "../x"},
    ],
    ids=repr,
)
def test_no_environment_switches_the_rules_off(
    project: Path, way: str, env: dict[str, str]
) -> None:
    if way == "resident":  # in the test's own state folder, not in the user's
        env = {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"], **env}
    else:
        env = {RESIDENT_VARIABLE: "off", **env}
    for words in (command(project), command(project)[:-2]):
        for _ in range(2):
            raw = json.dumps({**before("Bash", FORBIDDEN), "cwd": str(project)}).encode()
            code, out, _ = finished(start(words, env=env, cwd=project), raw)
            assert refuses("claude-code", code, out), out


def test_a_project_that_cannot_be_written_is_guarded_by_the_rules(project: Path) -> None:
    (project / ".switchgear").write_text("a file in the place of the folder")
    ran = hook(project, before("Bash", FORBIDDEN))
    assert ran.told["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.parametrize(
    "limit",
    [
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_FSIZE, 4096),
        (resource.RLIMIT_NOFILE, 8),
        (resource.RLIMIT_NPROC, 0),
    ],
    ids=["no files", "small files", "few files open", "no threads"],
)
def test_limits_of_the_process_do_not_admit(project: Path, limit: tuple[int, int]) -> None:
    def limited() -> None:
        resource.setrlimit(limit[0], (limit[1], limit[1]))

    for _ in range(3):
        process = start(command(project), preexec_fn=limited)
        code, out, _ = finished(process, json.dumps(before("Bash", FORBIDDEN)).encode())
        assert refuses("claude-code", code, out)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to the limit")
@pytest.mark.parametrize("megabytes", [24, 32, 40, 60, 120])
def test_running_out_of_memory_does_not_admit(project: Path, megabytes: int) -> None:
    hook(project, before("Bash", {"command": "make"}))

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    long = "rm -rf /etc; " + "echo x; " * 100_000
    process = start(installed(project), preexec_fn=limited)
    out, _ = process.communicate(json.dumps(before("Bash", {"command": long})).encode(), PATIENCE_S)
    assert refuses("claude-code", process.returncode, out)


def test_a_hook_that_cannot_start_or_is_killed_refuses(project: Path, tmp_path: Path) -> None:
    words = command(project)
    for broken in (
        ["/no/such/python", *words[1:]],
        [*words[:3], str(tmp_path / "none.py"), *words[4:]],
        ["/bin/sh", "-c", "kill -KILL $$"],
        ["/bin/sh", "-c", "kill -SEGV $$"],
        ["/bin/false"],
    ):
        line = ["/bin/sh", "-c", shlex.join(broken) + OR_REFUSE]
        done = subprocess.run(line, input=b"{}", capture_output=True, check=False)
        assert done.returncode == 2


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1],
)
def test_a_hook_that_is_ended_by_a_signal_refuses(project: Path, number: signal.Signals) -> None:
    with start(command(project)) as process:
        assert process.stdin is not None
        process.stdin.write(b"{")
        process.stdin.flush()
        status, until_s = Path(f"/proc/{process.pid}/status"), time.monotonic() + PATIENCE_S
        if not status.exists():
            pytest.skip("no /proc here")
        while time.monotonic() < until_s:
            (mask,) = re.findall(r"SigCgt:\s*(\w+)", status.read_text())
            if int(mask, 16) >> signal.SIGXCPU - 1 & 1:
                break  # the last of those that the hook sees to
            time.sleep(0.005)
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 2


# Its own parts


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of Switchgear whose files may be damaged, with a state folder of its own."""
    package = tmp_path / "lib" / "switchgear"
    shutil.copytree(Path(command(tmp_path)[3]).parents[1], package)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return package


def run_copy(
    copied: Path, project: Path, data: Any, agent: str = "claude-code"
) -> tuple[int, bytes, bytes]:
    words = command(project, agent)
    words[3] = str(copied / "hooks" / "entry.py")
    done = subprocess.run(
        words, input=json.dumps(data).encode(), capture_output=True, check=False, timeout=PATIENCE_S
    )
    return done.returncode, done.stdout, done.stderr


DAMAGE = [
    *(f"_hooks/{name}" for name in ("client", "process", "handler", "decide", "hook_config")),
    *(
        f"_hooks/{name}"
        for name in ("inspect_call", "session", "undecided", "command", "open_calls")
    ),
    *("_agents/claude_code/hooks", "_agents/pi/hooks"),
]


DAMAGES = ["raise TypeError('broken')\n", "def (", "import nowhere\n", "raise SystemExit(0)\n"]


@pytest.mark.parametrize("agent", some_of(["claude-code", "pi"], ["claude-code"]))
@pytest.mark.parametrize("damage", some_of(DAMAGES, DAMAGES[:1]))
def test_a_part_that_cannot_be_imported_does_not_admit(
    copied: Path, project: Path, agent: str, damage: str
) -> None:
    for name in DAMAGE:
        part = copied / f"{name}.py"
        whole = part.read_text()
        part.write_text(damage)
        for _ in range(2):
            code, out, err = run_copy(copied, project, call(agent, FORBIDDEN), agent)
            assert refuses(agent, code, out), (name, code, out, err)
        part.write_text(whole)


@pytest.mark.parametrize(
    "part",
    [
        "_rules/rules.py",
        "_rules/effects.py",
        "_stores/sqlite/store.py",
        "_text/redact.py",
        "_core/types.py",
    ],
)
def test_a_part_of_the_core_that_cannot_be_imported_does_not_admit(
    copied: Path, project: Path, part: str
) -> None:
    run_copy(copied, project, before("Bash", {"command": "make"}))
    run_copy(copied, project, before("Bash", {"command": "make"}, "t2"))
    (copied / part).write_text("raise ImportError('broken')\n")
    for _ in range(2):
        code, out, _ = run_copy(copied, project, before("Bash", FORBIDDEN))
        assert refuses("claude-code", code, out)


def test_a_file_of_switchgear_that_cannot_be_read_in_time_does_not_admit(
    copied: Path, project: Path
) -> None:
    """The deadline begins with the process, not with the modules that it imports."""
    entry = copied / "_hooks" / "client.py"
    text = entry.read_text()
    assert text.count("ALARM_S = 13\n") == 1
    entry.write_text(text.replace("ALARM_S = 13\n", "ALARM_S = 2\n"))
    blocks = copied / "_hooks" / "__pycache__" / f"process.{sys.implementation.cache_tag}.pyc"
    blocks.parent.mkdir(exist_ok=True)
    blocks.unlink(missing_ok=True)
    os.mkfifo(blocks)
    code, out, err = run_copy(copied, project, before("Bash", FORBIDDEN))
    assert refuses("claude-code", code, out)
    assert b"no answer after 2 s" in err


def test_slow_work_after_the_answer_of_a_hook_refuses_nothing(copied: Path, project: Path) -> None:
    client = copied / "_hooks" / "client.py"
    text = client.read_text()
    start = "def _start_resident() -> None:\n"
    assert (text.count("ALARM_S = 13\n"), text.count(start)) == (1, 1)
    text = text.replace("ALARM_S = 13\n", "ALARM_S = 7\n")
    client.write_text(text.replace(start, f"{start}    time.sleep(8)\n"))
    assert run_copy(copied, project, before("Bash", {"command": "make"})) == (0, b"", b"")


def test_an_event_that_is_not_before_a_tool_is_never_refused_by_the_last_resort(
    copied: Path, project: Path
) -> None:
    (copied / "_hooks" / "handler.py").write_text("raise TypeError('broken')\n")
    code, _, _ = run_copy(copied, project, before())
    assert code == 2
    (copied / "_hooks" / "handler.py").write_text(
        "def overdue(*_): ...\ndef answer(*_): raise TypeError('broken')\n"
    )
    assert run_copy(copied, project, after())[0] == 0
    assert run_copy(copied, project, claude("Stop"))[0] == 0
    assert run_copy(copied, project, before())[0] == 2


def test_unknown_arguments_refuse(project: Path) -> None:
    for words in (
        [],
        ["vim"],
        ["claude-code", "--root"],
        ["claude-code", "--plain"],
        ["claude-code", "--rot", "x"],
    ):
        done = subprocess.run(
            [*command(project)[:4], *words],
            input=json.dumps(before()).encode(),
            capture_output=True,
            check=False,
        )
        assert done.returncode == 2, words


TWICE = [
    (b'"command": "rm -rf /etc"', b'"command": "rm -rf /etc", "command": "ls"'),
    (b'"command": "rm -rf /etc"', b'"command": "rm -rf /etc", "\\u0063ommand": "ls"'),
    (b'"tool_input": {', b'"tool_input": {"command": "ls"}, "tool_input": {'),
    (b'"PreToolUse"', b'"PreToolUse", "hook_event_name": "PostToolUse"'),
    (b'"tool_name": "Bash"', b'"tool_name": "Bash", "tool_name": "Read"'),
    (b'"cwd":', b'"cwd": "/", "cwd":'),
]


@pytest.mark.parametrize(("found", "instead"), TWICE, ids=[repr(pair[1]) for pair in TWICE])
def test_a_duplicate_key_is_refused(project: Path, found: bytes, instead: bytes) -> None:
    """Parsers of JSON disagree about which of the values counts."""
    raw = json.dumps(before("Bash", FORBIDDEN)).encode()
    assert raw.count(found) == 1
    ran = hook(project, raw.replace(found, instead))
    assert refuses("claude-code", ran.code, ran.stdout.encode())
    assert "twice in one object" in ran.stdout + ran.stderr
