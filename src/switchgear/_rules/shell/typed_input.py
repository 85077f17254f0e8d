"""What a shell reads when keys are sent to it: lines, with the editing keys applied.

A tool that writes to a running shell (`write_stdin` of Codex) may send a command in pieces, with corrections
in between, or behind a `cd` that an earlier call sent. So a piece is judged together with all that the
same shell received before it.
"""

from typing import NamedTuple

LONGEST_INPUT = 65_536
"""Characters that one shell may receive before a new one must be started."""
_MOVED = "\0"
"""Stands in a line for a key after which it is not known what the line reads."""
_ENDS = "\r\n"
_IGNORED = "\x04\x07\x0c\x11\x13\x1a\x1c"
"""End of file, bell, redraw, flow control, suspend, quit: the line that is being typed stays as it is."""


class Typed(NamedTuple):
    """All that a shell has received."""

    text: str
    """Complete lines, and the one that is being typed."""
    unread: str = ""
    """Why a line could not be read, if one could not."""


def typed(before: str, keys: str) -> Typed:
    r"""What the shell has received after these keys; `before` is the `text` of the last time.

    >>> typed("cd src\nr", "m x\x7fy\n").text
    'cd src\nrm y\n'
    """
    line = before.rpartition("\n")[2]
    done = [before[: len(before) - len(line)]]
    unread = ""
    for key in _keys(keys):
        if key in _ENDS:
            unread = unread or _why_unread(line)
            done.append(line.replace(_MOVED, "") + "\n")
            line = ""
        else:
            line = _edited(line, key)
    text = "".join(done) + line
    if len(text) > LONGEST_INPUT:
        unread = f"this shell has received more than {LONGEST_INPUT:,} characters; start a new one"
    return Typed(text, unread)


def _keys(text: str) -> list[str]:
    """The single keys, of which an escape sequence is one."""
    keys, at = list[str](), 0
    while at < len(text):
        end = at + 1
        if text[at : at + 2] == "\x1b:":
            at = end  # an editor's command, such as `:wq`; a shell has nothing on these keys
            continue
        if text[at] == "\x1b" and text[end : end + 1] in {"[", "O"}:
            end += 1
            while end < len(text) and not "@" <= text[end] <= "~":
                end += 1
            end += 1
        keys.append(text[at:end])
        at = end
    return keys


def _edited(line: str, key: str) -> str:
    """The line after one key that does not end it."""
    if key in {"\x7f", "\x08"}:
        return line[:-1]
    if key in {"\x03", "\x15"}:
        return ""
    if key == "\x17":
        kept = line.rstrip()
        return kept[: kept.rfind(" ") + 1]
    if key == "\t":  # the shell completes the word
        return f"{line}*" if line and not line[-1].isspace() else f"{line}\t"
    if key in _IGNORED:
        return line
    return line + key if key.isprintable() else line + _MOVED


def _why_unread(line: str) -> str:
    """Why a line cannot be read, if it cannot: keys moved in it, and it has a text as well."""
    if _MOVED not in line or not line.replace(_MOVED, "").strip():
        return ""
    return "a line with keys that move in it cannot be judged; send it without them"
