"""The configuration as hooks read it: what applies, when it is rebuilt, when it is trusted."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from switchgear._config import preset_policy
from switchgear._hooks import hook_config as module
from switchgear._hooks.handler import containing_project, project_of
from switchgear._hooks.hook_config import Unconfigured, config_of
from switchgear._rules.rules import load_rules
from switchgear._stuck.score import session_policy
from trusted_config import write_config
from unit.hook_calls import Guarded, before


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def test_without_a_configuration_the_presets_apply(project: Path) -> None:
    known = config_of(str(project))
    assert known.policy_for("op/shell") == preset_policy("operation")
    session = session_policy(preset_policy("stuck"), preset_policy("progress"))
    assert known.policy_for("session/x") == session
    assert known.policy_for("session/x/agent/y") == session
    assert (known.on_trouble, known.lease_s, known.story) == ("admit", 1800.0, None)
    assert not known.is_configured("rules")
    assert known.store == f"sqlite:///{project}/.switchgear/state.db"


def test_the_users_rules_come_first(project: Path) -> None:
    write_config(
        project / "switchgear.yaml",
        "circuits:\n  - {match: 'op/git*', policy: provider}\n  - {match: '*[rs]', policy: latency}\n",
    )
    known = config_of(str(project))
    assert known.policy_for("op/git_operations") == preset_policy("provider")
    assert known.policy_for("rules") == preset_policy("latency")
    assert known.policy_for("op/shell") == preset_policy("operation")
    assert known.is_configured("rules")


def test_rules_and_protected_paths_of_the_configuration_apply_together_with_the_built_in_ones(
    project: Path,
) -> None:
    write_config(
        project / "switchgear.yaml",
        "rules:\n  builtin: [secrets]\n  protected: ['deploy/**']\n"
        "  own:\n    - {name: no-prod, commands: ['kubectl *']}\n",
    )
    known = config_of(str(project))
    names = {rule.name for rule in load_rules(list(known.rules))}
    assert "no-prod" in names
    assert not {name for name in names if name.startswith("force-push")}
    assert {name for name in names if name.startswith("guard")}
    assert "deploy/**" in known.protected


def test_the_configuration_is_read_again_only_when_it_changed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = project / "switchgear.yaml"
    write_config(config, "hooks: {lease_s: 10}\n")
    assert config_of(str(project)).lease_s == 10.0
    monkeypatch.setattr("switchgear._config.trust.load_config", lambda *_, **__: 1 / 0)
    assert config_of(str(project)).lease_s == 10.0
    os.utime(config, ns=(1, 1))
    with pytest.raises(ZeroDivisionError):
        config_of(str(project))


def test_a_configuration_above_the_project_counts_too(project: Path) -> None:
    inner = project / "deep"
    (inner / ".git").mkdir(parents=True)
    assert config_of(str(inner)).lease_s == 1800.0
    write_config(project / "switchgear.toml", "[hooks]\nlease_s = 20\n")
    assert config_of(str(inner)).lease_s == 20.0


def test_a_secret_of_the_url_is_not_saved(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "hunter22")
    write_config(project / "switchgear.yaml", "store: redis://:${REDIS_PASSWORD}@localhost/0\n")
    assert config_of(str(project)).store == "redis://:hunter22@localhost/0"
    assert config_of(str(project)).store == "redis://:hunter22@localhost/0"
    assert "hunter22" not in (project / ".switchgear" / "hooks.json").read_text()


def test_variables_of_the_environment_apply(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHGEAR_STORE", "redis://elsewhere")
    monkeypatch.setenv("SWITCHGEAR_STORY", "S-7")
    known = config_of(str(project))
    assert (known.store, known.story) == ("redis://elsewhere", "S-7")
    other = project / "other.yaml"
    other.write_text("hooks: {lease_s: 30}\n")
    monkeypatch.setenv("SWITCHGEAR_CONFIG", str(other))
    assert config_of(str(project)).lease_s == 1800.0, "an agent may have set the variable"
    write_config(other, "hooks: {lease_s: 30}\n")
    assert config_of(str(project)).lease_s == 30.0


def test_an_unreadable_configuration_leaves_the_last_one_in_effect(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = project / "own" / "switchgear" / "switchgear.yaml"
    config.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "own"))
    config.write_text("hooks: {on_trouble: refuse}\n")
    config_of(str(project))
    config.write_text("hooks: {on_trouble: maybe}\n")
    with pytest.raises(Unconfigured, match="it must be one of admit, refuse") as caught:
        config_of(str(project))
    assert caught.value.last is not None
    assert caught.value.last.on_trouble == "refuse"


def test_a_compiled_file_of_another_program_is_not_the_last_configuration(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = project / "own" / "switchgear" / "switchgear.yaml"
    config.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "own"))
    config.write_text("hooks: {on_trouble: refuse}\n")
    config_of(str(project))
    compiled = project / ".switchgear" / "hooks.json"
    forged = json.loads(compiled.read_text()) | {"on_trouble": "admit", "rules": []}
    compiled.write_text(json.dumps(forged))
    config.write_text("hooks: {on_trouble: maybe}\n")
    for _ in range(2):  # the second time, the first attempt is recorded in the file
        with pytest.raises(Unconfigured, match="it must be one of admit, refuse") as caught:
            config_of(str(project))
        assert caught.value.last is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 99}', "x" * 2_000_000])
def test_an_invalid_compiled_file_is_rebuilt(project: Path, text: str) -> None:
    config_of(str(project))
    place = project / ".switchgear" / module.COMPILED_NAME
    place.write_text(text)
    assert config_of(str(project)).on_trouble == "admit"
    assert json.loads(place.read_text())["format"] == module.FORMAT


def test_a_link_in_place_of_the_compiled_file_is_not_followed(project: Path) -> None:
    config_of(str(project))
    place = project / ".switchgear" / module.COMPILED_NAME
    forged = project / "forged.json"
    forged.write_text(json.dumps({**json.loads(place.read_text()), "lease_s": 1}))
    forged.chmod(0o600)
    place.unlink()
    place.symlink_to(forged)
    assert config_of(str(project)).lease_s == 1800.0


def test_the_project_is_the_one_that_the_agent_names_not_its_working_directory(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert project_of(str(deep), {"CLAUDE_PROJECT_DIR": str(tmp_path)}) == str(tmp_path)
    assert project_of(str(deep), {}) == str(deep)
    assert project_of("not/absolute", {}) == str(Path.cwd())
    assert containing_project(str(deep)) == str(tmp_path)


def test_a_changed_policy_applies_from_then_on(tmp_path: Path) -> None:
    agent = Guarded(tmp_path)
    push = {"command": "git push"}
    agent.call("Bash", push, "t1", error="Exit code 1\nno")
    strict = "{detectors: [{consecutive_failures: {threshold: 1}}]}"
    config = tmp_path / "switchgear.yaml"
    write_config(config, f"circuits:\n  - {{match: 'op/git_operations', policy: {strict}}}\n")
    agent.known = config_of(str(tmp_path))
    agent.call("Bash", push, "t2", error="Exit code 1\nno")
    assert agent.hear(before("Bash", push, "t3")).action == "deny"


def test_a_configuration_is_cached_until_the_file_changes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_of(str(project))
    first = config_of(str(project))
    reads: list[str] = []
    read = module.read

    def counted(place: str) -> dict[str, Any] | None:
        reads.append(place)
        return read(place)

    monkeypatch.setattr(module, "read", counted)
    assert config_of(str(project)) is first
    assert first.policy_for("op/shell") is config_of(str(project)).policy_for("op/shell")
    assert reads == []
    write_config(project / "switchgear.yaml", "hooks: {on_trouble: refuse}\n")
    assert config_of(str(project)).on_trouble == "refuse"
    assert reads
    monkeypatch.setenv(module.STORE_VARIABLE, "sqlite:////elsewhere/state.db")
    assert config_of(str(project)).store == "sqlite:////elsewhere/state.db"
    monkeypatch.delenv(module.STORE_VARIABLE)
    place = Path(module.compiled_path(str(project)))
    config_of(str(project))
    text = place.read_text()
    place.write_text(text.replace('"refuse"', '"admitt"'))
    assert config_of(str(project)).on_trouble == "refuse", "what others wrote is compiled anew"


def test_the_number_of_cached_configurations_is_bounded(tmp_path: Path) -> None:
    for number in range(module.MAX_CACHED + 3):
        folder = tmp_path / str(number)
        (folder / ".git").mkdir(parents=True)
        config_of(str(folder))
        config_of(str(folder))
    assert len(module._cached) <= module.MAX_CACHED
