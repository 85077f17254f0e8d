"""Saved work that an agent has deleted or moved: its references are put back."""

import os
import subprocess

from switchgear._hooks.install.saved import Repaired
from switchgear._measure.saved_refs import common_dir, remembered_refs, write_refs

TIMEOUT_S = 5.0
_LARGEST_PACKED = 50_000_000


def watched_refs(root: str) -> list[str]:
    """The folders and files that change when a reference of saved work does."""
    git = common_dir(root)
    refs = {} if git is None else remembered_refs(git)
    if git is None or not refs:
        return []
    folders = {os.path.dirname(os.path.join(git, name)) for name in refs}
    return [
        *sorted(folders),
        os.path.join(git, "refs/switchgear"),
        os.path.join(git, "packed-refs"),
    ]


def repair_refs(root: str) -> Repaired:
    """Put every remembered reference back to its commit, if that is still there."""
    git = common_dir(root)
    refs = {} if git is None else remembered_refs(git)
    if git is None or not refs:
        return Repaired()
    now = _values(git, refs)
    done: list[str] = []
    left = dict(refs)
    for name, commit in refs.items():
        if now.get(name) == commit:
            continue
        what = "was deleted" if name not in now else "was moved"
        if _run(git, "cat-file", "-e", f"{commit}^{{commit}}") and _run(
            git, "update-ref", name, commit
        ):
            done.append(f"saved work {name} {what}: restored")
        else:
            del left[name]
            done.append(f"saved work {name} {what}, and could not be restored")
    if left != refs:
        write_refs(git, left)
    return Repaired(tuple(done))


def _values(git: str, refs: dict[str, str]) -> dict[str, str]:
    """The commits of references as they are now, read as git keeps them."""
    found: dict[str, str] = {}
    try:
        with open(os.path.join(git, "packed-refs"), encoding="utf-8", errors="replace") as file:
            for line in file.read(_LARGEST_PACKED).splitlines():
                commit, _, name = line.partition(" ")
                if name in refs:
                    found[name] = commit
    except OSError:
        pass  # nothing is packed
    for name in refs:
        try:
            handle = os.open(os.path.join(git, name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            found[name] = os.read(handle, 200).decode(errors="replace").strip()
        except OSError:
            found[name] = ""
        finally:
            os.close(handle)
    return found


def _run(git: str, *words: str) -> bool:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603  the arguments are ours
            ["git", f"--git-dir={git}", "-c", "core.hooksPath=/dev/null", *words],  # noqa: S607
            env=environment,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
