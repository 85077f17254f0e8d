"""Every section of the configuration file takes effect: names, globs, paths, locations."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from switchgear import AnyDetector, Cooldown, Latched, Policy, WeightedSum, WindowEnd, detectors
from switchgear._config import (
    DEFAULT,
    Config,
    ConfigError,
    Retention,
    find_config,
    load_config,
    preset_policy,
)
from switchgear._sinks import Jsonl, Log
from unit.config_texts import WHOLE_PROJECT, WHOLE_TOML, WHOLE_YAML

Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str, name: str = "switchgear.yaml") -> Config:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return load_config(str(path))

    return load


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("switchgear.yaml", WHOLE_YAML),
        ("switchgear.yml", WHOLE_YAML),
        ("switchgear.toml", WHOLE_TOML),
        ("pyproject.toml", WHOLE_PROJECT),
    ],
)
def test_a_configuration_means_the_same_in_yaml_and_toml(
    load: Load, tmp_path: Path, name: str, text: str
) -> None:
    config = load(text, name)
    patient = Policy(
        [detectors.ConsecutiveFailures(8), detectors.FailureRate(20, 0.5)],
        Cooldown(60, 300, jitter=0.1),
        WeightedSum({"consecutive_failures": 40, "failure_rate": 20}, 60),
        0.8,
        strict=True,
    )
    assert config.store == f"sqlite:///{tmp_path}/.switchgear/state.db"
    assert config.operator_token_sha256 == ("abcdef0123456789" * 4)
    assert config.retention == Retention(500, 1.5 * 86_400)
    assert config.policies == {"patient": patient}
    assert config.policy_for("provider/anthropic") == patient
    assert config.policy_for("op/git") == preset_policy("operation")
    assert config.policy_for("rules/a") == Policy([detectors.ConsecutiveFailures()], Latched())
    assert config.policy_for("op/gitx") is None
    assert config.sinks == (Log("warning"), Jsonl(f"{tmp_path}/.switchgear/events.jsonl"))
    assert config.source == str(tmp_path / name)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a remark\n", "---\n", "null\n", "{}"])
def test_an_empty_file_is_the_default(load: Load, text: str) -> None:
    assert load(text)._replace(source=None) == DEFAULT


def test_a_project_file_without_our_table_is_the_default(load: Load) -> None:
    text = "[project]\nname = 'x'\n[tool.other]\nstore = 1\n"
    assert load(text, "pyproject.toml")._replace(source=None) == DEFAULT


def test_sections_whose_lines_are_commented_out_count_as_absent(load: Load) -> None:
    text = "store:\nretention:\npolicies:\n  # a: b\ncircuits:\nsinks:\noperator_token_sha256:\n"
    assert load(text)._replace(source=None) == DEFAULT


def test_the_default_keeps_what_the_stores_keep_by_default() -> None:
    assert Retention() == (10_000, 30 * 86_400.0) == DEFAULT.retention


def test_retention_may_name_one_of_its_keys(load: Load) -> None:
    assert load("retention: {events: 7}").retention == Retention(7, 30 * 86_400.0)
    assert load("retention: {idle_days: 2}").retention == Retention(10_000, 2 * 86_400.0)


def test_the_first_match_wins(load: Load) -> None:
    config = load(
        "circuits:\n"
        "  - {match: provider/a, policy: operation}\n"
        "  - {match: provider/*, policy: provider}\n"
        "  - {match: '*', policy: latency}\n"
    )
    assert config.policy_for("provider/a") == preset_policy("operation")
    assert config.policy_for("provider/b/c") == preset_policy("provider")
    assert config.policy_for("else") == preset_policy("latency")


def test_a_detector_is_written_as_a_kind_or_as_a_kind_with_fields(load: Load) -> None:
    config = load(
        "policies:\n"
        "  a: {detectors: [consecutive_failures], recovery: latched, combine: any}\n"
        "  b: {detectors: [{consecutive_failures: }], recovery: {latched: {}}, combine: {any: }}\n"
        "  c: {detectors: [slow_calls: {slow_s: 3}], recovery: {window_end: {window_s: 60}}}\n"
    )
    assert config.policies["a"] == config.policies["b"]
    assert config.policies["a"].combine == AnyDetector()
    assert config.policies["c"] == Policy([detectors.SlowCalls(3)], WindowEnd(60))


def test_a_policy_replaces_its_own_keys_and_inherits_the_others(load: Load) -> None:
    config = load(
        "policies:\n"
        "  base: {extends: failure_rate, tripping_at: 0.5, strict: true}\n"
        "  leaf: {extends: base, recovery: {cooldown: {base_s: 5}}, tripping_at: null}\n"
    )
    assert config.policies["leaf"] == Policy(
        [detectors.FailureRate(20, 0.5)], Cooldown(5), strict=True
    )


def test_policies_may_be_used_before_they_are_defined(load: Load) -> None:
    config = load(
        "circuits: [{match: x, policy: b}]\npolicies: {b: {extends: a}, a: {extends: provider}}\n"
    )
    assert config.policy_for("x") == preset_policy("provider")


def test_a_policy_may_extend_the_preset_with_its_name(load: Load) -> None:
    config = load(
        "policies: {provider: {extends: provider, strict: true}}\n"
        "circuits: [{match: x, policy: provider}]\n"
    )
    assert config.policy_for("x") == preset_policy("provider").replace(strict=True)


def test_anchors_aliases_and_merges_work(load: Load) -> None:
    config = load(
        "policies:\n"
        "  a: &a\n"
        "    detectors: &d [consecutive_failures: {threshold: 2}]\n"
        "    strict: true\n"
        "  b: {detectors: *d}\n"
        "  c: {<<: *a, strict: false}\n"
        "  d: {strict: false, <<: [*a, {tripping_at: 0.5, strict: true}]}\n"
    )
    two = [detectors.ConsecutiveFailures(2)]
    assert config.policies == {
        "a": Policy(two, strict=True),
        "b": Policy(two),
        "c": Policy(two),
        "d": Policy(two, tripping_at=0.5),
    }


# Variables and paths


def test_variables_are_filled_in(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "p${X}w")
    monkeypatch.setenv("TOKEN_HASH", "a" * 64)
    config = load(
        "store: redis://:${REDIS_PASSWORD}@host:6379/0\n"
        "operator_token_sha256: ${TOKEN_HASH}\n"
        "sinks: [jsonl: {path: '/logs/${TOKEN_HASH}.jsonl'}]\n"
    )
    assert config.store == "redis://:p${X}w@host:6379/0"
    assert config.operator_token_sha256 == "a" * 64
    assert config.sinks == (Jsonl(f"/logs/{'a' * 64}.jsonl"),)


def test_a_doubled_dollar_is_a_dollar(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "no")
    assert load("store: redis://h/$${X}$5").store == "redis://h/${X}$5"


@pytest.mark.parametrize(
    "url",
    [
        "memory:",
        "redis://h",
        "rediss://u:p@h:1/2",
        "redis+cluster://h",
        "valkey://h",
        "valkey+cluster://h",
        "valkeys+cluster://h",
        "unix:///tmp/s",
        "sqlite:////var/lib/x.db",
    ],
)
def test_stores_that_need_no_folder_stay_as_they_are(load: Load, url: str) -> None:
    assert load(f"store: '{url}'").store == url


def test_relative_paths_start_at_the_folder_of_the_file(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", "/somewhere")
    config = load("store: sqlite:///../x.db\nsinks: [jsonl: {path: ~/e.jsonl}]")
    assert config.store == f"sqlite:///{tmp_path.parent}/x.db"
    assert config.sinks == (Jsonl("/somewhere/e.jsonl"),)


def test_paths_are_the_same_whichever_way_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "switchgear.yaml").write_text("store: sqlite:///s.db")
    monkeypatch.chdir(tmp_path)
    assert load_config("switchgear.yaml") == load_config(tmp_path / "switchgear.yaml")


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    for name, text in (("switchgear.yaml", "store: memory"), ("a.toml", 'store = "memory:"')):
        path = tmp_path / name
        path.write_bytes(b"\xef\xbb\xbf" + f"# x\r\n{text}\r\n".encode())
        assert load_config(path).store == "memory:"


def test_a_config_shows_no_secret_and_survives_pickling(load: Load) -> None:
    config = load(f"store: redis://u:hunter22@h\noperator_token_sha256: {'ab' * 32}")
    assert "hunter22" not in repr(config)
    assert "abab" not in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config


# Finding the file


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """home/project/deep, and a home that ends the search."""
    monkeypatch.delenv("SWITCHGEAR_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/project/deep").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("name", ["switchgear.yaml", "switchgear.yml", "switchgear.toml"])
def test_the_nearest_file_above_is_found(tree: Path, name: str) -> None:
    (tree / "home" / name).touch()
    nearest = tree / "home/project" / name
    nearest.touch()
    assert find_config(str(tree / "home/project/deep")) == str(nearest)
    assert find_config(str(tree / "home")) == str(tree / "home" / name)


def test_of_several_in_one_folder_yaml_comes_first(tree: Path) -> None:
    folder = tree / "home/project"
    (folder / "pyproject.toml").write_text("[tool.switchgear]\n")
    assert find_config(str(folder)) == str(folder / "pyproject.toml")
    for name in ("switchgear.toml", "switchgear.yml", "switchgear.yaml"):
        (folder / name).touch()
        assert find_config(str(folder)) == str(folder / name)


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("[tool.switchgear]\n", True),
        ("[project]\nx = 1\n  [ tool . 'switchgear' ]\n", True),
        ("[tool.switchgear.retention]\n", True),
        ("[[tool.switchgear.circuits]]\n", True),
        ("[tool.switchgears]\n", False),
        ("# [tool.switchgear]\n", False),
        ("", False),
    ],
)
def test_a_project_file_counts_only_with_our_table(tree: Path, text: str, is_ours: bool) -> None:
    project = tree / "home/project/pyproject.toml"
    project.write_text(text)
    found = find_config(str(tree / "home/project/deep"))
    assert found == (str(project) if is_ours else None)


def test_the_search_ends_at_home(tree: Path) -> None:
    (tree / "switchgear.yaml").touch()
    assert find_config(str(tree / "home/project/deep")) is None
    (tree / "elsewhere").mkdir()
    assert find_config(str(tree / "elsewhere")) == str(tree / "switchgear.yaml")


def test_the_search_starts_in_the_current_folder(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "home/project/switchgear.yaml").touch()
    monkeypatch.chdir(tree / "home/project/deep")
    assert find_config() == str(tree / "home/project/switchgear.yaml")


def test_the_variable_takes_precedence_even_if_its_file_is_missing(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "home/project/switchgear.yaml").touch()
    monkeypatch.setenv("SWITCHGEAR_CONFIG", str(tree / "gone.yaml"))
    found = find_config(str(tree / "home/project"))
    assert found == str(tree / "gone.yaml")
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read: No such file"):
        load_config(found)
    monkeypatch.setenv("SWITCHGEAR_CONFIG", "")
    assert find_config(str(tree / "home/project")) == str(tree / "home/project/switchgear.yaml")


def test_a_link_that_leads_nowhere_is_found_so_that_it_is_reported(tree: Path) -> None:
    link = tree / "home/project/switchgear.yaml"
    link.symlink_to("gone.yaml")
    assert find_config(str(tree / "home/project")) == str(link)
