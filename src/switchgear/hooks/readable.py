"""Whether a call about to be made says plainly what it does: else it is refused before any rule is asked.

A rule can only judge what it is told. Arguments of the wrong type, characters that end a text early or
that no file name can hold, bytes that are not UTF-8: an agent may well make something of them, and
Switchgear would have judged something else.
"""

from collections.abc import Mapping
from typing import Any

from switchgear.hooks.facts import BadInput, HookFacts

DEEPEST = 64
_NEED_A_COMMAND = frozenset(
    ("bash", "shell", "run_shell_command", "exec_command", "local_shell", "execute_bash")
)
_COMMANDS = ("command", "cmd")
_TEXTS = frozenset(
    (
        *_COMMANDS,
        *("script", "shell_command", "file_path", "filePath", "notebook_path", "absolute_path"),
        *("path", "url", "uri", "cwd", "workdir", "dir_path"),
    )
)
"""Arguments that must be texts, or lists of texts."""


def check(facts: HookFacts, data: Mapping[str, Any], raw: bytes) -> None:
    """Raise `BadInput` unless the call before a tool can be judged as it is."""
    args = facts.args
    if not isinstance(args, dict | str):
        given = "missing" if args is None else f"of the type {type(args).__name__}"
        raise BadInput(f"the arguments of the tool are {given}, and must be an object")
    if "cwd" in data and not isinstance(data["cwd"], str | None):
        raise BadInput("the field 'cwd' is not a text")
    if isinstance(args, dict):
        _check_types(facts.tool, args)
    if b"\\u" in raw or b"\0" in raw:  # how JSON writes the characters that are looked for
        _check_characters([facts.tool, facts.cwd, args])
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise BadInput(
                f"it is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}"
            ) from None


def _check_types(tool: str, args: Mapping[str, Any]) -> None:
    for name in _TEXTS & args.keys():
        value = args[name]
        is_text = isinstance(value, str) or (
            isinstance(value, list) and all(isinstance(each, str) for each in value)
        )
        if not is_text and (value is not None or name in _COMMANDS):
            raise BadInput(
                f"the argument {name!r} is of the type {type(value).__name__}, not a text"
            )
    if tool.lower() in _NEED_A_COMMAND and not any(args.get(name) for name in _COMMANDS):
        raise BadInput(f"the tool {tool[:60]!r} is called without a command")


def _check_characters(value: Any) -> None:
    left = [(value, 0)]
    while left:
        each, depth = left.pop()
        if isinstance(each, str):
            if "\0" in each:
                raise BadInput("an argument contains the character NUL")
            if not each.isascii() and any("\ud800" <= sign <= "\udfff" for sign in each):
                raise BadInput("an argument contains half of a surrogate pair")
        elif depth >= DEEPEST:
            raise BadInput(f"the arguments are nested more than {DEEPEST} deep")
        elif isinstance(each, dict):
            left += [(part, depth + 1) for pair in each.items() for part in pair]
        elif isinstance(each, list):
            left += [(part, depth + 1) for part in each]
