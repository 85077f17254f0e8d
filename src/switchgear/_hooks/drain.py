"""Emits the events of a project in a separate process: to sinks, as incidents and as notifications.

It runs as `detached.py …/drain.py FOLDER` with a JSON object on standard input. `events` has the events that
a hook committed and the configured sinks must receive; `config` and `store` override those of the folder.
Afterwards it writes incidents and the world state, and sends the notifications that are due. It ends after
at most `PROCESS_LIMIT_S` seconds; the next process does the remaining work.
"""

import json
import os
import sys
from typing import Any

PROCESS_LIMIT_S = 90
LOG_NAME = "outbox.log"
MAX_LOG_BYTES = 256 * 1024
MAX_INPUT_BYTES = 1 << 20
SELF_TEST_PREFIX = "switchgear-selftest-"
"""Prefix of the temporary project of a self-test. Its events are not emitted."""


def process(folder: str, request: dict[str, Any]) -> None:
    """Call the sinks with the events, then process the outbox."""
    from switchgear._config import load_config  # noqa: PLC0415  reads YAML
    from switchgear._config.trust import effective_config  # noqa: PLC0415
    from switchgear._core.wire import load_event  # noqa: PLC0415
    from switchgear._sinks.dispatch import emit  # noqa: PLC0415
    from switchgear._stores.url import default_file  # noqa: PLC0415

    if _is_self_test(folder):
        return
    home = os.path.dirname(default_file(folder))
    _log_to(os.path.join(home, LOG_NAME))
    named, typed = request.get("config"), request.get("for_command") is True
    config = load_config(named) if named else effective_config(folder, for_command=typed).config
    emit([load_event(event) for event in request.get("events", ())], config.sinks)
    if has_outbox(config):
        url = request.get("store") or os.environ.get("SWITCHGEAR_STORE") or config.store
        process_outbox(config, url or f"sqlite:///{default_file(folder)}")


def _is_self_test(folder: str) -> bool:
    """Whether the folder is the temporary project of a self-test, and not a user's project with such a name."""
    import tempfile  # noqa: PLC0415

    above, name = os.path.split(os.path.realpath(folder))
    return name.startswith(SELF_TEST_PREFIX) and above == os.path.realpath(tempfile.gettempdir())


def has_outbox(config: Any) -> bool:
    """Whether a configuration enables incidents, the world state or notifications."""
    return bool(config.notifications or config.crew.agents or config.breakers is not None)


def is_due(config: Any, panel: Any) -> bool:
    """Whether there is something to write or send now. Changes nothing. Raises `StoreError`."""
    from switchgear._fleet.delivery import Delivery, OutboxPlace  # noqa: PLC0415
    from switchgear._fleet.fleet import Fleet  # noqa: PLC0415

    fleet = Fleet(panel, config.crew, config.breakers)
    if config.breakers is not None and not OutboxPlace(panel, "incidents", "").is_at_end():
        return True
    return any(Delivery(fleet, target).is_due() for target in config.notifications)


def process_outbox(config: Any, url: str) -> None:
    from switchgear._fleet.fleet import Fleet  # noqa: PLC0415
    from switchgear._fleet.watcher import Watcher, folder_of  # noqa: PLC0415
    from switchgear._panel.panel import Panel  # noqa: PLC0415

    with Panel(url, policies=config.policy_for) as panel:
        fleet = Fleet(panel, config.crew, config.breakers)
        watcher = Watcher(fleet, folder_of(url), config.notifications)
        if config.breakers is not None:
            watcher.note()
        watcher.deliver()


def start(
    folder: str, *, config: str | None = None, store: str | None = None, for_command: bool = False
) -> None:
    """Start the separate process for a folder, and do not wait for it.

    - `config`: the configuration file that the user named; default: the trusted one of the folder.
    - `for_command`: whether a person typed a command, see `effective_config`.
    """
    from switchgear._hooks.detached import start_detached  # noqa: PLC0415

    given = {"config": config, "store": store, "for_command": for_command}
    try:
        start_detached("drain", folder, stdin=json.dumps(given).encode())
    except OSError:
        return  # the next event starts another process


def _log_to(path: str) -> None:
    """Log the warnings of sinks and targets to a file, because this process has no standard error."""
    import logging  # noqa: PLC0415

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        if os.path.getsize(path) > MAX_LOG_BYTES:
            os.replace(path, f"{path}.1")
    except OSError:
        pass  # there is no log yet
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("switchgear").addHandler(handler)


def main(words: list[str]) -> int:
    """Process the outbox of the folder in a separate process; errors are logged."""
    import signal  # noqa: PLC0415

    from switchgear._hooks.hook_config import enable_site_packages  # noqa: PLC0415

    signal.alarm(PROCESS_LIMIT_S)
    enable_site_packages()  # the YAML parser is in site-packages
    try:
        process(words[1], json.loads(sys.stdin.buffer.read(MAX_INPUT_BYTES) or b"{}"))
    except Exception:  # noqa: BLE001  all errors are logged
        from switchgear._sinks.dispatch import log_exception  # noqa: PLC0415

        log_exception("the outbox could not be processed")
        return 1
    return 0
