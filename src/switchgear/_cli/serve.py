"""`switchgear serve`: hooks over HTTP; with the extra `console`, also the API, metrics and the web page."""

import os
import secrets
import signal
import stat
import threading
from typing import Any

import click

from switchgear._cli.options import fail, given, store_options
from switchgear._cli.views.text import clean, say
from switchgear._config.proxy import is_loopback
from switchgear._console.access import digest
from switchgear._console.process import EXTRA, ConsoleProcess, ConsoleSettings, is_installed
from switchgear._hooks import client, resident
from switchgear._hooks.hook_config import CONFIG_VARIABLE, STORE_VARIABLE, HookConfig
from switchgear._hooks.process import open_store
from switchgear._hooks.server import HOST, HookServer
from switchgear._stores.base import Store
from switchgear._stores.url import default_file, keep_out_of_git

# Paths are strings, as in the stores.
# ruff: noqa: PTH100, PTH103, PTH109, PTH118, PTH120, PTH123

DEFAULT_PORT = 4737

TOKEN_NAME = "serve.token"  # noqa: S105  the name of a file
OPERATOR_TOKEN_NAME, READ_TOKEN_NAME = "operator.token", "read.token"


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--host",
    default=HOST,
    help="Address on which the API and the page listen; hooks are answered on 127.0.0.1 only.",
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Also accept requests for this host name.",
)
@click.option(
    "--console/--no-console",
    "console",
    default=None,
    help="Serve the API, metrics and the page. [default: if the extra 'console' is installed]",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    help="File with the token of hooks [default: serve.token next to the store, created if missing].",
)
@click.option(
    "--operator-token-file",
    type=click.Path(dir_okay=False),
    help="File with the operator token [default: operator.token next to the store].",
)
@click.option(
    "--read-token-file",
    type=click.Path(dir_okay=False),
    help="File with the read-only token [default: read.token next to the store].",
)
@store_options
def serve(
    *,
    port: int,
    host: str,
    names: tuple[str, ...],
    console: bool | None,
    token_file: str | None,
    operator_token_file: str | None,
    read_token_file: str | None,
) -> None:
    """Answer hooks, the API, metrics and the web page over HTTP, until Ctrl-C or SIGTERM.

    Agents can send hooks over HTTP (Claude Code: type "http"). The resident process answers them,
    so no process is started per call.

    The API under /v1, /metrics and the page need the extra 'console'. Every request needs the
    header 'Authorization: Bearer TOKEN'. There are three tokens, in files that only you can read:
    read.token allows reading, serve.token also acquiring and recording, operator.token also
    overrides. If the configuration has an operator token, that one is needed for overrides.
    """
    root = os.getcwd()
    for option, variable in (("store", STORE_VARIABLE), ("config", CONFIG_VARIABLE)):
        if given(option) is not None:
            os.environ[variable] = given(option)
    has_console = is_installed() if console is None else console
    if has_console and not is_installed():
        fail(EXTRA)
    if not has_console and not is_loopback(host):
        fail(f"hooks are answered on {HOST} only; to serve the page on {host}: {EXTRA}")
    folder = os.path.dirname(default_file(root))
    token_file = token_file or os.path.join(folder, TOKEN_NAME)
    operator_file = operator_token_file or os.path.join(folder, OPERATOR_TOKEN_NAME)
    read_file = read_token_file or os.path.join(folder, READ_TOKEN_NAME)
    token = read_or_create_token(token_file)
    console_process = None
    if has_console:
        tokens = (read_or_create_token(read_file), token, read_or_create_token(operator_file))
        console_process = ConsoleProcess(_settings(root, tokens, host, names))
    process = _ResidentProcess()
    try:
        server = HookServer(
            root,
            token,
            _Stores(),
            port=port,
            ask=resident.ask,
            start=process.start,
            host=host,
            hand_over=None if console_process is None else console_process.hand_over,
        )
    except OSError as error:
        why = error.strerror or str(error)
        fail(f"cannot listen on {host}:{port}: {why}; choose another port with --port")
    say(f"answering hooks of {clean(root, 500)} on http://{HOST}:{server.port}/hooks/AGENT")
    say(f"token in {clean(token_file, 500)}; Ctrl-C stops")
    if console_process is not None:
        console_process.start()
        shown = f"[{host}]" if ":" in host else host
        say(
            f"console: http://{clean(shown)}:{server.port}/ (API under /v1, metrics under /metrics)"
        )
        say(f"sign in with the token in {clean(operator_file, 500)}, or to only read, in")
        say(f"  {clean(read_file, 500)}")
    _stop_on_signals(server)
    process.start()
    try:
        with server:
            server.serve_forever(poll_interval=0.2)
    finally:
        if console_process is not None:
            console_process.stop()
    say("stopped")


def _settings(
    root: str, tokens: tuple[str, str, str], host: str, names: tuple[str, ...]
) -> ConsoleSettings:
    """The settings of the console's process; `tokens` are those for reading, for hooks and for operators."""
    if len(set(tokens)) < len(tokens):
        fail("two token files hold the same token; use a different token for each role")
    loopback, store = is_loopback(host), os.environ.get(STORE_VARIABLE) or None
    accepted = names if loopback else (*names, host)
    read, client, operator = map(digest, tokens)
    return ConsoleSettings(root, store, read, client, operator, loopback, accepted)


def read_or_create_token(path: str) -> str:
    """The token in a file, which is created if it is missing. Ends the command if the file is not usable."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return _create_token(path)
    except OSError as error:
        fail(f"the token file {path} cannot be read: {error.strerror}")
    with open(handle, encoding="utf-8", errors="replace") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077:
            fail(f"the token file {path} can be read by others; run: chmod 600 {path}")
        token = file.read(1000).strip()
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        fail(f"the token file {path} must hold one word of at least 16 characters")
    return token


def _create_token(path: str) -> str:
    token = secrets.token_urlsafe(24)
    folder = os.path.dirname(os.path.abspath(path))
    try:
        keep_out_of_git(folder)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        fail(f"the token file {path} cannot be created: {error.strerror}")
    with open(handle, "w", encoding="utf-8") as file:
        file.write(token + "\n")
    return token


class _ResidentProcess:
    """Starts a resident process unless one runs or it is disabled. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: threading.Thread | None = None
        """Waits until the process that was started here ends."""

    def start(self) -> None:
        """Start the process, without waiting for it."""
        if os.environ.get(client.RESIDENT_VARIABLE) == "off":
            return
        with self._lock:
            if self._waiting is None or not self._waiting.is_alive():
                self._waiting = threading.Thread(
                    target=resident.start, kwargs={"wait": True}, daemon=True
                )
                self._waiting.start()


class _Stores:
    """The stores of all configurations that were in effect, each opened once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Store] = {}

    def __call__(self, known: HookConfig) -> Store:
        with self._lock:
            store = self._open.get(known.store)
            if store is None:
                store = self._open[known.store] = open_store(known)
            return store


def _stop_on_signals(server: Any) -> None:
    def stop(number: int, frame: object) -> None:
        del number, frame
        # In another thread: `shutdown` waits for the loop, which this thread runs.
        threading.Thread(target=server.shutdown, daemon=True).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
