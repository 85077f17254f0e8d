"""Empty git repositories for tests: copies of one, because hundreds of tests need a repository."""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_IDENTITY = "[user]\n\tname = someone\n\temail = someone@example.invalid\n"


@cache
def _original() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="switchgear-repository-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for sample in (folder / ".git" / "hooks").glob("*.sample"):
        sample.unlink()
    return folder / ".git"


def make_repository(folder: Path, *, has_identity: bool = False) -> None:
    """Do what `git init` does; with an identity, `git commit` needs no options."""
    shutil.copytree(_original(), folder / ".git")
    if has_identity:
        with (folder / ".git" / "config").open("a") as config:
            config.write(_IDENTITY)
