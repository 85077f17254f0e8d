"""Runs the command `switchgear` in real processes that need not import it first.

A server imports the command once and forks for each call. The fork has its own process id, working
directory, environment and files, runs `main` and ends as any process does. Starting Python anew
takes five times the CPU time, and end-to-end tests call the command hundreds of times.
"""

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

import switchgear
from timeouts import LIMIT_S

_LARGEST = 1 << 20
_FILES = 4
"""Standard input, output and error, and a pipe for the process id and the exit code."""
_LOCALE = {"LC_ALL", "LC_CTYPE", "PYTHONIOENCODING", "PYTHONWARNINGS", "PYTHONPATH"}
"""Variables that Python reads when it starts."""


def run(
    *words: str, cwd: Path, env: dict[str, str], given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `switchgear` with these arguments; what it printed, and its exit code."""
    if _LOCALE & env.keys() or env.get("LANG", "C.UTF-8") != "C.UTF-8":
        return _started(words, cwd, env, given)
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        stdin.write((given or "").encode())
        stdin.seek(0)
        code = _ask(words, cwd, env, [file.fileno() for file in (stdin, out, err)])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess(words, code, *texts)


def _started(
    words: tuple[str, ...], cwd: Path, env: dict[str, str], given: str | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "switchgear", *words],
        cwd=cwd,
        env=env,
        input=given or "",
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def _ask(words: tuple[str, ...], cwd: Path, env: dict[str, str], files: list[int]) -> int:
    ours, theirs = os.pipe()
    try:
        request = json.dumps({"words": words, "cwd": str(cwd), "env": env}).encode()
        server = _server()
        handed = array.array("i", [*files, theirs])
        server.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed)])
    finally:
        os.close(theirs)
    told = b""
    try:
        while select.select([ours], [], [], LIMIT_S)[0]:
            data = os.read(ours, 100)
            told += data
            if not data:
                pid, _, code = told.decode().partition(" ")
                assert code, "the command ended without an exit code"
                return int(code)
    finally:
        os.close(ours)
    pid = told.decode().partition(" ")[0]
    if pid:
        os.kill(int(pid), signal.SIGKILL)
    raise subprocess.TimeoutExpired(list(words), LIMIT_S)


_running: dict[int, socket.socket] = {}


def _server() -> socket.socket:
    """The connection to the server of this process, which is started with the first call."""
    if os.getpid() not in _running:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.environ["PATH"], "PYTHONUTF8": "1"},
        )
        theirs.close()
        _running[os.getpid()] = ours
        atexit.register(process.wait)
        atexit.register(ours.close)  # the server ends with the connection
    return _running[os.getpid()]


def _serve(connection: socket.socket) -> None:
    """Fork for each request; returns in the process that is the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who waits for the command is not waited for
    while True:
        size = array.array("i").itemsize * _FILES
        data, attached, _, _ = connection.recvmsg(_LARGEST, socket.CMSG_SPACE(size))
        if not data:
            os._exit(0)
        files = array.array("i")
        files.frombytes(attached[0][2][:size])
        if os.fork() == 0:
            connection.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(json.loads(data), list(files))
            return
        for file in files:
            os.close(file)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Wait for the fork that became the command, send its exit code, and end."""
    *streams, status = files
    pid = os.fork()
    if pid:
        for file in streams:
            os.close(file)
        os.write(status, f"{pid} ".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, str(code).encode())
        os._exit(0)
    os.close(status)
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv[1:] = request["words"]


def _call() -> int:
    """The exit code of the command."""
    from switchgear._cli import main  # noqa: PLC0415

    try:
        main(prog_name="switchgear")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)  # noqa: T201
    except BaseException:
        traceback.print_exc()
    return 1


def _end_with(code: int) -> None:
    """End as Python does, but do not tear down the modules: that takes most of the time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _import_all() -> None:
    """Import what the verbs import when they are called; test_lazy_imports.py does so in order."""
    ours = [
        found.name
        for found in pkgutil.walk_packages(switchgear.__path__, "switchgear.", onerror=_missing)
        if not found.name.endswith("__main__") and ".integrations." not in found.name
    ]
    for name in [*ours, "redis.asyncio", "redis.cluster"]:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            _missing(name, error)


def _compile_templates() -> None:
    """Compile the pages that runs write: that takes half the CPU time of a short run."""
    templates = importlib.import_module("switchgear._report.environment")._environment()
    for name in templates.list_templates(extensions=["html"]):
        templates.get_template(name)


def _missing(name: str, error: BaseException | None = None) -> None:
    """Pass over a module whose extra is not installed."""
    error = error or sys.exc_info()[1]
    if not isinstance(error, ModuleNotFoundError) or str(error.name).startswith("switchgear"):
        raise RuntimeError(f"{name} cannot be imported") from error


if __name__ == "__main__":
    _import_all()
    _compile_templates()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    _end_with(_call())
