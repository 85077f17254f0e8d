"""What we print, where it lands in the folder that we measure: a log is nobody's progress."""

from pathlib import Path


def own_output(folder: Path) -> frozenset[str]:
    """Files below a folder that our standard output or error goes to, as `switchgear run > night.log`.

    Paths as git writes them. Known where the system tells it (Linux); elsewhere there are none.
    """
    root = folder.resolve()
    targets = (_target(descriptor) for descriptor in (1, 2))
    return frozenset(
        target.relative_to(root).as_posix()
        for target in targets
        if target is not None and target.is_relative_to(root) and target.is_file()
    )


def _target(descriptor: int) -> Path | None:
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:
        return None
