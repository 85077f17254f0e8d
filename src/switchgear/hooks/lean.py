"""Stand-ins for standard modules that are slow to import, for the hook process alone.

A hook is a new process each time, and importing `typing`, `enum`, `collections`, `json` and what
they need takes longer than everything else it does. Our modules use a few names of them. While a
hook decides, these names come from here. A name that a stand-in lacks is fetched from the original
(`re` asks for some); before others' modules are imported (a parser of YAML, a client of Redis),
`leave` takes the stand-ins away.

Our modules cannot tell them from the originals: the tests run the same hook calls with and without.
"""

# mypy: ignore-errors

import _collections_abc
import _json
import sys
from _collections import _tuplegetter
from _functools import _lru_cache_wrapper

_standing_in = {}


def install() -> None:
    """Put the stand-ins where the originals have not been imported yet."""
    for name, names in _MODULES.items():
        if name not in sys.modules:
            module = type(sys)(name)
            module.__dict__.update(names, __getattr__=_from_original(name))
            _standing_in[name] = sys.modules[name] = module
    if "collections.abc" not in sys.modules:
        _standing_in["collections.abc"] = sys.modules["collections.abc"] = _collections_abc
    if "sqlite3" not in sys.modules:
        import _sqlite3  # noqa: PLC0415  it needs the stand-in of functools

        # The rest of `sqlite3` turns dates into texts, which nobody asks of it here.
        _standing_in["sqlite3"] = sys.modules["sqlite3"] = _sqlite3


def leave() -> None:
    """Take them away: whoever imports one of these modules from now on gets the original."""
    for name, module in _standing_in.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


def _from_original(name):
    def fetch(attribute):
        if attribute[:2] == "__":  # the import system asks, and can do without
            raise AttributeError(attribute)
        if sys.modules.get(name) is _standing_in[name]:
            del sys.modules[name]
        original = __import__(name, fromlist=["*"])
        if name == "collections":  # its part is there already, and so nobody binds it
            original.abc = _collections_abc
        return getattr(original, attribute)

    return fetch


def _lru_cache(maxsize):
    return lambda function: _lru_cache_wrapper(function, maxsize, False, _Tuple)


# typing


class _Subscriptable(type):
    def __getitem__(cls, _):
        return cls


class _Word(metaclass=_Subscriptable):
    """A word of annotations, which nobody reads at run time."""


def _type_variable(name, *_, **__):
    return type(name, (_Word,), {})


class _Tuple(tuple):
    """What all named tuples have in common."""

    __slots__ = ()
    _fields = ()
    _field_defaults = {}  # noqa: RUF012

    def __new__(cls, *args, **named):
        fields = cls._fields
        if not named and len(args) == len(fields):
            return tuple.__new__(cls, args)
        if len(args) > len(fields):
            raise TypeError(f"{cls.__name__}: {len(args)} values")
        values = list(args)
        for field in fields[len(args) :]:
            if field in named:
                values.append(named.pop(field))
            elif field in cls._field_defaults:
                values.append(cls._field_defaults[field])
            else:
                raise TypeError(f"{cls.__name__} needs {field!r}")
        if named:
            raise TypeError(f"{cls.__name__}: no {next(iter(named))!r}")
        return tuple.__new__(cls, values)

    @classmethod
    def _make(cls, values):
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"{cls.__name__}: {len(made)} values")
        return made

    def _replace(self, **changes):
        values = [changes.pop(field, old) for field, old in zip(self._fields, self, strict=True)]
        if changes:
            raise ValueError(f"{type(self).__name__}: no {next(iter(changes))!r}")
        return tuple.__new__(type(self), values)

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def __getnewargs__(self):
        return tuple(self)

    def __repr__(self):
        pairs = zip(self._fields, self, strict=True)
        inner = ", ".join(f"{field}={value!r}" for field, value in pairs)
        return f"{type(self).__name__}({inner})"


class _NamedTuples(type):
    def __new__(cls, name, bases, body):
        if not bases:
            return type.__new__(cls, name, bases, body)
        fields = tuple(body.get("__annotations__", ()))
        defaults = {field: body.pop(field) for field in fields if field in body}
        body |= {"__slots__": (), "_fields": fields, "_field_defaults": defaults}
        for index, field in enumerate(fields):
            body[field] = _tuplegetter(index, "")
        return type(name, (_Tuple,), body)


class _NamedTuple(metaclass=_NamedTuples):
    pass


# enum


class _Enums(type):
    def __new__(cls, name, bases, body):
        made = type.__new__(cls, name, bases, body)
        made._members = {}
        for key, value in body.items():
            if key[0] != "_" and isinstance(value, str):
                member = str.__new__(made, value)
                member.name = member._name_ = key
                member.value = member._value_ = value
                made._members[value] = member
                setattr(made, key, member)
        return made

    def __call__(cls, value):
        try:
            return cls._members[value]
        except (KeyError, TypeError):
            raise ValueError(f"{value!r}: no {cls.__name__}") from None

    def __iter__(cls):
        return iter(cls._members.values())


class _StrEnum(str, metaclass=_Enums):
    def __str__(self):
        return self._value_

    def __repr__(self):
        return f"<{type(self).__name__}.{self._name_}: {self._value_!r}>"

    __hash__ = str.__hash__


# json


class _JsonError(ValueError):
    def __init__(self, message, text, position):
        line = text.count("\n", 0, position) + 1
        column = position - text.rfind("\n", 0, position)
        super().__init__(f"{message}: line {line} column {column} (char {position})")


class _Decoding:
    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}.get


_EXPECTED = "Expecting value"
_scan = _json.make_scanner(_Decoding)


def _loads(text):
    if not isinstance(text, str):
        text = text.decode()
    text = text.strip(" \t\n\r")
    try:
        value, end = _scan(text, 0)
    except StopIteration as stopped:
        raise _JsonError(_EXPECTED, text, stopped.value) from None
    if end != len(text):
        raise _JsonError("Extra data", text, end)
    return value


def _not_json(value):
    raise TypeError(f"{type(value).__name__}: not JSON")


def _dumps(value, *, ensure_ascii=True, separators=(", ", ": "), sort_keys=False):
    escape = _json.encode_basestring_ascii if ensure_ascii else _json.encode_basestring
    between, after = separators
    encode = _json.make_encoder({}, _not_json, escape, None, after, between, sort_keys, False, True)
    return "".join(encode(value, 0))


_encoder = type(sys)("json.encoder")
_encoder.c_make_encoder = _json.make_encoder
_encoder.encode_basestring_ascii = _json.encode_basestring_ascii


# re and hashlib


def _regexes(name):
    def call(*arguments):
        from switchgear.hooks import regexes  # noqa: PLC0415  most hooks need no pattern

        return getattr(regexes, name)(*arguments)

    return call


def _blake2b(data, *, digest_size):
    from _blake2 import blake2b  # noqa: PLC0415  most hooks hash nothing

    return blake2b(data, digest_size=digest_size)


def _md5(data, *, usedforsecurity):
    from _md5 import md5  # noqa: PLC0415

    return md5(data, usedforsecurity=usedforsecurity)


_MODULES = {
    "re": {
        **{name: _regexes(name) for name in ("findall", "sub")},
        "compile": _regexes("compile_"),
        "VERBOSE": 64,
        "ASCII": 256,
        "_switchgear": True,
    },
    "hashlib": {"blake2b": _blake2b, "md5": _md5},
    "typing": {
        **dict.fromkeys(("Any", "ClassVar", "NoReturn", "Self", "Protocol"), _Word),
        "NamedTuple": _NamedTuple,
        "TYPE_CHECKING": False,
        "TypeVar": _type_variable,
    },
    "enum": {"StrEnum": _StrEnum},
    "functools": {"lru_cache": _lru_cache},
    "collections": {"abc": _collections_abc},
    "json": {"loads": _loads, "dumps": _dumps, "encoder": _encoder},
    "json.encoder": vars(_encoder),
    "json.decoder": {"JSONDecodeError": _JsonError},
}
