"""The state of a working folder as a value: what differs from the base that a run began with."""

from typing import NamedTuple


class Content(NamedTuple):
    """A path that differs from the base: what the base has, and what is there now."""

    in_base: str | None
    """The hash of the blob in the base; `None`: the base does not have it."""
    now: str | None = None
    """The hash of what is there, or its size and time where it is too large; `None`: nothing is."""


class State(NamedTuple):
    """A working folder: which base it is compared with, and what differs from it."""

    base: str
    files: dict[str, Content]
