"""The file that agents run: `python -I -S …/entry.py AGENT`. As small as can be: it has no cache.

The package is entered by a side door. `switchgear/__init__.py` brings the whole library along,
and a hook needs a tenth of it; so the package is registered by its folder alone.

Agents take a hook that fails, or says nothing, for one that approves. So every way out of this process
is an answer: what nothing else has answered is refused here, with exit code 2. A process in which
something unexpected happens first starts over without the bundle and without stand-ins
(`--plain SINCE`): a defect of theirs costs time, and nothing else.
"""

import gc
import os
import sys

PLAIN = "--plain"
_AFTER = (
    *("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "PostToolBatch"),
    *("SubagentStart", "SubagentStop", "Stop", "SessionEnd", "Notification", "PreCompact"),
    *("AfterTool", "AfterModel", "AfterAgent", "BeforeAgent", "BeforeModel"),
)
"""Events that are not before a tool: there is nothing to refuse."""
LAST_S = 13
"""After this many seconds the process refuses, whatever it waits for: the deadline in `pending` begins
when the modules are imported, and a file that cannot be read in time would delay that for ever."""
_SIGNALS = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU")


def run() -> None:
    """Answer one hook call; does not return."""
    heard: list[bytes] = []
    try:
        _see_to_the_streams()
        _see_to_signals(heard)
        if "switchgear" not in sys.modules:
            package = type(sys)("switchgear")
            package.__path__ = [__file__.rpartition("/hooks/")[0]]
            sys.modules["switchgear"] = package
        gc.disable()  # so short a life leaves no garbage worth collecting
        _answer(heard)
    except BaseException as error:  # noqa: BLE001  see above
        refuse(f"{type(error).__name__}: {error}", heard)
    refuse("it ended without an answer", heard)


def _answer(heard: "list[bytes]") -> None:
    words = sys.argv
    if PLAIN in words:
        at = words.index(PLAIN)
        since_s = float(words[at + 1])
        from switchgear._hooks.process import main  # noqa: PLC0415  found only now

        main(words[:at], lambda: None, heard, since_s=since_s)
    try:
        from switchgear._hooks import bundle  # noqa: PLC0415

        modules = bundle.use()
        from switchgear._hooks.process import main  # noqa: PLC0415
    except Exception:
        start_over(None, None)
        raise
    main(words, lambda: bundle.keep(modules), heard, start_over)


def start_over(raw: "bytes | None", since_s: "float | None") -> None:
    """Become the same hook process without bundle and stand-ins; returns only where that fails.

    `raw` is the input, if it was read already; `since_s` when the hook began, on the monotonic clock.
    """
    try:
        import time  # noqa: PLC0415  built in

        if raw is not None:
            os.dup2(_file_of(raw), 0)
        since_s = time.monotonic() if since_s is None else since_s
        line = [sys.executable, "-I", "-S", __file__, *sys.argv[1:], PLAIN, repr(since_s)]
        os.execv(sys.executable, line)  # noqa: S606  ourselves
    except (OSError, ValueError, TypeError):
        return


def _file_of(raw: bytes) -> int:
    """A file without a name that holds these bytes, to be read from its beginning."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("switchgear-hook")
    else:
        path = f"/tmp/.switchgear-hook-{os.getpid()}-{os.urandom(8).hex()}"  # noqa: S108  at once gone
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)
    while raw:
        raw = raw[os.write(file, raw) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def refuse(why: str, heard: "list[bytes]") -> None:
    """Refuse a call that nothing else has answered; does not return."""
    text = f"Switchgear could not check this call, and refused it: {why[:500]}"
    code = 0 if _is_over(heard) else 2
    try:
        os.write(2, f"{text}\n".encode(errors="replace"))
        if sys.argv[1:2] in (["opencode"], ["pi"]) and code:
            import json  # noqa: PLC0415  only here

            os.write(1, json.dumps({"action": "deny", "text": text, "remark": text}).encode())
    finally:
        os._exit(code)


def _is_over(heard: "list[bytes]") -> bool:
    """Whether what was heard is surely an event behind which there is no tool call."""
    try:
        import json  # noqa: PLC0415  only here

        data = json.loads(heard[0])
        return data.get("hook_event_name") in _AFTER
    except BaseException:  # noqa: BLE001  then it is not sure
        return False


def _see_to_the_streams() -> None:
    """Open closed standard streams so that no other file takes their place; writing to one fails."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # takes the lowest number that is free


def _see_to_signals(heard: "list[bytes]") -> None:
    """A hook that is ended from outside refuses: otherwise its end would approve the call."""
    import _signal  # type: ignore[import-not-found]  # noqa: PLC0415  `signal` is slow to import

    def end(number: int, _: object) -> None:
        late = number == _signal.SIGALRM
        refuse(
            f"no answer after {LAST_S} s" if late else f"it was ended by signal {number}",
            heard if late else [],
        )

    for name in _SIGNALS:
        number = getattr(_signal, f"SIG{name}", None)
        if number is not None:
            _signal.signal(number, end)
    if PLAIN not in sys.argv:  # starting over does not start the clock again
        _signal.alarm(LAST_S)


if __name__ == "__main__":
    run()
