"""Where the configuration file is."""

import os
import re

VARIABLE = "SWITCHGEAR_CONFIG"
NAMES = ("switchgear.yaml", "switchgear.yml", "switchgear.toml")
"""In one folder, the first of these is taken."""
PROJECT = "pyproject.toml"
LARGEST_BYTES = 256 * 1024
"""Far beyond any configuration by hand, and parsed in seconds at worst."""
_OUR_TABLE = re.compile(
    rb"^[ \t]*\[{1,2}[ \t]*tool[ \t]*\.[ \t]*[\"']?switchgear[\"']?[ \t]*[.\]]", re.MULTILINE
)


def find_config(start: str | None = None) -> str | None:
    """The configuration file for a folder, as an absolute path; `None`: there is none.

    `SWITCHGEAR_CONFIG` wins, whether such a file exists or not. Else the folders are searched from
    `start` (default: the current one) upwards, to the home folder or the root; the first that has
    `switchgear.yaml`, `.yml`, `.toml`, or a `pyproject.toml` with `[tool.switchgear]`, is taken.
    """
    told = os.environ.get(VARIABLE)
    if told:
        return os.path.abspath(os.path.expanduser(told))
    home = os.path.realpath(os.path.expanduser("~"))
    folder = os.path.realpath(start or ".")
    while True:
        for name in NAMES:
            path = os.path.join(folder, name)
            if os.path.lexists(path):  # a broken link is told when it is read, not passed over
                return path
        project = os.path.join(folder, PROJECT)
        if _has_our_table(project):
            return project
        above = os.path.dirname(folder)
        if folder in {above, home}:
            return None
        folder = above


def _has_our_table(path: str) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return _OUR_TABLE.search(file.read(LARGEST_BYTES)) is not None
    except OSError:
        return False
