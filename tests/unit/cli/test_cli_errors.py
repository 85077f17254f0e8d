"""For every error, the command prints one clear sentence on standard error and exits with 2."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from switchgear._cli import main
from switchgear._core.errors import StoreFull, StoreReadOnly, StoreUnavailable
from switchgear._core.types import Signal
from switchgear._panel.panel import Panel
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock

VERBS: list[list[str]] = [
    ["status"],
    ["show", "a"],
    ["events"],
    ["check", "a"],
    ["check", "a", "--take"],
    ["record", "a", "failure"],
    ["hold", "open", "a", "--why", "x"],
    ["release", "a", "--why", "x"],
    ["reset", "a", "--why", "x"],
    ["export"],
    ["vacuum"],
]


def run(*args: str, panel: Panel | None = None, **env: str | None) -> Result:
    return CliRunner().invoke(main, args, obj=panel, env=env)


def one_sentence(done: Result) -> str:
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    assert "defect" not in done.output
    first, *rest = done.stderr.splitlines()
    assert first.startswith("switchgear: ")
    assert all(line.startswith("Try 'switchgear") for line in rest)
    return first


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Panel:
    """A panel whose store has become unavailable."""
    panel = Panel("memory:", clock=FakeClock())
    panel.breaker("a").record(Signal(ok=False))

    def gone(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("redis://db", "connection refused", "check that it runs")

    for method in ("apply", "get", "find", "events", "vacuum", "put", "facts"):
        monkeypatch.setattr(MemoryStore, method, gone)
    return panel


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_lost_store_is_reported_by_every_verb(broken: Panel, verb: list[str]) -> None:
    said = one_sentence(run(*verb, panel=broken))
    assert said == (
        "switchgear: store redis://db cannot be reached: connection refused; check that it runs"
    )


@pytest.mark.parametrize("kind", [StoreReadOnly, StoreFull])
@pytest.mark.parametrize("verb", [["record", "a", "failure"], ["hold", "open", "a", "--why", "x"]])
def test_a_result_that_could_not_be_saved_is_not_reported_as_recorded(
    monkeypatch: pytest.MonkeyPatch, kind: type[StoreReadOnly], verb: list[str]
) -> None:
    panel = Panel("memory:", clock=FakeClock())
    panel.breaker("a").record(Signal(ok=False))

    def refuse(*_: Any) -> Any:
        raise kind("sqlite:///x", "no", "make room")

    monkeypatch.setattr(MemoryStore, "apply", refuse)
    assert kind.problem in one_sentence(run(*verb, panel=panel))


@pytest.mark.parametrize(
    "args",
    [
        ["bogus"],
        ["status", "--bogus"],
        ["hold"],
        ["hold", "ajar", "a", "--why", "x"],
        ["hold", "open"],
        ["record", "a"],
        ["record", "a", "maybe"],
        ["events", "--limit", "-1"],
        ["vacuum", "--keep-events", "0"],
        ["vacuum", "--idle-days", "nan"],
        ["check"],
        ["check", " "],
        ["show", "bad\udcff"],
        ["completion", "tcsh"],
        ["config"],
        ["config", "bogus"],
        ["status", "--store", "nonsense"],
        ["status", "--store", "ftp://x"],
        ["status", "--store", "sqlite://"],
        ["status", "--config", "/no/such/file.yaml"],
        ["import", "/no/such/file"],
        ["hold", "open", "a", "--why", "x", "--token-file", "/no/such/file"],
        ["hold", "open", "a", "--why", " ", "--create", "--store", "memory:"],
        ["hold", "open", "a", "--create", "--store", "memory:"],
        ["hold", "open", "a", "--why", "x", "--by", "", "--create", "--store", "memory:"],
    ],
    ids=" ".join,
)
def test_bad_arguments_are_reported_in_one_sentence(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*args, HOME=str(tmp_path), SWITCHGEAR_STORE=None, SWITCHGEAR_CONFIG=None)
    if args == ["config"]:  # a group without a verb shows its help
        assert done.exit_code == 2
        return
    one_sentence(done)


def test_a_defect_of_switchgear_is_reported_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("oh\x1b[31m")

    monkeypatch.setattr(Panel, "circuits", broken)
    panel = Panel("memory:")
    done = run("status", panel=panel)
    assert done.exit_code == 2
    assert "this is a defect of Switchgear (RuntimeError: oh\\x1b[31m)" in done.stderr
    shown = run("status", panel=panel, SWITCHGEAR_DEBUG="1")
    assert isinstance(shown.exception, RuntimeError)


def test_an_unknown_circuit_suggests_the_nearest_name() -> None:
    panel = Panel("memory:")
    panel.breaker("provider/anthropic").record(Signal(ok=True))
    for verb in (["show"], ["hold", "open"], ["release"], ["reset"]):
        said = one_sentence(
            run(
                *verb, "provider/antropic", *(["--why", "x"][: 2 * (verb != ["show"])]), panel=panel
            )
        )
        assert "did you mean 'provider/anthropic'?" in said
    assert "did you mean 'provider/anthropic'?" in one_sentence(
        run("show", "anthropic", panel=panel)
    )
    assert [view.name for view in panel] == ["provider/anthropic"]


def test_holding_a_circuit_that_does_not_exist_needs_create() -> None:
    panel = Panel("memory:")
    assert run("hold", "open", "new", "--why", "x", panel=panel).exit_code == 2
    assert run("hold", "open", "new", "--why", "x", "--create", panel=panel).exit_code == 0
    assert run("check", "new", panel=panel).exit_code == 1


def test_several_circuits_require_yes() -> None:
    panel = Panel("memory:")
    for name in ("a/1", "a/2", "b"):
        panel.breaker(name).record(Signal(ok=True))
    said = one_sentence(run("hold", "open", "a/*", "--why", "x", panel=panel))
    assert "2 circuits (a/1, a/2)" in said
    assert "--yes" in said
    assert all(view.circuit.mode == "auto" for view in panel)
    assert run("hold", "open", "a/*", "--why", "x", "--yes", panel=panel).exit_code == 0
    assert [view.name for view in panel if view.circuit.mode == "held_open"] == ["a/1", "a/2"]
    assert "no circuit" in one_sentence(run("hold", "open", "x/*", "--why", "x", panel=panel))


def test_a_circuit_with_a_star_in_its_name_is_found_by_its_name() -> None:
    panel = Panel("memory:")
    for name in ("a*", "ab"):
        panel.breaker(name).record(Signal(ok=True))
    assert run("hold", "open", "a*", "--why", "x", panel=panel).exit_code == 0
    assert [view.name for view in panel if view.circuit.mode == "held_open"] == ["a*"]


def test_a_reason_is_redacted_and_a_reset_keeps_a_hold() -> None:
    panel = Panel("memory:")
    panel.breaker("a").record(Signal(ok=False, count=5))
    run("hold", "closed", "a", "--why", "key sk-proj-abcdefghijklmnop", "--by", "ada", panel=panel)
    view = panel.view("a")
    assert view is not None
    assert view.circuit.order is not None
    assert view.circuit.order.why == "key [redacted]"
    done = run("reset", "a", "--why", "again", panel=panel)
    assert "phase closed, still held closed" in done.output


@pytest.mark.parametrize("args", [[], ["config"]])
def test_without_a_verb_the_help_is_shown_as_it_is_written(args: list[str]) -> None:
    done = run(*args)
    assert done.exit_code == 2, "nothing was done"
    assert done.stdout == run(*args, "--help").stdout
    assert done.stderr == ""


def test_no_color_is_accepted_after_every_verb() -> None:
    def without(verb: click.Command) -> list[str]:
        below = verb.commands.values() if isinstance(verb, click.Group) else ()
        takes_it = any("--no-color" in option.opts for option in verb.params)
        return [
            *([] if takes_it else [str(verb.name)]),
            *(n for each in below for n in without(each)),
        ]

    assert without(main) == []


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("https://0123456789abcdef01@git.example.com/shop.git", True),
        (f"https://git.example.com/{'group/' * 40}shop.git", False),
    ],
)
def test_a_repository_is_refused_for_a_token_and_not_for_its_length(
    tmp_path: Path, url: str, *, is_refused: bool
) -> None:
    done = run("batch", str(tmp_path / "gone.yaml"), "--repository", url)
    assert ("contains a password or a token" in one_sentence(done)) is is_refused
    assert "0123456789abcdef01" not in done.output
