"""No reader raises, whatever becomes of a file: lines cut, bytes changed, values of other types."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchgear._agents.recordings.formats import FORMATS, runs_in
from switchgear._agents.recordings.recording import RecordingFile, RecordingTally
from switchgear._analysis.backtest.replay import Named, judge
from switchgear._config.sections import preset_policy
from unit.recording_samples import FILES

LEDGER = (Named("ledger", preset_policy("ledger")),)
ODD: list[Any] = [
    *(None, True, -1, 1e308, 10**30, "", "x" * 50, "\ud800", "\x1b[2J", "2026-99-99T00:00:00Z"),
    *([], {}, [[]], [None], {"type": []}, {"a": {"b": {}}}, ["text", {"text": 1}]),
]
a_sample = st.sampled_from(sorted(FILES))
calmly = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_all(path: Path, force: str | None) -> None:
    """Read a recording, and replay the result under a policy."""
    tally = RecordingTally()
    for run in runs_in(RecordingFile(str(path)), tally, force):
        judge(run, LEDGER, pictures=True)
    if force is None:  # what a reader raises, a forced one above all, is a problem of the file
        assert not [why for _, why in tally.problems if why.startswith("is not as")], tally.problems


def mutated(value: Any, random: Random) -> Any:
    """The value with some parts replaced or left out, at any depth."""
    if random.random() < 0.04:
        return random.choice(ODD)
    if isinstance(value, dict):
        kept = {key: mutated(each, random) for key, each in value.items() if random.random() > 0.03}
        return kept | ({"surprise": random.choice(ODD)} if random.random() < 0.05 else {})
    if isinstance(value, list):
        return [mutated(each, random) for each in value if random.random() > 0.03]
    return value


@calmly
@given(sample=a_sample, seed=st.integers(0, 10**9), forced=st.booleans())
def test_values_of_other_types_raise_nothing(
    sample: str, seed: int, forced: bool, tmp_path: Path
) -> None:
    file_name, text = FILES[sample]
    random, path = Random(seed), tmp_path / file_name
    try:
        parts = [json.dumps(mutated(json.loads(text), random))]
    except ValueError:
        parts = [json.dumps(mutated(json.loads(line), random)) for line in text.splitlines()]
    path.write_text("\n".join(parts) + "\n")
    read_all(path, sample.split(maxsplit=1)[0] if forced else None)


@calmly
@given(sample=a_sample, seed=st.integers(0, 10**9), data=st.binary(max_size=20))
def test_bytes_that_were_changed_or_cut_raise_nothing(
    sample: str, seed: int, data: bytes, tmp_path: Path
) -> None:
    random, path = Random(seed), tmp_path / FILES[sample][0]
    whole = FILES[sample][1].encode()
    at, end = random.randrange(len(whole)), random.randrange(len(whole))
    path.write_bytes(whole[:at] + data + whole[at + len(data) : max(end, at)])
    read_all(path, None)


@pytest.mark.parametrize("force", FORMATS)
@pytest.mark.parametrize("sample", FILES)
def test_a_file_of_another_format_raises_nothing(force: str, sample: str, tmp_path: Path) -> None:
    path = tmp_path / FILES[sample][0]
    path.write_text(FILES[sample][1])
    read_all(path, force)


@calmly
@given(data=st.binary(max_size=300), force=st.none() | st.sampled_from(sorted(FORMATS)))
def test_random_text_raises_nothing(data: bytes, force: str | None, tmp_path: Path) -> None:
    path = tmp_path / "noise.jsonl"
    path.write_bytes(data)
    read_all(path, force)
