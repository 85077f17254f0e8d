"""The sections `interventions` and `timeouts` of the configuration file."""

from pathlib import Path
from typing import Any

import pytest

from switchgear._config import Config, ConfigError, load_config, problems
from switchgear._config.schema import schema
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.timeouts import Timeouts


def loaded(folder: Path, text: str) -> Config:
    path = folder / "switchgear.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_without_a_section_the_numbers_of_the_specification_apply(tmp_path: Path) -> None:
    config = loaded(tmp_path, "")
    assert config.interventions == Interventions()
    assert config.timeouts == Timeouts()
    assert config.interventions.when_alone == ("nudge", "reset", "escalate", "skip")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("when_alone", ["nudge", "skip"]),
        ("hint", "Read the manual"),
        ("extend_s", 90.0),
        ("escalate", "codex"),
        ("helper", "Ada"),
        ("ask_s", 5.0),
        ("in_runs", True),
    ],
)
def test_every_key_of_interventions_is_read(tmp_path: Path, key: str, value: Any) -> None:
    plan = loaded(tmp_path, f"interventions: {{{key}: {value!r}}}").interventions
    read = getattr(plan, key)
    assert (list(read) if isinstance(read, tuple) else read) == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("policy", "longest"),
        ("fixed_s", 5.0),
        ("base_s", 6.0),
        ("per_file_s", 7.0),
        ("per_line_s", 8.0),
        ("per_dependency_s", 9.0),
        ("complex_factor", 3.0),
        ("deviations", 2.0),
        ("min_runs", 9),
        ("session_s", 60.0),
    ],
)
def test_every_key_of_timeouts_is_read(tmp_path: Path, key: str, value: Any) -> None:
    assert getattr(loaded(tmp_path, f"timeouts: {{{key}: {value!r}}}").timeouts, key) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "interventions: {when_alone: nudge}",
            "when_alone: is 'nudge': it must be a list of nudge",
        ),
        ("interventions: {when_alone: [pray]}", "when_alone: is 'pray': it must be one of nudge"),
        ("interventions: {hint: ''}", "hint: is '': it must be a text that is not empty"),
        ("interventions: {extend_s: 0}", "extend_s: is 0: it must be a finite number of seconds"),
        ("interventions: {in_runs: 2}", "in_runs: is 2: it must be true or false"),
        ("interventions: {escalation: x}", "unknown key; did you mean 'escalate'?"),
        ("timeouts: {policy: guessed}", "policy: is 'guessed': it must be one of fixed, adaptive"),
        ("timeouts: {complex_factor: 0.5}", "complex_factor: is 0.5: it must be a finite number"),
        ("timeouts: {min_runs: 1}", "min_runs: is 1: it must be a whole number of at least 2"),
        ("timeouts: 5", "timeouts: is 5: it must be a mapping"),
    ],
)
def test_an_invalid_value_is_reported_with_its_key(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert problem in str(caught.value)


def test_every_key_is_in_the_schema() -> None:
    sections = schema()["properties"]
    for section, fields in (
        ("interventions", Interventions._fields),
        ("timeouts", Timeouts._fields),
    ):
        keys = {*fields, *map(problems.key_of, fields)}
        assert sections[section]["properties"].keys() == keys
    assert sections["interventions"]["properties"]["escalate"]["type"] == ["string", "null"]
