"""Keys of error texts: the same error has the same key, even if its numbers and paths differ.

A key is a pure function of the text, the same in every process (golden files verify this). There are
two algorithms: `fingerprint` (the default) and `documented`, the steps of the original shell scripts.

`re` and `hashlib` cost a hook process milliseconds, so they are imported with the first error.
The matching time of every pattern is bounded: repeats are bounded and never nested in a repeat of the same characters,
and at most `LOOKED_AT` characters are read, whatever the length of the text (ADR 0012).
"""

from collections.abc import Callable, Iterable
from typing import Any

_PRIME = 2**61 - 1


def digest(text: str) -> str:
    """The length of the text and its remainder by a large prime, in hexadecimal digits.

    Equal for equal texts, in every process and version. It is not cryptographic: two texts with the
    same digest are easy to construct.

    >>> digest("git status") == digest("git status"), digest("git status") == digest("git stash")
    (True, False)
    """
    data = text.encode(errors="surrogatepass")
    return f"{len(data):x}.{int.from_bytes(data, 'little') % _PRIME:x}"


LOOKED_AT = 8_192
"""Number of characters that a key can depend on; of a longer text, half are the first and half the last."""
DOCUMENTED_LENGTH = 500
_GIST_LINES = 12
_GIST_WORDS = 40

_SIGNS = (
    *("error", "exception", "fail", "fatal", "panic", "denied", "refused", "not found", "no such"),
    *("cannot", "can't", "unable", "invalid", "killed", "timed out", "timeout", "abort"),
    *("undefined", "unexpected"),
)
"""Words that mark a line of a longer output as being about an error."""
_CODES = ("code", "status", "errno")
_CODES_ALONE = ("error", "exit", "http", "signal", "rc")
"""A number right after one of these words identifies the error, and is kept; `AssertionError: 5` is not."""
_HTTP = (
    *("400", "401", "402", "403", "404", "405", "408", "409", "410", "413", "415", "422", "424"),
    *("425", "429", "431", "451", "500", "501", "502", "503", "504", "520", "521", "522", "524"),
    "529",
)
_SERVICE_PORTS = 10_000
"""Ports below this number are kept, because they identify the service.

Exceptions: the ports of the web, which add nothing to the scheme, and ports after the numeric address
of another machine, which are as variable as the address.
"""
_WEB_PORTS = (80, 443)
_LOOPBACK = ("127.", "0.0.0.0", "[::1]", "::1")  # noqa: S104  nothing is bound here

_NAMES = ("user", "User", "username")
"""The word after one of these is the name of a user."""
_MACHINES = frozenset(
    (
        *("host", "hostname", "node", "server", "machine", "peer", "proxy", "upstream", "backend"),
        *("tcp", "udp", "ECONNREFUSED"),
    )
)
"""After one of these, a bare name with a digit or a port is the name of a machine."""
_LINKS = frozenset(
    (
        *("connect", "connecting", "connected", "connection", "connections", "disconnected"),
        *("packet", "reply", "response", "request", "route"),
    )
)
"""After one of these and `to`, `from` or `by`, such a name is the name of a machine, too."""
_RESOLVED = frozenset(("resolve", "resolving", "unknown"))
"""After one of these and `host`, every word is the name of a machine."""
_BEFORE_MACHINES = frozenset(
    f"{word}{colon}"
    for word in (*_MACHINES, "name", "to", "from", "by", "lookup", "ENOTFOUND", "EAI_AGAIN")
    for colon in ("", ":")
)
_PRIVATE = ("localhost", ".local", ".internal", ".localdomain", ".lan")
"""Endings of the names of this machine and of machines in the same network."""
_POSITIONS = ("line", "col", "column", "row")
_UNITS = (
    *("ns", "us", "µs", "ms", "s", "sec", "secs", "second", "seconds", "min", "minute", "minutes"),
    *("h", "hour", "hours", "B", "KB", "MB", "GB", "KiB", "MiB", "GiB", "byte", "bytes", "%"),
)
"""A unit after a number is as variable as the number."""
_PLURALS = (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", ""))
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
| (?P<mail> (?<![\w.+-]) [\w.+-]{1,64} @ [a-zA-Z][\w-]{0,62} (?: \.[\w.-]{1,200} | (?<=\d)(?!\w) ) )
| (?P<host> (?<![\w.-]) (?=[a-zA-Z0-9-]{1,63}\.) [a-zA-Z0-9.-]{1,250}
            \.(?:com|net|org|edu|gov|io|local|internal|localdomain|lan
               |au|br|ca|ch|cn|de|eu|fr|jp|kr|nl|ru|se|uk) (?:\.[a-z]{2})? (?![\w.-])
            (?::\d{1,5}\b)? | \blocalhost:\d{1,5}\b
          | (?<![\w.-]) (?=[a-z0-9-]{1,63}\.[a-z0-9-]{1,63}\.) [a-z0-9.-]{1,250}
            \.(?:ai|asia|at|be|biz|cloud|co|cz|dev|dk|es|fi|gr|hk|hu|ie|il|it|mx|no|nz|pl|pt|ro|sg|tr|tv
               |tw|ua|us|xyz|za) (?![\w.-]) (?::\d{1,5}\b)? )
| (?P<ip>   (?<![\w.]) \d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3} (?![\w.]) (?::\d{1,5}\b)? | \[::1\]:\d{1,5}\b )
| (?P<ip6>  (?<![\w:.]) (?=[a-fA-F:]{0,40}\d)
            (?: (?=[0-9a-fA-F:]{0,40}::) [0-9a-fA-F:]{3,45}
              | (?:[0-9a-fA-F][0-9a-fA-F]{0,3}:){7} [0-9a-fA-F]{1,4} ) (?<!:) (?:%\w{1,15})? (?![\w:]) )
| (?P<hex>  (?<!\w) [0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12} (?!\w)
          | 0[xX][0-9a-fA-F]{1,2000}
          | (?<![A-Za-z0-9]) (?=[a-fA-F]{0,40}\d) [0-9a-fA-F]{7,2000} (?![A-Za-z0-9])
          | (?<![A-Za-z0-9]) (?=[A-Za-z]{0,60}\d{1,60}[A-Za-z]{1,60}\d) [A-Za-z0-9]{5,2000}
          | (?<![A-Za-z0-9]) (?=\d{0,6}[a-f]) (?=[a-f]{0,6}\d) [0-9a-f]{4,6} (?![A-Za-z0-9])
          | (?<![A-Za-z0-9]) [0-9a-fA-F]{1,4} : [0-9a-fA-F]{1,4} : [0-9a-fA-F]{1,4} : [0-9a-fA-F:]{3,40} )
| (?P<number> (?:(?<![A-Za-z0-9])[-+])? \d [\d.,:]{0,2000} (?:(?:[numkKMGT]?i?[sBb]|min|sec|hours?|%)(?!\w))? )
"""
_LIST = r"""
  (?<![\w.<-]) (?P<item> [\w.-]{1,40}\# ) (?: [ ,;]{1,3} (?P=item) ){2,8000} (?![\w.#-])
| (?P<same> \# | <\w{3,4}> ) (?: [ ,;]{1,3} (?: (?P=same) | \( (?P=same)? \) ) ){1,8000}
"""
"""A list: the same variable twice, or the same name with a number three times."""
_JOINED = r"\#(?: [-_.:/,]? [A-Za-z]? [-_.:/]? \# ){1,8000} | (?<=[A-Za-z0-9][_-]) [A-Z] \# | \A [<>~]=? \#"
"""Numbers that are joined to one identifier, and a counter with its letter: `rack-B7`."""
_STACK = (
    r"\bat (?:async |new )?[^\s()]{1,200} (?:\[as [^\s()\[\]]{1,100}\] )?"
    r"\([^\n()]{1,500}:\d{1,9}:\d{1,9}\)"
)

_patterns: "dict[str, Any]" = {}
"""Compiled patterns and hash functions, created on first use."""


def fingerprint(text: str) -> str:
    """The key of an error: 16 hexadecimal digits, equal for texts that differ in variables only.

    Numbers, addresses, paths, hexadecimal values, lists and the values of `name=value` are variables.
    Error codes and the ports of services are not. Of an output of several lines, only the lines about
    an error count.

    >>> fingerprint("exit code 1 after 3.2 s") == fingerprint("exit code 1 after 41 ms")
    True
    >>> fingerprint("exit code 1 after 3.2 s") == fingerprint("exit code 137 after 3.2 s")
    False
    """
    hashed: str = _pattern("blake2b")(
        template(text).encode(errors="replace"), digest_size=8
    ).hexdigest()
    return hashed


def template(text: str) -> str:
    """The text that `fingerprint` hashes: the significant lines, with their variables masked.

    >>> template("GET https://api.test/v1/7 failed: HTTP 503 after 3.2 s")
    'GET <url> failed: HTTP 503 after #'
    """
    return "\n".join(_significant_lines(text))


def gist(text: str) -> str:
    """The lines of an output that are about an error, on one line of at most 40 words.

    The limit counts words, so that a longer number at the beginning does not cut off the end.
    """
    kept: list[str] = []
    for line in _significant_lines(text).values():
        if not any(line.strip() in earlier for earlier in kept):  # a summary may quote a later line
            kept.append(line)
    words = " ".join(kept).split()
    if len(words) > _GIST_WORDS:
        words = [*words[: _GIST_WORDS - 12], "…", *words[-12:]]
    return " ".join(words)


def documented(text: str) -> str:
    """The documented key: the first 8 hexadecimal digits of the MD5 of the normalised text."""
    data = normalised(text).encode(errors="replace")
    hashed: str = _pattern("md5")(data, usedforsecurity=False).hexdigest()
    return hashed[:8]


def normalised(text: str) -> str:
    """The documented normalisation: lower case; STACK, HEX and N for variable parts; 500 characters.

    Stack traces and hexadecimal values are replaced before bare numbers, because they contain
    numbers; the three placeholders stay in capitals.

    >>> normalised("Crash at 0x7F3A, line 42, at run (/src/app.ts:42:10)")
    'crash at HEX, line N, STACK'
    """
    line: str = _pattern("stack").sub("STACK", text[:LOOKED_AT].lower())
    line = _pattern("digits").sub(lambda found: "HEX" if found[0][:2] == "0x" else "N", line)
    return line.strip()[:DOCUMENTED_LENGTH]


FINGERPRINTS: dict[str, Callable[[str], str]] = {"default": fingerprint, "documented": documented}
"""The algorithms, by their names in the configuration."""


def _significant_lines(text: str) -> dict[str, str]:
    """The significant lines by their masked forms; of lines with the same form, the first."""
    if len(text) > LOOKED_AT:
        text = f"{text[: LOOKED_AT // 2]}\n{text[-LOOKED_AT // 2 :]}"
    if "\x1b" in text:
        text = _pattern("escape").sub("", text)
    lines = [line for line in text.splitlines() if line and not line.isspace()]
    if len(lines) > 1:
        about = [line for line in lines if any(sign in line.lower() for sign in _SIGNS)]
        lines = about or lines
    found: dict[str, str] = {}
    for line in lines:
        found.setdefault(_masked_line(line), line)
    if len(found) > _GIST_LINES:
        half, pairs = _GIST_LINES // 2, list(found.items())
        found = dict(pairs[:half] + pairs[-half:])
    return found


def _masked_line(line: str) -> str:
    words = line.split()
    suspicious = _pattern("suspicious").search
    out: list[str] = []
    earlier = before = ""
    counting = False
    for word, after in zip(words, [*words[1:], ""], strict=True):
        masked = word
        if before in _NAMES or (before == "for" and after == "from"):
            masked = "<name>"
        elif word in _CALENDAR and (after[:1].isdecimal() or after in _CALENDAR):
            masked = "#"
        elif before in _BEFORE_MACHINES and _is_machine(word, before, earlier, after):
            masked = _masked_machine(word)
        elif not word.isalpha() and suspicious(word):
            if not _identifies_error(word, before, after, out):
                masked = _masked_word(word) if out else _masked_first(word, after)
        elif counting:
            bare = word.rstrip(_AROUND)
            if bare in _UNITS:
                masked = out.pop() + word[len(bare) :]
            else:
                masked = _singular(bare) + word[len(bare) :]
        out.append(masked)
        counting = masked.endswith("#") and masked is not word
        # A user may be called "user": the word after that name is not another name.
        earlier, before = before, "" if masked == "<name>" else word
    listed: str = _pattern("list").sub(lambda match: match["same"] or "#", " ".join(out))
    return listed


def _masked_word(word: str) -> str:
    masked: str = _pattern("variable").sub(_mask, word)
    if "#" in masked:
        masked = _pattern("joined").sub("#", masked)
    return masked


def _masked_first(word: str, after: str) -> str:
    """Mask the first word of a line: the address of another machine there names a peer, not a service."""
    name = word.partition(":")[0]
    if after and word.endswith((":80", ":443")) and name not in _POSITIONS and _is_bare(word):
        return "<host>"
    masked = _masked_word(word)
    port = masked.removeprefix("<host>:")
    if port != masked and port[:1].isdecimal() and not name.endswith(_PRIVATE):
        return f"<host>{port.lstrip('0123456789')}" if name[:1].isalpha() else masked
    return masked


def _is_machine(word: str, before: str, earlier: str, after: str) -> bool:
    """Whether a word is the bare name of a machine, by the words around it."""
    before, name = before.rstrip(":"), word.strip(_AROUND)
    if before in ("ENOTFOUND", "EAI_AGAIN") or (before == "lookup" and after == "on"):
        return name.isalpha() or _is_bare(name)
    if before in ("host", "hostname") and earlier in _RESOLVED and name.isalpha():
        return True
    if before in ("to", "from", "by"):
        expected = earlier in _LINKS
    elif before == "name":
        expected = earlier in _MACHINES or earlier == "domain"
    else:
        expected = before != "lookup"
    return expected and _is_bare(name)


def _is_bare(name: str) -> bool:
    """Whether a word can be the bare name of a machine: it has a digit or a port."""
    host = name.partition(":")[0]
    return _pattern("bare").fullmatch(name) is not None and not _names_a_code(host)


def _masked_machine(word: str) -> str:
    name = word.strip(_AROUND)
    port = name.partition(":")[2]
    return word.replace(name, f"<host>:{port}" if _is_service_port(port) else "<host>", 1)


def _singular(word: str) -> str:
    """The singular of a counted word, so that 1 error and 2 errors are the same."""
    if len(word) > 3 and word.isalpha() and word.islower() and not word.endswith("ss"):
        for plural, singular in _PLURALS:
            if word.endswith(plural):
                return word.removesuffix(plural) + singular
    return word


def _identifies_error(word: str, before: str, after: str, out: list[str]) -> bool:
    """Whether a number identifies the error, by the words around it."""
    number = word.strip(_AROUND)
    digits = number.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    if not (digits.isdecimal() and len(digits) <= 5 and len(number) - len(digits) <= 5):
        return False
    sign = "" if before[-1:] in (",", ";") else before.strip(_AROUND).lower()
    if digits != number:
        return _names_a_code(sign)
    if sign == "port":  # the port of a peer is arbitrary
        return int(number) < _SERVICE_PORTS and (len(out) < 2 or out[-2] != "<host>")
    if _names_a_code(sign) or sign.startswith("http/"):
        return True
    # 404 Not Found, 529 overloaded; but 512 files is a count.
    if len(number) == 3 and number[0] in "45":
        phrase = after[:1].isupper() and after.rstrip(_AROUND) not in _UNITS
        return phrase or (not out and number in _HTTP)
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
    return _masked_address(kind, found) if kind in ("host", "ip", "ip6", "url") else f"<{kind}>"


def _masked_address(kind: str, found: str) -> str:
    shown = "<url>" if kind == "url" else "<host>"
    host, _, port = (found if kind != "url" else found.split("/")[2]).rpartition(":")
    if kind in ("ip", "ip6"):
        keeps = host.startswith(_LOOPBACK) and _is_service(port)
    else:
        keeps = _is_service_port(port)
    return f"{shown}:{port}" if keeps else shown


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


def _is_service_port(port: str) -> bool:
    return _is_service(port) and int(port) not in _WEB_PORTS


def _is_series(head: str) -> bool:
    """Whether a number after `head` belongs to a series of codes: E0308, TS2304, ORA-00942."""
    letters = head.removesuffix("-")
    letters = letters[len(letters.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")) :]
    before = head.removesuffix("-")[: -len(letters) or None][-1:]
    return 1 <= len(letters) <= 5 and not (before.isalnum() or before in ("-", "_"))


def _pattern(name: str) -> Any:
    """A compiled pattern, or a hash function, by its name."""
    if not _patterns:
        _patterns.update(_compile_patterns())
    return _patterns[name]


def _compile_patterns() -> Iterable[tuple[str, Any]]:
    import hashlib  # noqa: PLC0415  see the docstring of the module
    import re  # noqa: PLC0415

    return {
        "blake2b": hashlib.blake2b,
        "md5": hashlib.md5,
        "variable": re.compile(_VARIABLE, re.VERBOSE | re.ASCII),
        "suspicious": re.compile(r"[0-9/\\=@]|\.[a-z]"),
        "bare": re.compile(
            r"[A-Za-z][A-Za-z_-]{0,60}\d{1,9}[a-z]?(?::\d{1,5})?|[A-Za-z][\w.-]{0,60}:\d{1,5}",
            re.ASCII,
        ),
        "joined": re.compile(_JOINED, re.VERBOSE | re.ASCII),
        "list": re.compile(_LIST, re.VERBOSE | re.ASCII),
        "escape": re.compile(r"\x1b\[[0-?]{0,30}[ -/]{0,5}[@-~]?"),
        "stack": re.compile(_STACK, re.ASCII),
        "digits": re.compile(r"0x[0-9a-f]+|[0-9]+"),
    }.items()
