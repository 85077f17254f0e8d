"""Threads change places as often as the interpreter can, so that a race has many chances."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _many_switches() -> Iterator[None]:
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual_s)
