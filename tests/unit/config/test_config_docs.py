"""The documentation of the configuration is correct: every file on it loads, every key has its section."""

import re
from pathlib import Path

import pytest

from switchgear._breaker.presets import DESCRIPTIONS
from switchgear._config import ConfigError, load_config
from switchgear._config.loader import KEYS
from switchgear._config.sections import POLICY_KEYS
from switchgear._sinks import SINKS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "configuration.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```(yaml|toml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILES = FILE.findall(PAGE)
OTHER_FILES = {"configuration.md", "batch.md", "hosts.md", "metrics.md", "proxy.md", "sharing.md"}
"""Pages with files of other kinds: batches, Prometheus, agents, CI."""
OTHERS = [
    pytest.param(*found, id=page.name)
    for page in sorted(DOCS.glob("*.md"))
    if page.name not in OTHER_FILES
    for found in FILE.findall(page.read_text(encoding="utf-8"))
]
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE))


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWITCHGEAR_TOKEN_SHA256", "0" * 64)
    monkeypatch.setenv("REDIS_PASSWORD", "secret")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("syntax", "text"), [*FILES, *OTHERS])
def test_every_file_of_a_page_loads(syntax: str, text: str) -> None:
    path = Path(f"switchgear.{syntax}")
    path.write_text(text, encoding="utf-8")
    assert load_config(path)._replace(source=None) != load_config_of_nothing()


def load_config_of_nothing() -> object:
    Path("empty.yaml").touch()
    return load_config("empty.yaml")._replace(source=None)


def test_the_yaml_and_the_toml_example_mean_the_same() -> None:
    for syntax, text in FILES[:2]:
        Path(f"switchgear.{syntax}").write_text(text, encoding="utf-8")
    in_yaml, in_toml = load_config("switchgear.yaml"), load_config("switchgear.toml")
    assert in_yaml._replace(source=None) == in_toml._replace(source=None)


def test_every_key_has_a_section_with_an_example() -> None:
    assert set(SECTIONS) == set(KEYS)
    for key, section in SECTIONS.items():
        assert re.search(rf"```yaml\n{key}:", section), f"{key} has no example"


def test_every_key_of_a_policy_every_sink_and_every_preset_is_described() -> None:
    for key in POLICY_KEYS:
        assert f"\n| `{key}` |" in SECTIONS["policies"]
    for name, description in DESCRIPTIONS.items():
        assert f"\n| `{name}` | {description} |" in SECTIONS["policies"]
    for sink in SINKS:
        assert f"\n| `{sink}` |" in SECTIONS["sinks"]


def test_the_messages_on_the_page_are_those_of_the_loader() -> None:
    text = FILES[0][1]
    for right, wrong in (
        ("threshold: 8", "thresold: 8"),
        ("window: 20", 'window: "20"'),
        ("policy: patient", "policy: pateint"),
    ):
        text = text.replace(right, wrong)
    Path("switchgear.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config("switchgear.yaml")
    [shown] = re.findall(r"^```text\n(switchgear\.yaml.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
    assert str(caught.value) == shown
