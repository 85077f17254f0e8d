"""The section `proxy`: what it accepts, what is reported, and that options of the command win."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from switchgear._config import ConfigError, load_config
from switchgear._config.proxy import ProxySection, UpstreamChoice
from switchgear._config.trust import show
from switchgear._providers.upstreams import Upstream
from timeouts import LIMIT_S
from unit.proxy_stage import FakeUpstream, answers, ask, message, process, reply

WHOLE = """\
store: {store}
proxy:
  upstreams:
    anthropic: {{url: "{url}"}}
    backup: {{protocol: anthropic, url: "{url}/backup", key_env: BACKUP_KEY}}
  fallbacks:
    anthropic: [backup]
  session_budget_dollars: 0.5
  access_log: access.log
"""


def loaded(tmp_path: Path, text: str) -> ProxySection | None:
    file = tmp_path / "switchgear.yaml"
    file.write_text(text)
    return load_config(str(file)).proxy


def test_the_section_is_off_by_default(tmp_path: Path) -> None:
    assert loaded(tmp_path, "store: 'memory:'\n") is None
    assert loaded(tmp_path, "proxy: {}\n") == ProxySection()


def test_amounts_are_in_dollars_and_paths_relative_to_the_file(tmp_path: Path) -> None:
    found = loaded(tmp_path, WHOLE.format(store="'memory:'", url="http://h:1"))
    assert found is not None
    assert found.session_budget_micros == 500_000
    assert found.access_log == str(tmp_path / "access.log")
    assert found.fallbacks == {"anthropic": ("backup",)}
    backup = Upstream("backup", "anthropic", "http://h:1/backup")
    assert found.upstreams["backup"] == UpstreamChoice(backup, "BACKUP_KEY")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{prot: 1}", "did you mean 'port'"),
        ("{port: 70000}", "at most 65535"),
        ("{budget_dollars: 0}", "at least 1"),
        ("{hint: maybe}", "true or false"),
        ("{timeout_seconds: 0}", "at least 1"),
        ("{price_in_dollars: 3}", "must be given, too"),
        ("{host: 0.0.0.0}", "token_file must be given"),
        ("{host: 0.0.0.0, token_file: t}", "tls_cert must be given, or insecure_http"),
        ("{upstreams: {mine: {url: 'http://h'}}}", "name its protocol"),
        ("{upstreams: {mine: {protocol: openai}}}", "needs the key 'url'"),
        ("{upstreams: {openai: {url: 'ftp://h'}}}", "must be a URL"),
        ("{upstreams: {openai: {url: 'https://u:geheim@h'}}}", "must not contain a password"),
        ("{upstreams: {openai: {ulr: 'https://h'}}}", "did you mean 'url'"),
        ("{fallbacks: {anthropic: [openai]}}", "it has the protocol openai, not anthropic"),
        ("{fallbacks: {anthropic: [nowhere]}}", "it must be an upstream"),
        ("{fallbacks: {mine: [openai]}}", "unknown upstream"),
        ("{fallbacks: {openai: [openai]}}", "in the chain already"),
        ("[]", "must be a mapping"),
    ],
)
def test_invalid_values_are_reported(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        loaded(tmp_path, f"proxy: {text}\n")
    assert "geheim" not in str(raised.value)


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, "proxy: {port: x, workers: 0, fallbacks: {a: [b]}}\n")
    assert len(raised.value.problems) == 3


def test_addresses_and_keys_are_shown_before_a_file_is_trusted() -> None:
    found = show("switchgear.yaml", WHOLE.format(store="'memory:'", url="http://h:1"))
    assert "proxy.upstreams.backup.url: http://h:1/backup" in found.targets
    assert found.named == ("BACKUP_KEY",)


def test_the_command_follows_the_section_and_options_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKUP_KEY", "sk-backup")
    monkeypatch.setenv("SWITCHGEAR_TRUST", "1")
    up = FakeUpstream(answers(reply({"error": {"message": "busy"}}, 529), reply(message())))
    config = WHOLE.format(store=f"sqlite:///{tmp_path}/state.db", url=up.url)
    (tmp_path / "switchgear.yaml").write_text(config)
    checked = subprocess.run(
        [sys.executable, "-m", "switchgear", "config", "check"],
        cwd=tmp_path,
        timeout=LIMIT_S,
        check=False,
    )
    assert checked.returncode == 0
    with process(tmp_path, up.url, "--access-log", str(tmp_path / "other.log")) as proxy:
        got = proxy.client.post(ask(), headers={"x-api-key": "sk-mine"})
        assert got.status == 200
    lines = [heard.line for heard in up.heard]
    assert lines == ["POST /v1/messages HTTP/1.1", "POST /backup/v1/messages HTTP/1.1"]
    assert [heard.headers()["x-api-key"] for heard in up.heard] == ["sk-mine", "sk-backup"]
    assert not (tmp_path / "access.log").exists()
    [entry] = (tmp_path / "other.log").read_text().splitlines()
    assert json.loads(entry)["upstream"] == "backup"
    up.close()
