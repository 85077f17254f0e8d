"""Where the embedded default store lies. Apart from `open`, because a hook needs no more of it."""

import os

from switchgear.core.digest import digest

FOLDER = ".switchgear"
PROJECT_MARKS = (FOLDER, "switchgear.yaml", "switchgear.yml", "switchgear.toml", ".git")


def default_file(start: str | None = None) -> str:
    """`.switchgear/state.db` of the project around `start` (default: the working directory).

    A project is the nearest folder above that has a `.switchgear` folder, a configuration or a
    `.git`. Outside any project each folder has a file of its own in the user's state folder (XDG),
    `switchgear/folders/<name>-<key>/state.db`; the home folder has `switchgear/state.db` there.
    """
    begin = here = os.path.abspath(start or os.getcwd())
    home = os.path.expanduser("~")
    while here != home:
        if any(os.path.exists(os.path.join(here, mark)) for mark in PROJECT_MARKS):
            return os.path.join(here, FOLDER, "state.db")
        parent = os.path.dirname(here)
        if parent == here:
            break
        here = parent
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state")
    if begin == home:
        return os.path.join(state, "switchgear", "state.db")
    name = "".join(sign for sign in os.path.basename(begin) if sign.isalnum() or sign in "_-")
    folder = f"{name[:40] or 'folder'}-{digest(os.path.realpath(begin))}"
    return os.path.join(state, "switchgear", "folders", folder, "state.db")


def default_url() -> str:
    """The URL of the embedded default: it names the same file wherever it is opened."""
    return f"sqlite:///{default_file()}"


def keep_out_of_git(folder: str) -> None:
    """Our folder in a project is nobody's change: it ignores itself, as caches do."""
    if os.path.basename(folder) != FOLDER or os.path.exists(folder):
        return
    try:
        os.makedirs(folder, mode=0o700)
        with open(os.path.join(folder, ".gitignore"), "w", encoding="utf-8") as file:
            file.write("*\n")
    except OSError:
        return  # the store is about to say why, in better words
