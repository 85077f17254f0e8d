"""The user for whom this process runs."""

import os

# ruff: noqa: PLC0415  `getpass` is imported only when a name is needed


def login_name() -> str:
    """The login name, or the numeric user id (`uid 1000`) if there is none."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"
