"""The options of `switchgear proxy`: what is refused before anything listens, and TLS with a token."""

import http.client
import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner

from servers.certificates import made_in
from switchgear._cli import main
from timeouts import LIMIT_S
from unit.proxy_stage import FakeUpstream, answers, message, process, reply


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "0.0.0.0"], "it needs --proxy-token-file"),
        (
            ["--host", "0.0.0.0", "--proxy-token-file", "TOKEN"],
            "--tls-cert and --tls-key, or --insecure-http",
        ),
        (["--upstream", "openai"], "it must be NAME=URL"),
        (["--upstream", "mine=http://h"], "name its protocol"),
        (["--upstream", "openai=http://u:secret@h"], "must not contain a password"),
        (["--fallback", "openai=nowhere"], "NAME=NAME of two upstreams"),
        (["--fallback", "openai=anthropic"], "the same protocol"),
        (["--key", "openai=NO_SUCH_VARIABLE"], "the variable must hold a key"),
        (["--price-in", "3"], "give both"),
        (["--budget-node", "nowhere"], "budget 'nowhere' is not open"),
    ],
)
def test_options_that_cannot_be_followed_are_reported(
    options: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [str(tmp_path / "token") if each == "TOKEN" else each for each in options]
    done = CliRunner().invoke(main, ["proxy", "--port", "0", *options])
    assert done.exit_code != 0
    assert says in done.output
    assert "secret@" not in done.output


def test_tls_and_a_token_guard_an_address_that_others_can_reach(tmp_path: Path) -> None:
    made = made_in(tmp_path)
    token = tmp_path / "token"
    token.write_text("a-token-of-sixteen-signs\n")
    token.chmod(0o600)
    up = FakeUpstream(answers(reply(message())))
    options = (
        "--tls-cert",
        str(made.certificate),
        "--tls-key",
        str(made.key),
        "--proxy-token-file",
        str(token),
    )
    with process(tmp_path, up.url, *options) as proxy:
        context = ssl.create_default_context(cafile=str(made.authority))
        statuses = []
        for headers in ({}, {"x-switchgear-token": "a-token-of-sixteen-signs"}):
            client = http.client.HTTPSConnection(
                "127.0.0.1", proxy.port, timeout=LIMIT_S, context=context
            )
            client.request("GET", "/v1/models", headers=headers)
            statuses.append(client.getresponse().status)
            client.close()
    up.close()
    assert statuses == [401, 200]
