"""Where notifications go: a signed webhook, a Slack-compatible one, or a command of the user's.

A target sends one message and raises when it could not. It knows nothing of order or of trying
again. Secrets are named by their environment variables and read when they are needed, so neither
the configuration nor anything printed from it holds them.
"""

import os
from typing import Any, ClassVar

from switchgear.core import record
from switchgear.core.record import Record
from switchgear.errors import SwitchgearError
from switchgear.glob import matcher
from switchgear.redact import redact

# ruff: noqa: PLC0415  the configuration knows targets, and a hook that reads it must not pay for them

LONGEST_TIMEOUT_S = 30.0
"""Shorter than a turn (`stream.LEASE_S`), so that nobody else sends what is being sent."""
SIGNATURE, ID = "Switchgear-Signature", "Switchgear-Id"
_KEPT = 1000
Message = dict[str, Any]


class NotSent(SwitchgearError):
    """A message did not arrive. `args` are why, and whether trying again can help."""

    args: tuple[str, bool]

    @property
    def may_help(self) -> bool:
        """Whether trying again may help."""
        return self.args[1]

    def __str__(self) -> str:
        return self.args[0]


class Target(Record):
    """Base of the targets. Immutable; any thread may use it."""

    __slots__ = ()
    kind: ClassVar[str]
    name: str
    match: str
    timeout_s: float

    def wants(self, circuit: str) -> bool:
        """Whether it hears of this circuit."""
        return matcher(self.match)(circuit)

    def send(self, message: Message, now_s: float) -> None:
        """Send one message. Raises `NotSent`."""
        raise NotImplementedError

    def _set_common(self, name: str, what: str, match: str, timeout_s: float) -> None:
        owner = type(self).__name__
        if not isinstance(name, str):
            raise ValueError(f"{owner}.name is {name!r}: it must be a text")
        limit_s = record.seconds(f"{owner}.timeout_s", timeout_s)
        if limit_s > LONGEST_TIMEOUT_S:
            rule = f"it must be at most {LONGEST_TIMEOUT_S:g} seconds"
            raise ValueError(f"{owner}.timeout_s is {timeout_s!r}: {rule}")
        from hashlib import sha256

        digest = sha256(what.encode(errors="replace")).hexdigest()[:8]
        self._set(
            name=name or f"{self.kind}-{digest}",
            match=record.text(f"{owner}.match", match),
            timeout_s=limit_s,
        )


class Webhook(Target):
    """Posts JSON to `url`; signed with the key in the variable `secret_env`, if one is named.

    The header `Switchgear-Signature` is `t=<seconds>,v1=<hex>`: HMAC-SHA256 of the time, a dot and
    the body, so that an old message cannot be sent again later. `Switchgear-Id` is the same for the
    same event: who got it twice knows.
    """

    __slots__ = ("match", "name", "secret_env", "timeout_s", "url")
    kind: ClassVar[str] = "webhook"
    url: str
    secret_env: str

    def __init__(
        self,
        url: str,
        secret_env: str = "",
        match: str = "*",
        timeout_s: float = 10.0,
        name: str = "",
    ) -> None:
        self._set(
            url=_checked_url("Webhook.url", url),
            secret_env=_variable("Webhook.secret_env", secret_env),
        )
        self._set_common(name, url, match, timeout_s)

    def send(self, message: Message, now_s: float) -> None:
        """Post it."""
        import json

        body = json.dumps(message, sort_keys=True).encode()
        headers = {ID: message["id"]}
        if self.secret_env:
            headers[SIGNATURE] = sign(_secret(self.secret_env), body, int(now_s))
        _post(self.url, body, headers, self.timeout_s)


class Slack(Target):
    """Posts `{"text": …}` to the incoming webhook whose URL is in the variable `url_env`."""

    __slots__ = ("match", "name", "timeout_s", "url_env")
    kind: ClassVar[str] = "slack"
    url_env: str

    def __init__(
        self, url_env: str, match: str = "*", timeout_s: float = 10.0, name: str = ""
    ) -> None:
        record.text("Slack.url_env", url_env)
        self._set(url_env=_variable("Slack.url_env", url_env))
        self._set_common(name, url_env, match, timeout_s)

    def send(self, message: Message, now_s: float) -> None:
        """Post its line; what Slack would take for markup is escaped."""
        del now_s
        import json

        text = message["text"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        try:
            url = _checked_url(self.url_env, _secret(self.url_env))
        except ValueError:  # whose message would show the URL, which is a secret
            raise NotSent(f"the variable {self.url_env} holds no http URL", False) from None
        _post(url, json.dumps({"text": text}).encode(), {}, self.timeout_s)


class Command(Target):
    """Runs a program, without a shell, with the message as JSON on standard input.

    `run` is split into words as a shell would, and nothing else of a shell happens.
    """

    __slots__ = ("match", "name", "run", "timeout_s")
    kind: ClassVar[str] = "command"
    run: str

    def __init__(self, run: str, match: str = "*", timeout_s: float = 10.0, name: str = "") -> None:
        import shlex

        try:
            words = shlex.split(record.text("Command.run", run))
        except ValueError as error:
            raise ValueError(f"Command.run is {run!r}: {error}") from None
        if not words:
            raise ValueError(f"Command.run is {run!r}: it must name a program")
        self._set(run=run)
        self._set_common(name, run, match, timeout_s)

    def send(self, message: Message, now_s: float) -> None:
        """Run it; an exit code other than 0 is a failure."""
        del now_s
        import json
        import shlex
        import subprocess

        try:
            done = subprocess.run(  # noqa: S603  the user's own command, without a shell
                shlex.split(self.run),
                input=json.dumps(message, sort_keys=True).encode() + b"\n",
                capture_output=True,
                timeout=self.timeout_s,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise NotSent(f"it took longer than {self.timeout_s:g} s", True) from None
        except OSError as error:
            raise NotSent(redact(str(error)), True) from None
        if done.returncode:
            said = redact(done.stderr.decode("utf-8", "replace"))
            raise NotSent(f"exit code {done.returncode}: {said}", True)


TARGETS: dict[str, type[Target]] = {kind.kind: kind for kind in (Webhook, Slack, Command)}
"""The registry: the configuration finds targets in it."""


def sign(secret: str, body: bytes, at_s: int) -> str:
    """The header of a signed message.

    >>> sign("key", b"{}", 1700000000)[:15]
    't=1700000000,v1'
    """
    import hmac

    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, "sha256").hexdigest()
    return f"t={at_s},v1={digest}"


def verify(
    secret: str, body: bytes, header: str, *, now_s: float, tolerance_s: float = 300
) -> bool:
    """Whether a message is ours and not old: for those who receive webhooks.

    >>> verify("key", b"{}", sign("key", b"{}", 100), now_s=101.0)
    True
    """
    import hmac

    time_part = header.partition(",")[0].removeprefix("t=")
    if not time_part.isascii() or not time_part.isdigit() or len(time_part) > 15:
        return False
    at_s = int(time_part)
    fits = hmac.compare_digest(sign(secret, body, at_s).encode(), header.encode())
    return fits and abs(now_s - at_s) <= tolerance_s


def _post(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> None:
    import urllib.error
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """What is signed for one place is not carried to another."""

        def redirect_request(self, *_: Any) -> None:
            """Not followed: it is an error with its status."""

    request = urllib.request.Request(  # noqa: S310  the scheme was checked
        url,
        data=body,
        headers={"Content-Type": "application/json", "User-Agent": "switchgear", **headers},
        method="POST",
    )
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=timeout_s) as answer:
            answer.read(_KEPT)
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
        may_help = status >= 500 or status in {408, 425, 429}
        raise NotSent(f"the answer was HTTP {status}", may_help) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NotSent(redact(f"{type(error).__name__}: {reason}"), True) from None
    except Exception as error:  # noqa: BLE001  http.client raises its own kinds
        raise NotSent(redact(f"{type(error).__name__}: {error}"), True) from None


def _secret(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise NotSent(f"the environment variable {variable} is not set, or is empty", True)
    return value


def _checked_url(field: str, url: Any) -> str:
    text = record.text(field, url)
    scheme, slashes, rest = text.partition("://")
    if scheme not in {"http", "https"} or not slashes or not rest or not text.isprintable():
        raise ValueError(f"{field} is {redact(text)!r}: it must be an http or https URL")
    return text


def _variable(field: str, name: Any) -> str:
    if not isinstance(name, str) or (name and not name.isidentifier()):
        raise ValueError(f"{field} is {name!r}: it must be the name of an environment variable")
    return name
