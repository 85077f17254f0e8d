"""What we print, where it lands in the folder that we measure: a log is nobody's progress."""

import json
from contextlib import suppress
from pathlib import Path


def own_output(folder: Path, notes: Path) -> frozenset[str]:
    """Files below a folder that our standard output or error goes to, as `switchgear run > night.log`.

    Paths as git writes them. Known where the system tells it (Linux); elsewhere there are none.
    `notes` remembers those of the processes before: a resumed run may print elsewhere.
    """
    root = folder.resolve()
    targets = (_target(descriptor) for descriptor in (1, 2))
    now = frozenset(
        target.relative_to(root).as_posix()
        for target in targets
        if target is not None and target.is_relative_to(root) and target.is_file()
    )
    kept = notes / "own_output.json"
    before = _read(kept)
    if not now <= before:
        notes.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(sorted(before | now)), encoding="ascii")
    return before | now


def _target(descriptor: int) -> Path | None:
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:
        return None


def _read(kept: Path) -> frozenset[str]:
    with suppress(OSError, ValueError):
        listed = json.loads(kept.read_text(encoding="ascii"))
        return frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()
    return frozenset()
