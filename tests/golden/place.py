"""A throw-away project for golden files: the same texts on every machine, for every user."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from unittest.mock import patch

SHORT = "<project>"
"""What stands in a golden file for the folder of the project."""
_KEPT = ("PATH", "LD_LIBRARY_PATH", "SWITCHGEAR_TRUST")


@contextmanager
def project() -> Iterator[Path]:
    """An empty project as the working directory, with a home, a state folder and a separate environment."""
    with tempfile.TemporaryDirectory(prefix="switchgear-golden-") as made:
        base = Path(made).resolve()
        folder = base / "project"
        (folder / ".git").mkdir(parents=True)
        (base / "home").mkdir()
        env = {
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            "HOME": str(base / "home"),
            "XDG_STATE_HOME": str(base / "state"),
            "COLUMNS": "100",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "USER": "ada",
            "LOGNAME": "ada",
        }
        with patch.dict(os.environ, env, clear=True), chdir(folder):
            yield folder


def without_place(text: str, folder: Path) -> str:
    """A text with the folder of the project replaced."""
    return text.replace(str(folder), SHORT)
