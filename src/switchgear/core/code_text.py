"""Program text that an interpreter is given on the command line: what it names, and whether it acts.

No language is parsed. Texts in quotes are what code names; a handful of words tell whether it
writes, deletes or starts something. Texts that are put together of pieces are joined first.
"""

from switchgear.core.shell import Command

INTERPRETERS = ("python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua")
DELETES = ("rmtree", "remove(", "unlink", "rmdir", "rmsync", "rm_rf", "rm_r", "deletefile")
WRITES = ("write", "dump(", "'w", '"w', "'a'", '"a"', "rename", "replace(", "copy", "move(")
STARTS = ("system", "popen", "Popen", "subprocess", "exec", "spawn")
_ACTS = (
    *("connect", "execute", "eval", "chmod", "chown", "link", "truncate", "utime", "touch"),
    *("'r+", '"r+', "'x'", '"x"', "'a", '"a', "mmap", "open3", "`", "'>", '">', "'+", '"+'),
)
"""Further words with which code may change what it names."""
_CODE_FLAGS = ("-c", "-e", "-r", "-E", "--eval", "eval", "-p", "--print")
_PIECES = ("'+'", '"+"', "' + '", '" + "', "'.'", '"."', "' . '", '" . "', "''", '""', "' '", '" "')


def code_of(command: Command) -> str:
    """The program text that an interpreter is given: behind `-c` or `-e`, or as its input."""
    texts = [target for op, target in command.redirects if op == "<<<"]
    for flag, code in zip(command.words, command.words[1:], strict=False):
        is_short = flag[:1] == "-" != flag[1:2] and flag[-1:] in {"c", "e"}
        if is_short or flag in _CODE_FLAGS:
            texts.append(code)
    if command.piped is not None:
        texts.append(command.piped)
    return joined("\n".join(texts))


def joined(code: str) -> str:
    """The code with texts in one piece that stand in it in several: `'a' + 'b'` as `'ab'`."""
    for pieces in _PIECES:
        if pieces in code:
            code = code.replace(pieces, "")
    return code


def quoted_in(code: str) -> list[str]:
    """The texts in quotes in a piece of code, of any language."""
    found: list[str] = []
    at = 0
    while at < len(code):
        if code[at] in "'\"`":
            end = code.find(code[at], at + 1)
            if end < 0:
                break
            found.append(code[at + 1 : end])
            at = end
        at += 1
    return [text for text in found if text]


def may_change(code: str) -> bool:
    """Whether code may change the files that it names; reading and printing do not."""
    small = code.lower()
    return any(word in small for words in (DELETES, WRITES, STARTS, _ACTS) for word in words)
