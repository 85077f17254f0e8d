"""The options among the words of a command."""

from collections.abc import Container, Iterable, Iterator, Sequence


def is_short(word: str) -> bool:
    """Whether a word is one or more short options: `-x`, `-xyz`."""
    return word[:1] == "-" != word[1:2]


def operands(words: Iterable[str]) -> list[str]:
    return [word for word in words if not word.startswith("-")]


def with_next(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word with the next word, which may be its value; the last word has an empty one."""
    return zip(words, [*words[1:], ""], strict=False)


def options_in(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options with their values, attached or as the next word; `-abc` may also be `-a` with a value."""
    for word, value in with_next(words):
        if word.startswith("-"):
            name, equals, attached = word.partition("=")
            yield name, attached if equals else value
            if is_short(word) and len(name) > 2:
                yield word[:2], word[2:]


def values_of(words: Sequence[str], names: Container[str]) -> list[str]:
    """The words directly after one of these options."""
    return [value for name, value in zip(words, words[1:], strict=False) if name in names]


def has_flag(words: Iterable[str], letter: str, name: str = "") -> bool:
    """Whether an option is given by its letter, alone or in a group like `-xyz`, or by its long name."""
    return any(word == name or (is_short(word) and letter in word) for word in words)


def behind_options(words: tuple[str, ...], valued: Container[str]) -> tuple[str, ...]:
    """The words after the leading options; options in `valued` take the next word as their value."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at] == "--":
            return words[at + 1 :]
        at += 2 if words[at] in valued else 1
    return words[at:]
