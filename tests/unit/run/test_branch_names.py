"""Every name of a task becomes a branch name that git accepts and that no other task has."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear._run.batch.record import branch_parts

ODD = [
    *("a b", "a..b", "a~1", "a^", "a:b", "-a", "--", ".a", "a.", "a.lock", "A.LOCK", "a.lock.lock"),
    *(
        "@",
        "a@{1}",
        "a/b",
        "a",
        "a\x01b",
        "a\nb",
        "x" * 500,
        "漢" * 200,
        "é",
        "e\u0301",
        "Å",
        "\u017f",
    ),
    *("", "\\", "*", "[", "?", "con", "a-b", "A-B", "task", "TASK", "\udcff"),
]


def check(names: list[str]) -> None:
    parts = branch_parts(names)
    assert parts.keys() == set(names)
    assert len({part.casefold() for part in parts.values()}) == len(set(names))
    for part in parts.values():
        assert len(part.encode(errors="surrogateescape")) <= 200
        assert "/" not in part


def test_odd_names_are_mapped_to_different_names_that_git_accepts() -> None:
    check(ODD)
    for part in branch_parts(ODD).values():
        reference = f"refs/heads/switchgear/1/{part}".encode(errors="surrogateescape")
        assert subprocess.run([b"git", b"check-ref-format", reference], check=False).returncode == 0


@pytest.mark.parametrize("name", ["parser", "Parser", "v1.2", "a_b-c", "ünïcode"])
def test_a_name_that_is_valid_stays_as_it_is(name: str) -> None:
    assert branch_parts([name, "other"])[name] == name


@given(st.lists(st.text(max_size=12), unique=True, max_size=8))
def test_any_names_get_different_parts(names: list[str]) -> None:
    check(names)
    assert branch_parts(names) == branch_parts(reversed(names))
