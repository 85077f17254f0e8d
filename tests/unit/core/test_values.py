"""The base of the immutable values."""

import pytest

from switchgear._core.values import Value


class Pair(Value):
    __slots__ = ("left", "right")
    left: int
    right: int


class Nothing(Value):
    __slots__ = ()


def test_the_constructor_sets_the_fields() -> None:
    pair = Pair(left=1, right=2)
    assert (pair.left, pair.right) == (1, 2)
    assert pair.replace(right=3).fields() == {"left": 1, "right": 3}


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (Pair, {"left": 1}, "Pair takes left, right, and was given left"),
        (Pair, {"left": 1, "right": 2, "up": 3}, "Pair takes left, right, and was given left, rig"),
        (Nothing, {"left": 1}, "Nothing takes nothing, and was given left"),
    ],
)
def test_missing_and_unknown_fields_are_refused_by_name(
    kind: type[Value], fields: dict[str, int], message: str
) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        kind(**fields)
