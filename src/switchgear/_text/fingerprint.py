"""Text to key: the same for what is the same error, although its numbers and paths differ.

A key is a pure function of the text, the same in every process and every version (golden files
keep it so). Two ways, by name: `fingerprint` (the default) and `documented`, the steps of the original shell scripts.

`re` and `hashlib` cost a hook process milliseconds, so they are imported when a first error comes.
No pattern can explode: repeats are bounded and never nested in a repeat of the same characters,
and at most `LOOKED_AT` characters are read, whatever the length of the text (ADR 0012).
"""

from collections.abc import Callable, Iterable
from typing import Any

_PRIME = 2**61 - 1


def digest(text: str) -> str:
    """The length of the text and its remainder by a large prime, in hexadecimal digits.

    Equal for equal texts, in every process and version. It is no secret and no signature: who
    tries can make two texts that share a key.

    >>> digest("git status") == digest("git status"), digest("git status") == digest("git stash")
    (True, False)
    """
    data = text.encode(errors="surrogatepass")
    return f"{len(data):x}.{int.from_bytes(data, 'little') % _PRIME:x}"


LOOKED_AT = 8_192
"""Characters that a key can depend on: of a longer text the first and the last half of these."""
DOCUMENTED_LENGTH = 500
_GIST_LINES = 12
_GIST_WORDS = 40

_SIGNS = (
    *("error", "exception", "fail", "fatal", "panic", "denied", "refused", "not found", "no such"),
    *("cannot", "can't", "unable", "invalid", "killed", "timed out", "timeout", "abort"),
    *("undefined", "unexpected"),
)
"""Words by which a line of a longer output is known to be about an error."""
_CODES = ("code", "status", "errno")
_CODES_ALONE = ("error", "exit", "http", "signal", "rc")
"""A number right behind one of these says which error it is, and is kept; `AssertionError: 5` not."""
_HTTP = (
    *("400", "401", "402", "403", "404", "405", "408", "409", "410", "413", "415", "422", "424"),
    *("425", "429", "431", "451", "500", "501", "502", "503", "504", "520", "521", "522", "524"),
    "529",
)
_SERVICE_PORTS = 10_000
"""Ports below it are kept: they say which service it was.

Not those of the web, which say no more than https; nor with the bare number of another machine,
where they are as variable as it: one of many, or a peer's.
"""
_WEB_PORTS = (80, 443)
_LOOPBACK = ("127.", "0.0.0.0")  # noqa: S104  nothing is bound here

_NAMES = ("user", "User", "username")
"""The word behind one of these is the name of a user."""
_UNITS = (
    *("ns", "us", "µs", "ms", "s", "sec", "secs", "second", "seconds", "min", "minute", "minutes"),
    *("h", "hour", "hours", "B", "KB", "MB", "GB", "KiB", "MiB", "GiB", "byte", "bytes", "%"),
)
"""A unit behind a number is as variable as the number."""
_CALENDAR = frozenset(
    (
        *("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
        *("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    )
)
_LOOKED_BACK = 40
_AROUND = "()[]{}<>,;:.=#'\"!"

_VARIABLE = r"""
  (?P<value> (?<=\w=) [^\s'"`,;()\[\]{}<>]{1,2000} )
| (?P<url>  \b[a-zA-Z][a-zA-Z0-9+.]{1,9}:// [^\s/'"<>()\[\]{},;]{0,300} (?:/[^\s'"<>()\[\]{},;]{0,2000})? )
| (?P<path> (?<![\w)\]>]) (?:~|\.{1,2}|[A-Za-z]:)? [/\\] [^\s'"`<>()\[\]{},;:|=]{1,2000}
          | (?<![\w./-]) (?=[\w.-]{1,200}/) [\w./-]{1,400} \.[a-zA-Z]\w{0,5} \b )
| (?P<mail> (?<![\w.+-]) [\w.+-]{1,64} @ [\w-]{1,63} \.[\w.-]{1,200} )
| (?P<host> (?<![\w.-]) (?=[a-zA-Z0-9-]{1,63}\.) [a-zA-Z0-9.-]{1,250}
            \.(?:com|net|org|edu|gov|io|local|internal|localdomain|lan
               |au|br|ca|ch|cn|de|eu|fr|jp|kr|nl|ru|se|uk) (?:\.[a-z]{2})? (?![\w.-])
            (?::\d{1,5}\b)? | \blocalhost:\d{1,5}\b )
| (?P<ip>   (?<![\w.]) \d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3} (?![\w.]) (?::\d{1,5}\b)? )
| (?P<hex>  (?<!\w) [0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12} (?!\w)
          | 0[xX][0-9a-fA-F]{1,2000}
          | (?<![A-Za-z0-9]) (?=[a-fA-F]{0,40}\d) [0-9a-fA-F]{7,2000} (?![A-Za-z0-9])
          | (?<![A-Za-z0-9]) (?=[A-Za-z]{0,60}\d{1,60}[A-Za-z]{1,60}\d) [A-Za-z0-9]{5,2000}
          | (?<![A-Za-z0-9]) (?=\d{0,6}[a-f]) (?=[a-f]{0,6}\d) [0-9a-f]{4,6} (?![A-Za-z0-9])
          | (?<![A-Za-z0-9]) [0-9a-fA-F]{1,4} : [0-9a-fA-F]{1,4} : [0-9a-fA-F]{1,4} : [0-9a-fA-F:]{3,40} )
| (?P<number> (?:(?<![A-Za-z0-9])[-+])? \d [\d.,:]{0,2000} (?:(?:[numkKMGT]?i?[sBb]|min|sec|hours?|%)(?!\w))? )
"""
_STACK = (
    r"\bat (?:async |new )?[^\s()]{1,200} (?:\[as [^\s()\[\]]{1,100}\] )?"
    r"\([^\n()]{1,500}:\d{1,9}:\d{1,9}\)"
)

_tools: "dict[str, Any]" = {}
"""Compiled patterns and hash functions, made at the first use and the same ever after."""


def fingerprint(text: str) -> str:
    """The key of an error: 16 hexadecimal digits, equal for texts that differ in variables only.

    Numbers, addresses, paths, hexadecimal values and the values of `name=value` are variables.
    Error codes and the ports of services are not. Of an output of several lines, those count that
    are about an error.

    >>> fingerprint("exit code 1 after 3.2 s") == fingerprint("exit code 1 after 41 ms")
    True
    >>> fingerprint("exit code 1 after 3.2 s") == fingerprint("exit code 137 after 3.2 s")
    False
    """
    hashed: str = _tool("blake2b")(
        template(text).encode(errors="replace"), digest_size=8
    ).hexdigest()
    return hashed


def template(text: str) -> str:
    """What `fingerprint` hashes: the lines that matter, each with its variables masked.

    >>> template("GET https://api.test/v1/7 failed: HTTP 503 after 3.2 s")
    'GET <url> failed: HTTP 503 after #'
    """
    return "\n".join(_telling_lines(text))


def gist(text: str) -> str:
    """The lines of an output that are about an error, on one line of at most 40 words.

    Words and not characters, so that a longer number at the front cuts nothing off at the end.
    """
    words = " ".join(_telling_lines(text).values()).split()
    if len(words) > _GIST_WORDS:
        words = [*words[: _GIST_WORDS - 12], "…", *words[-12:]]
    return " ".join(words)


def documented(text: str) -> str:
    """The documented key: the first 8 hexadecimal digits of the MD5 of the normalised text."""
    data = normalised(text).encode(errors="replace")
    hashed: str = _tool("md5")(data, usedforsecurity=False).hexdigest()
    return hashed[:8]


def normalised(text: str) -> str:
    """The documented normalisation: lower case; STACK, HEX and N for what varies; 500 characters.

    Stack traces and hexadecimal values are replaced before bare numbers, which would leave
    nothing of them to find; the three words stay in capitals, as the seed's example has them.

    >>> normalised("Crash at 0x7F3A, line 42, at run (/src/app.ts:42:10)")
    'crash at HEX, line N, STACK'
    """
    line: str = _tool("stack").sub("STACK", text[:LOOKED_AT].lower())
    line = _tool("digits").sub(_hex_or_number, line)
    return line.strip()[:DOCUMENTED_LENGTH]


FINGERPRINTS: dict[str, Callable[[str], str]] = {"default": fingerprint, "documented": documented}
"""The ways to make a key, by the name that configuration has for them."""


def _telling_lines(text: str) -> dict[str, str]:
    """The lines that matter, as they are, each under its masked form; no form comes twice."""
    if len(text) > LOOKED_AT:
        text = f"{text[: LOOKED_AT // 2]}\n{text[-LOOKED_AT // 2 :]}"
    if "\x1b" in text:
        text = _tool("escape").sub("", text)
    lines = [line for line in text.splitlines() if line and not line.isspace()]
    if len(lines) > 1:
        lines = [line for line in lines if _is_telling(line.lower())] or lines
    found: dict[str, str] = {}
    for line in lines:
        found.setdefault(_masked_line(line), line)
    if len(found) > _GIST_LINES:
        half, pairs = _GIST_LINES // 2, list(found.items())
        found = dict(pairs[:half] + pairs[-half:])
    return found


def _is_telling(line: str) -> bool:
    return any(sign in line for sign in _SIGNS)


def _masked_line(line: str) -> str:
    words = line.split()
    substitute = _tool("variable").sub
    suspicious = _tool("suspicious").search
    out: list[str] = []
    before = ""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if before in _NAMES or (before == "for" and after == "from"):
            out.append("<name>")
        elif word in _CALENDAR and (after[:1].isdecimal() or after in _CALENDAR):
            out.append("#")
        elif not word.isalpha() and suspicious(word):
            if _tells_which(word, before, after, out):
                out.append(word)
            else:
                out.append(substitute(_mask, word))
        elif not (out and out[-1] == "#" and word in _UNITS):
            out.append(word)
        # A user may be called "user": the word behind that name is no name.
        before = "" if out and out[-1] == "<name>" else word
    masked: str = _tool("run").sub("#", " ".join(out))
    return masked


def _tells_which(word: str, before: str, after: str, out: list[str]) -> bool:
    """Whether a word that is a number says which error it is, by the words around it."""
    number = word.strip(_AROUND)
    if not (number.isdecimal() and len(number) <= 5):
        return False
    sign = before.strip(_AROUND).lower()
    if sign == "port":  # the port of a peer is whatever was free
        return len(out) < 2 or out[-2] != "<host>"
    if _names_a_code(sign) or sign.startswith("http/"):
        return True
    # 404 Not Found, 529 overloaded; but 512 files is a count.
    if len(number) == 3 and number[0] in "45":
        return after[:1].isupper() or (not out and number in _HTTP)
    return False


def _mask(match: Any) -> str:
    kind: str = match.lastgroup
    found: str = match[0]
    if kind == "number":
        return _masked_number(match.string, match.start(), match.end(), found)
    if kind == "value":
        start = match.start()
        name = match.string[max(0, start - _LOOKED_BACK) : start]
        return found if len(found) <= 16 and found.isalnum() and _names_a_code(name) else "#"
    if kind == "hex":
        return "#"
    if kind not in ("host", "ip", "url"):
        return f"<{kind}>"
    shown = "<url>" if kind == "url" else "<host>"
    host, _, port = (found if kind != "url" else found.split("/")[2]).rpartition(":")
    if not _is_service(port) or (kind == "ip" and not host.startswith(_LOOPBACK)):
        return shown
    return shown if kind != "ip" and int(port) in _WEB_PORTS else f"{shown}:{port}"


def _masked_number(word: str, start: int, end: int, number: str) -> str:
    head = word[max(0, start - _LOOKED_BACK) : start]
    bare = number.rstrip(".,:")
    rest = number[len(bare) :]
    if head and bare.isdecimal():
        if len(bare) <= 5 and head[-1] in "=:#([" and _names_a_code(head):
            return number
        if 3 <= len(bare) <= 5 and not word[end : end + 1].isalnum() and _is_series(head):
            return number
    return f"#{rest}"


def _names_a_code(head: str) -> bool:
    head = head.rstrip(_AROUND).lower()
    if head.endswith(_CODES):
        return True
    sign = next((sign for sign in _CODES_ALONE if head.endswith(sign)), None)
    return sign is not None and not head[: -len(sign)][-1:].isalnum()


def _is_service(port: str) -> bool:
    return port.isdecimal() and len(port) <= 5 and int(port) < _SERVICE_PORTS


def _is_series(head: str) -> bool:
    """Whether a number behind this is one of a series of codes: E0308, TS2304, ORA-00942."""
    letters = head.removesuffix("-")
    letters = letters[len(letters.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")) :]
    before = head.removesuffix("-")[: -len(letters) or None][-1:]
    return 1 <= len(letters) <= 5 and not (before.isalnum() or before in ("-", "_"))


def _hex_or_number(match: Any) -> str:
    return "HEX" if match[0].startswith("0x") else "N"


def _tool(name: str) -> Any:
    if not _tools:
        _tools.update(_made())
    return _tools[name]


def _made() -> Iterable[tuple[str, Any]]:
    import hashlib  # noqa: PLC0415  see the docstring of the module
    import re  # noqa: PLC0415

    return {
        "blake2b": hashlib.blake2b,
        "md5": hashlib.md5,
        "variable": re.compile(_VARIABLE, re.VERBOSE | re.ASCII),
        "suspicious": re.compile(r"[0-9/\\=@]|\.[a-z]"),
        "run": re.compile(r"#(?:[ ,]{1,3}#)+"),
        "escape": re.compile(r"\x1b\[[0-?]{0,30}[ -/]{0,5}[@-~]?"),
        "stack": re.compile(_STACK, re.ASCII),
        "digits": re.compile(r"0x[0-9a-f]+|[0-9]+"),
    }.items()
