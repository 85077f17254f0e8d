"""What has changed of the files that guard a project without an operator, and its repair.

Settings and plugins with Switchgear hooks are repaired whenever they are found changed: without them
nothing else would guard. A configuration file is different, because people edit it while an agent
works: what is not trusted has no effect anyway. It is reverted only if it changed during a tool
call; a change between calls is left as it is, and waits for `switchgear trust`.
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
    """The folders and files that change when a reference of saved work does."""
    git = common_dir(root)
    refs = {} if git is None else remembered_refs(git)
    if git is None or not refs:
        return []
    folders = {os.path.dirname(os.path.join(git, name)) for name in refs}
    return [*sorted(folders), f"{git}/refs/switchgear", f"{git}/packed-refs"]


def repair_refs(root: str) -> Repaired:
    """Put every remembered reference back to its commit, if that is still there."""
    git = common_dir(root)
    refs = {} if git is None else remembered_refs(git)
    if git is None or not refs:
        return Repaired()
    now = _current_commits(git, refs)
    done: list[str] = []
    left = dict(refs)
    for name, commit in refs.items():
        if now.get(name) == commit:
            continue
        what = "was deleted" if name not in now else "was moved"
        try:
            # A symbolic reference in its place would move the branch that it names.
            update = ["update-ref", "--no-deref", name, commit]
            for words in (["cat-file", "-e", f"{commit}^{{commit}}"], update):
                run_git(Path(git), [f"--git-dir={git}", *words], deadline=Deadline(TIMEOUT_S))
            done.append(f"saved work {name} {what}: restored")
        except GitError:
            del left[name]
            done.append(f"saved work {name} {what}, and could not be restored")
    if left != refs:
        write_refs(git, left)
    return Repaired(tuple(done))


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
    """What could not be reverted, and why: the session is stopped until it can be."""
    unsettled: bool
    """Whether a changed configuration was seen only by a process that watches."""
    seen: str
    """The digest of a changed configuration that was there outside a call; empty: none."""
    watched: list[str]
    """The files whose change is noticed by the next hook."""
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
    """Look at everything that guards the project at `root`, and revert what no operator did.

    `copied` are the files that had a saved copy at the last look, `trusted` the configuration that
    was in effect.
    """
    reverted = [
        f"the saved copy of {path} was removed" for path in saved_copies.missing_copies(copied)
    ]
    if trusted is not None and not is_own(trusted) and is_lost(trusted):
        reverted.append(f"the record that {trusted} is trusted was removed")
    failed: list[str] = []
    watched: list[str] = []
    for step in (saved_copies.repair, repair_refs):
        try:
            done = step(root)
            reverted += done.done
            failed += done.failed
        except Exception as error:  # noqa: BLE001  a guard that cannot check must report it
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
    """The trusted record of a configuration whose file has changed, and the digest of the file; or `None`."""
    for path in candidates(root):
        record = record_of(path)
        if record is None:
            continue
        data = content(path)
        digest = "-" if data is None else digest_of(path, data)
        return None if digest == record.digest else (record, digest)
    return None


def _revert(record: Trusted) -> str:
    """Restore the trusted content; the changed text is kept aside."""
    path = record.path
    now = content(path)
    what = "was removed or made unreadable" if now is None else "was changed"
    aside = "" if now is None else saved_copies.keep_changed_file(path, now)
    kept = f", and the changed text is in {aside}" if aside else ""
    data = record.text.encode()
    if os.path.basename(path) == PROJECT and now is not None:
        data = _with_trusted_tables(now.decode(errors="replace"), record.text).encode()
        if digest_of(path, data) != record.digest:
            data = record.text.encode()
    saved_copies.write_without_links(os.path.dirname(path), path, data, 0o644)
    return f"{path} {what} during a tool call: the trusted content was restored{kept}"


def _with_trusted_tables(now: str, good: str) -> str:
    """The current `pyproject.toml` with the Switchgear tables of the trusted one."""
    rest = [part for part in _tables(now) if not _is_ours(part)]
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
