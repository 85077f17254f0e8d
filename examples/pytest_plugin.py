"""Tests with the fixtures of Switchgear: `pytest examples/pytest_plugin.py`. No test waits."""

from typing import Any

import pytest

from switchgear import Panel, Rejected


def test_an_open_circuit_refuses(switchgear_panel: Panel, force_state: Any) -> None:
    breaker = switchgear_panel.breaker("provider/example")
    force_state(breaker, "open", retry_after_s=30)
    with pytest.raises(Rejected):
        breaker.call(lambda: "hello")  # stands in for your code


def test_failures_open_it(switchgear_panel: Panel, assert_tripped: Any) -> None:
    breaker = switchgear_panel.breaker("provider/example")
    for _ in range(5):
        with pytest.raises(ConnectionError), breaker:
            raise ConnectionError("connection refused")
    assert_tripped(breaker, because="5 failures in a row")


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q"]))
