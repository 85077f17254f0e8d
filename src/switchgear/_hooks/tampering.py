"""What has changed of the files that guard a project without an operator, and its repair.

Settings and plugins that hold our hooks are repaired whenever they are found changed: without them
nothing else would guard. A configuration file is different, because people edit it while an agent
works: what is not trusted has no effect anyway. It is reverted only if it changed during a tool
call; a change between calls is left as it is, and waits for `switchgear trust`.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

from switchgear._config.places import PROJECT, candidates
from switchgear._config.trust import Trusted, content, digest_of, is_lost, is_own, record_of
from switchgear._hooks.install import saved
from switchgear._hooks.saved_refs import repair_refs, watched_refs


class Found(NamedTuple):
    """What a look found."""

    reverted: tuple[str, ...]
    failed: tuple[str, ...]
    """What could not be reverted, and why: the session is stopped until it can be."""
    unsettled: bool
    """Whether a changed configuration was seen only by a process that watches."""
    seen: str
    """The digest of a changed configuration that was there outside a call; empty: none."""
    watched: list[str]
    """The files whose change is noticed by the next hook."""
    copied: list[str]
    """The files that have a saved copy."""


def look(
    root: str,
    *,
    seen: str,
    during_call: bool | None,
    copied: Sequence[str] = (),
    trusted: str | None = None,
) -> Found:
    """Look at everything that guards the project at `root`, and revert what no operator did.

    `copied` are the files that had a saved copy at the last look, `trusted` the configuration that
    was in effect.
    """
    reverted = [f"the saved copy of {path} was removed" for path in saved.lost(copied)]
    if trusted is not None and not is_own(trusted) and is_lost(trusted):
        reverted.append(f"the record that {trusted} is trusted was removed")
    failed: list[str] = []
    watched: list[str] = []
    for step in (saved.repair, repair_refs):
        try:
            done = step(root)
            reverted += done.done
            failed += done.failed
        except Exception as error:  # noqa: BLE001  a guard that cannot look must say so
            failed.append(f"the files that guard {root} could not be checked: {error}")
    changed = _changed_config(root)
    unsettled, now_seen = False, ""
    if changed is not None:
        record, digest = changed
        now_seen = digest
        if during_call and digest != seen:
            try:
                reverted.append(_revert(record))
                now_seen = ""
            except (OSError, ValueError) as error:
                failed.append(f"{record.path} could not be restored: {error}")
        elif during_call is None and digest != seen:
            unsettled, now_seen = True, seen
    try:
        watched = [*saved.watched(root), *watched_refs(root)]
    except OSError as error:
        failed.append(f"the files that guard {root} could not be checked: {error}")
    copies = [each.path for each in saved.saved_in(root)]
    return Found(tuple(reverted), tuple(failed), unsettled, now_seen, watched, copies)


def _changed_config(root: str) -> tuple[Trusted, str] | None:
    """The trusted configuration of a project, if its file is another one now, and that one's digest."""
    for path in candidates(root):
        record = record_of(path)
        if record is None:
            continue
        data = content(path)
        digest = "-" if data is None else digest_of(path, data)
        return None if digest == record.digest else (record, digest)
    return None


def _revert(record: Trusted) -> str:
    """Put the trusted content back; the changed text is kept aside."""
    path = record.path
    now = content(path)
    what = "was removed or made unreadable" if now is None else "was changed"
    aside = "" if now is None else saved.keep_aside(path, now)
    kept = f", and the changed text is in {aside}" if aside else ""
    data = record.text.encode()
    if os.path.basename(path) == PROJECT and now is not None:
        data = _with_table(now.decode(errors="replace"), record.text).encode()
        if digest_of(path, data) != record.digest:
            data = record.text.encode()
    saved.put_back(os.path.dirname(path), path, data, 0o644)
    return f"{path} {what} during a tool call: the trusted content was restored{kept}"


def _with_table(now: str, good: str) -> str:
    """A `pyproject.toml` of now with our tables as they were in the good one."""
    rest = [part for part in _tables(now) if not _is_ours(part)]
    ours = [part for part in _tables(good) if _is_ours(part)]
    text = "".join(rest)
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{''.join(ours)}"


def _tables(text: str) -> list[str]:
    """The text in parts that each begin with the header of a table."""
    parts = [""]
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            parts.append("")
        parts[-1] += line
    return parts


def _is_ours(part: str) -> bool:
    header = (
        part.split("]", maxsplit=1)[0]
        .replace(" ", "")
        .replace('"', "")
        .replace("'", "")
        .lstrip("[")
    )
    return header == "tool.switchgear" or header.startswith("tool.switchgear.")
