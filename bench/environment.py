"""Where and with what a run was made, because a number without that is an anecdote."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from bench.ours import OURS
from bench.peers import PEERS


def describe() -> dict[str, str]:
    """Python, machine, and the version of every library in the run."""
    about = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": f"{_cpu()}, {os.cpu_count()} cores",
    }
    versions = {library.distribution: library.version for library in (OURS, *PEERS)}
    return about | versions


def _cpu() -> str:
    """The processor's name; Linux keeps it in a file, elsewhere `platform` knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"
