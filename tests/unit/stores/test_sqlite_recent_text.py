"""Rows of circuits with recent signals: texts of unchanged parts are reused, and read back whole."""

import json
import random

import pytest

from switchgear import _detectors
from switchgear._core.evidence import fold
from switchgear._core.policy import Policy
from switchgear._core.types import Acquire, Record, ReportSource, Signal
from switchgear._core.wire import dump_circuit, load_circuit
from switchgear._stores.sqlite import fold as rows

POLICY = Policy([_detectors.ConsecutiveFailures(50), _detectors.FailureRate(20, 0.9, 20)])


@pytest.mark.parametrize("seed", range(10))
def test_a_row_holds_the_circuit_whatever_was_written_before(seed: int) -> None:
    luck = random.Random(seed)
    circuit, now_s, written = POLICY.start("api", 1000.0), 1000.0, rows.NO_TEXTS
    for _ in range(200):
        now_s += luck.choice((0.0005, 0.01, 0.04, 0.4))
        signal = Signal(ok=luck.random() > 0.6, error=luck.choice(("429", "529")))
        source = ReportSource(luck.choice("abc"), now_s, ((now_s - luck.choice((0.0, 0.05)), 1),))
        message = luck.choice(
            (Acquire(), Record(signal, None, source), Record(signal, None, source))
        )
        circuit = fold(POLICY, circuit, message, now_s).circuit
        written = rows.field_texts(POLICY, circuit, written)
        text = written.text()
        assert dump_circuit(POLICY, load_circuit(POLICY, json.loads(text))) == dump_circuit(
            POLICY, circuit
        )
        if luck.random() < 0.2:  # another process wrote
            circuit, written = load_circuit(POLICY, json.loads(text)), rows.NO_TEXTS
