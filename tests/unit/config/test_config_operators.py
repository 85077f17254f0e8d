"""The configuration as operators write it: init, check, units, budgets, keys of the specifications."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear import Panel, Signal
from switchgear._cli import main
from switchgear._config import Config, ConfigError, load_config
from switchgear._config.loader import load_with_notes
from switchgear._core.errors import OverrideRefused
from switchgear._core.policy import Cooldown, Policy
from switchgear._detectors import FailuresInWindow
from switchgear._fleet.targets import Webhook
from switchgear.fleet import Fleet
from switchgear.testing import FakeClock


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def run(*args: str, text: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(main, list(args), input=text)
    return done.exit_code, done.output


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def load(text: str) -> Config:
    Path("switchgear.yaml").write_text(text, encoding="utf-8")
    return load_config("switchgear.yaml")


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value)


# init


def test_init_without_answers_writes_a_commented_file_that_is_valid() -> None:
    code, text = run("config", "init", "--yes")
    assert code == 0
    assert "written: switchgear.yaml" in text
    written = Path("switchgear.yaml").read_text()
    assert written.count("#") > 10
    assert load_config("switchgear.yaml").circuits
    assert run("config", "check")[0] == 0
    assert Path("switchgear.yaml").stat().st_mode & 0o777 == 0o600


def test_init_with_options_declares_agents_fallbacks_targets_and_budgets() -> None:
    code, text = run(
        *("config", "init", "--yes", "--owner", "ana", "--budget", "atlas=50"),
        *("--agent", "coder=anthropic/opus,openai/large", "--agent", "junior=google/flash"),
        *("--notify", "https://ops.example/hook", "--notify", "desktop"),
        *("--notify", "slack:SLACK_URL", "--notify", "command:page --now 'it'"),
        *("--store", "sqlite:///here.db"),
    )
    assert code == 0, text
    config = load_config("switchgear.yaml")
    assert [str(model) for model in config.crew.agents["coder"].models] == [
        "anthropic/opus",
        "openai/large",
    ]
    assert config.crew.agents["junior"].owner == "ana"
    assert [one.kind for one in config.notifications] == ["webhook", "desktop", "slack", "command"]
    assert [(one.node, one.limit_micros) for one in config.budgets] == [("atlas", 50_000_000)]
    assert "agents" in text
    assert "not set: SLACK_URL, which target" in text


@pytest.mark.parametrize("make", ["file", "link", "folder"])
def test_init_never_overwrites(make: str) -> None:
    place = Path("switchgear.yaml")
    if make == "file":
        place.write_text("store: memory\n")
    elif make == "link":
        place.symlink_to("nowhere")
    else:
        place.mkdir()
    code, text = run("config", "init", "--yes")
    assert code == 2
    assert "never overwritten" in text
    assert make != "file" or place.read_text() == "store: memory\n"
    assert [name for name in names() if name.startswith(".") and "yaml" in name] == []


@pytest.mark.parametrize(
    "options",
    [
        ("--agent", "coder"),
        ("--agent", "coder=opus"),
        ("--agent", "a/b=p/m"),
        ("--budget", "atlas=many"),
        ("--budget", "atlas=-1"),
        ("--notify", "mail"),
        ("--store", "ftp://x"),
        ("-o", "here.txt"),
        ("-o", "no/such/folder.yaml"),
    ],
)
def test_init_writes_nothing_for_invalid_answers(options: tuple[str, ...]) -> None:
    before = names()
    code, text = run("config", "init", "--yes", *options)
    assert code == 2, text
    assert names() == before
    assert "Traceback" not in text


@pytest.mark.parametrize("name", ["co: der", "#x", "-", "yes", "null", 'a"b', "ünï"])
def test_init_quotes_what_yaml_would_read_otherwise(name: str) -> None:
    code, _ = run("config", "init", "--yes", "--budget", f"{name}=5", "--owner", name)
    assert code == 0
    assert [one.node for one in load_config("switchgear.yaml").budgets] == [name]


@pytest.mark.parametrize("amount", ["12345.67", "1234567.89", "0.000001", "50"])
def test_init_writes_amounts_to_the_cent(amount: str) -> None:
    code, _ = run("config", "init", "--yes", "--budget", f"atlas={amount}")
    assert code == 0
    limits = [one.limit_micros for one in load_config("switchgear.yaml").budgets]
    assert limits == [round(float(amount) * 1_000_000)]


def test_init_prompts_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter(["coder", "anthropic/opus,openai/large", "", "ana", "desktop", ""])
    asked: list[str] = []

    def prompt(text: str, default: Any = "", **_: Any) -> str:
        asked.append(text)
        return next(answers) or default

    monkeypatch.setattr("switchgear._cli.config.click.prompt", prompt)
    context = main.make_context("switchgear", ["config", "init"])
    with context:
        main.invoke(context)
    config = load_config("switchgear.yaml")
    assert config.crew.agents["coder"].owner == "ana"
    assert [one.kind for one in config.notifications] == ["desktop"]
    assert len(asked) == 6


def test_a_wrong_answer_is_prompted_again_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter(
        [
            *("coder=anthropic/opus,openai/large", "junior=opus", "junior", "opus", "openai/small"),
            *("", "ana", "pigeon", "desktop", "state.db", "sqlite:///state.db"),
        ]
    )
    monkeypatch.setattr(
        "switchgear._cli.config.click.prompt",
        lambda _, default="", **__: next(answers) or default,
    )
    context = main.make_context("switchgear", ["config", "init"])
    with context:
        main.invoke(context)
    assert next(answers, None) is None
    said = " ".join(capsys.readouterr().err.split())
    assert "'junior=opus': it must be NAME=PROVIDER/MODEL" in said
    assert "target is 'pigeon'" in said
    assert "it must be a URL: sqlite:///path" in said
    config = load_config("switchgear.yaml")
    assert list(config.crew.agents) == ["coder", "junior"]
    assert [one.kind for one in config.notifications] == ["desktop"]
    assert str(config.store).endswith("state.db")


# check


def test_check_lists_everything_that_was_found_and_variables_that_are_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOOK_KEY", raising=False)
    load(
        "store: sqlite:///state.db\n"
        "agents: {coder: {owner: ana, provider: p, model: m, fallback_models: [q/n]}}\n"
        "stories: {S-1: {owner: cy, budget_dollars: 3}}\n"
        "policies: {mine: {extends: provider}}\n"
        "circuits: [{match: 'provider/*', policy: mine}]\n"
        "rules: {own: [{name: no-deploy, commands: ['deploy *']}]}\n"
        "sinks: [log]\n"
        "notifications: [{webhook: {url: 'https://x.example/secret', secret_env: HOOK_KEY, name: ops}}]\n"
        "budgets: {atlas: {limit_dollars: 5}}\n"
    )
    code, text = run("config", "check")
    assert code == 0
    for row in (
        r"agents +1: coder \(ana\) on p/m, then q/n",
        r"providers +2: p; q",
        r"stories +1: S-1 \(cy\) \$3.00",
        r"policies +1: mine",
        r"circuits +\d+: provider/\*",
        r"rules +\d+: .*no-deploy",
        r"sinks +1: log",
        r"targets +1: ops: webhook https://x.example/..., signed with HOOK_KEY",
        r"budgets +1: atlas \$5.00",
        r"not set: HOOK_KEY, which target 'ops' needs",
    ):
        assert re.search(row, text), row
    assert "secret'" not in text, "the path of a webhook is often its secret"
    found = json.loads(run("config", "check", "--json")[1])
    assert found["agents"]["count"] == 1
    assert found["unset_variables"] == ["HOOK_KEY, which target 'ops' needs"]


def test_check_lists_the_variables_of_all_sections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ANTHROPIC_API_KEY", "BACKUP_KEY"):
        monkeypatch.delenv(name, raising=False)
    upstream = "{protocol: anthropic, url: 'https://g.example/a', key_env: BACKUP_KEY}"
    load(f"second_opinion: {{model: small}}\nproxy: {{upstreams: {{backup: {upstream}}}}}\n")
    code, text = run("config", "check")
    assert code == 0
    assert re.search(r"opinion +1: small", text)
    assert re.search(r"upstreams +1: backup", text)
    assert "not set: ANTHROPIC_API_KEY, which the second opinion needs" in text
    assert "not set: BACKUP_KEY, which upstream 'backup' of the proxy needs" in text


def test_a_url_with_a_variable_is_reported_because_it_is_not_replaced_there() -> None:
    problem = refused("notifications: [{webhook: {url: '${HOOK_URL}'}}]\n")
    assert "variables are not replaced here" in problem


def test_check_without_a_file_reports_how_to_get_one() -> None:
    code, text = run("config", "check")
    assert code == 2
    assert "switchgear config init" in text


# units


def test_times_are_seconds_and_money_is_dollars_under_every_key() -> None:
    new = load(
        "policies:\n"
        "  a:\n"
        "    detectors:\n"
        "      - failures_in_window: {threshold: 3, window_seconds: 60}\n"
        "      - spend: {hard_cap_dollars: 2.5, window_seconds: 60}\n"
        "      - latency_p95: {baseline_seconds: 90}\n"
        "    recovery: {cooldown: {base_seconds: 30, max_seconds: 60}}\n"
        "hooks: {lease_seconds: 60}\n"
        "interventions: {extend_seconds: 5, ask_seconds: 6}\n"
        "timeouts: {fixed_seconds: 7}\n"
        "breakers: {latency: {baseline_p95_seconds: 1.5}}\n"
        "notifications: [{webhook: {url: 'http://x', timeout_seconds: 3}}]\n"
    )
    old = load(
        "policies:\n"
        "  a:\n"
        "    detectors:\n"
        "      - failures_in_window: {threshold: 3, window_s: 60}\n"
        "      - spend: {hard_cap_micros: 2500000, window_s: 60}\n"
        "      - latency_p95: {baseline_s: 90}\n"
        "    recovery: {cooldown: {base_s: 30, max_s: 60}}\n"
        "hooks: {lease_s: 60}\n"
        "interventions: {extend_s: 5, ask_s: 6}\n"
        "timeouts: {fixed_s: 7}\n"
        "breakers: {latency: {baseline_p95_ms: 1500}}\n"
        "notifications: [{webhook: {url: 'http://x', timeout_s: 3}}]\n"
    )
    assert new == old
    assert new.notifications == (Webhook("http://x", timeout_s=3.0),)


def test_keys_of_earlier_versions_are_accepted_with_a_note_and_new_ones_without() -> None:
    Path("switchgear.yaml").write_text("hooks:\n  lease_s: 60\n")
    _, notes = load_with_notes("switchgear.yaml")
    assert [str(note) for note in notes] == [
        "switchgear.yaml:2: hooks.lease_s: is accepted; the key is 'lease_seconds' now"
    ]
    assert "note: switchgear.yaml:2: hooks.lease_s" in run("config", "check")[1]
    Path("switchgear.yaml").write_text("hooks:\n  lease_seconds: 60\nretention: {idle_days: 3}\n")
    assert load_with_notes("switchgear.yaml")[1] == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hooks: {lease_s: 60, lease_seconds: 60}", "means the same as 'hooks.lease_s'"),
        ("hooks: {lease_seconds: -1}", "hooks.lease_seconds: is -1: it must be a finite number"),
        ("hooks: {lease_seconds: x}", "hooks.lease_seconds: is 'x'"),
        ("hooks: {lease_second: 1}", "did you mean 'lease_seconds'?"),
        (
            "policies: {a: {extends: provider, recovery: {cooldown: {base_seconds: 600, max_seconds: 300}}}}",
            "base_seconds: is 600: it must not be above max_seconds, 300",
        ),
        ("breakers: {provider: {}, external_dep: {}}", "means the same as 'external_dep'"),
        (
            "policies: {a: {detectors: [{spend: {hard_cap_dollars: -1}}]}}",
            "hard_cap_dollars: is -1",
        ),
    ],
)
def test_an_invalid_value_is_reported_with_the_key_of_the_file(text: str, says: str) -> None:
    assert says in refused(text)


def test_a_provider_is_called_provider_in_the_file_too() -> None:
    ours = load("breakers: {provider: {threshold: 7}}").breakers
    assert ours == load("breakers: {external_dep: {threshold: 7}}").breakers


# the operations specification


def test_the_keys_of_the_operations_specification_configure_operations() -> None:
    config = load(
        "circuit_breaker:\n"
        "  failure_threshold: 4\n"
        "  failure_window_seconds: 90\n"
        "  open_duration_seconds: 45\n"
        "  half_open_max_calls: 2\n"
    )
    cooldown = Cooldown(45.0, 45.0, probes=2)
    assert config.policy_for("op/git_operations") == Policy([FailuresInWindow(4, 90.0)], cooldown)
    assert config.policy_for("provider/x") is None
    first = load(
        "circuits: [{match: 'op/git*', policy: provider}]\ncircuit_breaker: {failure_threshold: 4}\n"
    )
    assert first.policy_for("op/git_operations") != first.policy_for("op/shell")
    assert "failure_threshold: is 0" in refused("circuit_breaker: {failure_threshold: 0}")


# budgets

TREE = """
store: sqlite:///state.db
budgets:
  atlas:
    limit_dollars: 50
    nodes:
      wave-1: {limit_dollars: 20}
      wave-2: {limit_dollars: 10.5, circuit: story/S-1}
  borealis: {limit_dollars: 7}
"""


def limits(panel: Panel) -> dict[str, int | None]:
    kept = panel.budgets
    return {one.path: one.node.limit_micros for root in kept.roots() for one in kept.tree(root)}


def test_budgets_of_the_file_are_applied_and_applying_them_again_changes_nothing() -> None:
    load(TREE)
    code, text = run("budgets", "apply")
    assert code == 0
    assert text == "atlas: opened\natlas/wave-1: opened\natlas/wave-2: opened\nborealis: opened\n"
    assert run("budgets", "apply")[1].count(": same") == 4
    with Panel("sqlite:///state.db") as panel:
        assert limits(panel) == {
            "atlas": 50_000_000,
            "atlas/wave-1": 20_000_000,
            "atlas/wave-2": 10_500_000,
            "borealis": 7_000_000,
        }
        assert len(list(panel.budgets.lines("atlas"))) == 3


def test_a_limit_set_by_hand_stays_until_the_file_changes() -> None:
    load(TREE)
    run("budgets", "apply")
    assert run("budgets", "set", "atlas/wave-1", "25")[0] == 0
    assert "atlas/wave-1: kept" in run("budgets", "apply")[1]
    load(TREE.replace("limit_dollars: 20", "limit_dollars: 15"))
    assert "atlas/wave-1: changed" in run("budgets", "apply")[1]
    assert "atlas/wave-1: same" in run("budgets", "apply")[1]


def test_a_budget_that_was_closed_stays_closed() -> None:
    load(TREE)
    run("budgets", "apply")
    assert run("budgets", "close", "borealis")[0] == 0
    assert "borealis: closed" in run("budgets", "apply")[1]


def test_a_refused_budget_is_reported_and_the_others_are_applied() -> None:
    load(TREE.replace("limit_dollars: 20", "limit_dollars: 45"))
    code, text = run("budgets", "apply")
    assert code == 1
    assert "atlas/wave-1: opened" in text
    assert "atlas/wave-2: refused: " in text
    assert "borealis: opened" in text


def test_a_fleet_and_writing_commands_apply_budgets_automatically() -> None:
    config = load(TREE)
    with Fleet.from_config(config) as fleet:
        assert limits(fleet.panel)["atlas"] == 50_000_000
        fleet.panel.budgets.reserve("atlas/wave-1", 1_000_000).release()


def test_without_the_token_a_changed_file_changes_no_limit() -> None:
    import hashlib  # noqa: PLC0415

    config = load(TREE)
    digest = hashlib.sha256(b"secret").hexdigest()
    with Panel("sqlite:///state.db", operator_token_sha256=digest, token="secret") as panel:
        panel.breaker("x").hold_open(by="ana", why="seal")
        panel.budgets.apply(config.budgets)
    changed = load(TREE.replace("limit_dollars: 7", "limit_dollars: 700"))
    with Panel("sqlite:///state.db", operator_token_sha256=digest) as panel:
        with pytest.raises(OverrideRefused):
            panel.budgets.limit("borealis", 1)
        [refused_] = [one for one in panel.budgets.apply(changed.budgets) if one.is_refused]
        assert refused_.node == "borealis"
        assert limits(panel)["borealis"] == 7_000_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("budgets: {atlas: {limit_dollars: -1}}", "limit_dollars: is -1"),
        ("budgets: {atlas: {limit_dollars: 0.0000001}}", "at most 6 decimals"),
        ("budgets: {atlas: {limit_dollar: 1}}", "unknown key; did you mean 'limit_dollars'?"),
        ("budgets: {atlas: 5}", "it must be a mapping"),
        ("budgets: {atlas: {nodes: {'': {}}}}", "parts between slashes"),
        ("budgets: [atlas]", "it must be a mapping"),
    ],
)
def test_bad_budgets_are_reported(text: str, says: str) -> None:
    assert says in refused(text)


# review


def test_a_review_looks_back_to_the_given_time() -> None:
    config = load(
        "store: sqlite:///state.db\nagents: {coder: {owner: ana, provider: p, model: m}}\n"
    )
    clock = FakeClock(time.time() - 100 * 86_400)
    with Fleet(Panel.from_config(config, clock=clock), config.crew, config.breakers) as fleet:
        fleet.panel.breaker("provider/p").record(Signal(ok=False, retry_after_s=5.0))
    assert "provider: 1 trip," in run("review")[1]
    assert (
        "no trips, missed failures or probes are recorded for budget, "
        in run("review", "--since", "90d")[1]
    )
    assert "provider: 1 trip" not in run("review", "--since", "90d")[1]
    assert "provider: 1 trip," in run("review", "--since", "101d")[1]
    assert "provider: 1 trip," in run("review", "--since", "2000-01-01")[1]
    for bad in ("soon", "d", "-5d", "90", "2026-99-01"):
        code, text = run("review", "--since", bad)
        assert (code, "90d" in text) == (2, True), bad
