"""Valid names of circuits: the same in every store, with the same error messages."""

from pathlib import Path

import pytest

from contract.backends import BACKENDS
from switchgear import Policy, Signal, detectors
from switchgear._panel.panel import Panel
from switchgear._stores.base import LONGEST_NAME

POLICY = Policy([detectors.ConsecutiveFailures(3)])
WRONG = [
    ("half a \ud83d", "UTF-8"),
    ("x" * (LONGEST_NAME + 1), "at most 500"),
    ("x" * 5_000_000, "5,000,000 characters"),
    (" ", "not empty"),
]


@pytest.mark.parametrize("place", BACKENDS)
def test_a_name_that_some_store_cannot_save_is_refused_by_every_store(
    place: str, tmp_path: Path
) -> None:
    with BACKENDS[place](tmp_path) as backend, Panel(backend.open()) as panel:
        for name, why in WRONG:
            for policy in (POLICY, None):
                with pytest.raises(ValueError, match=f"name is .*{why}") as told:
                    panel.breaker(name, policy)
                assert type(told.value) is ValueError
                assert len(str(told.value)) < 200
            with pytest.raises(ValueError, match=why):
                panel.view(name)
        with pytest.raises(ValueError, match="glob is"):
            list(panel.circuits("half a \ud83d"))
        with pytest.raises(ValueError, match="glob is"):
            panel.events(glob="half a \ud83d")
        panel.flush()
        assert list(panel) == []


@pytest.mark.parametrize("place", BACKENDS)
def test_the_longest_name_of_multi_byte_characters_is_accepted(place: str, tmp_path: Path) -> None:
    with BACKENDS[place](tmp_path) as backend, Panel(backend.open()) as panel:
        name = "🙂" * LONGEST_NAME
        panel.breaker(name, POLICY).record(Signal(ok=False))
        assert [view.name for view in panel] == [name]
        view = panel.view(name)
        assert view is not None
        assert view.circuit.totals.failed == 1
