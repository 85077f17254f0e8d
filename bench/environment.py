"""The machine and the versions of a run, without which its numbers cannot be compared."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import NamedTuple

from bench.ours import OURS
from bench.peers import PEERS


class Environment(NamedTuple):
    """Python, machine, and the version of every library in the run."""

    python: str
    machine: str
    versions: dict[str, str]


def describe() -> Environment:
    return Environment(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        machine=f"{platform.system()} {platform.machine()}, {_cpu()}, {os.cpu_count()} cores",
        versions={library.distribution: library.version for library in (OURS, *PEERS)},
    )


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
