"""`switchgear budgets` and `switchgear locks`: what they show, what they refuse, their exit codes."""

import hashlib
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear import Panel
from switchgear._cli import main
from switchgear._core.errors import BudgetRefused


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    for name in ("SWITCHGEAR_CONFIG", "SWITCHGEAR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    url = f"sqlite:///{tmp_path / 'state.db'}"
    monkeypatch.setenv("SWITCHGEAR_STORE", url)
    return url


@pytest.fixture
def panel(url: str) -> Panel:
    panel = Panel(url)
    budgets = panel.budgets
    budgets.open("atlas", 10_000_000)
    budgets.open("atlas/w1", None)
    budgets.reserve("atlas/w1", 700_000, owner="coder\x1b[31m").settle(650_000)
    budgets.reserve("atlas/w1", 100_000, owner="tester")
    return panel


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words, standalone_mode=True)


def test_root_budgets_are_listed_with_their_free_amount(panel: Panel) -> None:
    assert run("budgets", "list").stdout.splitlines() == [
        "BUDGET   LIMIT  SPENT  RESERVED   FREE  USED",
        "atlas   $10.00  $0.65     $0.10  $9.25    6%",
    ]
    [data] = json.loads(run("budgets", "list", "--json").stdout)
    assert (data["path"], data["free_micros"]) == ("atlas", 9_250_000)


def test_a_store_without_budgets_reports_it_and_makes_no_file(url: str, tmp_path: Path) -> None:
    assert run("budgets", "list").stdout.startswith("No budgets yet.")
    assert run("budgets", "audit").stdout.startswith("No budgets yet.")
    assert run("locks").stdout == "No locks are held.\n"
    assert list(tmp_path.iterdir()) == []


def test_spend_is_shown_by_tag_the_highest_first(panel: Panel) -> None:
    panel.budgets.charge("atlas", 20_000, tags={"model": "haiku\x1b[31m"})
    panel.budgets.charge("atlas/w1", 50_000, tags={"model": "gpt-5", "task": "S-1"})
    shown = run("budgets", "show", "atlas").stdout
    assert "spent by model, whole tree: gpt-5 $0.05, haiku" in shown
    assert "spent by task, whole tree: S-1 $0.05\n" in shown
    assert "\x1b" not in shown
    data = json.loads(run("budgets", "show", "atlas", "--json").stdout)
    assert data["tags"]["task"] == {"S-1": 50_000}


def test_a_tree_is_shown_node_by_node_with_its_account(panel: Panel) -> None:
    shown = run("budgets", "show", "atlas", "--lines", "3").stdout
    assert "\x1b" not in shown
    lines = shown.splitlines()
    assert lines[2].split() == ["w1", "-", "$0.65", "$0.10", "-", "-"]
    assert [line.split()[0] for line in lines[-3:]] == ["4", "5", "6"]
    assert " charged $0.65 atlas/w1/~" in lines[-3]
    assert lines[-1].endswith("by tester")
    data = json.loads(run("budgets", "show", "atlas/w1", "--json").stdout)
    assert [node["level"] for node in data["nodes"]] == ["wave", "invocation"]
    assert data["lines"][0]["kind"] == "opened"


def test_a_closed_root_is_reported_as_closed(panel: Panel) -> None:
    panel.budgets.open("other", 5)
    panel.budgets.close("other")
    assert run("budgets", "list").stdout.splitlines()[-1] == "other is closed"


def test_a_budget_is_closed_by_an_operator_and_its_account_stays(panel: Panel) -> None:
    budgets = panel.budgets
    budgets.open("shop", 10_000_000)
    budgets.open("shop/wave", 4_000_000)
    budgets.charge("shop/wave", 1_500_000)
    closed = run("budgets", "close", "shop/wave", "--by", "ada").stdout
    assert closed == "shop/wave is closed; $2.50 unspent, returned to shop\n"
    assert budgets.free_micros("shop") == 8_500_000
    with pytest.raises(BudgetRefused, match="there is no such budget"):
        budgets.reserve("shop/wave", 1)
    head, *lines = run("budgets", "show", "shop/wave").stdout.splitlines()
    assert head == "shop/wave is closed"
    assert [line.split()[2] for line in lines] == ["opened", "charged", "closed"]
    assert lines[-1].endswith("closed $2.50 shop/wave by ada")
    assert json.loads(run("budgets", "show", "shop/wave", "--json").stdout)["nodes"] == []
    assert run("budgets", "close", "shop").stdout == "shop is closed; $8.50 unspent\n"
    assert run("budgets", "audit", "shop").exit_code == 0


def test_an_account_that_adds_up_has_exit_code_0(panel: Panel) -> None:
    result = run("budgets", "audit")
    assert (result.exit_code, result.stdout) == (0, "atlas: $0.65 charged in 6 lines; adds up\n")


def test_an_account_that_was_tampered_with_has_exit_code_1(panel: Panel, tmp_path: Path) -> None:
    panel.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as db, db:
        db.execute("UPDATE ledger_lines SET line = replace(line, '650000', '65')")
    result = run("budgets", "audit", "atlas")
    assert result.exit_code == 1
    assert "the lines charge $0.000065, but the balance has $0.65" in result.stdout
    assert run("budgets", "audit", "--json").exit_code == 1


def test_a_limit_is_set_and_changed(url: str) -> None:
    assert run("budgets", "set", "atlas", "10").stdout == "atlas has a limit of $10.00\n"
    assert run("budgets", "set", "atlas/w", "2.50", "--circuit", "story/w").exit_code == 0
    assert run("budgets", "set", "atlas", "$12").exit_code == 0
    with Panel(url) as panel:
        nodes = panel.budgets.book("atlas").nodes
        assert nodes["atlas"].limit_micros == 12_000_000
        assert nodes["atlas/w"].circuit == "story/w"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["budgets", "show", "nope"], "there is no budget 'nope'"),
        (["budgets", "audit", "nope"], "there is no tree of budgets 'nope'"),
        (["budgets", "set", "atlas", "0.5"], "budget 'atlas' refuses: $0.75 of it are spent"),
        (["budgets", "set", "atlas", "--", "-5"], "it must be dollars such as 5 or 0.25"),
        (["budgets", "set", "a//b", "5"], "it must have 1 to 8 parts between slashes"),
        (["budgets", "close", "nope"], "budget 'nope' refuses: there is no such budget"),
        (["budgets", "close", "atlas"], "1 reservation is still open below it"),
        (["budgets", "set", "nobody/x", "5"], "budget 'nobody' refuses: there is no such budget"),
        (["locks", "break", "nope"], "lock 'nope' is not held"),
    ],
)
def test_impossible_changes_are_refused_in_one_sentence_with_exit_code_2(
    panel: Panel, words: list[str], message: str
) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_locks_are_shown_with_holder_and_waiters(panel: Panel) -> None:
    panel.lock("db", owner="ada", lease_s=300.0).acquire()
    waiting = panel.lock("db", owner="bob")._steps()
    next(waiting)
    first, second = run("locks").stdout.splitlines()
    assert first.startswith("db: ada for ")
    assert first.endswith("token 1")
    assert second.startswith("  1. bob has waited for ")
    [data] = json.loads(run("locks", "--json").stdout)
    assert data["holder"]["owner"] == "ada"
    assert [one["owner"] for one in data["waiting"]] == ["bob"]
    waiting.close()


def test_a_lock_is_broken_by_an_operator(panel: Panel) -> None:
    panel.lock("db", owner="ada", lease_s=300.0).acquire()
    assert run("locks", "break", "db").stdout == "the lock db is free\n"
    assert run("locks").stdout == "No locks are held.\n"
    assert run("locks", "--all").stdout == "db: free, last token 1\n"


def test_a_guarded_agent_can_neither_raise_a_budget_nor_break_a_lock(
    panel: Panel, tmp_path: Path
) -> None:
    panel.lock("db", owner="ada", lease_s=300.0).acquire()
    digest = hashlib.sha256(b"secret").hexdigest()
    (tmp_path / "switchgear.yaml").write_text(f'operator_token_sha256: "{digest}"')
    orders = (
        ["budgets", "set", "atlas", "99"],
        ["budgets", "close", "other"],
        ["locks", "break", "db"],
    )
    panel.budgets.open("other", 5)
    for words in orders:
        result = run(*words)
        assert result.exit_code == 2
        assert "needs the operator token" in result.stderr
        (tmp_path / "token").write_text("secret")
        assert run(*words, "--token-file", "token").exit_code == 0


def test_long_names_keep_the_columns_and_are_not_cut_in_a_pipe(
    panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = f"team-{'x' * 80}-one", f"team-{'x' * 80}-two"
    for name in (one, other):
        panel.budgets.open(name, 5_000_000)
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("budgets", "list").output.splitlines()
    assert all(len(line) <= 80 for line in lines), lines
    end = lines[0].index("LIMIT") + len("LIMIT")
    assert all(re.fullmatch(r"\$\d+\.00", line[:end].split()[-1]) for line in lines[1:]), lines
    assert [line.split()[0][-4:] for line in lines if "xxx" in line] == ["-one", "-two"]
    monkeypatch.delenv("COLUMNS")
    piped = run("budgets", "list").output
    assert one in piped
    assert other in piped
