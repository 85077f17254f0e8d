"""The user for whom this process runs."""

import os

# ruff: noqa: PLC0415  a process that needs no name does not load the module


def login_name() -> str:
    """The login name; without one, the number of the user."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"
