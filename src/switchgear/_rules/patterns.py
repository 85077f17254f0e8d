"""Patterns with bounded matching time: globs over names, paths, words and texts.

The author of a rule may write any pattern, and an agent may write any text; neither
can make matching slow, because it only ever backtracks to the last star.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

LONGEST_PATTERN = 500
LONGEST_NAME = 255
ANY = "\ue004"
"""A star that also matches names with a leading dot, as in `find -name '*'`."""


def word_list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def is_wild(text: str) -> bool:
    return "*" in text or "?" in text


def is_glob(path: str) -> bool:
    """Whether a shell or `find` would expand a path."""
    return "*" in path or "?" in path or "[" in path or ANY in path


def name_matches(pattern: str, name: str) -> bool:
    """Whether a name matches, ignoring case: `*` is any text, `?` one character.

    >>> name_matches("mcp__*__delete*", "mcp__github__delete_file")
    True
    """
    pattern, name = pattern.lower(), name.lower()
    if not is_wild(pattern):
        return pattern == name
    if "?" in pattern:
        return _matches(pattern, name, "*", _char_matches)
    first, *pieces, last = pattern.split("*")
    if len(name) < len(first) + len(last) or not name.startswith(first):
        return False
    return name.endswith(last) and _in_order(pieces, name[len(first) : len(name) - len(last)])


def glob_matches(pattern: str, text: str) -> bool:
    """Whether a text matches as in a shell: with case, and `[…]` is any one character.

    >>> glob_matches("*.tar.*", "a.tar.gz"), glob_matches("[ab]*", "xy")
    (True, True)
    """
    return _matches(unbracketed(pattern), text, "*", _char_matches)


def unbracketed(pattern: str) -> str:
    """A glob with `?` for every `[…]`; it matches everything that the original matches, or more.

    >>> unbracketed("set[t]ings[!.].json"), unbracketed("a[b")
    ('set?ings?.json', 'a[b')
    """
    if "[" not in pattern or "]" not in pattern:
        return pattern
    parts: list[str] = []
    at = 0
    while True:
        start = pattern.find("[", at)
        # A bracket directly behind the opening one, or behind its `!`, is a character of the set.
        end = pattern.find("]", start + 2 + (pattern[start + 1 : start + 2] in {"!", "^"}))
        if start < 0 or end < 0:
            return "".join((*parts, pattern[at:]))
        if pattern.startswith("[[:", start):
            closed = pattern.find(":]]", start)
            end = closed + 2 if closed >= 0 else end
        parts += (pattern[at:start], "?")
        at = end + 1


def path_matches(pattern: str, path: str) -> bool:
    """Whether a whole path matches: `*` and `?` do not match slashes, `**` matches any folders.

    >>> path_matches("/home/me/**", "/home/me/a/b"), path_matches("/home/*", "/home/me/a")
    (True, False)
    """
    return _matches(_parts(pattern), _parts(path), "**", _part_matches)


def required_text(pattern: str) -> str:
    """The longest literal part of a pattern; every matching path contains it.

    Searching for it is faster than matching.

    >>> required_text("**/.claude/settings*.json"), required_text("**")
    ('.claude', '')
    """
    return max((part for part in _parts(pattern) if not is_wild(part)), key=len, default="")


def path_is_above(path: str, pattern: str) -> bool:
    """Whether something that matches the pattern can be in this folder, by the literal parts of the pattern.

    A pattern that begins with `**` can match anywhere and is not reported. The path may be a glob.

    >>> path_is_above("/home/me/.claude", "/home/me/.claude/settings*.json")
    True
    >>> path_is_above("/home/me/build", "**/switchgear.yaml"), path_is_above("/w/.cl*", "/w/.claude/x")
    (False, True)
    >>> path_is_above("/w/**/.cl*", "/w/.claude/x"), path_is_above("/w/**/x", "/w/.claude/x")
    (True, False)
    """
    parts, pattern_parts = _parts(path), _parts(pattern)
    if "**" in parts:
        return _is_above_somewhere(parts, pattern_parts)
    if len(parts) >= len(pattern_parts) or "**" in pattern_parts[: len(parts)]:
        return False
    return all(_overlap(one, other) for one, other in zip(parts, pattern_parts, strict=False))


def _is_above_somewhere(parts: list[str], pattern_parts: list[str]) -> bool:
    """`path_is_above` for a path with `**`, whose last names may occur in any folder."""
    at = parts.index("**")
    last = [part for part in parts[at + 1 :] if part != "**"]
    if (
        not last
        or "**" in pattern_parts[:-1]
        or not all(map(_overlap, parts[:at], pattern_parts[:at]))
    ):
        return False
    folders = pattern_parts[: -1 if len(pattern_parts) > 1 else 0]
    starts = range(at, len(folders) - len(last) + 1)
    return any(all(map(_overlap, last, folders[start:])) for start in starts)


def paths_meet(wild: str, pattern: str) -> bool:
    """Whether a glob that the shell would expand (`.clau*/x`) can give a path that matches.

    >>> paths_meet("/w/**/*.db", "/w/a/b/state.db"), paths_meet("/w/*.db", "/w/a/state.db")
    (True, False)
    >>> paths_meet("/w/*", "/w/.claude"), paths_meet("/w/.s[w]*", "/w/.switchgear/**")
    (False, True)
    """
    parts, pattern_parts = _parts(wild), _parts(pattern)
    if pattern_parts[:1] == ["**"]:
        return _meets_at_end(parts, [part for part in pattern_parts if part != "**"])
    if "**" in parts and "**" in pattern_parts[:-1]:
        return False
    if pattern_parts[-1:] == ["**"]:  # the folder itself and everything below
        pattern_parts = pattern_parts[:-1]
        parts = parts if "**" in parts else parts[: len(pattern_parts)]
    if "**" in parts and any(is_wild(part) for part in pattern_parts):
        return False
    if "**" in parts:  # the folders between, whatever they are
        at = parts.index("**")
        last = [part for part in parts[at + 1 :] if part != "**"]
        if len(pattern_parts) < at + len(last):
            return False
        parts, pattern_parts = (
            parts[:at] + last,
            pattern_parts[:at] + pattern_parts[len(pattern_parts) - len(last) :],
        )
    if len(parts) != len(pattern_parts):
        return False
    return all(_overlap(one, other) for one, other in zip(parts, pattern_parts, strict=False))


def _meets_at_end(parts: list[str], last: list[str]) -> bool:
    """`paths_meet` for a pattern that begins with `**`; its first folder must occur literally."""
    if len(last) < 2 or len(parts) < len(last):
        return False
    found = parts[len(parts) - len(last) :]
    return found[0] == last[0] and all(map(_overlap, found, last))


def text_contains(pattern: str, text: str) -> bool:
    """Whether one line of a text contains the pieces between the stars of a pattern, in order.

    >>> text_contains("DROP * production", "then drop table users in production")
    True
    """
    pieces = [piece for piece in pattern.lower().split("*") if piece]
    if not pieces:
        return bool(text)
    return any(_in_order(pieces, line) for line in text.lower().split("\n"))


def _in_order(pieces: Sequence[str], line: str) -> bool:
    at = 0
    for piece in pieces:
        at = line.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _char_matches(pattern: str, letter: str) -> bool:
    return pattern in ("?", letter)


def _part_matches(pattern: str, part: str) -> bool:
    return _matches(pattern, part, "*", _char_matches) if is_wild(pattern) else pattern == part


def _overlap(one: str, other: str) -> bool:
    """Whether some name matches both globs; a leading star does not match a leading dot."""
    if one == other:
        return True
    one = unbracketed(one)
    if other[:1] == "." and one[:1] in {"*", "?"}:
        return False
    one = one.replace(ANY, "*")
    if not (is_wild(one) and is_wild(other)):
        return _part_matches(one, other) or _part_matches(other, one)
    if len(one) > LONGEST_NAME or len(other) > LONGEST_NAME:
        return not (one.strip("*?") and other.strip("*?"))
    # Row by row: whether the beginnings of both globs can match the same text.
    row = [not other[:end].strip("*") for end in range(len(other) + 1)]
    for char in one:
        before, row = row, [row[0] and char == "*"]
        for end, letter in enumerate(other, 1):
            if "*" in {char, letter}:
                row.append(before[end] or row[-1])
            else:
                row.append(before[end - 1] and ("?" in {char, letter} or char == letter))
    return row[-1]


def _matches(
    pattern: Sequence[T], items: Sequence[T], star: T, item_matches: Callable[[T, T], bool]
) -> bool:
    """Compare from left to right; after a mismatch, the last star takes one more item."""
    at = item_at = 0
    star_at, star_item_at = -1, 0
    while item_at < len(items):
        if at < len(pattern) and pattern[at] == star:
            star_at, star_item_at = at, item_at
            at += 1
        elif at < len(pattern) and item_matches(pattern[at], items[item_at]):
            at += 1
            item_at += 1
        elif star_at >= 0:
            star_item_at += 1
            at, item_at = star_at + 1, star_item_at
        else:
            return False
    return all(left == star for left in pattern[at:])
