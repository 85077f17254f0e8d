"""The section `second_opinion`: what it accepts, what is shown before a project's file is trusted."""

from pathlib import Path

import pytest

from switchgear._config import ConfigError, load_config
from switchgear._config.trust import show


def loaded(tmp_path: Path, text: str) -> object:
    file = tmp_path / "switchgear.yaml"
    file.write_text(text)
    return load_config(str(file)).second_opinion


def test_the_section_is_off_by_default(tmp_path: Path) -> None:
    assert loaded(tmp_path, "store: 'memory:'\n") is None
    assert loaded(tmp_path, "second_opinion:\n") is None


def test_keys_are_written_in_seconds_and_dollars(tmp_path: Path) -> None:
    text = "second_opinion: {model: m, timeout_seconds: 5, budget_dollars: 0.25, cache_seconds: 60}"
    found = loaded(tmp_path, text)
    assert (found.timeout_s, found.budget_micros, found.cache_s) == (5.0, 250_000, 60.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "needs one of the keys"),
        ("{command: a, model: b}", "needs one of the keys"),
        ("{command: a, ask_at: 0.5}", "it must be from 0.7 to 1"),
        ("{model: a, api: soap}", "it must be one of anthropic, openai"),
        ("{model: a, kee_env: B}", "kee_env"),
    ],
)
def test_invalid_values_are_reported(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        loaded(tmp_path, f"second_opinion: {text}\n")


def test_command_address_and_key_are_shown_before_a_file_is_trusted() -> None:
    command = show("switchgear.yaml", "second_opinion: {command: python3 judge.py}\n")
    assert command.commands == ("second_opinion.command: python3 judge.py",)
    model = show(
        "switchgear.yaml",
        "second_opinion: {model: m, key_env: MY_KEY, base_url_env: MY_URL, api: openai}\n",
    )
    [target] = model.targets
    assert "second_opinion.model: m at $MY_URL, else https://api.openai.com/v1" in target
    assert "sends redacted evidence" in target
    assert set(model.named) == {"MY_KEY", "MY_URL"}
