"""Requests a second opinion: from the cache, or within budget and time limit from the command or the model.

Failures of the command or the model do not raise: an error, a timeout, an invalid answer or an exhausted budget is
`Opinion("none", why)`, and the agent is stopped.
"""

import fcntl
import hashlib
import http.client
import ipaddress
import json
import math
import os
import select
import shlex
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple, cast
from urllib.parse import urlsplit

from switchgear._agents.events import Usage
from switchgear._agents.fields import parsed
from switchgear._agents.prices import cost_of
from switchgear._opinion import opinion
from switchgear._opinion.opinion import (
    ANTHROPIC,
    MAX_ANSWER_BYTES,
    NONE,
    REVIEW_VARIABLE,
    ModelAnswer,
    Opinion,
    SecondOpinion,
    no_opinion,
)
from switchgear._system.files import make_private_folder, read_private, write_private
from switchgear._text.redact import redact

FOLDER = "opinions"
"""The folder beside the store with answers, the cache and the spend."""
DAY_S = 86_400.0
MAX_TOKENS = 400
"""Maximum number of tokens of a model's answer."""
_MAX_FILES = 200
_POLL_S = 0.1
_END_TIMEOUT_S = 2.0
"""Seconds to wait for the end of a command whose answer is no longer needed; it must not outlive this process."""
_RUN_ENDED = "not waited for: the run ends"
_LEDGER_NAME = "spent.json"


class NoOpinion(Exception):
    """There is no usable answer, with the reason."""


def consult(
    settings: SecondOpinion,
    request: Mapping[str, Any],
    folder: str,
    cwd: str,
    environ: Mapping[str, str] | None = None,
    *,
    is_abandoned: Callable[[], bool] = lambda: False,
) -> Opinion:
    """Request an opinion, and wait for it for at most `settings.timeout_s`.

    - `folder`: the private folder of the cache and the budget.
    - `cwd`: the working directory of a command.
    - `is_abandoned`: returns whether the answer is no longer needed; then the command is ended.
    """
    environ = os.environ if environ is None else environ
    try:
        make_private_folder(folder)
        cache_file = _cache_file(settings, request, folder, cwd)
        cached = _cached_opinion(settings, cache_file)
        if cached is not None:
            return cached._replace(cost_micros=0)
        refused = _reserve(settings, request, folder)
        if refused:
            return no_opinion(refused, settings.source)
        due_s = time.monotonic() + settings.timeout_s
        if settings.command is not None:
            answer = ModelAnswer(
                _from_command(settings, request, cwd, environ, due_s, is_abandoned=is_abandoned)
            )
        else:
            answer = _from_model(settings, request, environ, due_s)
        found = opinion.parsed(answer.text, settings)
        found = found._replace(cost_micros=_cost(settings, answer))
        _settle(settings, request, folder, found.cost_micros)
        if found.verdict != NONE:
            write_private(cache_file, opinion.dumped(found).encode())
        _remove_old_files(folder)
    except NoOpinion as error:
        return no_opinion(str(error), settings.source)
    except (OSError, ValueError) as error:
        return no_opinion(f"not requested: {error}", settings.source)
    return found


def consult_in_thread(
    settings: SecondOpinion,
    request: Mapping[str, Any],
    folder: str,
    cwd: str,
    is_abandoned: Callable[[], bool] = lambda: False,
) -> Opinion:
    """Like `consult`, but returns in time even if the command or the model API blocks.

    `is_abandoned` is called several times per second.
    """
    answers: list[Opinion] = []
    thread = threading.Thread(
        target=lambda: answers.append(
            consult(settings, request, folder, cwd, is_abandoned=is_abandoned)
        ),
        name="switchgear-second-opinion",
        daemon=True,
    )
    thread.start()
    due_s, why = time.monotonic() + settings.timeout_s + 1.0, ""
    while not why:
        thread.join(_POLL_S)
        if answers:
            return answers[0]
        if is_abandoned():
            why = _RUN_ENDED
            thread.join(0.0 if settings.command is None else _END_TIMEOUT_S)
        elif not thread.is_alive() or time.monotonic() >= due_s:
            why = f"no answer within {settings.timeout_s:g} s"
    return no_opinion(why, settings.source)


# The cache and the budget


def _cache_file(settings: SecondOpinion, request: Mapping[str, Any], folder: str, cwd: str) -> str:
    source = [settings.command, *_modification_times(settings.command or "", cwd), settings.model]
    identity = [source, settings.api, {**request, "heat": 0}]
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    return os.path.join(folder, f"cache-{key}.json")


def _modification_times(command: str, cwd: str) -> list[int]:
    """The modification times of the files that a command names, so that an edited script is run again."""
    found: list[int] = []
    with suppress(ValueError):
        for word in shlex.split(command):
            with suppress(OSError):
                found.append(os.stat(os.path.join(cwd, word)).st_mtime_ns)
    return found


def _cached_opinion(settings: SecondOpinion, path: str) -> Opinion | None:
    try:
        age_s = time.time() - os.stat(path).st_mtime
    except OSError:
        return None
    if not 0 <= age_s < settings.cache_s:
        return None
    found = opinion.loaded(read_private(path, MAX_ANSWER_BYTES), settings)
    return None if found is None else found._replace(source=f"{settings.source}{opinion.CACHED}")


class SpendLedger(NamedTuple):
    """The calls and the spend since `began_s`, for at most 24 hours. Immutable."""

    began_s: float = 0.0
    calls: int = 0
    micros: int = 0

    @classmethod
    def load(cls, data: bytes, now_s: float) -> "SpendLedger":
        """The ledger in a file, or a new one if it is older than a day. Raises ValueError if it is damaged."""
        try:
            values = json.loads(data)
            found = cls(float(values["began_s"]), int(values["calls"]), int(values["micros"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise ValueError("it is damaged") from None
        return found if now_s - found.began_s < DAY_S else cls(now_s)


@contextmanager
def _ledger(folder: str) -> Iterator[tuple[SpendLedger, str]]:
    """The ledger and its path, locked against other processes."""
    path = os.path.join(folder, _LEDGER_NAME)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _read_ledger(path), path
    finally:
        os.close(lock)


def _read_ledger(path: str) -> SpendLedger:
    """The ledger. Raises `NoOpinion` if it cannot be read, because the budget may be exhausted."""
    if not os.path.lexists(path):
        return SpendLedger(time.time())
    data = read_private(path, 4096)
    try:
        if data is not None:
            return SpendLedger.load(data, time.time())
        why = "it is not a private file"
    except ValueError as error:
        why = str(error)
    raise NoOpinion(f"unknown spend: {why}; to start at 0, remove {path}")


def _write_ledger(path: str, ledger: SpendLedger) -> None:
    write_private(path, json.dumps(ledger._asdict()).encode())


def _reserve(settings: SecondOpinion, request: Mapping[str, Any], folder: str) -> str:
    """Reserve a call and its maximum cost. Returns why not; empty: it is reserved."""
    with _ledger(folder) as (ledger, path):
        if ledger.calls >= settings.calls_per_day:
            return f"{ledger.calls} opinions in 24 h (limit {settings.calls_per_day})"
        highest = _highest_cost(settings, request)
        limit = settings.budget_micros
        if ledger.micros + highest > limit:
            spent, most = ledger.micros / 1e6, limit / 1e6
            return f"budget: ${spent:.2f} spent in 24 h, and one more would exceed ${most:.2f}"
        _write_ledger(path, ledger._replace(calls=ledger.calls + 1, micros=ledger.micros + highest))
    return ""


def _settle(
    settings: SecondOpinion, request: Mapping[str, Any], folder: str, cost_micros: int | None
) -> None:
    """Replace the reserved cost by the actual one; if that is unknown, keep the reservation."""
    if cost_micros is None:
        return
    with _ledger(folder) as (ledger, path):
        spent = max(0, ledger.micros - _highest_cost(settings, request) + cost_micros)
        _write_ledger(path, ledger._replace(micros=spent))


def _highest_cost(settings: SecondOpinion, request: Mapping[str, Any]) -> int:
    """The maximum cost of a call; 0: the price is unknown, and only the number of calls is limited."""
    if settings.model is None:
        return 0
    text = opinion.prompt(request) + opinion.SYSTEM
    tokens = math.ceil(len(text.encode()) / 2)  # a token has at least two bytes on average
    return cost_of([Usage(settings.model, tokens, MAX_TOKENS)]).micros or 0


def _cost(settings: SecondOpinion, answer: ModelAnswer) -> int | None:
    if settings.model is None:
        return 0
    if not (answer.input_tokens or answer.output_tokens):
        return None
    usage = Usage(settings.model, answer.input_tokens, answer.output_tokens)
    return cost_of([usage]).micros


def _remove_old_files(folder: str) -> None:
    """Remove the oldest answers and cache files beyond `_MAX_FILES`."""
    with suppress(OSError):
        found = [entry for entry in os.scandir(folder) if entry.name.endswith(".json")]
        found = [entry for entry in found if entry.name != _LEDGER_NAME]
        if len(found) <= _MAX_FILES:
            return
        found.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime)
        for entry in found[: len(found) - _MAX_FILES]:
            os.unlink(entry.path)


# The command and the model


def _from_command(
    settings: SecondOpinion,
    request: Mapping[str, Any],
    cwd: str,
    environ: Mapping[str, str],
    due_s: float,
    *,
    is_abandoned: Callable[[], bool],
) -> str:
    argv = shlex.split(settings.command or "")
    if not argv:
        raise NoOpinion("the command is empty")
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps(request).encode())
        given.seek(0)
        process = subprocess.Popen(  # noqa: S603  the user's own command
            argv,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cwd or None,
            env={**environ, REVIEW_VARIABLE: "1"},
            start_new_session=True,
        )
    pipe = cast("IO[bytes]", process.stdout).fileno()

    def read(left_s: float) -> bytes | None:
        due_s = time.monotonic() + left_s
        while not select.select([pipe], [], [], min(left_s, _POLL_S))[0]:
            if process.poll() is not None:
                ready = select.select([pipe], [], [], 0.0)[0]
                return os.read(pipe, 65_536) if ready else b""  # a child may still hold the pipe
            if is_abandoned():
                raise NoOpinion(_RUN_ENDED)
            if time.monotonic() >= due_s:
                return None
        return os.read(pipe, 65_536)

    try:
        output = _read_all(read, due_s, settings.timeout_s)
        left_s = max(0.0, due_s - time.monotonic())
        code = process.wait(timeout=left_s)
    except subprocess.TimeoutExpired:
        raise NoOpinion(f"no answer within {settings.timeout_s:g} s") from None
    finally:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        process.wait()
    if code != 0:
        raise NoOpinion(f"the command ended with exit code {code}")
    return output.decode(errors="replace")


def _read_all(read: Callable[[float], bytes | None], due_s: float, timeout_s: float) -> bytes:
    """All data from `read(left_s)`, which returns empty bytes at the end, and `None` if none arrived in time."""
    found = b""
    while (left_s := due_s - time.monotonic()) > 0 and (part := read(left_s)) is not None:
        if not part:
            return found
        found += part
        if len(found) > MAX_ANSWER_BYTES:
            raise NoOpinion(f"the answer is larger than {MAX_ANSWER_BYTES // 1024} KiB")
    raise NoOpinion(f"no answer within {timeout_s:g} s")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, which could send the key to another host."""

    def redirect_request(self, *arguments: Any) -> None:
        del arguments


def _from_model(
    settings: SecondOpinion, request: Mapping[str, Any], environ: Mapping[str, str], due_s: float
) -> ModelAnswer:
    base = (environ.get(settings.url_variable) or settings.default_url).rstrip("/")
    is_local = _check_url(base, settings.url_variable)
    key = environ.get(settings.key_variable, "")
    if not key or not key.isascii() or not key.isprintable():
        raise NoOpinion(f"no API key in ${settings.key_variable}")
    headers = {"content-type": "application/json", "accept": "application/json"}
    if settings.api == ANTHROPIC:
        url = f"{base}/v1/messages"
        headers |= {"x-api-key": key, "anthropic-version": "2023-06-01"}
    else:
        url, headers = f"{base}/chat/completions", {**headers, "authorization": f"Bearer {key}"}
    data = json.dumps(opinion.body(settings, request, MAX_TOKENS)).encode()
    http_request = urllib.request.Request(url, data, headers, method="POST")  # noqa: S310  checked
    direct = [urllib.request.ProxyHandler({})] if is_local else []
    opener = urllib.request.build_opener(_NoRedirects, *direct)
    try:
        with opener.open(http_request, timeout=max(0.1, due_s - time.monotonic())) as response:
            raw = _read_all(lambda _: response.read1(65_536), due_s, settings.timeout_s)
    except urllib.error.HTTPError as error:
        with error:
            raise NoOpinion(f"the model API answered {error.code}") from None
    except TimeoutError:
        raise NoOpinion(f"no answer within {settings.timeout_s:g} s") from None
    except (urllib.error.URLError, http.client.HTTPException) as error:
        raise NoOpinion(f"the model API cannot be reached: {redact(str(error))}") from None
    found = opinion.model_answer(settings.api, parsed(raw))
    if found is None:
        raise NoOpinion("the model API answered without a text")
    return found


def _check_url(url: str, variable: str) -> bool:
    """Raise `NoOpinion` for an invalid URL, and for plain HTTP to another machine, which would expose the key.

    Returns whether it is an address of this machine; such requests do not use a proxy.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise NoOpinion(f"${variable} contains no URL") from None
    is_local = host == "localhost"
    with suppress(ValueError):  # a host name
        is_local = is_local or ipaddress.ip_address(host).is_loopback
    if not host or parts.scheme not in ({"https", "http"} if is_local else {"https"}):
        raise NoOpinion(f"${variable} must be https://, or http:// to this machine")
    return is_local
