"""Globs over names of circuits: `*` is any text, `/` included, `?` one character, `[ab]` a set.

The same meaning everywhere: configuration, command and every store.
"""

from collections.abc import Callable


def matcher(glob: str) -> Callable[[str], bool]:
    """A predicate that returns whether a name matches the glob."""
    if is_plain(glob):
        return glob.__eq__
    if glob == "*":
        return lambda _: True
    # Compiling one takes the `re` module; the hook path requests circuits by plain names.
    import re  # noqa: PLC0415
    from fnmatch import translate  # noqa: PLC0415

    found = re.compile(translate(glob)).match
    return lambda name: found(name) is not None


def is_plain(glob: str) -> bool:
    """Whether the glob can match only one name: itself."""
    return not any(character in glob for character in "*?[")


def literal(name: str) -> str:
    """A glob that matches this very name, whatever characters are in it."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def prefix(glob: str) -> str:
    """What every matching name begins with."""
    for index, character in enumerate(glob):
        if character in "*?[":
            return glob[:index]
    return glob
