"""What an installation did, and how it stands: in the same words for settings and plugins."""

import os
import shlex
from typing import NamedTuple, Protocol


class InstallChange(NamedTuple):
    """What an installation or its removal did."""

    path: str
    changed: bool
    """`False`: everything was as it should be already."""
    backup: str | None = None
    """Where a copy of the file lies as it was; `None`: there was none, or nothing changed."""
    removed: bool = False
    """Whether the file is gone: it was there only for us."""


class InstallState(NamedTuple):
    """What is installed in one file."""

    path: str
    exists: bool = True
    commands: tuple[str, ...] = ()
    """The different command lines of ours that it holds."""
    events: tuple[str, ...] = ()
    """The events for which one of them is there."""
    missing: tuple[str, ...] = ()
    """Events that this version hooks and the file does not."""
    outdated: bool = False
    """Whether this version would install something else."""
    gone: tuple[str, ...] = ()
    """Programs and files that the commands need and that are not there."""
    switched_off: str = ""
    """The setting by which the agent runs no hooks, and where it stands."""
    trouble: str = ""
    """Why the file could not be read."""

    @property
    def installed(self) -> bool:
        """Whether anything of ours is there."""
        return bool(self.commands)


class HookFile(Protocol):
    """One file in which our hook can be: settings that we share, or a plugin of our own.

    All but `look` raise `CannotChange` for a file that is left alone.
    """

    path: str

    def install(self) -> InstallChange:
        """Put the hook in; twice is as good as once."""
        ...

    def uninstall(self) -> InstallChange:
        """Take it out; everything else stays."""
        ...

    def look(self) -> InstallState:
        """What is there. Never raises for what it looks at."""
        ...

    def commands(self) -> dict[str, str]:
        """The command that the agent runs for each event, as the file holds it."""
        ...


def gone(command: str) -> list[str]:
    """The absolute paths in a command line that lead nowhere.

    >>> gone("/no/such/python -I entry.py")
    ['/no/such/python']
    """
    words = shlex.split(command)
    return [word for word in words if os.path.isabs(word) and not os.path.exists(word)]
