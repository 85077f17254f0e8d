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
    `switchgear.yaml`, `.yml`, `.toml`, or a `pyproject.toml` with `[tool.switchgear]`, is taken;
    else the user's own, see `user_config`. Whether a file is trusted is not asked here.
    """
    told = named_config()
    if told is not None:
        return told
    return next(filter(has_our_table, candidates(start)), None) or user_config()


def named_config() -> str | None:
    """The file that SWITCHGEAR_CONFIG names, whether it exists or not."""
    told = os.environ.get(VARIABLE)
    return os.path.abspath(os.path.expanduser(told)) if told else None


def candidates(start: str | None = None) -> list[str]:
    """Every path at which a configuration for a folder could lie, in the order of precedence."""
    home = os.path.realpath(os.path.expanduser("~"))
    folder = os.path.realpath(start or ".")
    found: list[str] = []
    while True:
        found += [os.path.join(folder, name) for name in (*NAMES, PROJECT)]
        above = os.path.dirname(folder)
        if folder in {above, home}:
            return found
        folder = above


def config_home() -> str:
    """The folder of the user's own configuration: `switchgear` in XDG_CONFIG_HOME (~/.config)."""
    told = os.environ.get("XDG_CONFIG_HOME", "")
    base = told if os.path.isabs(told) else os.path.expanduser("~/.config")
    return os.path.join(base, "switchgear")


def user_config() -> str | None:
    """The user's own configuration, in effect where no project has one; `None`: there is none."""
    places = (os.path.join(config_home(), name) for name in NAMES)
    return next((path for path in places if os.path.lexists(path)), None)


def has_our_table(path: str) -> bool:
    """Whether there is a configuration: a file, of `pyproject.toml` its table.

    A broken link counts: it is reported when it is read, not passed over.
    """
    if os.path.basename(path) != PROJECT:
        return os.path.lexists(path)
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return _OUR_TABLE.search(file.read(LARGEST_BYTES)) is not None
    except OSError:
        return False
