"""A real terminal that runs the command, for tests that read the screen and type."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

LIMIT_S = 300.0
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
MOVES_OR_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A new terminal that runs the command; the folder is its home unless HOME is given."""

    def __init__(
        self, folder: Path, *args: str, size: tuple[int, int] = (24, 80), **env: str
    ) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(*size)
        self.output = ""
        self.before = self.after
        kept = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "xterm-256color"}
        kept["SWITCHGEAR_TRUST"] = "1"  # the configurations are the test's own
        self.process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", *args],
            cwd=folder,
            env={**kept, "LANG": "C.UTF-8", "PYTHONUTF8": "1", **env},
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
        )

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, text: str, start: int = 0) -> None:
        """Wait for a text on the screen."""
        end_s = time.monotonic() + LIMIT_S
        while text not in self.output[start:] and text not in _plain(self.output[start:]):
            assert time.monotonic() < end_s, f"{text!r} is not in {self.output[-3000:]!r}"
            self._read()

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait(self) -> int:
        """Wait for the exit code. Reads the output meanwhile, or the command could block on it."""
        end_s = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end_s, self.output
            self._read()
        self._read()
        return self.process.returncode

    def interrupt(self) -> None:
        """Interrupt the command; again if it was not ready for a signal yet."""
        for _ in range(5):
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=2)
                return

    @property
    def seen(self) -> str:
        """The output without the sequences that move the cursor or change colours."""
        return _plain(self.output)

    @property
    def normal(self) -> str:
        """The text on the normal screen after the live screen."""
        return self.output.rpartition(LEAVE)[2]

    @property
    def after(self) -> Any:
        """The current settings of the terminal."""
        return termios.tcgetattr(self._theirs)

    def left_clean(self) -> bool:
        """Whether the terminal has its initial settings."""
        return self.after == self.before and self.output.rindex(SHOW) > self.output.rindex(HIDE)

    def hang_up(self) -> None:
        """Close the terminal while the command runs."""
        os.close(self._ours)
        os.close(self._theirs)
        self._ours = self._theirs = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._ours >= 0:
            self.hang_up()

    def _read(self) -> None:
        ready, _, _ = select.select([self._ours], [], [], 0.1)
        if ready:
            self.output += os.read(self._ours, 65536).decode(errors="replace")


def _plain(output: str) -> str:
    return MOVES_OR_COLOURS.sub("", output).replace("\r\n", "\n")
