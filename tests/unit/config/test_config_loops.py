"""Presets of `switchgear run` in the configuration."""

from pathlib import Path

import pytest

from switchgear._breaker.presets import LOOP_PRESETS, LoopPreset
from switchgear._config import ConfigError, config_schema, load_config


def loaded(tmp_path: Path, text: str) -> dict[str, LoopPreset]:
    file = tmp_path / "switchgear.yaml"
    file.write_text(text)
    return load_config(file).loop_presets


def test_a_loop_of_the_user_is_read(tmp_path: Path) -> None:
    text = "loops:\n  nightly: {max_iterations: 9, prompt: Be brief., commit: true}\n"
    preset = loaded(tmp_path, text)["nightly"]
    assert preset == LoopPreset("nightly", 9, "", "Be brief.", commit=True)


def test_a_loop_extends_a_built_in_one_or_one_before_it(tmp_path: Path) -> None:
    text = (
        "loops:\n"
        "  careful: {extends: migration-safety, max_iterations: 4}\n"
        "  more: {extends: careful, same_error: 9}\n"
    )
    presets = loaded(tmp_path, text)
    ours = LOOP_PRESETS["migration-safety"]
    assert presets["careful"] == ours._replace(name="careful", max_iterations=4)
    assert presets["more"] == presets["careful"]._replace(name="more", same_error=9)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "loops.a: needs the key 'max_iterations'"),
        ("{max_iterations: 0}", "must be a whole number of at least 1"),
        ("{max_iterations: 5, comit: true}", "did you mean 'commit'?"),
        ("{max_iterations: 5, commit: 1}", "must be true or false"),
        ("{max_iterations: 5, prompt: 7}", "must be a text"),
        ("{extends: featur}", "did you mean 'feature'?"),
        ("{extends: 7}", "there is no such loop before it"),
    ],
)
def test_an_invalid_value_is_reported_with_its_line(
    tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, f"loops:\n  a: {line}\n")
    assert message in str(raised.value)
    assert ":2:" in str(raised.value)


def test_every_key_is_in_the_schema() -> None:
    loop = config_schema()["properties"]["loops"]["additionalProperties"]
    assert set(loop["properties"]) == {"extends", *LoopPreset._fields} - {"name"}
