"""The pytest plugin: a fake clock, a panel in memory, forced states and `assert_tripped` as fixtures.

pytest loads this module in every run where Switchgear is installed. The module is outside the package and
imports it only when a test requests a fixture, so other test runs do not load the package at all.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from switchgear import Panel
    from switchgear.testing import FakeClock

# ruff: noqa: PLC0415  see above


@pytest.fixture
def switchgear_clock() -> "FakeClock":
    """A clock that only the test advances: `switchgear_clock.advance(60)`."""
    from switchgear.testing import FakeClock

    return FakeClock(1_800_000_000.0)


@pytest.fixture
def switchgear_panel(switchgear_clock: "FakeClock") -> "Iterator[Panel]":
    """A panel in memory on the fake clock, closed after the test."""
    from switchgear import Panel

    with Panel("memory:", clock=switchgear_clock) as panel:
        yield panel


@pytest.fixture
def force_state() -> "Callable[..., None]":
    """`force_state(breaker, "open")`: `switchgear.testing.force_state`."""
    from switchgear import testing

    return testing.force_state


@pytest.fixture
def assert_tripped() -> "Callable[..., None]":
    """`assert_tripped(breaker, because="failures")`: `switchgear.testing.assert_tripped`."""
    from switchgear import testing

    return testing.assert_tripped
