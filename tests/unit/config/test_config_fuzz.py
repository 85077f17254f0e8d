"""Any file is either a configuration or a `ConfigError`."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchgear._config import ConfigError, load_config
from unit.config_texts import WHOLE_PROJECT, WHOLE_TOML, WHOLE_YAML

TEXTS = {
    "switchgear.yaml": WHOLE_YAML,
    "switchgear.toml": WHOLE_TOML,
    "pyproject.toml": WHOLE_PROJECT,
}
DOCUMENT = yaml.safe_load(WHOLE_YAML)
NAMES = st.sampled_from(sorted(TEXTS))
SPICE = [
    b"&a",
    b"*a",
    b"<<:",
    b"!!",
    b"- ",
    b": ",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\n",
    b"  ",
    b"'",
    b'"',
]
SPICE += [
    b"#",
    b"|",
    b">",
    b"%",
    b"${",
    b"}",
    b"=",
    b".",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"1e999",
]
SPICE += [
    b"9" * 50,
    b"9" * 5000,
    b"-",
    b"~",
    b"\\U0011ffff",
    b'"\\ud800"',
    b"\xef\xbb\xbf",
    b"0x",
    b"1_",
]
SPICE += [b"2024-13-45", b"0b_", b"12:61:61", b"\r", b"\xe2\x80\xa8", b"[[", b'"""', b"'''"]

quiet = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def read(folder: Path, name: str, data: bytes) -> ConfigError | None:
    """The problems of these bytes; anything but a `ConfigError` fails the test."""
    path = folder / name
    path.write_bytes(data)
    error = None
    try:
        load_config(path)
    except ConfigError as found:
        error = found
    for problem in () if error is None else error.problems:
        assert str(problem).isprintable(), repr(str(problem))
        assert len(str(problem)) < 2000
        lines = data.decode("utf-8", "replace").splitlines()
        assert problem.line is None or 1 <= problem.line <= len(lines) + 1
    return error


@quiet
@given(NAMES, st.binary(max_size=200))
def test_random_bytes_are_refused_or_loaded(tmp_path: Path, name: str, data: bytes) -> None:
    read(tmp_path, name, data)


@quiet
@given(NAMES, st.text(st.sampled_from("ab&*<>!-:{}[]\n '\"#|%$=.,?0~"), max_size=60))
def test_random_punctuation_is_refused_or_loaded(tmp_path: Path, name: str, text: str) -> None:
    read(tmp_path, name, text.encode())


@quiet
@given(NAMES, st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_valid_file_with_changed_bytes_is_refused_or_loaded(
    tmp_path: Path, name: str, chance: random.Random, changes: int
) -> None:
    data = TEXTS[name].encode()
    for _ in range(changes):
        at = chance.randrange(len(data))
        upto = at + chance.choice((0, 0, 1, 5, 40))
        data = data[:at] + chance.choice([*SPICE, b"", data[upto : upto + 9]]) + data[upto:]
    read(tmp_path, name, data)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [10**400, -(10**400), 1e308, "provider", "patient", "any", "*", "[", "memory"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@quiet
@given(VALUES, st.randoms(use_true_random=False))
def test_a_valid_file_with_any_value_anywhere_is_refused_or_loaded(
    tmp_path: Path, value: Any, chance: random.Random
) -> None:
    document = copy.deepcopy(DOCUMENT)
    place, key = chance.choice(_places(document))
    place[key] = value
    read(tmp_path, "switchgear.yaml", json.dumps(document).encode())


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key below a value."""
    keys = range(len(value)) if isinstance(value, list) else value
    found = []
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found += _places(value[key])
    return found


def test_every_place_takes_only_what_belongs_there(tmp_path: Path) -> None:
    """A mapping in place of each scalar, a scalar in place of each container: an error each time."""
    for index in range(len(_places(DOCUMENT))):
        document = copy.deepcopy(DOCUMENT)
        place, key = _places(document)[index]
        place[key] = True if isinstance(place[key], dict | list) else {"x": 1}
        error = read(tmp_path, "switchgear.yaml", json.dumps(document).encode())
        assert error is not None, f"{key} took {place[key]}"


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_file_that_is_cut_off_anywhere_is_refused_or_loaded(tmp_path: Path, name: str) -> None:
    data = TEXTS[name].encode()
    for length in range(0, len(data), 3):
        read(tmp_path, name, data[:length])
