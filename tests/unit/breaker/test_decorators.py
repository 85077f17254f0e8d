"""A decorated function looks like the function, and arguments go through untouched."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Generator
from functools import partial
from typing import Any

import pytest

from switchgear import CircuitBreaker, Rejected
from switchgear.testing import FakeClock
from unit.shapes import driven

breaker = CircuitBreaker("api")


@breaker
def complete(prompt: str, *, n: int = 1) -> list[str]:
    """Complete a prompt."""
    return [prompt] * n


@breaker
async def acomplete(prompt: str) -> str:
    """Complete a prompt asynchronously."""
    return prompt


@breaker
def stream(prompt: str) -> Generator[str, None, int]:
    """Stream a completion."""
    yield prompt
    return 1


@breaker
async def astream(prompt: str) -> AsyncGenerator[str]:
    """Stream a completion, some time."""
    yield prompt


EVERY_KIND: list[Any] = [complete, acomplete, stream, astream]


@pytest.mark.parametrize(
    ("function", "name", "doc"),
    [
        (complete, "complete", "Complete a prompt."),
        (acomplete, "acomplete", "Complete a prompt asynchronously."),
        (stream, "stream", "Stream a completion."),
        (astream, "astream", "Stream a completion, some time."),
    ],
)
def test_name_documentation_and_signature_are_the_functions(
    function: Any, name: str, doc: str
) -> None:
    assert function.__name__ == name
    assert function.__qualname__ == name
    assert function.__module__ == __name__
    assert function.__doc__ == doc
    assert next(iter(inspect.signature(function).parameters)) == "prompt"
    assert function.__wrapped__.__name__ == name
    assert function.__wrapped__ is not function


@pytest.mark.parametrize("function", EVERY_KIND)
def test_the_breaker_can_be_found_from_the_function(function: Any) -> None:
    assert function.breaker is breaker


def test_inspect_still_recognises_the_kind_of_a_wrapped_function() -> None:
    assert [inspect.iscoroutinefunction(f) for f in EVERY_KIND] == [False, True, False, False]
    assert [asyncio.iscoroutinefunction(f) for f in EVERY_KIND] == [False, True, False, False]
    assert [inspect.isgeneratorfunction(f) for f in EVERY_KIND] == [False, False, True, False]
    assert [inspect.isasyncgenfunction(f) for f in EVERY_KIND] == [False, False, False, True]


def test_inspect_recognises_the_kind_of_a_wrapped_object_or_partial() -> None:
    class Provider:
        async def __call__(self) -> str:
            return "answer"

    assert inspect.iscoroutinefunction(breaker(Provider()))
    assert inspect.iscoroutinefunction(breaker(partial(acomplete, "x")))
    assert inspect.isgeneratorfunction(breaker(partial(stream, "x")))
    assert inspect.isasyncgenfunction(breaker(partial(astream, "x")))


def test_all_arguments_pass_even_those_named_like_parameters_of_the_breaker() -> None:
    def echo(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    names: dict[str, Any] = {"self": 1, "function": 2, "breaker": 3, "run": 4, "args": 5}
    expected = ((1, 2), names)
    assert breaker.call(echo, 1, 2, **names) == expected
    assert driven(breaker.acall(echo, 1, 2, **names)) == expected
    assert breaker(echo)(1, 2, **names) == expected


def test_arguments_pass_through_every_shape_of_decorated_function() -> None:
    assert complete("x", n=2) == ["x", "x"]
    assert driven(acomplete(prompt="x")) == "x"
    assert list(stream(prompt="x")) == ["x"]


def test_a_decorated_method_gets_its_own_object() -> None:
    class Provider:
        def __init__(self, name: str) -> None:
            self.name = name

        @breaker
        def complete(self, prompt: str) -> str:
            return f"{self.name}: {prompt}"

        @breaker
        @classmethod
        def kind(cls) -> str:
            return cls.__name__

        @breaker
        @staticmethod
        def version() -> int:
            return 3

    assert Provider("a").complete("hi") == "a: hi"
    assert Provider("b").complete(prompt="hi") == "b: hi"
    assert Provider.complete(Provider("c"), "hi") == "c: hi"
    assert Provider.kind() == Provider("a").kind() == "Provider"
    assert Provider.version() == Provider("a").version() == 3


def test_functions_under_one_breaker_fail_and_open_together() -> None:
    shared = CircuitBreaker("api", threshold=2, clock=FakeClock())

    @shared
    def first() -> None:
        raise ConnectionError

    @shared
    async def second() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        first()
    with pytest.raises(ConnectionError):
        driven(second())
    with pytest.raises(Rejected):
        first()
    with pytest.raises(Rejected):
        driven(second())


def test_a_function_may_be_under_two_breakers() -> None:
    outer = CircuitBreaker("team", threshold=9, clock=FakeClock())
    inner = CircuitBreaker("provider", threshold=2, clock=FakeClock())

    @outer
    @inner
    def fails() -> None:
        raise ConnectionError

    for _ in range(2):
        with pytest.raises(ConnectionError):
            fails()
    with pytest.raises(Rejected) as refused:
        fails()
    assert refused.value.circuit == "provider"
    assert outer.totals.failed == 2
    assert outer.totals.ignored == 1


@pytest.mark.parametrize("thing", [dict, type("Provider", (), {}), ValueError])
def test_a_class_cannot_be_decorated_and_the_error_names_what_can(thing: type) -> None:
    with pytest.raises(TypeError) as raised:
        breaker(thing)
    assert str(raised.value) == (
        f"circuit 'api' cannot guard {thing!r}: decorate a function or a method; "
        "for one call use breaker.call(function, ...)"
    )


@pytest.mark.parametrize("thing", [None, 5, "complete", property(lambda self: 1), [complete]])
def test_an_object_that_is_not_callable_cannot_be_decorated(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"circuit 'api' cannot guard .*: decorate a function"):
        breaker(thing)


def test_a_coroutine_made_by_the_caller_cannot_be_decorated() -> None:
    made = acomplete("x")
    with pytest.raises(TypeError, match="decorate a function"):
        breaker(made)  # type: ignore[type-var, unused-coroutine]
    made.close()


def test_a_class_can_be_called_through_a_breaker() -> None:
    assert breaker.call(dict, a=1) == {"a": 1}


def test_a_result_that_cannot_be_inspected_is_returned_unchanged() -> None:
    class LazyProxy:
        """A request-local object of a web framework: it raises when it is inspected."""

        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("working outside of the request")

    guarded = CircuitBreaker("api", clock=FakeClock())
    assert type(guarded.call(LazyProxy)) is LazyProxy
    assert type(guarded(lambda: LazyProxy())()) is LazyProxy  # noqa: PLW0108
    assert guarded.totals.succeeded == 2
