"""Files that are there whole or not at all, and that only their owner can read."""

import json
import os
import re
import shutil
import time
from contextlib import suppress
from typing import Any

# ruff: noqa: PTH103, PTH107, PTH120  paths are texts, as in the stores

DRAFT_S = 3600.0
"""How old a draft is, at least, that nobody writes any more: to write one takes milliseconds."""
_DRAFT = re.compile(r".+[.-][0-9a-f]{8}\.part", re.ASCII)


def write_whole(path: str, text: str) -> None:
    """Write a file with mode 0600 in one step: a reader sees the old one or the new one."""
    folder = os.path.dirname(os.path.abspath(path))  # noqa: PTH100
    os.makedirs(folder, mode=0o700, exist_ok=True)
    draft = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.part"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(file, "w", encoding="utf-8", errors="backslashreplace") as out:  # noqa: PTH123
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, path)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            os.remove(draft)
        raise


def remove_old_drafts(folder: str) -> None:
    """Remove the drafts, files and folders, that a killed process left here.

    Others may write here, or tidy up, at the same time: what is younger than an hour is theirs, and
    what is gone already is gone.
    """
    before_s = time.time() - DRAFT_S
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _DRAFT.fullmatch(entry.name):
                continue
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime > before_s:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.remove(entry.path)


def as_json(value: Any) -> str:
    """A value as lines of ASCII, so that no text in it can break a reader."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
