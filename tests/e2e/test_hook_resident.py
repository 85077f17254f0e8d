"""The resident process: permissions, when it ends, and how events are handled when it is killed."""

import http.client
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from depth import scaled
from e2e.hook_process import PATIENCE_S, command, stop_residents
from golden import hook_replies
from rules.evasions import evasions
from rules.harmless import COMMANDS
from switchgear._agents.command import CommandAgent
from switchgear._agents.hook_protocol import PROJECT
from switchgear._agents.process import MARK, AgentProcess, ProcessEnd
from switchgear._cli import doctor
from switchgear._hooks import client, handler, resident
from switchgear._hooks.command import AGENTS
from switchgear._hooks.install.settings import HOOKED, PluginFile
from switchgear._hooks.process import open_store, respond
from switchgear._hooks.server import HookServer
from switchgear._hooks.session import Notes, note_name
from switchgear._stores.sqlite import SqliteStore
from timeouts import LIMIT_S
from trusted_config import write_config
from unit.hook_calls import after, before, claude

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder with a resident process of its own."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.setenv(client.RESIDENT_VARIABLE, "60")
    yield folder
    stop_residents(folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    return project


def run(project: Path, data: Any, **environ: str) -> tuple[int, bytes, bytes]:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    done = subprocess.run(
        command(project),
        input=raw,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        env={**os.environ, **environ},
    )
    return done.returncode, done.stdout, done.stderr


def running() -> dict[str, Any]:
    """The facts about the resident process, started if there is none."""
    until_s = time.monotonic() + PATIENCE_S
    start_s = 0.0
    while (found := resident.status()) is None:
        if time.monotonic() >= start_s:  # one that was killed may hold its lock for a moment
            assert resident.start()
            start_s = time.monotonic() + 5.0
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return found


def folder_of(state: Path) -> Path:
    return state / "switchgear" / "run"


def test_the_first_hook_starts_it_and_the_next_use_it(state: Path, project: Path) -> None:
    assert run(project, before()) == (0, b"", b"")
    found = running()
    assert found["version"]
    until_s = time.monotonic() + PATIENCE_S
    while True:  # on a loaded machine a hook that gets no answer in time decides for itself
        assert run(project, after()) == (0, b"", b"")
        later = running()
        assert later["pid"] == found["pid"]
        if later["events"] >= found["events"] + 1:
            break
        assert time.monotonic() < until_s, "no hook was answered by the resident process"
    assert folder_of(state).stat().st_mode & 0o777 == 0o700
    until_s = time.monotonic() + PATIENCE_S
    while not workers(state):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    for file in folder_of(state).iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file


def test_only_one_runs(state: Path) -> None:
    pids = {running()["pid"] for _ in range(5) if resident.start()}
    assert len(pids) == 1


def test_the_resident_process_can_be_stopped_and_started_again(state: Path) -> None:
    first = running()["pid"]
    assert resident.stop()
    assert resident.status() is None
    assert running()["pid"] != first


def test_the_resident_process_ends_without_events(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(client.RESIDENT_VARIABLE, "1")
    pid = running()["pid"]
    until_s = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until_s
        time.sleep(0.1)


def test_the_resident_process_ends_when_its_socket_is_removed(state: Path) -> None:
    pid = running()["pid"]
    for file in folder_of(state).iterdir():
        file.unlink()
    until_s = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until_s
        time.sleep(0.1)


def test_a_folder_that_others_can_use_is_not_used(state: Path, project: Path) -> None:
    pid = running()["pid"]
    folder_of(state).chmod(0o777)
    assert resident.status() is None
    assert (
        run(project, before("Bash", {"command": "rm -rf /etc"}))[1].count(b"deletes/outside") == 1
    )
    assert folder_of(state).stat().st_mode & 0o777 == 0o700, "the next one is private"
    assert running()["pid"] == pid


def test_a_link_in_the_place_of_the_folder_is_not_followed(state: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    folder_of(state).parent.mkdir(parents=True)
    folder_of(state).symlink_to(tmp_path / "other")
    assert not resident.start()
    assert "switchgear/run" in resident.obstacle()


def test_a_socket_of_another_user_is_not_used(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running()
    found = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: found + 1)
    assert client.connect(str(folder_of(state))) is None


def test_a_process_of_another_user_at_the_socket_is_reported_and_not_used(
    state: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running()
    assert resident.obstacle() == ""
    monkeypatch.setattr(client, "peer_credentials", lambda _: (os.getpid(), os.geteuid() + 1))
    assert resident.status() is None
    assert f"another user ({os.geteuid() + 1})" in resident.obstacle()
    (found,) = doctor.resident_process()
    assert "hooks decide without a resident process" in found.what
    assert "another user" in found.what


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_event_is_sent_to_a_real_process_of_another_user(state: Path, project: Path) -> None:
    folder_of(state).mkdir(mode=0o700, parents=True)
    opened = client.open_folder(str(folder_of(state)))
    got, sent = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(client.address(opened, str(folder_of(state)), client.socket_name()))
        child = os.fork()
        if not child:
            try:
                os.setuid(65534)
                listener.listen(5)  # the system notes the user now
                os.write(sent, b"listens")
                while True:
                    line, _ = listener.accept()
                    line.sendall(client.READY)
                    os.write(sent, line.recv(100))
            finally:
                os._exit(0)
        os.close(opened)
    os.close(sent)
    try:
        assert os.read(got, 7) == b"listens"
        assert "belongs to another user (65534)" in resident.obstacle()
        assert b"deletes/outside" in run(project, before("Bash", {"command": "rm -rf /etc"}))[1]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert os.read(got, 100) == b""
    os.close(got)


def test_each_installation_interpreter_and_mount_namespace_has_its_own_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {client.socket_name()}
    with monkeypatch.context() as patched:
        patched.setattr(client, "__file__", "/elsewhere/switchgear/_hooks/client.py")
        names.add(client.socket_name())
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/elsewhere/bin/python3")
        names.add(client.socket_name())
    with monkeypatch.context() as patched:
        patched.setattr(os, "readlink", lambda _: "mnt:[1]")
        names.add(client.socket_name())
    assert len(names) == 4


@pytest.mark.parametrize("user", ["peer", "nobody"])
def test_a_peer_of_another_user_or_root_folder_is_not_served(
    user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = socket.socketpair(socket.AF_UNIX)
    with ours, other:
        assert resident._served_peer(ours) == os.getpid()
        if user == "peer":
            found = os.geteuid()
            monkeypatch.setattr(os, "geteuid", lambda: found + 1)
        else:
            monkeypatch.setattr(os.path, "samestat", lambda *_: False)
        assert resident._served_peer(ours) == 0


def test_a_path_that_is_too_long_for_a_socket_works(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    monkeypatch.setenv("XDG_STATE_HOME", str(long))
    try:
        assert running()["pid"]
        assert run(project, before()) == (0, b"", b"")
        assert running()["events"] >= 2
    finally:
        stop_residents(long)


def test_without_a_folder_for_the_socket_hooks_decide_themselves(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert not resident.start()
    assert "file/switchgear/run" in resident.obstacle()
    assert run(project, before("Bash", {"command": "rm -rf /etc"}))[1].count(b'"deny"') == 1


def test_the_runtime_folder_stands_in_for_a_state_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = running()
    assert found["folder"] == str(tmp_path / "switchgear")
    os.kill(found["pid"], signal.SIGKILL)


def test_a_resident_process_that_is_suspended_costs_only_time(state: Path, project: Path) -> None:
    run(project, before("Bash", {"command": "make"}))
    pid = running()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        assert b"deletes/outside" in run(project, before("Bash", {"command": "rm -rf /etc"}))[1]
        assert time.monotonic() - began_s < client.ALARM_S
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_resident_process_that_is_suspended_is_reported_and_restarted(state: Path) -> None:
    pid = running()["pid"]
    os.kill(pid, signal.SIGSTOP)
    (found,) = doctor.resident_process()
    assert f"process {pid} does not respond" in found.what
    assert "switchgear hooks restart" in found.to_do
    assert resident.stop(0.2)
    assert resident.unresponsive() is None
    assert running()["pid"] != pid


@contextmanager
def dying_worker(project: Path) -> Iterator[None]:
    """A worker that decides one event, and is killed between the commit and the response."""
    folder = folder_of(Path(os.environ["XDG_STATE_HOME"]))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / client.socket_name()
    lock = resident._lock(str(folder), client.socket_name())
    assert lock is not None, "the hook must not start a resident process"
    listener = socket.socket(socket.AF_UNIX)
    opened = client.open_folder(str(folder))
    listener.bind(client.address(opened, str(folder), file.name))
    os.close(opened)
    listener.listen(1)

    def serve() -> None:
        line, _ = listener.accept()
        with line:
            line.sendall(client.READY)
            sizes = client.read_exactly(line, 16)
            words = client.read_exactly(line, int(sizes[:8], 16)).split(b"\0")
            raw = client.read_exactly(line, int(sizes[8:], 16))
            agent, event = words[0].decode(), words[3].decode()
            respond(
                *(agent, str(project), raw, time.monotonic(), lambda *_: 0), event=event, caller=0
            )

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        listener.close()
        file.unlink()
        os.close(lock)


def test_an_event_whose_process_is_killed_before_it_responds_counts_once(
    state: Path, project: Path
) -> None:
    refused = before("Bash", {"command": "rm -rf /etc"}, "r")
    denied = run(project, refused, **{client.RESIDENT_VARIABLE: "off"})
    assert b"deny" in denied[1]
    store = SqliteStore(project / ".switchgear" / "state.db")

    def signals(circuit: str) -> int:
        found = store.get(circuit)
        return 0 if found is None else sum(found.circuit.totals)

    rules = signals("rules")
    for number, call in enumerate(
        (
            before("Bash", {"command": "ls"}, "1"),
            after("Bash", {"command": "ls"}, "1"),
            after("Bash", {"command": "unannounced"}, "2"),
            refused,
        )
    ):
        with dying_worker(project):
            assert run(project, call) == (denied if call is refused else (0, b"", b""))
        assert signals("op/shell") == (0, 1, 2, 2)[number]
    assert signals("rules") == 2 * rules


def test_an_invalid_request_does_not_affect_it(state: Path, project: Path) -> None:
    pid = running()["pid"]
    chance = random.Random(5)
    bad = [
        b"",
        b"\0" * 16,
        b"ffffffffffffffff",
        b"0000000400000000abcd",
        b"0000000100000001",
        b"00000000zzzzzzzz",
        *(chance.randbytes(chance.randrange(200)) for _ in range(20)),
    ]
    for data in bad:
        line = client.connect(str(folder_of(state)))
        assert line is not None
        line.settimeout(PATIENCE_S)
        try:
            while line.recv(1) == client.QUEUED:
                pass
            with suppress(ConnectionError):  # it closes without reading the rest
                line.sendall(data)
                line.shutdown(socket.SHUT_WR)
                assert line.recv(100) == b""
        finally:
            line.close()
    assert running()["pid"] == pid
    assert run(project, before()) == (0, b"", b"")


def test_each_event_is_decided_with_its_own_environment(state: Path, tmp_path: Path) -> None:
    running()
    for name in ("one", "two"):
        project = tmp_path / name
        (project / ".git").mkdir(parents=True)
        (tmp_path / f"store-{name}").mkdir()
        url = f"sqlite:///{tmp_path}/store-{name}/state.db"
        assert run(project, before(), SWITCHGEAR_STORE=url, HOME=str(tmp_path)) == (0, b"", b"")
        assert run(project, after(), SWITCHGEAR_STORE=url, HOME=str(tmp_path)) == (0, b"", b"")
        found = SqliteStore(tmp_path / f"store-{name}" / "state.db").get("op/shell")
        assert found is not None
        assert found.circuit.totals.succeeded == 1


def workers(state: Path) -> list[Path]:
    return [each for each in folder_of(state).iterdir() if each.is_socket() and "-" in each.name]


def worker_pid(state: Path) -> int:
    """The process of the only worker."""
    (file,) = workers(state)
    folder = os.open(folder_of(state), os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"/proc/self/fd/{folder}/{file.name}")
        peer = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    os.close(folder)
    return int.from_bytes(peer[:4], sys.byteorder)


def test_a_worker_answers_the_next_events_of_a_project(state: Path, project: Path) -> None:
    running()
    assert run(project, before()) == (0, b"", b"")
    until_s = time.monotonic() + PATIENCE_S
    while not workers(state):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    events = running()["events"]
    for number in range(3):
        assert run(project, after(call=f"t{number}")) == (0, b"", b"")
    assert b"deletes/outside" in run(project, before("Bash", {"command": "rm -rf /etc"}))[1]
    assert running()["events"] <= events + 2, "the worker answered them"
    pid = worker_pid(state)
    time.sleep(resident.FILES_CHECK_S)
    run(project, before(call="later"))
    assert worker_pid(state) == pid, "no file has changed"
    run(project, before(), OTHER="x")
    time.sleep(0.5)
    assert len(workers(state)) == 2, "another environment has another worker"


def test_a_worker_that_hangs_or_is_killed_costs_only_time(state: Path, project: Path) -> None:
    running()
    run(project, before())
    time.sleep(0.5)
    pid = worker_pid(state)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert b"deletes/outside" in run(project, before("Bash", {"command": "rm -rf /etc"}))[1]
    finally:
        os.kill(pid, signal.SIGKILL)
    for _ in range(3):
        assert b"deletes/outside" in run(project, before("Bash", {"command": "rm -rf /etc"}))[1]
        time.sleep(0.2)
    assert worker_pid(state) != pid, "its socket was taken over"


def test_a_worker_uses_the_store_that_is_there_now(state: Path, project: Path) -> None:
    running()
    for number in range(3):
        assert run(project, before(call=f"t{number}")) == (0, b"", b"")
        time.sleep(0.2)
    (project / ".switchgear").rename(project.parent / "moved")
    assert run(project, before(call="new")) == (0, b"", b"")
    assert run(project, after(call="new")) == (0, b"", b"")
    found = SqliteStore(project / ".switchgear" / "state.db").get("op/shell")
    assert found is not None
    assert found.circuit.totals.succeeded == 1


def test_a_worker_ends_with_the_resident_process(state: Path, project: Path) -> None:
    pid = running()["pid"]
    run(project, before())
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert b"deletes/outside" in run(project, before("Bash", {"command": "rm -rf /etc"}))[1]
    assert running()["pid"] != pid


EVENTS = [
    claude("SessionStart", source="startup"),
    claude("UserPromptSubmit", prompt="go"),
    before("Bash", {"command": "ls"}),
    after("Bash", {"command": "ls"}),
    before("Bash", {"command": "rm -rf /etc"}, "t2"),
    before("Bash", {"command": "switchgear reset x"}, "t3"),
    before("Bash", {"command": "echo \0"}, "t4"),
    before("Write", {"file_path": "/etc/passwd", "content": "x"}, "t5"),
    claude("MadeUp"),
    claude("Stop"),
    claude("SessionEnd", reason="other"),
]


def test_the_resident_process_and_the_hook_give_the_same_response(
    state: Path, tmp_path: Path
) -> None:
    running()
    found: list[list[tuple[int, bytes, bytes]]] = []
    for switch in ("60", "off"):
        project = tmp_path / "same"  # texts contain the path
        (project / ".git").mkdir(parents=True)
        raw = [b"", b"{", *(json.dumps({**each, "cwd": str(project)}).encode() for each in EVENTS)]
        found.append([run(project, each, **{client.RESIDENT_VARIABLE: switch}) for each in raw])
        project.rename(tmp_path / f"done-{switch}")
    assert found[0] == found[1]


@pytest.mark.timeout(300)
def test_no_event_is_lost_or_counted_twice_when_it_is_killed(state: Path, project: Path) -> None:
    run(project, before("Bash", {"command": "make"}, "first"))
    chance = random.Random(3)
    rounds, at_once = 6, 4
    for number in range(rounds):
        running()
        calls = [before("Read", {"file_path": f"{n}"}, f"{number}-{n}") for n in range(at_once)]
        processes = [
            subprocess.Popen(
                command(project), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
            )
            for _ in calls
        ]
        for process, call in zip(processes, calls, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps({**call, "session_id": f"k{number}"}).encode())
            process.stdin.close()
            process.stdin = None
        time.sleep(chance.random() * 0.15)
        found = resident.status()
        if found is not None:
            os.kill(found["pid"], signal.SIGKILL)
        for process in processes:
            out, _ = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, out) == (0, b"")
    ends = [
        {**after("Read", {"file_path": f"{n}"}, f"{number}-{n}"), "session_id": f"k{number}"}
        for number in range(rounds)
        for n in range(at_once)
    ]
    for end in ends:
        assert run(project, end)[0] == 0
    read = SqliteStore(project / ".switchgear" / "state.db").get("op/file_read")
    assert read is not None
    totals = read.circuit.totals
    assert totals.succeeded + totals.failed + totals.late == rounds * at_once


def test_the_client_accepts_as_much_input_as_the_handler() -> None:
    assert client.MAX_INPUT_BYTES == handler.MAX_INPUT_BYTES


# What else uses it


def test_the_resident_process_gets_no_secrets_and_no_mark_of_a_run(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-real-one")
    monkeypatch.setenv(MARK, "some run")
    environ = Path(f"/proc/{running()['pid']}/environ").read_bytes()
    assert b"sk-not-a-real-one" not in environ
    assert MARK.encode() not in environ


@pytest.mark.parametrize("agent", ["opencode", "pi"])
def test_the_plugins_start_a_client_of_it(
    state: Path, project: Path, tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    events = running()["events"]
    plugin = PluginFile(HOOKED[agent], PROJECT, str(project))
    plugin.install()
    (line,) = {shlex.split(each)[0]: each for each in plugin.commands().values()}.values()
    asked = {"tool": "bash", "sessionID": "s1", "callID": "c1"}
    args = {"command": "rm -rf /etc"}
    data: dict[str, Any] = {"k": "tool.execute.before", "input": asked, "output": {"args": args}}
    if agent == "pi":
        call = {"toolName": "bash", "toolCallId": "c1", "input": args}
        data = {"k": "tool_call", "event": call, "session": "s1"}
    done = subprocess.run(
        shlex.split(line), input=json.dumps(data).encode(), capture_output=True, check=True
    )
    assert json.loads(done.stdout)["action"] == "deny"
    assert running()["events"] > events, "the resident process decided it"


@contextmanager
def serving(project: Path) -> Iterator[HookServer]:
    """The server of `switchgear serve`, without its terminal."""
    server = HookServer(str(project), "a-token-for-this-test", open_store, ask=resident.ask)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def post(server: HookServer, data: Any) -> Any:
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    head = {"Authorization": "Bearer a-token-for-this-test"}
    line.request("POST", "/hooks/claude-code", raw, head)
    response = line.getresponse()
    assert response.status == 200
    found = json.loads(response.read())
    line.close()
    return found


def test_a_posted_event_is_decided_the_same_with_and_without_it(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[Any]] = []
    for switch in ("60", "off"):
        monkeypatch.setenv(client.RESIDENT_VARIABLE, switch)
        if switch != "off":
            running()
        project = tmp_path / "same"
        (project / ".git").mkdir(parents=True)
        with serving(project) as server, monkeypatch.context() as patched:
            if switch != "off":  # it has to be decided elsewhere
                patched.delattr("switchgear._hooks.server.answer")
            found.append([post(server, {**each, "cwd": str(project)}) for each in EVENTS])
            found[-1].append(post(server, b"{"))
        project.rename(tmp_path / f"done-{switch}")
    assert found[0] == found[1]


def test_a_posted_session_is_watched_by_it_without_a_process(state: Path, project: Path) -> None:
    running()
    with serving(project) as server:
        assert post(server, claude("UserPromptSubmit", prompt="go")) == {}
        until_s = time.monotonic() + PATIENCE_S
        while not running()["sessions"]:
            assert time.monotonic() < until_s
            time.sleep(0.05)
    (found,) = running()["sessions"]
    assert found == {"session": "s1", "root": str(project), "pid": None}
    store = SqliteStore(project / ".switchgear" / "state.db")
    while True:
        note = store.transact(note_name("s1"), lambda inside: inside.note)
        if Notes.load(note).watcher == running()["pid"]:
            break
        assert time.monotonic() < until_s
        time.sleep(0.1)


def test_a_posted_event_is_decided_when_it_is_killed(state: Path, project: Path) -> None:
    refused = before("Bash", {"command": "rm -rf /etc"})
    with serving(project) as server:
        for _ in range(3):
            os.kill(running()["pid"], signal.SIGKILL)
            assert post(server, refused)["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_serve_starts_it(state: Path, project: Path) -> None:
    line = [sys.executable, "-m", "switchgear", "serve", "--port", "0"]
    with subprocess.Popen(line, cwd=project, stdout=subprocess.PIPE) as server:
        try:
            until_s = time.monotonic() + PATIENCE_S
            while resident.status() is None:
                assert time.monotonic() < until_s
                time.sleep(0.05)
        finally:
            server.terminate()
        assert server.wait(PATIENCE_S) == 0
    assert resident.status() is not None, "it does not end with the server"


def test_a_run_neither_ends_nor_waits_for_the_one_its_agent_has_started(
    state: Path, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "event.json").write_text(json.dumps({**before(), "cwd": str(project)}))
    hook_line = shlex.join(command(project))
    # Once it is there, the agent ends, and leaves another process that the run must end.
    script = (
        f"{hook_line} < {tmp_path}/event.json; "
        f"until ls {folder_of(state)}/* | grep -v lock; do sleep 0.05; done; "
        f"sleep 1000 & echo $! > {tmp_path}/other; "
    )
    run = AgentProcess(CommandAgent(f"sh -c {shlex.quote(script)}"), "", project, grace_s=60.0)
    done = run.run()
    assert (done.end, done.exit_code) == (ProcessEnd.EXITED, 0)
    found = resident.status()
    assert found is not None, "the run has not ended it"
    assert done.duration_s < 60.0 + LIMIT_S
    other = int((tmp_path / "other").read_text())
    assert not Path(f"/proc/{other}").exists()


def test_a_process_that_only_shares_its_name_is_ended_with_the_run(tmp_path: Path) -> None:
    script = Path(resident.__file__)
    words = [shlex.quote(each) for each in (sys.executable, "-c", "import time; time.sleep(99)")]
    line = f"{' '.join(words)} -I -S {script} & echo $! > {tmp_path}/other"
    AgentProcess(CommandAgent(f"sh -c {shlex.quote(line)}"), "", tmp_path).run()
    assert not Path(f"/proc/{(tmp_path / 'other').read_text().strip()}").exists()


def test_a_worker_notices_a_changed_configuration(state: Path, project: Path) -> None:
    running()
    call = before("Bash", {"command": "deploy now"})
    for number in range(4):
        assert run(project, {**call, "tool_use_id": f"a{number}"}) == (0, b"", b"")
        time.sleep(0.1)
    pid = worker_pid(state)
    write_config(
        project / "switchgear.yaml",
        "rules: {own: [{name: no-deploy, commands: [deploy]}]}\n",
    )
    out = run(project, {**call, "tool_use_id": "b"})[1]
    assert b"no-deploy" in out
    write_config(project / "switchgear.yaml", "rules: {own: []}\n")
    assert b"no-deploy" not in run(project, {**call, "tool_use_id": "c"})[1]
    assert worker_pid(state) == pid


def test_the_resident_process_uses_no_processor_time_while_it_is_idle(
    state: Path, project: Path
) -> None:
    pid = running()["pid"]
    run(project, before())
    time.sleep(1.0)

    def used() -> int:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(word) for word in words[11:15])

    before_ticks = used()
    time.sleep(5.0)
    assert used() - before_ticks <= 1


# Agreement


NO_TIME = """
circuits:
  - match: "session/*"
    policy: {detectors: [consecutive_failures: {threshold: 6}], recovery: latched}
  - match: "*"
    policy: {detectors: [consecutive_failures: {threshold: 8}], recovery: latched}
interventions: {progress: false}
"""
"""A configuration under which no response depends on when an event comes."""


def generated(number: int, project: Path, evasive: list[str]) -> tuple[str, bytes]:
    """An event and its agent, the same for each number."""
    chance = random.Random(number)
    agent = chance.choice(AGENTS)
    rows = hook_replies.EVENTS[agent]
    text = chance.choice(
        (
            *chance.sample(evasive, 2),
            *chance.sample(COMMANDS, 2),
            chance.choice(("ls", "make", "rm -rf /etc", "cat \0", "echo 'ä' \u2028", "x" * 5000)),
        )
    )
    call = chance.randrange(40)
    events = [rows.start(), rows.prompt(), rows.stop(), rows.end(), *rows.more]
    calls = [rows.before(text, call), rows.succeeded(text, call), rows.failed(text, call)]
    data = {**chance.choice((*calls, *calls, *events)), "cwd": str(project)}
    if "session_id" in data:
        data["session_id"] = f"s{chance.randrange(20)}"
    raw = json.dumps(data, ensure_ascii=chance.random() < 0.5).encode()
    if chance.random() < 0.1:  # damaged
        at = chance.randrange(len(raw))
        raw = raw[:at] + chance.choice((b"", b"\xff", b"{", b'"')) + raw[at + chance.randrange(5) :]
    return agent, raw


def response(agent: str, root: str, raw: bytes) -> tuple[int, bytes, bytes, bytes]:
    """The response of a hook that decides in its own process."""
    found: list[tuple[int, bytes, bytes, bytes]] = []

    def write(*reply: Any) -> int:
        found.append(reply)
        return 0

    respond(agent, root, raw, time.monotonic(), write)
    (only,) = found
    return only


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_many_events_get_identical_responses_with_and_without_it(
    state: Path, tmp_path: Path
) -> None:
    """Recorded and generated events, through the client and on the path of a hook without resident."""
    number, evasive = scaled(2_000, 120), evasions()
    found: dict[str, list[Any]] = {"resident": [], "own process": []}
    for way, replies in found.items():
        project = tmp_path / "same"  # texts contain the path
        (project / ".git").mkdir(parents=True)
        write_config(project / "switchgear.yaml", NO_TIME)
        running()
        for each in range(number):
            agent, raw = generated(each, project, evasive)
            line = [*command(project)[:4], agent, "--root", str(project)]
            if each % 10 == 0:  # as processes, with the streams and the exit code
                environ = {
                    **os.environ,
                    client.RESIDENT_VARIABLE: "60" if way == "resident" else "off",
                }
                done = subprocess.run(
                    line, input=raw, capture_output=True, check=False, env=environ, cwd=project
                )
                replies.append((done.returncode, done.stdout, done.stderr))
            elif way == "resident":
                connection = client.open_connection(line[4:])
                assert connection is not None
                replies.append(client.ask(connection, line[4:], raw, time.monotonic()))
            else:
                replies.append(response(agent, str(project), raw))
        project.rename(tmp_path / f"done-{way.replace(' ', '-')}")
    for at, (first, second) in enumerate(zip(*found.values(), strict=True)):
        assert first == second, (at, generated(at, tmp_path / "same", evasive))
    refused = sum(
        b"deny" in b"".join(map(bytes, each[1:3])) or each[0] == 2 for each in found["resident"]
    )
    assert number / 20 < refused < number / 1.2, "both kinds of responses are there"
