"""Where notifications go: a signed webhook, a Slack-compatible one, the desktop, or your command.

A target sends one message within `timeout_s` or raises `NotSent`; `delivery.py` decides the order and
the retries. The configuration only names the environment variables of secrets, which are read when
they are needed, so no secret can be printed from it.
"""

import os
from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.errors import SwitchgearError
from switchgear._core.values import Value
from switchgear._text.glob import matcher
from switchgear._text.redact import redact

# ruff: noqa: PLC0415  the configuration lists targets, and a hook that reads it must not load them

LONGEST_TIMEOUT_S = 30.0
"""Shorter than a turn (`delivery.LEASE_S`), so that no other process sends the same message."""
REFUSES_CONTENT = frozenset({400, 413, 414, 415, 422, 431})
"""HTTP statuses that mean that the message is invalid, so a retry cannot help."""
SIGNATURE, ID = "Switchgear-Signature", "Switchgear-Id"
Message = dict[str, Any]
_KEPT_STDERR = 2000
_POLL_S = 0.02
"""Seconds between two checks of a running command."""
_UNESCAPED = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""The characters that are not percent-encoded in a header."""


class NotSent(SwitchgearError):
    """A message did not arrive.

    `args` are the reason, whether a retry may help and, if the receiver requests one, the wait in
    seconds.
    """

    args: tuple[str, bool] | tuple[str, bool, float | None]

    @property
    def may_help(self) -> bool:
        return self.args[1]

    @property
    def retry_after_s(self) -> float | None:
        """The wait in seconds that the receiver requests; `None`: it requests none."""
        return self.args[2] if len(self.args) > 2 else None

    def __str__(self) -> str:
        return self.args[0]


class Unsendable(NotSent):
    """A message that can never be sent to this target: one attempt is enough."""

    def __init__(self, why: str) -> None:
        super().__init__(why, False)


class Target(Value):
    """Base of the targets. Immutable; any thread may use it."""

    __slots__ = ()
    kind: ClassVar[str]
    name: str
    match: str
    timeout_s: float

    def wants(self, circuit: str) -> bool:
        """Whether the target is notified of the events of a circuit."""
        return matcher(self.match)(circuit)

    def send(self, message: Message, now_s: float) -> None:
        """Send one message. Raises `NotSent`."""
        raise NotImplementedError

    def _set_common(self, name: str, what: str, match: str, timeout_s: float) -> None:
        owner = type(self).__name__
        if not isinstance(name, str):
            raise ValueError(f"{owner}.name is {name!r}: it must be a text")
        limit_s = values.check_seconds(f"{owner}.timeout_s", timeout_s)
        if limit_s > LONGEST_TIMEOUT_S:
            rule = f"it must be at most {LONGEST_TIMEOUT_S:g} seconds"
            raise ValueError(f"{owner}.timeout_s is {timeout_s!r}: {rule}")
        self._set(
            name=name or f"{self.kind}-{_digest(what)}",
            match=values.check_text(f"{owner}.match", match),
            timeout_s=limit_s,
        )


class Webhook(Target):
    """Posts JSON to `url`; signed with the key in the variable `secret_env`, if one is named.

    The header `Switchgear-Signature` is `t=<seconds>,v1=<hex>`: HMAC-SHA256 of the time, a dot and
    the body, so that an old message cannot be sent again later. `Switchgear-Id` is the same for the
    same event: a receiver can detect duplicates.
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
        self._set(url=_checked_url("Webhook.url", url))
        self._set(secret_env=_variable("Webhook.secret_env", secret_env))
        self._set_common(name, url, match, timeout_s)

    def send(self, message: Message, now_s: float) -> None:
        """Post the message as JSON."""
        import json

        body = json.dumps(message, sort_keys=True).encode()
        headers = {ID: header_text(message["id"])}
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
        values.check_text("Slack.url_env", url_env)
        self._set(url_env=_variable("Slack.url_env", url_env))
        self._set_common(name, url_env, match, timeout_s)

    def send(self, message: Message, now_s: float) -> None:
        """Post the text of the message; characters that Slack treats as markup are escaped."""
        del now_s
        import json

        text = message["text"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        try:
            url = _checked_url(self.url_env, _secret(self.url_env))
        except ValueError:  # its message contains the URL, which is a secret
            raise NotSent(f"the variable {self.url_env} contains no http URL", True) from None
        _post(url, json.dumps({"text": text}).encode(), {}, self.timeout_s)


class Command(Target):
    """Runs a program, without a shell, with the message as JSON on standard input.

    `run` is split into words as a shell does; no shell is involved.
    """

    __slots__ = ("match", "name", "run", "timeout_s")
    kind: ClassVar[str] = "command"
    run: str

    def __init__(self, run: str, match: str = "*", timeout_s: float = 10.0, name: str = "") -> None:
        import shlex

        try:
            words = shlex.split(values.check_text("Command.run", run))
        except ValueError as error:
            raise ValueError(f"Command.run is {run!r}: {error}") from None
        if not words:
            raise ValueError(f"Command.run is {run!r}: it must name a program")
        self._set(run=run)
        self._set_common(name, run, match, timeout_s)

    def send(self, message: Message, now_s: float) -> None:
        """Run the program; an exit code other than 0 is a failure."""
        del now_s
        import json
        import shlex

        body = json.dumps(message, sort_keys=True).encode() + b"\n"
        _run_program(shlex.split(self.run), body, self.timeout_s)


class Desktop(Target):
    """Shows the message on this computer's desktop: `notify-send`, or `osascript` on macOS.

    A popup that cannot be shown is set aside and not retried, because it would be out of date.
    """

    __slots__ = ("match", "name", "timeout_s")
    kind: ClassVar[str] = "desktop"

    def __init__(self, match: str = "*", timeout_s: float = 10.0, name: str = "") -> None:
        self._set_common(name or "desktop", "desktop", match, timeout_s)

    def send(self, message: Message, now_s: float) -> None:
        """Show the text of the message; SEV1 and SEV2 stay until they are dismissed."""
        del now_s
        import shutil

        text = redact(str(message.get("text", "")), 800)
        title = redact(f"Switchgear: {message.get('circuit') or message.get('kind') or 'notice'}")
        argv = _desktop_argv(title, text, message.get("severity"))
        if shutil.which(argv[0]) is None:
            how = " (Debian, Ubuntu: sudo apt install libnotify-bin)" if "-send" in argv[0] else ""
            what = f"{argv[0]}, the program that shows popups, is not installed; install it{how}"
            other = "choose another target: a URL, slack:VARIABLE or command:PROGRAM"
            raise Unsendable(f"{what}, or {other}")
        try:
            _run_program(argv, b"", self.timeout_s)
        except NotSent as error:
            raise Unsendable(str(error)) from None


TARGETS: dict[str, type[Target]] = {kind.kind: kind for kind in (Webhook, Slack, Command, Desktop)}
"""The targets by the name that the configuration uses."""


def sign(secret: str, body: bytes, at_s: int) -> str:
    """The value of the signature header of a message.

    >>> sign("key", b"{}", 1700000000)[:15]
    't=1700000000,v1'
    """
    import hmac

    digest = hmac.new(
        secret.encode(errors="surrogateescape"), f"{at_s}.".encode() + body, "sha256"
    ).hexdigest()
    return f"t={at_s},v1={digest}"


def verify(
    secret: str, body: bytes, header: str, *, now_s: float, tolerance_s: float = 300
) -> bool:
    """Whether the message of a webhook is authentic and recent; for its receivers.

    >>> verify("key", b"{}", sign("key", b"{}", 100), now_s=101.0)
    True
    """
    import hmac

    time_part = header.partition(",")[0].removeprefix("t=")
    if not time_part.isascii() or not time_part.isdigit() or len(time_part) > 15:
        return False
    at_s = int(time_part)
    is_authentic = hmac.compare_digest(sign(secret, body, at_s).encode(), header.encode())
    return is_authentic and abs(now_s - at_s) <= tolerance_s


def header_text(text: Any) -> str:
    r"""A text as the value of an HTTP header: printable ASCII, everything else percent-encoded.

    >>> header_text("provider/openai#7"), header_text("ä\r\nX: y")
    ('provider/openai#7', '%C3%A4%0D%0AX: y')
    """
    from urllib.parse import quote

    # A header must not begin or end with a space either.
    found = quote(str(text), safe=_UNESCAPED, errors="replace").strip(" ")
    return found if len(found) <= 1000 else f"{found[:900]}-{_digest(str(text))}"


def _post(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> None:
    from switchgear._fleet.http_post import post

    found = post(sendable_url(url), body, {**_login(url), **headers}, timeout_s)
    if found.status is None:
        why = redact(found.problem)
        raise Unsendable(why) if found.is_final else NotSent(why, True)
    if 200 <= found.status < 300:
        return
    moved = "; redirects are not followed" if 300 <= found.status < 400 else ""
    why = f"the answer was HTTP {found.status}{moved}"
    if found.status in REFUSES_CONTENT:
        raise Unsendable(why)
    may_help = found.status >= 500 or found.status in {408, 425, 429}
    raise NotSent(why, may_help, found.retry_after_s)


def _login(url: str) -> dict[str, str]:
    """The user and password of a URL as a header, because a request does not contain them."""
    from urllib.parse import unquote, urlsplit

    found = urlsplit(url)
    if found.username is None:
        return {}
    from base64 import b64encode

    pair = f"{unquote(found.username)}:{unquote(found.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode(errors='replace')).decode()}"}


def _run_program(argv: list[str], body: bytes, timeout_s: float) -> None:
    """Run a program; after the timeout, kill it and its process group. Raises `NotSent`."""
    import subprocess
    import tempfile
    import time

    deadline_s = time.monotonic() + timeout_s
    with tempfile.TemporaryFile() as stdin:  # a pipe would block if the program does not read it
        stdin.write(body)
        stdin.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603  the user's own command, without a shell
                argv,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = redact(str(error))
            if isinstance(error, FileNotFoundError):
                name = redact(repr(argv[0]))
                why = f"{name} cannot be started ({error.strerror}): install it, or correct 'run'"
            raise Unsendable(why) if isinstance(error, ValueError) else NotSent(why, True) from None
    stderr = bytearray()
    try:
        ended = _wait_for(process, deadline_s, stderr)
    finally:
        _end(process)
    if not ended:
        raise NotSent(f"it took longer than {timeout_s:g} s", True)
    if process.returncode:
        text = redact(stderr.decode("utf-8", "replace"))
        raise NotSent(f"exit code {process.returncode}{f': {text}' if text else ''}", True)


def _wait_for(process: Any, deadline_s: float, received: bytearray) -> bool:
    """Whether a program ends before the deadline; `received` gets the end of its standard error.

    Waits only for the program: processes that it started may keep its standard error open.
    """
    import select
    import time

    stderr = process.stderr.fileno()
    os.set_blocking(stderr, False)
    is_open = True
    while True:
        has_ended = process.poll() is not None
        left_s = deadline_s - time.monotonic()
        if is_open and select.select([stderr], [], [], 0.0 if has_ended else _POLL_S)[0]:
            part = os.read(stderr, 1 << 16)
            is_open = bool(part)
            received += part
            del received[:-_KEPT_STDERR]
            if has_ended and is_open and left_s > 0:
                continue
        elif not is_open and not has_ended:
            time.sleep(_POLL_S)
        if has_ended or left_s <= 0:
            return has_ended


def _end(process: Any) -> None:
    """Kill a running program and its process group; close its pipes."""
    import signal
    from contextlib import suppress

    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process.stderr.close()


def _desktop_argv(title: str, text: str, severity: Any) -> list[str]:
    import sys

    if sys.platform == "darwin":
        script = (
            "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend"
        )
        return ["osascript", "-e", script, title, text]
    urgency = "critical" if severity in {"SEV1", "SEV2"} else "normal"
    return ["notify-send", "--app-name=Switchgear", f"--urgency={urgency}", "--", title, text]


def _digest(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode(errors="replace")).hexdigest()[:8]


def _secret(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise NotSent(f"the environment variable {variable} is not set, or is empty", True)
    return value


def _checked_url(field: str, url: Any) -> str:
    text = values.check_text(field, url)
    try:
        sendable_url(text)
    except NotSent as error:
        raise ValueError(f"{field} is {redact(text)!r}: {error}") from None
    return text


def sendable_url(url: str) -> str:
    """The URL in ASCII, with other characters percent-encoded. Raises `NotSent`.

    >>> sendable_url("https://example.com/ä")
    'https://example.com/%C3%A4'
    """
    from urllib.parse import quote, urlsplit

    rule = "it must be an http or https URL"
    if url.startswith("${"):
        rule += ", written out: variables are not replaced here"
    if not url.isprintable():
        raise Unsendable(rule)
    try:
        found = urlsplit(url)
        host, port = found.hostname or "", found.port
        ascii_host = host if host.isascii() else host.encode("idna").decode()
    except ValueError:
        raise Unsendable(rule) from None
    if found.scheme not in {"http", "https"} or not host or " " in host or port == 0:
        raise Unsendable(rule)
    place = f"[{ascii_host}]" if ":" in ascii_host else ascii_host
    authority = place if port is None else f"{place}:{port}"
    path = quote(found.path, safe="/%:@!$&'()*+,;=~-._")
    query = f"?{quote(found.query, safe=_UNESCAPED.replace(' ', '') + '%')}" if found.query else ""
    return f"{found.scheme}://{authority}{path or '/'}{query}"


def _variable(field: str, name: Any) -> str:
    if not isinstance(name, str) or (name and not name.isidentifier()):
        raise ValueError(f"{field} is {name!r}: it must be the name of an environment variable")
    return name
