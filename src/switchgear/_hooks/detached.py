"""Runs a module of this package in a background process: see `start_detached`.

It runs as `python -I -S …/detached.py …/MODULE.py FOLDER ARGUMENT…`, starts a new session, and calls the
module's `main` with the arguments from the module's path on.
"""

import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def start_detached(module: str, folder: str, *arguments: str, stdin: bytes = b"") -> None:
    """Start a module of this package for a folder, and return at once. Raises OSError.

    The process has the same environment and no terminal; `stdin` is its standard input.
    """
    python = sys.executable
    script, path = (os.path.join(_HERE, f"{name}.py") for name in ("detached", module))
    command = [python, "-I", "-S", script, path, folder, *arguments]
    null_streams = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    if not stdin:
        os.waitpid(os.posix_spawn(python, command, os.environ, file_actions=null_streams), 0)
        return
    read_end, write_end = os.pipe()
    with open(write_end, "wb") as pipe:
        try:
            actions = [*null_streams, (os.POSIX_SPAWN_DUP2, read_end, 0)]
            child = os.posix_spawn(python, command, os.environ, file_actions=actions)
        finally:
            os.close(read_end)
        pipe.write(stdin)
    os.waitpid(child, 0)


def _main(words: list[str]) -> int:
    from importlib import import_module  # noqa: PLC0415  not in a process that only starts one

    package: Any = type(sys)("switchgear")
    package.__path__ = [os.path.dirname(_HERE)]
    sys.modules["switchgear"] = package
    name = os.path.basename(words[0]).removesuffix(".py")
    return int(import_module(f"switchgear._hooks.{name}").main(words))


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # ends the wait of `start_detached`
    os.setsid()
    sys.exit(_main(sys.argv[1:]))
