"""Policies that are ready to use, as data: no class, branch or loop.

Each has the shape of a policy in the configuration file, with the numbers of the documents that
Switchgear unites, so that it can be read, copied and changed there. Every key is alive: a test
changes each of them and sees the circuit behave otherwise.
"""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "provider": {
        "detectors": [{"consecutive_failures": {"threshold": 5}}],
        "recovery": {"cooldown": {"base_s": 60.0, "max_s": 300.0, "factor": 2.0, "probes": 1}},
    },
    "operation": {
        "detectors": [{"failures_in_window": {"threshold": 3, "window_s": 60.0}}],
        "recovery": {"cooldown": {"base_s": 30.0, "max_s": 30.0, "probes": 1}},
    },
    "failure_rate": {
        "detectors": [{"failure_rate": {"window": 20, "threshold": 0.5}}],
        "recovery": {"cooldown": {"base_s": 300.0, "max_s": 3600.0, "factor": 2.0, "probes": 1}},
    },
    "latency": {
        "detectors": [
            {
                "latency_p95": {
                    "baseline_s": 90.0,
                    "multiplier": 3.0,
                    "window_s": 300.0,
                    "admit": 0.5,
                }
            }
        ],
        "recovery": {"cooldown": {"base_s": 180.0, "max_s": 3600.0, "factor": 2.0, "probes": 1}},
    },
    "ledger": {
        "detectors": [
            {"words_debt": {"limit": 3.5, "usual": 0.3, "credit": 0.05, "remember": 8}},
            {"actions_debt": {"limit": 7.0, "credit": 0.1}},
            {"errors_debt": {"limit": 6.0, "credit": 0.1}},
            {"talk_debt": {"limit": 2.0, "usual": 0.3, "remember": 8}},
        ],
        "recovery": "latched",
        "tripping_at": 0.7,
    },
}
"""The presets by name."""

DESCRIPTIONS: dict[str, str] = {
    "provider": "A model provider: 5 failures in a row cut it for 60 s, doubling up to 300 s.",
    "operation": "An operation such as spawning an agent: 3 failures in 60 s cut it for 30 s.",
    "failure_rate": "An agent: more than half of 20 calls failed; 300 s, doubling up to 1 h.",
    "latency": "A service: p95 over 3 times 90 s in 300 s halves the load; 180 s, up to 1 h.",
    "ledger": "An agent that goes nowhere: warns at 70 % of a debt, stops at all of it, for good.",
}
"""One line about each."""
