"""Asking Codex which hooks it trusts: it skips the others without a word.

Trust is the user's to give, by a review inside Codex; we only ask. Codex answers in JSON lines to
those who speak its app-server protocol.
"""

import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any, NamedTuple

WAIT_S = 20.0


class Trust(NamedTuple):
    """What Codex says of our hooks."""

    asked: bool
    """Whether Codex could be asked at all."""
    seen: int = 0
    """How many commands of ours it has found."""
    trusted: int = 0


def ask_codex(program: str, folder: str, commands: Iterable[str], home: str) -> Trust:
    """How many of the commands Codex sees, and trusts, in a folder. Never raises.

    A `home` (`~/.codex`) in which nothing is configured is left as it is: Codex would fill it, so
    it answers in a copy, which is thrown away.
    """
    if os.path.exists(os.path.join(home, "config.toml")):
        return _asked(program, folder, commands, home)
    try:
        copy = tempfile.mkdtemp()
    except OSError:  # no place for it: the disk is full, or nothing may be written
        return Trust(asked=False)
    try:
        with suppress(OSError):
            shutil.copy(os.path.join(home, "hooks.json"), copy)
        return _asked(program, folder, commands, copy)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _asked(program: str, folder: str, commands: Iterable[str], home: str) -> Trust:
    requests = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": _CLIENT}},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [folder]}},
    ]
    try:
        process = subprocess.Popen(  # noqa: S603  found by its name, as a shell does
            [program, "app-server"],
            cwd=folder,
            env={**os.environ, "CODEX_HOME": home},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError:
        return Trust(asked=False)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines(json.dumps(request) + "\n" for request in requests)
        process.stdin.flush()
        answer = _answer(process.stdout, 2, time.monotonic() + WAIT_S)
    except OSError:
        answer = None
    finally:
        process.kill()
        process.communicate()
    return Trust(asked=False) if answer is None else _counted(answer, set(commands))


_CLIENT = {"name": "switchgear", "title": "Switchgear", "version": "1"}


def _answer(lines: IO[str], number: int, until_s: float) -> Any:
    """The result of a request; `None`: there was none in time."""
    found: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in lines:
            found.put(line)
        found.put(None)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        try:
            line = found.get(timeout=max(0.0, until_s - time.monotonic()))
            told = None if line is None else json.loads(line)
        except (queue.Empty, ValueError):
            return None
        if told is None or (isinstance(told, dict) and told.get("id") == number):
            return None if told is None else told.get("result")


def _counted(answer: Any, commands: set[str]) -> Trust:
    try:
        hooks = [hook for folder in answer["data"] for hook in folder["hooks"]]
        ours = [hook for hook in hooks if hook["command"] in commands and hook["enabled"]]
        trusted = sum(hook["trustStatus"] == "trusted" or hook["isManaged"] for hook in ours)
    except (KeyError, TypeError):
        return Trust(asked=False)
    return Trust(asked=True, seen=len(ours), trusted=trusted)
