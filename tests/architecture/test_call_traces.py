"""How many functions everyday operations call: the limits of decision 54."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_everyday_operations_stay_within_their_limits_of_function_calls() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "call_trace.py"), "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["tripping failure"]["calls"] <= 120
    assert facts["tripping failure"]["files"] <= 14
    assert facts["PreToolUse ls"]["calls"] < 700
    assert facts["routed call"]["calls"] <= 250
    assert facts["run iteration"]["messages"] <= 3
