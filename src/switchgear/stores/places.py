"""Where the embedded default store lies. Apart from `open`, because a hook needs no more of it."""

import os

FOLDER = ".switchgear"
PROJECT_MARKS = (FOLDER, "switchgear.yaml", "switchgear.yml", "switchgear.toml", ".git")


def default_file(start: str | None = None) -> str:
    """`.switchgear/state.db` of the project around `start` (default: the working directory).

    A project is the nearest folder above that has a `.switchgear` folder, a configuration or a
    `.git`; outside any project it is `switchgear/state.db` in the user's state folder (XDG).
    """
    here = os.path.abspath(start or os.getcwd())
    home = os.path.expanduser("~")
    while here != home:
        if any(os.path.exists(os.path.join(here, mark)) for mark in PROJECT_MARKS):
            return os.path.join(here, FOLDER, "state.db")
        parent = os.path.dirname(here)
        if parent == here:
            break
        here = parent
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state")
    return os.path.join(state, "switchgear", "state.db")


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
