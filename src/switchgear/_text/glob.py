"""Globs over names of circuits: `*` matches any text including `/`, `?` one character, `[ab]` a set.

Globs have the same meaning in the configuration, in commands and in every store.
"""

from collections.abc import Callable


def matcher(glob: str) -> Callable[[str], bool]:
    """A predicate that returns whether a name matches the glob."""
    if is_plain(glob):
        return glob.__eq__
    if glob == "*":
        return lambda _: True
    # Imported late: compiling a glob needs `re`, and hooks request circuits by plain names.
    import re  # noqa: PLC0415
    from fnmatch import translate  # noqa: PLC0415

    match = re.compile(translate(glob)).match
    return lambda name: match(name) is not None


def is_plain(glob: str) -> bool:
    """Whether the glob can match only one name: itself."""
    return not any(character in glob for character in "*?[")


def literal(name: str) -> str:
    """A glob that matches only this name, even if the name contains glob characters."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def prefix(glob: str) -> str:
    """The text before the first glob character: every matching name begins with it."""
    for index, character in enumerate(glob):
        if character in "*?[":
            return glob[:index]
    return glob
