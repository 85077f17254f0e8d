"""Stand-ins for standard modules that are slow to import, for our own modules in a hook process.

A hook is a new process each time, and importing `typing`, `enum`, `collections`, `json` and what
they need takes longer than everything else it does. Our modules use a few names of them, and in a
hook process these names come from here.

Only modules that the bundle runs see a stand-in: they get an `__import__` of their own (`builtins_of`).
Everything else in the process, the standard library included, imports the genuine modules. A stand-in
handles the calls that our modules make; any other name, argument or use is passed on to the genuine
module, and a class statement that a stand-in cannot express raises. A hook process in which anything
unexpected is raised starts over without stand-ins (see `hooks/entry.py`).
"""

# mypy: ignore-errors

import _collections_abc
import _json
import builtins
import sys
from _collections import _tuplegetter
from _functools import _lru_cache_wrapper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

_stand_ins = {}


def usable() -> bool:
    """Whether the stand-ins fit this Python: later ones keep annotations elsewhere."""
    return sys.implementation.name == "cpython" and sys.version_info < (3, 14)


def genuine(name: str) -> "ModuleType":
    """The module of that name as the standard library has it."""
    return builtins.__import__(name, fromlist=["*"])


def builtins_of() -> "dict[str, object]":
    """The built-in names for our modules: `import` finds a stand-in where there is one."""
    return {**vars(builtins), "__import__": _import}


def _import(name, globals=None, locals=None, fromlist=(), level=0):  # noqa: A002  as the original
    if level == 0 and name in _MODULES:
        return _stand_in(name if fromlist else name.partition(".")[0])
    return builtins.__import__(name, globals, locals, fromlist, level)


def _stand_in(name):
    module = _stand_ins.get(name)
    if module is None:
        names = _sqlite_names() if name == "sqlite3" else _MODULES[name]
        module = type(sys)(name)
        module.__dict__.update(names, __getattr__=_from_original(name))
        _stand_ins[name] = module
    return module


def _from_original(name):
    def fetch(attribute):
        if attribute[:2] == "__":  # the import system asks, and can do without
            raise AttributeError(attribute)
        return getattr(genuine(name), attribute)

    return fetch


def _sqlite_names():
    """The module in C; the rest of `sqlite3` turns dates into texts, which no hook needs.

    It imports `functools` for one cache, and is given ours as long as it is imported.
    """
    ours = None if "functools" in sys.modules else _stand_in("functools")
    if ours is not None:
        sys.modules["functools"] = ours
    try:
        import _sqlite3  # noqa: PLC0415  not before the stand-in is there
    finally:
        if ours is not None:
            del sys.modules["functools"]
    return {key: value for key, value in vars(_sqlite3).items() if key[:2] != "__"}


def _lru_cache(*args, **named):
    maxsize = named.get("maxsize", args[0] if args else 128)
    plain = len(args) + len(named) == 1 and (args or "maxsize" in named)
    if not plain or (maxsize is not None and (type(maxsize) is not int or maxsize < 0)):
        return genuine("functools").lru_cache(*args, **named)

    def cached(function):
        wrapper = _lru_cache_wrapper(function, maxsize, False, _CacheInfo)
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(function, name):
                setattr(wrapper, name, getattr(function, name))
        wrapper.__wrapped__ = function
        wrapper.cache_parameters = lambda: {"maxsize": maxsize, "typed": False}
        return wrapper

    return cached


def _unknown(what):
    """A use that a stand-in cannot express: the hook process starts over without stand-ins."""
    return TypeError(f"{what}: not for a stand-in")


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
        if bases != (_NamedTuple,):
            raise _unknown(name)
        fields = tuple(body.get("__annotations__", ()))
        if any(field[0] == "_" for field in fields):
            raise _unknown(name)
        defaults = {field: body.pop(field) for field in fields if field in body}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise _unknown(name)
        body |= {"__slots__": (), "_fields": fields, "_field_defaults": defaults}
        body |= {"__match_args__": fields, "__orig_bases__": (_NamedTuple,)}
        for index, field in enumerate(fields):
            body[field] = _tuplegetter(index, "")
        return type(name, (_Tuple,), body)

    def __call__(cls, *args, **named):
        return genuine("typing").NamedTuple(*args, **named)


class _NamedTuple(metaclass=_NamedTuples):
    pass


class _CacheInfo(_NamedTuple):
    hits: int
    misses: int
    maxsize: int
    currsize: int


# enum


class _Enums(type):
    def __new__(cls, name, bases, body):
        made = type.__new__(cls, name, bases, body)
        made.__members__ = {}
        if bases == (str,):
            return made
        made._value2member_map_ = {}
        for key, value in body.items():
            if key[0] == "_" or callable(value) or hasattr(value, "__get__"):
                if key in {"_missing_", "_generate_next_value_", "_ignore_", "_order_"}:
                    raise _unknown(f"{name}.{key}")
                continue
            if type(value) is not str or value in made._value2member_map_:
                raise _unknown(f"{name}.{key} = {value!r}")
            member = str.__new__(made, value)
            member.name = member._name_ = key
            member.value = member._value_ = value
            made._value2member_map_[value] = made.__members__[key] = member
            setattr(made, key, member)
        return made

    def __call__(cls, *args, **named):
        if cls is _StrEnum:
            return genuine("enum").StrEnum(*args, **named)
        (value,) = args
        try:
            return cls._value2member_map_[value]
        except (KeyError, TypeError):
            no = f"{value!r} is not a valid {cls.__qualname__}"
            raise ValueError(no) from None

    def __iter__(cls):
        return iter(cls.__members__.values())

    def __reversed__(cls):
        return reversed(cls.__members__.values())

    def __len__(cls):
        return len(cls.__members__)

    def __bool__(cls):
        return True

    def __getitem__(cls, name):
        return cls.__members__[name]

    def __contains__(cls, value):
        return type(value) is cls or value in cls._value2member_map_


class _StrEnum(str, metaclass=_Enums):
    def __str__(self):
        return self._value_

    __format__ = str.__format__

    def __repr__(self):
        return f"<{type(self).__name__}.{self._name_}: {self._value_!r}>"

    def __reduce_ex__(self, _):
        return type(self), (self._value_,)

    def __copy__(self):
        return self

    def __deepcopy__(self, _):
        return self

    __hash__ = str.__hash__


# json


class _Decoding:
    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}.get


_scan = _json.make_scanner(_Decoding)
_DUMPED = frozenset(("ensure_ascii", "separators", "sort_keys"))


def _scanner(pairs_hook):
    """A scanner of JSON whose objects `pairs_hook` makes of their pairs."""
    how = type("_DecodingPairs", (_Decoding,), {"object_pairs_hook": staticmethod(pairs_hook)})
    return _json.make_scanner(how)


def _loads(*args, **named):
    text = args[0] if len(args) == 1 and named.keys() <= {"object_pairs_hook"} else None
    if type(text) is bytes and text[:1] in {b"{", b"["} and b"\0" not in text[:4]:
        text = text.decode("utf-8", "surrogatepass")
    if type(text) is str:
        text = text.strip(" \t\n\r")
        pairs_hook = named.get("object_pairs_hook")
        scan = _scan if pairs_hook is None else _scanner(pairs_hook)
        try:
            value, end = scan(text, 0)
        except (StopIteration, ValueError):
            end = -1
        if end == len(text):
            return value
    return genuine("json").loads(*args, **named)  # which also raises what is to be raised


def _dumps(*args, **named):
    if len(args) != 1 or not named.keys() <= _DUMPED:
        return genuine("json").dumps(*args, **named)
    ascii_only = named.get("ensure_ascii", True)
    escape = _json.encode_basestring_ascii if ascii_only else _json.encode_basestring
    between, after = named.get("separators") or (", ", ": ")
    in_order = bool(named.get("sort_keys", False))
    encode = _json.make_encoder({}, _not_json, escape, None, after, between, in_order, False, True)
    return "".join(encode(args[0], 0))


def _not_json(value):
    no = f"Object of type {type(value).__name__} is not JSON serializable"
    raise TypeError(no)


_encoder = type(sys)("json.encoder")
_encoder.c_make_encoder = _json.make_encoder
_encoder.encode_basestring_ascii = _json.encode_basestring_ascii


# re and hashlib


def _compile(*args, **named):
    if named or not args or type(args[0]) is not str or len(args) > 2:
        return genuine("re").compile(*args, **named)
    from switchgear._hooks import regexes  # noqa: PLC0415  most hooks need no pattern

    return regexes.compile_(*args)


def _with_pattern(name, fewest):
    """`re.findall`, `re.sub` and the like, of a pattern in a text, without flags."""

    def call(*args, **named):
        if named or len(args) != fewest or type(args[0]) is not str:
            return getattr(genuine("re"), name)(*args, **named)
        return getattr(_compile(args[0]), name)(*args[1:])

    return call


def _blake2b(*args, **named):
    from _blake2 import blake2b  # noqa: PLC0415  most hooks hash nothing

    return blake2b(*args, **named)


def _md5(*args, **named):
    from _md5 import md5  # noqa: PLC0415

    return md5(*args, **named)


_ABC = {"abc": _collections_abc}
_MODULES = {
    "re": {
        "compile": _compile,
        "findall": _with_pattern("findall", 2),
        "sub": _with_pattern("sub", 3),
        "VERBOSE": 64,
        "ASCII": 256,
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
    "collections": _ABC,
    "collections.abc": vars(_collections_abc),
    "json": {"loads": _loads, "dumps": _dumps, "encoder": _encoder},
    "json.encoder": vars(_encoder),
    "sqlite3": {},
}
