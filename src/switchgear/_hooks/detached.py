"""Runs one module of this package in a process that nothing waits for: see `start_detached`.

Run as `python -I -S …/detached.py …/MODULE.py FOLDER ARGUMENT…`. It leads a separate session and calls
`main` of the module with the words from the module on; its standard input is that of the module.
"""

import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def start_detached(module: str, folder: str, *arguments: str, given: bytes = b"") -> None:
    """Start a module in a folder: no terminal, same environment, `given` on its input. Raises OSError."""
    python = sys.executable
    script, path = (os.path.join(_HERE, f"{name}.py") for name in ("detached", module))
    argv = [python, "-I", "-S", script, path, folder, *arguments]
    nothing = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    if not given:
        os.waitpid(os.posix_spawn(python, argv, os.environ, file_actions=nothing), 0)
        return
    reading, writing = os.pipe()
    with open(writing, "wb") as pipe:
        try:
            actions = [*nothing, (os.POSIX_SPAWN_DUP2, reading, 0)]
            child = os.posix_spawn(python, argv, os.environ, file_actions=actions)
        finally:
            os.close(reading)
        pipe.write(given)
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
        os._exit(0)  # the starting process need not wait
    os.setsid()
    sys.exit(_main(sys.argv[1:]))
