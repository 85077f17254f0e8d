"""Program text on the command line of an interpreter: what it names, and whether it changes anything.

No language is parsed. Code names what is in its quotes; a handful of words show whether it writes,
deletes or starts something. Texts that the code concatenates are joined first.
"""

from typing import TYPE_CHECKING

from switchgear._rules.options import is_short
from switchgear._rules.patterns import word_list
from switchgear._rules.shell.words import TooLong, holds_key, unescaped

if TYPE_CHECKING:
    from switchgear._rules.shell.parser import ShellCommand

INTERPRETERS = (
    *("python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "Rscript"),
    *("osascript", "tclsh", "julia", "groovy", "elixir", "guile", "raku", "tsx", "ts-node"),
)
DELETES = ("rmtree", "remove(", "unlink", "rmdir", "rmsync", "rm_rf", "rm_r", "deletefile", "rmall")
WRITES = ("write", "dump(", "'w", '"w', "'a'", '"a"', "rename", "replace(", "copy", "move(")
STARTS = ("system", "popen", "Popen", "subprocess", "exec", "spawn", "shell script")
_ACTS = (
    *("connect", "execute", "eval", "chmod", "chown", "link", "truncate", "utime", "touch"),
    *("'r+", '"r+', "'x'", '"x"', "'a", '"a', "mmap", "open3", "`", "'>", '">', "'+", '"+'),
    *("os.open", "o_trunc", "o_wronly", "o_rdwr", "file.delete", "fileutils", "file_put", "delete"),
    *("mode=", "extractall", "unpack", "savez", "to_csv", "to_json", "symlink", "mkdir", "rm("),
    *("save(", "dd of", "setx", "putenv", "chdir", "remove", "inplace", "rm!", "cpsync"),
)
"""Further words with which code may change what it names."""
MOST_TEXTS = 1_500
"""Maximum number of distinct quoted texts in one piece of code; code with more is refused."""
LONGEST_CODE = 100_000
"""Maximum characters of code that are searched for computed texts and variables."""
_COMPUTES = (
    *("b64decode", "fromhex", "unhexlify", "rot13", "rot_13", "decompress", "chr(", "[::-1]"),
    *("atob(", "fromcharcode", "'base64'", '"base64"', "'hex'", '"hex"', "pack(", "codecs.decode"),
    *("reverse()", "decode64", "base64_decode", "hex2bin", "strrev", "map(chr", "chrfor"),
)
"""Words of code that decodes or computes a text."""
_RUNS = (
    *("exec", "eval", "system", "popen", "run", "call", "check_output", "execsync", "spawn"),
    *("spawnsync", "__import__", "import_module", "function", "getattr", "compile", "shell_exec"),
)
_OPENS = (
    *("open", "remove", "unlink", "rmtree", "rename", "replace", "path", "rmsync", "unlinksync"),
    *("writefilesync", "truncate", "chmod", "move", "copy", "writefile", "rmdir"),
)
_CODE_FLAGS = ("-c", "-e", "-r", "-E", "--eval", "eval", "-p", "--print", "--run", "--execute")
_CODE_OPTIONS = tuple(f"{flag}=" for flag in _CODE_FLAGS if flag.startswith("--"))
_CODE_CHARS = (" ", "(", "'", '"', "`", ";")
"""A short option with one of these has code attached: `-c'import os'`."""
_PIECES = ("'+'", '"+"', "' + '", '" + "', "' . '", '" . "', "''", '""', "' '", '" "')
_DOTS = ("'.'", '"."')
"""Between two texts a dot joins them; alone it is the current folder."""


def code_of(command: "ShellCommand") -> str:
    """The program text of an interpreter: after or attached to `-c` or `-e`, or its input."""
    texts, words = command.here_texts, command.words
    for at, flag in enumerate(words):
        if (is_short(flag) and flag[-1:] in {"c", "e"}) or flag in _CODE_FLAGS:
            behind = (word for word in words[at + 1 :] if word[:2] != "--")  # eval --ext=ts code
            texts.append(next(behind, ""))
        elif flag.startswith(_CODE_OPTIONS):
            texts.append(flag.partition("=")[2])
        if is_short(flag) and any(char in flag for char in _CODE_CHARS):
            texts.append(flag[1:])
    if command.piped is not None:
        texts.append(command.piped)
    return joined("\n".join(texts))


def joined(code: str) -> str:
    """The code with split texts joined: `'a' + 'b'` becomes `'ab'`."""
    for pieces in _PIECES:
        if pieces in code:
            code = code.replace(pieces, "")
    for dot in _DOTS:
        first, *rest = code.split(dot)
        for part in rest:
            alone = first[-1:] in _AROUND or part[:1] in _AROUND
            first += (dot if alone else "") + part
        code = first
    return code


_AROUND = ("", *" ,()[]{};:=\n")
"""Characters next to a complete text."""


def quoted_in(code: str) -> list[str]:
    """The distinct quoted texts in code of any language. Raises `TooLong`."""
    found: dict[str, None] = {}
    mask = code.replace('"', "'").replace("`", "'")
    at = mask.find("'")
    while at >= 0:
        end = code.find(code[at], at + 1)
        escaped = False
        while end > at + 1 and code[end - 1] == "\\":
            end = code.find(code[at], end + 1)
            escaped = True
        if end < 0:
            break
        text = code[at + 1 : end]
        if any(escape in text for escape in _NUMERIC_ESCAPES):
            text = unescaped(text)
        if escaped or "\\" in text:
            text = text.replace("\\'", "'").replace('\\"', '"').replace("\\n", "\n")
        if text and text not in found:
            if len(found) >= MOST_TEXTS:
                raise TooLong(f"more than {MOST_TEXTS} texts in quotes in one piece of code")
            found[text] = None
        at = mask.find("'", end + 1)
    return list(found)


_NUMERIC_ESCAPES = ("\\x", "\\u", "\\0", "\\1")
"""How numeric escapes begin."""
_PAIRS = {"(": ")", "{": "}", "[": "]", "<": ">"}
_QUOTES = ("qx", "qq", "qw", "q", "%x", "%q", "%Q", "%w", "%W")


def bracketed_in(code: str) -> list[str]:
    """The texts in the special quotes of Perl and Ruby: `qx{…}`, `%x(…)`, `<*.c>`. Raises `TooLong`."""
    found: list[str] = []
    for quote in (*_QUOTES, "unlink "):  # unlink <*.c>
        parts = code.split(quote)[1:]
        if len(parts) > MOST_TEXTS:
            raise TooLong(f"more than {MOST_TEXTS} texts in {quote.strip()} in one piece of code")
        for part in parts:
            opens = part[:1] if quote != "unlink " else part[: part[:1] == "<"]
            if opens and not opens.isalnum() and not opens.isspace():
                found.append(part[1:].partition(_PAIRS.get(opens, opens))[0])
    return [text for text in found if text]


PACKAGE_PATH = "/usr/lib/python3/site-packages/switchgear"
"""Stands for the folder of the installed package, which code may look up."""
_PRINTS = word_list("print puts say echo console log process stdout write n io")
"""The only words in code that only prints."""


def printed_by(code: str) -> str | None:
    """The output of code that only prints quoted texts; `None` if the output is unknown.

    >>> printed_by("print('rm ' + 'x')"), printed_by("print(f('x'))")
    ('rm x', None)
    """
    code = joined(code)
    texts = quoted_in(code)
    bare = code
    for text in texts:
        bare = bare.replace(text, " ", 1)
    words = "".join(char if char.isalnum() else " " for char in bare).split()
    if texts and words and all(word in _PRINTS for word in words):
        return "\n".join(texts)
    is_path = "switchgear" in code and ("__path__" in code or "__file__" in code)
    return PACKAGE_PATH if is_path else None


def reads_input(command: "ShellCommand") -> bool:
    """Whether code processes its input line by line: `perl -ne`, `sys.stdin`."""
    flags = [word for word in command.words[1:4] if is_short(word)]
    code = "\n".join(command.words[1:]).lower()
    by_flag = command.words[0].startswith(("perl", "ruby")) and any(
        {"n", "p"} & set(flag.partition("e")[0]) for flag in flags
    )
    return by_flag or any(word in code for word in _READS_INPUT)


_READS_INPUT = ("stdin", "input()", "<>", "argf", "gets", "readline", "fileinput", "readfilesync(0")


def may_change(code: str) -> bool:
    """Whether code may change the files that it names; reading and printing do not."""
    small = code.lower()
    return any(word in small for words in (DELETES, WRITES, STARTS, _ACTS) for word in words)


def variables_in(code: str) -> list[str]:
    """The variables with keys that code reads from the environment."""
    if not any(word in code for word in ("environ", "getenv", "process.env", "ENV")):
        return []
    names: list[str] = []
    name = ""
    for char in code[:LONGEST_CODE] + " ":
        if char.isupper() or char == "_" or (name and char.isdigit()):
            name += char
        else:
            if len(name) > 3 and holds_key(name.strip("_")):
                names.append(name.strip("_"))
            name = ""
    return names


def computes_code(code: str) -> bool:
    """Whether code runs, opens or deletes something that it decodes or computes."""
    small = code[:LONGEST_CODE].lower()
    if not any(word in small for word in _COMPUTES):
        return False
    squeezed = small.replace(" ", "")
    if any(f"{act}(" in squeezed and _has_computed_argument(squeezed, f"{act}(") for act in _RUNS):
        return True
    return any(_has_computed_argument(squeezed, f"{act}(") for act in _OPENS)


def _has_computed_argument(code: str, call: str) -> bool:
    """Whether a call has a decoded text in its first argument."""
    at = code.find(call)
    for _ in range(20):
        if at < 0:
            return False
        start = at + len(call)
        depth, end = 1, start
        while end < len(code) and depth and end - start < 400:
            if code[end] == "," and depth == 1:
                break
            depth += (code[end] in "([{") - (code[end] in ")]}")
            end += 1
        first = code[start:end]
        if any(word in first for word in _COMPUTES):
            return True
        at = code.find(call, start)
    return False
