"""Fingerprints of errors: equal and different errors, keys that never change, bounded time."""

import json
import re
import subprocess
import sys
from pathlib import Path
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear._text import fingerprint as module
from switchgear._text.fingerprint import documented, fingerprint, gist, normalised, template

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "fingerprints-v2.json").read_text())

SAME = [
    ("timeout after 31 s", "timeout after 870 ms"),
    (
        "task 0f8fad5b-d9cb-469f-a165-70867728950e lost",
        "task 7c9e6679-7425-40de-944b-e07fc1f90ae7 lost",
    ),
    ("cannot read /tmp/a/b.txt", "cannot read ./c"),
    ("peer 10.1.2.3:40100 reset", "peer 10.9.9.9:51234 reset"),
    ("peer 10.1.2.3:40100 reset", "peer cdn.example.cn:443 reset"),
    ("closed by 203.0.113.9 port 4022", "closed by 198.51.100.1 port 61022"),
    ("segfault at 0x7ffd12", "segfault at 0xdeadbeef"),
    ("request req_011CSHoEeqs5C35K2UXVRWR6 failed", "request req_01zzz9AbCdEf7Gh8Ij failed"),
    ("login failed, user=alice", "login failed, user=bob"),
    ("session of user alice ended", "session of user bob ended"),
    ("invalid user alice from 10.0.0.1", "invalid user user from 10.0.0.2"),
    ("GET https://a.test/x/1?y=2 failed", "GET https://b.test/z failed"),
    ("block blk_-4711 is lost", "block blk_42 is lost"),
    ("header 0064588e 8aff0003", "header 00ce22e8 00000001 00000002"),
    ("\x1b[31mbroken pipe\x1b[0m", "broken pipe"),
    ("  broken   pipe\n", "broken pipe"),
    ("opening…\nValueError: bad x\nclosing", "ValueError: bad x"),
    ("AssertionError: 5 != 6", "AssertionError: 7 != 8"),
    ("lost on Thu Jun 9 06:07:04 2005", "lost on Fri Nov 13 16:17:24 2026"),
    ("pod web-7d9f8b6c5-x2x4z failed", "pod web-54f6dd89b-q7k2m failed"),
    ("trace 7f3a failed", "trace 12bc failed"),
    ("no password for alice from 10.0.0.1", "no password for bob from 10.0.0.2"),
    ("error in line 1\nerror in line 2", "error in line 4\nerror in line 9\nerror in line 12"),
    # Bare names of machines.
    ("connection to db3 lost", "connection to web-12 lost"),
    ("dial tcp redis:6379: refused", "dial tcp cache:6379: refused"),
    ("lookup redis on 10.0.0.2:53: no such host", "lookup db on 10.0.0.3:53: no such host"),
    ("getaddrinfo ENOTFOUND redis", "getaddrinfo ENOTFOUND db.internal"),
    ("Could not resolve host: alpha", "Could not resolve host: beta"),
    ("my own domain name (aadmin1) unknown", "my own domain name (badmin7) unknown"),
    ("wpad:80 error : refused", "cdn.example.com:443 error : refused"),
    ("cdn.example.com:5228 closed", "cdn.example.com:5070 closed"),
    ("cdn.example.com:7: closed", "cdn.example.com:53: closed"),
    ("1 row missing", "2 rows missing"),
    ("peer fe80::c6b3:1ff:fecd:467f lost", "peer 10.1.2.3 lost"),
    ("peer 2001:db8:1:2:3:4:5:6 lost", "peer ::1 lost"),
    # Lists of any length.
    ("no data from an1 an2 an3 an4", "no data from dadmin1 dadmin2 dadmin3"),
    ("lost 10.0.0.1,10.0.0.2", "lost 10.0.0.9"),
    ("cannot read /a/b /c/d", "cannot read /x/y"),
    ("from 10.1.2.3 (a.example.com)", "from 10.1.2.3 ()"),
    # Counters and identifiers.
    ("1 error, 3 warnings", "2 errors, 1 warning"),
    ("1 process failed", "12 processes failed"),
    ("1 entry lost", "3 entries lost"),
    ("sent 12 bytes (1.2 KB), lost", "sent 7 bytes, lost"),
    ("wrote 564 KB, lost", "wrote 12 KB, lost"),
    ("lifetime <1 sec", "lifetime 02:31"),
    ("attempt_14_0020_m_000000_0 lost", "attempt_15_0021_r_000001_1 lost"),
    ("rack-B7 lost", "rack-C12 lost"),
    ("bound to port 62614", "bound to port 49791"),
]
DIFFERENT = [
    ("exit code 1", "exit code 137"),
    ("[Errno 2] no", "[Errno 13] no"),
    ("HTTP 404", "HTTP 500"),
    ("HTTP/1.1 404 Not Found", "HTTP/1.1 410 Gone"),
    ("429 Too Many Requests", "503 Too Many Requests"),
    ("529 overloaded", "500 overloaded"),
    ('{"status": 500}', '{"status": 404}'),
    ("failed, code=E1", "failed, code=E2"),
    ("error[E0308]: types", "error[E0277]: types"),
    ("error TS2304: x", "error TS2322: x"),
    ("ORA-00942: no", "ORA-00001: no"),
    ("refused 127.0.0.1:5432", "refused 127.0.0.1:6379"),
    ("refused localhost:5432", "refused localhost:6379"),
    ("refused db.internal:5432", "refused db.internal:6379"),
    ("refused db.example.com:5432", "refused db.example.com:6379"),
    ("cannot listen on port 3000", "cannot listen on port 8080"),
    ("port 5432", "error 5432"),
    ("No module named 'a'", "No module named 'b'"),
    ("killed by signal 9", "killed by signal 15"),
    ("KeyError: name", "TypeError: name"),
    ("E999 SyntaxError", "E902 SyntaxError"),
    ("May I fail", "Jun I fail"),
    ("FAILED tests/test_a.py::test_one\nok", "FAILED tests/test_a.py::test_two\nok"),
    ("dial tcp db:5432: refused", "dial tcp db:6379: refused"),
    ("connect ECONNREFUSED ::1:5432", "connect ECONNREFUSED ::1:6379"),
    ("connect ECONNREFUSED [::1]:5432", "connect ECONNREFUSED [::1]:6379"),
    ("localhost:5432 refused", "localhost:6379 refused"),
    ("127.0.0.1:5432 refused", "127.0.0.1:6379 refused"),
    ("db.internal:5432 - no response", "db.internal:6379 - no response"),
    ("Error R10 (Boot timeout)", "Error R14 (Boot timeout)"),
    ("server error:10061", "server error:10054"),
    ("python3: command not found", "pip3: command not found"),
    ("cannot cast float64", "cannot cast int64"),
    ("no match for lodash@4.17.21", "no match for react@18.2.0"),
    ("host is down", "host was down"),
    ("cannot import a.b.c", "cannot import a.b.d"),
    ("DNS lookup failed", "DNS lookup refused"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_errors_that_differ_only_in_variables_have_one_key(one: str, other: str) -> None:
    assert template(one) == template(other)
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_codes_ports_and_names_distinguish_errors(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


LIMITS = [
    # Lines: blank ones are none, one that tells is enough.
    ("abc\n   \n\ndef", "abc\ndef"),
    ("opening\nValueError: bad x", "ValueError: bad x"),
    ("e" * module.LOOKED_AT, "e" * module.LOOKED_AT),
    # Dates.
    ("lost on Jun 9, again", "lost on #, again"),
    ("due Mon Tue", "due # Tue"),
    # A word without digit, slash, sign of equality or dot is never looked at.
    ("dead:beef:cafe:babe lost", "dead:beef:cafe:babe lost"),
    # A number that says which error it is has up to five digits, and nothing else.
    ("exit code 10061", "exit code 10061"),
    ("exit code 100611", "exit code #"),
    ("exit code v12", "exit code v#"),
    ("failed error:10061", "failed error:10061"),
    ("failed error:100611", "failed error:#"),
    ("x-berror:5", "x-berror:#"),
    # A status stands before its phrase.
    ("got 404 Not Found", "got 404 Not Found"),
    ("read 40 Files", "read # Files"),
    ("read 112 Files", "read # Files"),
    # The port of a peer, wherever it stands.
    ("10.1.2.3 port 4022 closed", "<host> port # closed"),
    ("peer 203.0.113.9 port 4022 gone", "peer <host> port # gone"),
    # The ports of services.
    ("refused 127.0.0.1:5432", "refused <host>:5432"),
    ("refused 127.0.0.1", "refused <host>"),
    ("refused 0.0.0.0:80", "refused <host>:80"),
    ("refused 10.1.2.3:5432", "refused <host>"),
    ("refused 203.0.113.9:5432", "refused <host>"),
    ("refused db.lan:5432", "refused <host>:5432"),
    ("refused db.example.com:5432", "refused <host>:5432"),
    ("refused db.example.com:443", "refused <host>"),
    ("refused db.example.com:80", "refused <host>"),
    ("refused https://db.example.com:5432/x", "refused <url>:5432"),
    ("refused https://db.example.com:443/x", "refused <url>"),
    ("see main.rs:42", "see main.rs:#"),
    ("refused localhost:9999", "refused <host>:9999"),
    ("refused localhost:10000", "refused <host>"),
    ("refused localhost:05432", "refused <host>:05432"),
    ("refused http://localhost:05432/x/y", "refused <url>:05432"),
    ("refused http://localhost:005432/x", "refused <url>"),
    # The value of a code has up to sixteen letters and digits.
    ("failed code=" + "A" * 16, "failed code=" + "A" * 16),
    ("failed code=" + "A" * 17, "failed code=#"),
    ("failed code=E1,text=" + "x" * 60, "failed code=E1,text=#"),
    # Series of codes: one to five capitals, three to five digits, and nothing around.
    ("bad E12 here", "bad E# here"),
    ("bad T123456 here", "bad T# here"),
    ("bad TS2304x-y here", "bad TS#x-y here"),
    ("bad KLMNO123 here", "bad KLMNO123 here"),
    ("bad KLMNOP123 here", "bad KLMNOP# here"),
    ("pod abc-TS2304 here", "pod abc-TS# here"),
    ("see (2304) now", "see (#) now"),
    # The names of machines: by the words before them, with a digit or a port.
    ("node n7 lost", "node <host> lost"),
    ("node lost", "node lost"),
    ("a route to n7 is", "a route to <host> is"),
    ("cast to n7 is", "cast to n# is"),
    ("first name n7", "first name n#"),
    ("server error:5432", "server error:5432"),
    ("proxy p:8080 lost", "proxy <host>:8080 lost"),
    ("proxy p:443 lost", "proxy <host> lost"),
    ("proxy p:10000 lost", "proxy <host> lost"),
    ("proxy (p1), lost", "proxy (<host>), lost"),
    ("lookup failed", "lookup failed"),
    ("unknown host alpha", "unknown host <host>"),
    ("the host alpha", "the host alpha"),
    # The first word of a line is a peer, unless it is this machine or one nearby.
    ("a.example.com:5432: lost", "<host>: lost"),
    ("a.example.com:x lost", "<host>:x lost"),
    ("db.lan:5432 lost", "<host>:5432 lost"),
    ("[::1]:5432 lost", "<host>:5432 lost"),
    ("wpad:443 lost", "<host> lost"),
    ("wpad:443", "wpad:#"),
    ("wpad:444 lost", "wpad:# lost"),
    ("line:443 lost", "line:# lost"),
    ("error:443 lost", "error:443 lost"),
    # Lists.
    ("down: an1 an2", "down: an# an#"),
    ("down: an1 an2 an3", "down: #"),
    ("down: an1, an2; an3", "down: #"),
    ("down: an1 an2 an3x", "down: an# an# an#x"),
    ("down: an1 an2 bn3", "down: an# an# bn#"),
    ("down: 1, 2 (3)", "down: #"),
    # Counted words.
    ("3 files.", "# file."),
    ("3 pass", "# pass"),
    ("3 boxes", "# box"),
    ("3 Files", "# Files"),
    ("3 was", "# was"),
    ("files", "files"),
    ("E0308 files", "E0308 files"),
    ("3 s, again", "#, again"),
    # Numbers that are joined.
    ("x_1_2-3", "x_#"),
    ("x_1_ab_3", "x_#_ab_#"),
    ("x-A1", "x-#"),
    ("x-AB1", "x-AB#"),
    ("x >= 5 or >=5", "x >= # or #"),
    # Addresses of version 6, and what only looks like one.
    ("from ::1 now", "from <host> now"),
    ("in std::b1 now", "in std::b# now"),
    ("at 12:30:45 now", "at # now"),
    ("mac 00:0D:60:E9:23:6A now", "mac # now"),
    ("id FF:F2:9F:16:DC:95:00:0D:60:E9:23:6A now", "id # now"),
    ("mail a@b1 now", "mail <mail> now"),
    ("call a@b now", "call a@b now"),
    ("port 9999 now", "port 9999 now"),
    ("port 10000 now", "port # now"),
    ("error, 5 now", "error, # now"),
    ("error ABCDE12 now", "error ABCDE12 now"),
    ("error UVWXYZ12 now", "error UVWXYZ# now"),
]


@pytest.mark.parametrize(("text", "expected"), LIMITS)
def test_the_exact_limits_of_masking(text: str, expected: str) -> None:
    assert template(text) == expected


def test_a_gist_has_up_to_forty_words_from_the_beginning_and_the_end() -> None:
    words = [f"w{number}" for number in range(41)]
    assert gist(" ".join(words[:40])) == " ".join(words[:40])
    assert gist(" ".join(words)) == " ".join([*words[:28], "…", *words[29:]])


def test_a_gist_repeats_no_line_that_an_earlier_one_quotes() -> None:
    text = "validation failed with exit code 4: ERROR: not found: a\nwarning\nERROR: not found: a"
    assert gist(text) == "validation failed with exit code 4: ERROR: not found: a"
    assert gist("error: a\nerror: ab") == "error: a error: ab"


@pytest.mark.parametrize("row", GOLDEN, ids=range(len(GOLDEN)))
def test_the_keys_of_the_golden_errors_never_change(row: dict[str, str]) -> None:
    assert template(row["text"]) == row["template"]
    assert fingerprint(row["text"]) == row["default"]
    assert documented(row["text"]) == row["documented"]


def test_keys_are_the_same_in_another_process_with_another_hash_seed() -> None:
    text = "exit code 137 after 3 s in /tmp/x"
    script = (
        "import sys; from switchgear._text.fingerprint import *; print(fingerprint(sys.argv[1]))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script, text],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == fingerprint(text)


ODD = st.text(st.sampled_from("aZ1²٣/\\.:=@-_#%é\n\t\x1b[]()'\" \ud800xX0") | st.characters())


@given(ODD)
def test_any_text_has_keys_and_its_gist_is_one_line(text: str) -> None:
    assert re.fullmatch("[0-9a-f]{16}", fingerprint(text))
    assert re.fullmatch("[0-9a-f]{8}", documented(text))
    assert len(gist(text).splitlines()) <= 1


NAMES = st.from_regex(r"[g-z]{2,8}", fullmatch=True)
"""Without the letters of hexadecimal numbers: `ab12` is one of these."""
SEPARATORS = st.sampled_from((" ", ", ", ",", ";"))


@given(NAMES, NAMES, st.lists(st.integers(0, 10**6), min_size=3), SEPARATORS)
def test_a_list_of_machines_is_one_variable_whatever_its_length(
    one: str, other: str, numbers: list[int], separator: str
) -> None:
    listed = separator.join(f"{one}{number}" for number in numbers)
    expected = template(f"no answer from {other}1 {other}2 {other}3 today")
    assert template(f"no answer from {listed} today") == expected


@given(st.integers(0, 10**9), st.sampled_from(("error", "warning", "file", "entry", "process")))
def test_a_counter_is_a_variable_with_its_plural(count: int, word: str) -> None:
    many = {"entry": "entries", "process": "processes"}.get(word, f"{word}s")
    shown = f"{count} {word if count == 1 else many}"
    assert template(f"found {shown}, giving up") == f"found # {word}, giving up"


@given(NAMES, st.integers(0, 99), st.integers(10_000, 65_535))
def test_the_name_and_the_free_port_of_a_peer_are_variables(name: str, n: int, port: int) -> None:
    assert template(f"connection to {name}{n}:{port} lost") == "connection to <host> lost"


def test_of_many_error_lines_the_first_and_the_last_six_count() -> None:
    lines = [f"error {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    assert template("\n".join(lines)).split("\n") == lines[:6] + lines[-6:]


# The documented normalisation, step by step


def test_documented_numbers_become_n() -> None:
    assert normalised("line 42") == "line N"


def test_documented_hexadecimal_values_become_hex_although_they_hold_digits() -> None:
    assert normalised("at address 0x7f3a") == "at address HEX"


def test_documented_stack_frames_become_stack_although_they_hold_numbers() -> None:
    assert normalised("at Function (/path:42:10)") == "STACK"
    assert normalised("at async Loop.run [as go] (/a b/c.ts:1:2) x") == "STACK x"
    assert normalised("at 3 pm, at new Foo (file:1:2)") == "at N pm, STACK"


def test_documented_text_is_lower_case() -> None:
    assert normalised("TypeError: Ouch") == "typeerror: ouch"


def test_documented_text_is_trimmed_and_capped_at_500_characters() -> None:
    assert normalised("  x  ") == "x"
    assert normalised("y" * 501) == "y" * 500
    assert documented("y" * 500 + "a") == documented("y" * 500 + "b")


def test_documented_example_of_the_specification() -> None:
    text = "TypeError: Cannot read property 'id' of undefined at UserController (/src/controllers/user.ts:{})"
    one, other = text.format("42:15"), text.format("87:22")
    assert normalised(one) == "typeerror: cannot read property 'id' of undefined STACK"
    assert documented(one) == documented(other)
    assert len(documented(one)) == 8


def test_documented_key_is_the_start_of_the_md5() -> None:
    assert documented("x") == "9dd4e461"  # md5 -s x


# Hostile input: counted, not timed


def repeats(tree: Any) -> list[tuple[int, Any]]:
    """Every unbounded repetition of a parsed pattern, with its content."""
    found = []
    for operation, argument in tree:
        if operation in {constants.MAX_REPEAT, constants.MIN_REPEAT}:
            found.append((argument[1], argument[2]))
            found += repeats(argument[2])
        elif operation is constants.SUBPATTERN:
            found += repeats(argument[3])
        elif operation is constants.BRANCH:
            found += [inner for branch in argument[1] for inner in repeats(branch)]
        elif operation in {constants.ASSERT, constants.ASSERT_NOT}:
            found += repeats(argument[1])
    return found


@pytest.mark.parametrize(
    "name", ["variable", "stack", "escape", "digits", "joined", "list", "bare", "suspicious"]
)
def test_no_pattern_nests_unbounded_repetitions(name: str) -> None:
    pattern = module._pattern(name)
    for most, inner in repeats(parser.parse(pattern.pattern, pattern.flags)):
        if most > 1:
            assert all(times <= 3 for times, _ in repeats(inner)), "this can explode"


def test_no_alternative_reads_more_than_a_bounded_stretch() -> None:
    pattern = module._pattern("variable")
    assert parser.parse(pattern.pattern, pattern.flags).getwidth()[1] < 5_000


@pytest.mark.parametrize("function", [fingerprint, gist])
def test_of_a_long_text_only_the_first_and_the_last_part_are_read(function: Any) -> None:
    head, tail = "error a " * 512, " error b" * 512
    assert len(head) == len(tail) == module.LOOKED_AT // 2
    one, other = "error c" * 3_000, "\nerror: other 12/3=4 " * 50_000
    assert function(head + one + tail) == function(head + other + tail)
    assert function(head + one + tail) != function(head + one + tail + " error d")


def test_of_a_long_text_the_documented_key_reads_the_first_part() -> None:
    digits = "1" * module.LOOKED_AT
    assert documented(digits + "a") == documented(digits + "b")


class CountingPattern:
    """A pattern that notes how many characters it is given."""

    def __init__(self, pattern: Any) -> None:
        self.pattern, self.given = pattern, 0

    def sub(self, replacement: Any, text: str) -> Any:
        self.given += len(text)
        return self.pattern.sub(replacement, text)

    def search(self, text: str) -> Any:
        self.given += len(text)
        return self.pattern.search(text)


HOSTILE = [
    "1",
    "abcdef0",
    "at a(",
    "at ",
    "/a",
    "a.",
    "a=",
    "a:1",
    "a@",
    " ",
    "\t\n",
    "\x1b[",
    "# ",
]
HOSTILE += [
    "1 ",
    "a/b.c ",
    "0x",
    "é",
    "port 1 ",
    "a.com.",
    "1.2.3.4:",
    "a1b",
    "-1",
    "ab://",
    "x.1/",
]
HOSTILE += ["error\n", "a1b2c3d4 ", "(1:2)", "12345678-1234-", "\\", "E0308 ", "code=1 ", "user "]


@pytest.mark.parametrize("part", HOSTILE)
def test_patterns_read_only_a_bounded_part_of_a_megabyte(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint("make the tools")
    counting = {
        name: CountingPattern(tool) if hasattr(tool, "sub") else tool
        for name, tool in module._patterns.items()
    }
    monkeypatch.setattr(module, "_patterns", counting)
    text = part * (1_000_000 // len(part))
    fingerprint(text)
    documented(text)
    given = sum(tool.given for tool in counting.values() if isinstance(tool, CountingPattern))
    assert 0 < given <= 6 * module.LOOKED_AT or text.isspace()


def test_the_patterns_are_compiled_for_the_first_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_patterns", {})
    for one, other in SAME:
        assert fingerprint(one) == fingerprint(other)
