"""Immutable values that check their own fields.

Policies, detectors and recovery rules are such values. `dataclasses` would do, but importing it
costs a hook process sixteen milliseconds, and a hook has about forty.
"""

import math
from typing import Any, NoReturn, Self


class Value:
    """Base of the immutable values: fields are the `__slots__`, set once by `_set`.

    Equal when type and fields are equal; hashable, picklable (by its own constructor, so that a
    pickled value is checked again), and safe to share between threads because nothing changes.
    """

    __slots__ = ()

    def __init__(self, **fields: Any) -> None:
        """Set the fields; called by the constructors of subclasses, which check the values first."""
        names: tuple[str, ...] = type(self).__slots__
        if fields.keys() != set(names):
            expected = ", ".join(names) or "nothing"
            raise TypeError(
                f"{type(self).__name__} takes {expected}, and was given {', '.join(fields)}"
            )
        self._set(**fields)

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def fields(self) -> dict[str, Any]:
        """The fields by name, in the order of the constructor's arguments."""
        names: tuple[str, ...] = type(self).__slots__
        return {name: getattr(self, name) for name in names}

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked like a new one."""
        return type(self)(**{**self.fields(), **changes})

    def __setattr__(self, name: str, _: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; use replace({name}=…)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; it keeps its {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash((type(self), *self.fields().values()))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.fields().items())
        return f"{type(self).__name__}({inner})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.fields())


def _remake(kind: type[Value], fields: dict[str, Any]) -> Value:
    return kind(**fields)


# A limit, because a larger integer is finite but cannot be converted to a float.
_LARGEST = math.nextafter(math.inf, 0.0)
_UNCOUNTABLE = 2**63
# A constant, because `int | float` would be evaluated for each number of each state that is loaded.
_NUMBERS = (int, float)

# Each check names the owner and field, the value, and the rule, and returns the value.


def check_int(field: str, value: Any, *, least: int = 1) -> int:
    """An integer of at least `least`, and below 2**63."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _UNCOUNTABLE:
        rule = f"must be a whole number of at least {least}, and below 2**63"
        raise ValueError(f"{field} is {value!r}: it {rule}")
    return value


def check_seconds(field: str, value: Any) -> float:
    return float(_number(field, value, "must be a finite number of seconds above 0", above=0.0))


SHORTEST_WINDOW_S = 1e-6


def check_window_s(field: str, value: Any) -> float:
    """The length of a time window in seconds, long enough that times can be counted in windows."""
    length = check_seconds(field, value)
    if length < SHORTEST_WINDOW_S:
        raise ValueError(f"{field} is {value!r}: it must be at least {SHORTEST_WINDOW_S:g} seconds")
    return length


def check_positive(field: str, value: Any) -> float:
    return float(_number(field, value, "must be a finite number above 0", above=0.0))


def check_fraction(
    field: str, value: Any, *, low_open: bool = False, whole_too: bool = False
) -> float:
    """A number from 0 (above 0, if that end is open) to 1 (below 1, unless 1 is allowed)."""
    rule = f"must be {'above' if low_open else 'at least'} 0 and {'at most' if whole_too else 'below'} 1"
    number = _number(field, value, rule)
    if number < 0 or number > 1 or (low_open and number == 0) or (number == 1 and not whole_too):
        raise ValueError(f"{field} is {value!r}: it {rule}")
    return float(number)


def check_at_least(field: str, value: Any, least: float) -> float:
    """A finite number of at least `least`."""
    number = _number(field, value, f"must be a finite number of at least {least:g}")
    if number < least:
        raise ValueError(f"{field} is {value!r}: it must be a finite number of at least {least:g}")
    return float(number)


def check_number(field: str, value: Any) -> float:
    return float(_number(field, value, "must be a finite number"))


def check_list(field: str, value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        size = "" if length is None else f" of {length}"
        raise ValueError(f"{field} is {value!r}: it must be a list{size}")
    return value


def check_text(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{field} is {value!r}: it must be a text that is not empty")
    return value


def check_bool(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{field} is {value!r}: it must be true or false")
    return value


def check_one_of(field: str, value: Any, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{field} is {value!r}: it must be one of {', '.join(known)}")
    return value


def _number(field: str, value: Any, rule: str, *, above: float = -math.inf) -> float:
    if (
        not isinstance(value, _NUMBERS)
        or isinstance(value, bool)
        or not -_LARGEST <= value <= _LARGEST
        or value <= above
    ):
        raise ValueError(f"{field} is {value!r}: it {rule}")
    return value
