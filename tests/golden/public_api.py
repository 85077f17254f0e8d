"""The public names with their signatures, one line each: what `__all__` of the public modules lists.

Annotations are written without their modules: a class that only moves changes no signature.
"""

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

MODULES = (
    *("budgets", "config", "detectors", "errors", "fleet"),
    *("presets", "sinks", "stores", "testing"),
)
"""The public modules besides `switchgear` itself."""
_MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")
_ADDRESS = re.compile(r"<(?:built-in function |function |class '|bound method )?([\w.]+)[^>]*>")


def names() -> list[str]:
    """The public names, with the modules from which users import them."""
    modules = ["switchgear", *(f"switchgear.{name}" for name in MODULES)]
    return sorted(
        f"{module}.{name}"
        for module in modules
        for name in importlib.import_module(module).__all__
        if f"{module}.{name}" not in modules
    )


def text() -> str:
    """All of it, as the golden file has it: each thing once, under its shortest name."""
    things: dict[str, Any] = {}
    for name in names():
        thing = _found(name)
        if inspect.ismodule(thing):
            things |= {
                f"{name}.{each}": getattr(thing, each) for each in getattr(thing, "__all__", ())
            }
        else:
            things[name] = thing
    first: dict[int, str] = {}
    for name in sorted(things, key=lambda name: (name.count("."), name)):
        first.setdefault(id(things[name]), name)
    classes = [thing for thing in things.values() if isinstance(thing, type)]
    lines: list[str] = []
    for name, thing in sorted(things.items()):
        if callable(thing) and first[id(thing)] != name:
            lines.append(f"{name} = {first[id(thing)]}")
        else:
            lines.extend(_lines(name, thing, [each for each in classes if each is not thing]))
    return "".join(f"{line}\n" for line in lines)


def _found(name: str) -> Any:
    """The module, or the member of a module, that a dotted name refers to."""
    module, _, last = name.rpartition(".")
    if not module:
        return importlib.import_module(name)
    above = _found(module)
    try:
        return getattr(above, last)
    except AttributeError:
        return importlib.import_module(name)


def _lines(name: str, thing: Any, others: list[type]) -> Iterator[str]:
    if not isinstance(thing, type):
        yield (
            f"{name}{_signature(thing)}"
            if inspect.isroutine(thing)
            else f"{name}: {type(thing).__name__}"
        )
        return
    if issubclass(thing, enum.Enum):
        yield f"{name}: {' | '.join(repr(each.value) for each in thing)}"
        return
    above = [base.__name__ for base in thing.__bases__ if base is not object]
    yield f"{name}{_signature(thing)}{' is ' + ', '.join(above) if above else ''}"
    fields = {*getattr(thing, "_fields", ()), *getattr(thing, "__slots__", ())}
    if dataclasses.is_dataclass(thing):
        fields |= {field.name for field in dataclasses.fields(thing)}
    for member in sorted(dir(thing)):
        if member.startswith("_") or member in fields or not _is_ours(thing, member):
            continue
        if not any(base in others and hasattr(base, member) for base in thing.__mro__):
            yield f"  .{member}{_member(thing, member)}"


def _is_ours(thing: type, member: str) -> bool:
    """Whether a class of Switchgear defines it, and not `tuple` or `Exception`."""
    return _is_of_ours(next(each for each in thing.__mro__ if member in vars(each)))


def _is_of_ours(owner: type) -> bool:
    return owner.__module__.split(".")[0] == "switchgear"


def _member(thing: type, member: str) -> str:
    static, value = inspect.getattr_static(thing, member), getattr(thing, member)
    if isinstance(static, property):
        given = "" if static.fget is None else _signature(static.fget).partition(" -> ")[2]
        return f": {given or 'property'}"
    if callable(value):
        kind = {classmethod: " classmethod", staticmethod: " staticmethod"}.get(type(static), "")
        return f"{_signature(value)}{kind}"
    return f": {type(value).__name__}"


def _signature(thing: Any) -> str:
    if isinstance(thing, type) and issubclass(thing, BaseException):
        made = any("__init__" in vars(each) for each in thing.__mro__ if _is_of_ours(each))
        if not made:
            return ""  # as any exception; how Python writes that differs between versions
    signature = inspect.signature(thing)
    plain = _MODULES.sub("", _ADDRESS.sub(r"\1", str(signature))).replace("'", '"')
    prefix = " async" if inspect.iscoroutinefunction(thing) else ""
    return f"{plain}{prefix}"
