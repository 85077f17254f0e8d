"""The stand-ins for slow modules: only ours see them, and any use they do not know is the original's."""

import ast
import builtins
import copy
import functools
import hashlib
import inspect
import json
import re
import subprocess
import sys
import typing
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from switchgear._hooks import lean

FOLDER = Path(lean.__file__).parents[1]
stand_in: Any = lean._stand_in
STAND_INS = {name: stand_in(name) for name in lean._MODULES}
CALLABLES = [
    (name, attribute)
    for name, module in STAND_INS.items()
    for attribute, value in lean._MODULES[name].items()
    if inspect.isfunction(value) and value.__module__ == lean.__name__ and module
]


def without_address(value: object) -> str:
    """A name that is the same in every process: parallel workers compare the names of tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def original(name: str) -> ModuleType:
    return builtins.__import__(name, fromlist=["*"])


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_has_every_public_name_of_the_original(name: str) -> None:
    public = [each for each in dir(original(name)) if not each.startswith("_")]
    assert [each for each in public if not hasattr(STAND_INS[name], each)] == []


@pytest.mark.parametrize(("name", "attribute"), CALLABLES)
def test_a_function_takes_every_argument_of_the_original(name: str, attribute: str) -> None:
    """By keyword and by position: what it does not handle it passes on."""
    if (name, attribute) == ("typing", "TypeVar"):
        pytest.skip("a word of annotations: nothing but its name is used")
    signature = inspect.signature(getattr(STAND_INS[name], attribute))
    kinds = {each.kind for each in signature.parameters.values()}
    assert kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def outcome(function: Any, *args: Any, **named: Any) -> Any:
    try:
        return function(*args, **named)
    except Exception as error:
        return type(error), str(error)


JSON_TEXTS = [
    *("{}", " [1, 2.5, -0, 1e3] ", '{"a": {"b": [null, true, false]}}', '"\\ud800\\u0000"'),
    *(
        "",
        "{",
        "[1,]",
        "{} {}",
        "nul",
        "NaN",
        "-Infinity",
        '{"a": 1, "a": 2}',
        "\ufeff{}",
        "1" * 5000,
    ),
    *(
        '{"a": "\n"}',
        "[" * 30,
        b'{"a": "\xc3\xa9"}',
        b"[1]",
        b"7",
        b"\xff\xfe{\x00}\x00",
        b"{\xff}",
        None,
        7,
    ),
]


@pytest.mark.parametrize("text", JSON_TEXTS, ids=without_address)
def test_json_is_read_as_the_original_reads_it(text: Any) -> None:
    assert repr(outcome(STAND_INS["json"].loads, text)) == repr(outcome(json.loads, text))


@pytest.mark.parametrize(
    "named",
    [
        {"parse_float": str},
        {"object_pairs_hook": list},
        {"object_pairs_hook": dict},
        {"object_pairs_hook": lambda pairs: [name for name, _ in pairs]},
        {"object_pairs_hook": None},
        {"cls": json.JSONDecoder},
        {"parse_constant": repr},
    ],
    ids=without_address,
)
def test_json_is_read_with_any_option(named: dict[str, Any]) -> None:
    text = '{"a": 1.5, "b": [NaN]}'
    assert repr(STAND_INS["json"].loads(text, **named)) == repr(json.loads(text, **named))


VALUES = [
    {"b": 1, "a": [None, True, 1.5, "é\ud800"]},
    "x",
    7,
    [],
    {1: 2},
    {1, 2},
    float("nan"),
    {"a": object},
]
NAMED: list[dict[str, Any]] = [
    *({}, {"indent": 2}, {"sort_keys": True}, {"ensure_ascii": False}, {"separators": (",", ":")}),
    *(
        {"separators": None},
        {"default": str},
        {"skipkeys": True},
        {"allow_nan": False},
        {"cls": json.JSONEncoder},
    ),
]


@pytest.mark.parametrize("named", NAMED, ids=without_address)
@pytest.mark.parametrize("value", VALUES, ids=without_address)
def test_json_is_written_as_the_original_writes_it(value: Any, named: dict[str, Any]) -> None:
    assert outcome(STAND_INS["json"].dumps, value, **named) == outcome(json.dumps, value, **named)


def test_a_value_that_holds_itself_is_not_written() -> None:
    value: list[Any] = []
    value.append(value)
    assert outcome(STAND_INS["json"].dumps, value) == outcome(json.dumps, value)


LRU: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    *(
        ((), {}),
        ((), {"maxsize": None}),
        ((), {"maxsize": 2}),
        ((), {"maxsize": 32768, "typed": True}),
    ),
    *(
        ((2, True), {}),
        ((None,), {}),
        ((), {"typed": True}),
        ((), {"maxsize": -1}),
        ((), {"maxsize": "x"}),
    ),
    *(((), {"size": 3}), ((1, False, 3), {})),
]


@pytest.mark.parametrize(("args", "named"), LRU, ids=without_address)
def test_a_cache_is_the_originals(args: Any, named: Any) -> None:
    made = []
    for module in (STAND_INS["functools"], functools):
        decorate = outcome(module.lru_cache, *args, **named)
        if isinstance(decorate, tuple):
            made.append(decorate)
            continue

        @decorate  # type: ignore[untyped-decorator]
        def square(number: float) -> float:
            """A square."""
            return number * number

        values = [square(each) for each in (2, 2.0, 3, 4, 2)]
        made.append(
            (
                values,
                tuple(square.cache_info()),
                square.cache_parameters(),
                square.__doc__,
                square.__name__,
            )
        )
    assert made[0] == made[1]


def test_a_cache_decorates_without_brackets_as_well() -> None:
    assert STAND_INS["functools"].lru_cache(abs)(-3) == 3


REGEXES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("findall", ("a+", "caab"), {}),
    ("findall", ("A+", "caab", re.IGNORECASE), {}),
    ("findall", ("A+", "caab"), {"flags": re.IGNORECASE}),
    ("findall", (b"a+", b"caab"), {}),
    ("sub", ("a", "b", "aaa"), {}),
    ("sub", ("a", "b", "aaa", 1), {}),
    ("sub", ("a", "b", "aaa"), {"count": 2}),
    ("sub", (re.compile("a"), "b", "aaa"), {}),
    ("match", ("a", "abc"), {}),
    ("split", (",", "a,b"), {}),
    ("escape", ("a.b",), {}),
    ("compile", ("(",), {}),
    ("compile", ("a", re.IGNORECASE), {}),
    ("compile", (b"a",), {}),
    ("compile", ("a",), {"flags": re.MULTILINE}),
    ("compile", (7,), {}),
    ("compile", (), {}),
]


@pytest.mark.parametrize(("name", "args", "named"), REGEXES, ids=without_address)
def test_patterns_are_the_originals(name: str, args: Any, named: Any) -> None:
    ours, theirs = (
        outcome(getattr(STAND_INS["re"], name), *args, **named),
        outcome(getattr(re, name), *args, **named),
    )
    assert repr(ours) == repr(theirs)


def test_digests_are_the_originals() -> None:
    for name, named in (
        ("blake2b", {"digest_size": 8}),
        ("blake2b", {"key": b"x"}),
        ("md5", {"usedforsecurity": False}),
    ):
        ours = getattr(STAND_INS["hashlib"], name)(b"text", **named)
        assert ours.hexdigest() == getattr(hashlib, name)(b"text", **named).hexdigest()
    assert STAND_INS["hashlib"].sha256(b"x").hexdigest() == hashlib.sha256(b"x").hexdigest()


def named_tuple(base: Any) -> Any:
    class Point(base):  # type: ignore[misc]
        x: int
        y: int = 2

    return Point


@pytest.mark.parametrize(
    "use",
    [
        lambda p: (p(1), p(1, 3), p(x=4), p(y=5, x=6)),
        lambda p: p(),
        lambda p: p(1, 2, 3),
        lambda p: p(1, z=3),
        lambda p: p(1)._replace(y=9),
        lambda p: p(1)._asdict(),
        lambda p: p._make([7, 8]),
        lambda p: (p._fields, p._field_defaults, p.__match_args__),
        lambda p: copy.deepcopy(p(1)),
        lambda p: (repr(p(1)), hash(p(1)), p(1) == (1, 2), len(p(1)), [*p(1)]),
    ],
)
def test_a_named_tuple_is_as_the_original(use: Any) -> None:
    ours, theirs = (
        outcome(use, named_tuple(STAND_INS["typing"].NamedTuple)),
        outcome(use, named_tuple(NamedTuple)),
    )
    ours, theirs = (
        each[0] if isinstance(each, tuple) and each[0] is TypeError else each
        for each in (ours, theirs)
    )
    assert repr(ours) == repr(theirs)


def test_a_named_tuple_made_by_a_call_is_the_originals() -> None:
    made = STAND_INS["typing"].NamedTuple("P", [("x", int)])
    assert made(1).x == 1


def enum_of(base: Any) -> Any:
    class Colour(base):  # type: ignore[misc]
        RED = "red"
        """The first."""
        BLUE = "blue"

        def loud(self) -> str:
            return str(self.upper())

    return Colour


@pytest.mark.parametrize(
    "use",
    [
        lambda c: ([*c], [*reversed(c)], len(c), bool(c), [*c.__members__]),
        lambda c: (
            c("red"),
            c["BLUE"],
            c.RED.name,
            c.RED.value,
            c.RED == "red",
            str(c.RED),
            f"{c.RED}",
        ),
        lambda c: c("green"),
        lambda c: c["GREEN"],
        lambda c: (
            c.RED in c,
            {c.RED: 1}["red"],
            c.RED.loud(),
            c.RED is c("red"),
            isinstance(c.RED, str),
        ),
        lambda c: (copy.copy(c.RED) is c.RED, copy.deepcopy(c.BLUE) is c.BLUE),
        lambda c: json.dumps({"colour": c.RED}),
        lambda c: c(7),
    ],
)
def test_an_enum_of_texts_is_as_the_original(use: Any) -> None:
    ours, theirs = outcome(use, enum_of(STAND_INS["enum"].StrEnum)), outcome(use, enum_of(StrEnum))
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize(
    "body", [{"A": 1}, {"A": "x", "B": "x"}, {"_missing_": classmethod(repr)}], ids=without_address
)
def test_an_enum_that_a_stand_in_cannot_express_is_not_made(body: dict[str, Any]) -> None:
    made: Any = lean._Enums
    with pytest.raises(TypeError, match="not for a stand-in"):
        made("Odd", (lean._StrEnum,), {"__module__": "x", **body})


# Who sees them

PROGRAM = """
import sys
package = type(sys)("switchgear")
package.__path__ = [sys.argv[1]]
sys.modules["switchgear"] = package
from switchgear._hooks import lean
ours = type(sys)("ours")
ours.__builtins__ = lean.builtins_of()
exec(compile(CODE, "ours", "exec"), ours.__dict__)
"""


def ran(code: str) -> str:
    """What a process prints in which a module of ours has this code."""
    program = PROGRAM.replace("CODE", repr(code))
    line = [sys.executable, "-I", "-S", "-c", program, str(FOLDER)]
    done = subprocess.run(line, capture_output=True, check=False, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "name", ["typing.Literal", "typing.get_args", "functools.wraps", "enum.IntFlag", "json.load"]
)
def test_a_name_that_a_stand_in_lacks_is_fetched_from_the_original(name: str) -> None:
    module, _, attribute = name.partition(".")
    told = ran(f"from {module} import {attribute}\nprint({attribute}.__module__)")
    assert told.strip() in {module, "typing"}


def test_asking_whether_types_are_checked_needs_no_original() -> None:
    told = ran(
        "from typing import TYPE_CHECKING\nimport sys\nprint(TYPE_CHECKING, 'typing' in sys.modules)"
    )
    assert told == "False False\n"


@pytest.mark.parametrize(
    "name", ["fnmatch", "dataclasses", "logging", "sqlite3.dbapi2", "inspect", "tokenize"]
)
def test_the_standard_library_never_sees_a_stand_in(name: str) -> None:
    code = f"""
import collections.abc, enum, functools, hashlib, json, json.encoder, re, sqlite3, sys, typing
sqlite3.connect(":memory:").execute("select 1")
import {name}
for each in ("collections", "enum", "functools", "hashlib", "json", "re", "typing"):
    assert sys.modules.get(each, sys) is not globals()[each], each
    assert getattr(sys.modules.get(each, sys), "__file__", "") or each not in sys.modules, each
print("ok")
"""
    assert ran(code) == "ok\n"


def test_whatever_our_modules_import_of_them_is_there() -> None:
    """Each name that any module of Switchgear takes from one of these modules."""
    lacking = []
    for file in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in STAND_INS:
                names = [alias.name for alias in node.names]
                lacking += [
                    f"{file.name}: {each}"
                    for each in names
                    if not hasattr(STAND_INS[node.module], each)
                ]
    assert lacking == []
    assert typing.TYPE_CHECKING is False
