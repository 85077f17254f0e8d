"""Finds and reverts changes to the files that guard a project, if no operator made them.

Settings and plugins with Switchgear hooks are always repaired, because nothing is guarded without them. A
configuration file is reverted only if it changed during a tool call. People edit it while an agent works, so a
change between calls is left as it is: it has no effect until the user runs `switchgear trust`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from switchgear._config.loader import PROJECT, candidates
from switchgear._config.trust import Trusted, content, digest_of, is_lost, is_own, record_of
from switchgear._hooks.install import saved_copies
from switchgear._hooks.install.saved_copies import Repaired
from switchgear._measure.git_command import Deadline, GitError, run_git
from switchgear._measure.saved_refs import common_dir, remembered_refs, write_refs
from switchgear._system.files import read_regular

TIMEOUT_S = 5.0
_MAX_PACKED_BYTES = 50_000_000


def watched_refs(root: str) -> list[str]:
    """The folders and files that change when a git reference of saved work changes."""
    git = common_dir(root)
    refs = {} if git is None else remembered_refs(git)
    if git is None or not refs:
        return []
    folders = {os.path.dirname(os.path.join(git, name)) for name in refs}
    return [*sorted(folders), f"{git}/refs/switchgear", f"{git}/packed-refs"]


def repair_refs(root: str) -> Repaired:
    """Restore every remembered git reference to its commit, if the commit still exists."""
    git = common_dir(root)
    refs = {} if git is None else remembered_refs(git)
    if git is None or not refs:
        return Repaired()
    current = _current_commits(git, refs)
    lines: list[str] = []
    kept_refs = dict(refs)
    for name, commit in refs.items():
        if current.get(name) == commit:
            continue
        what = "was deleted" if name not in current else "was moved"
        try:
            # --no-deref: a symbolic reference put in its place must not move another branch.
            update = ["update-ref", "--no-deref", name, commit]
            for words in (["cat-file", "-e", f"{commit}^{{commit}}"], update):
                run_git(Path(git), [f"--git-dir={git}", *words], deadline=Deadline(TIMEOUT_S))
            lines.append(f"saved work {name} {what}: restored")
        except GitError:
            del kept_refs[name]
            lines.append(f"saved work {name} {what}, and could not be restored")
    if kept_refs != refs:
        write_refs(git, kept_refs)
    return Repaired(tuple(lines))


def _current_commits(git: str, refs: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        with open(os.path.join(git, "packed-refs"), encoding="utf-8", errors="replace") as file:
            for line in file.read(_MAX_PACKED_BYTES).splitlines():
                commit, _, name = line.partition(" ")
                if name in refs:
                    found[name] = commit
    except OSError:
        pass  # nothing is packed
    for name in refs:
        try:
            data = read_regular(os.path.join(git, name), 200)
        except FileNotFoundError:
            continue
        except OSError:
            data = b""
        found[name] = data.decode(errors="replace").strip()
    return found


class TamperingResult(NamedTuple):
    reverted: tuple[str, ...]
    failed: tuple[str, ...]
    """What could not be reverted, and why: sessions are stopped until it can be."""
    unsettled: bool
    """Whether a configuration changed at an unknown time; the next event determines what to do."""
    seen: str
    """The digest of a configuration that was changed outside tool calls; empty: none."""
    watched: list[str]
    """The files whose changes the next hook must notice."""
    copied: list[str]
    """The files that have a saved copy."""


def revert_tampering(
    root: str,
    *,
    seen: str,
    during_call: bool | None,
    copied: Sequence[str] = (),
    trusted: str | None = None,
) -> TamperingResult:
    """Check all files that guard the project at `root`, and revert changes that no operator made.

    - `seen`: the field of the last result; `during_call`: see `hook_config.config_of`.
    - `copied`: the files that had a saved copy at the last check.
    - `trusted`: the configuration file that was in effect.
    """
    lost = saved_copies.missing_copies(copied)
    reverted = [f"the saved copy of {path} was removed" for path in lost]
    if trusted is not None and not is_own(trusted) and is_lost(trusted):
        reverted.append(f"the record that {trusted} is trusted was removed")
    failed: list[str] = []
    watched: list[str] = []
    for repair in (saved_copies.repair, repair_refs):
        try:
            repaired = repair(root)
            reverted += repaired.done
            failed += repaired.failed
        except Exception as error:  # noqa: BLE001  a failed check must be reported
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
        watched = [*saved_copies.watched_files(root), *watched_refs(root)]
    except OSError as error:
        failed.append(f"the files that guard {root} could not be checked: {error}")
    copies = [each.path for each in saved_copies.saved_in(root)]
    return TamperingResult(tuple(reverted), tuple(failed), unsettled, now_seen, watched, copies)


def _changed_config(root: str) -> tuple[Trusted, str] | None:
    """The trust record of a changed configuration file and the file's digest; `None`: none has changed."""
    for path in candidates(root):
        record = record_of(path)
        if record is None:
            continue
        data = content(path)
        digest = "-" if data is None else digest_of(path, data)
        return None if digest == record.digest else (record, digest)
    return None


def _revert(record: Trusted) -> str:
    """Restore the trusted content, and keep a copy of the changed file. Returns a sentence about it."""
    path = record.path
    current = content(path)
    what = "was removed or made unreadable" if current is None else "was changed"
    changed_copy = "" if current is None else saved_copies.keep_changed_file(path, current)
    kept = f", and the changed text is in {changed_copy}" if changed_copy else ""
    data = record.text.encode()
    if os.path.basename(path) == PROJECT and current is not None:
        data = _with_trusted_tables(current.decode(errors="replace"), record.text).encode()
        if digest_of(path, data) != record.digest:
            data = record.text.encode()
    saved_copies.write_without_links(os.path.dirname(path), path, data, 0o644)
    return f"{path} {what} during a tool call: the trusted content was restored{kept}"


def _with_trusted_tables(current: str, good: str) -> str:
    """The current `pyproject.toml`, with its Switchgear tables replaced by those of the trusted one."""
    rest = [part for part in _tables(current) if not _is_ours(part)]
    ours = [part for part in _tables(good) if _is_ours(part)]
    text = "".join(rest)
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{''.join(ours)}"


def _tables(text: str) -> list[str]:
    parts = [""]
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            parts.append("")
        parts[-1] += line
    return parts


def _is_ours(part: str) -> bool:
    header = "".join(sign for sign in part.partition("]")[0] if sign not in " \"'").lstrip("[")
    return header == "tool.switchgear" or header.startswith("tool.switchgear.")
