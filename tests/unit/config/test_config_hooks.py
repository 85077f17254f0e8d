"""The section `hooks` of the configuration file."""

from pathlib import Path
from typing import Any

import pytest

from switchgear._config import ConfigError, config_schema, load_config
from switchgear._config.sections import Config, Hooks


def loaded(folder: Path, text: str) -> Config:
    path = folder / "switchgear.yaml"
    path.write_text(text)
    return load_config(path)


def test_no_value_means_the_default(tmp_path: Path) -> None:
    assert loaded(tmp_path, "").hooks == Hooks("admit", 1800.0, None, None)
    assert loaded(tmp_path, "hooks:\n").hooks == Hooks()


@pytest.mark.parametrize(
    ("key", "value"),
    [("on_trouble", "refuse"), ("lease_s", 5.0), ("story", "S-12"), ("context_tokens", 128_000)],
)
def test_every_key_is_read(tmp_path: Path, key: str, value: Any) -> None:
    hooks = loaded(tmp_path, f"hooks: {{{key}: {value!r}}}").hooks
    assert hooks == Hooks()._replace(**{key: value})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hooks: {on_trouble: maybe}", "is 'maybe': it must be one of admit, refuse"),
        ("hooks: {on_truoble: admit}", "did you mean 'on_trouble'?"),
        ("hooks: {lease_s: 0}", "lease_s: is 0: it must be a finite number of seconds above 0"),
        ("hooks: {story: ''}", "story: is '': it must be a text that is not empty"),
        ("hooks: {context_tokens: 10}", "it must be a whole number of at least 1000"),
        ("hooks: [1]", "must be a mapping"),
    ],
)
def test_an_invalid_value_is_reported_with_its_position(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert says in str(caught.value)


def test_the_schema_has_the_section() -> None:
    hooks = str(config_schema()["properties"]["hooks"])
    for key in (*Hooks._fields, "admit", "refuse"):
        assert f"'{key}'" in hooks
