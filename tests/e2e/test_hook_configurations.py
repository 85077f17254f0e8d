"""Every kind of configuration under the real hook command, three times each: cold, bundled, cached.

The first hook after a change compiles the configuration, the second runs from the bundle of modules,
the third finds every cache filled. They must answer alike: a defect of a cache once admitted everything
from the second hook on.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from depth import some_of
from e2e.hook_process import command
from switchgear._breaker.presets import PRESETS
from switchgear._config import ConfigError, load_config
from switchgear._config.trust import trust_file
from switchgear._detectors import ALL
from timeouts import LIMIT_S
from unit.config_texts import WHOLE_YAML
from unit.hook_calls import after, before

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(yaml|toml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
DETECTORS = {
    "latency_p95": "latency_p95: {baseline_s: 5}",
    "slow_calls": "slow_calls: {slow_s: 5}",
    "slow_call_share": "slow_call_share: {slow_s: 5}",
    "spend": "spend: {hard_cap_micros: 5000000}",
    "total_cost": "total_cost: {budget_micros: 5000000}",
}
"""Those that have no defaults for everything."""
VARIABLES = {
    "SWITCHGEAR_TEST_FOLDER": "/tmp",
    "SWITCHGEAR_TOKEN_SHA256": "a" * 64,
    "REDIS_PASSWORD": "x",
}
OWN = {
    "nothing": "",
    "all sections": WHOLE_YAML,
    "agents": "agents:\n  coder: {owner: a@example.com, provider: anthropic, model: opus}\n",
    "breakers": "breakers:\n  budget: {hard_cap_dollars: 2.5}\n  failure_rate: {window_calls: 10}\n",
    "stories": "stories:\n  S-1: {owner: a@example.com, budget_dollars: 3}\n",
    "story": "hooks: {story: S-1}\ncircuits:\n  - {match: 'story/*', policy: operation}\n",
    "glob in the middle": "circuits:\n  - {match: 'op/*/x', policy: operation}\n",
    "glob of one character": "circuits:\n  - {match: 'op/?it', policy: operation}\n",
    "glob of a set": "circuits:\n  - {match: 'op/[a-g]*', policy: operation}\n",
    "glob at the beginning": "circuits:\n  - {match: '*/shell', policy: operation}\n",
    "glob of all": "circuits:\n  - {match: '*', policy: operation}\n",
    "glob of two stars": "circuits:\n  - {match: '**/agent/**', policy: stuck}\n",
    "rules circuit": "circuits:\n  - {match: rules, policy: constitutional}\n",
    "own rules": "rules: {own: [{name: no-docker, commands: [docker], why: ours}], protected: ['secret/**']}\n",
    "excused": "rules: {allow: {deletes: {paths: ['/srv/cache/**']}}}\n",
    "interventions": "interventions: {when_alone: [nudge, skip], hint: 'Think', progress: false}\n",
    "timeouts": "timeouts: {session_s: 600}\n",
    "hooks": "hooks: {on_trouble: refuse, lease_s: 60, context_tokens: 100000}\n",
    "variables": 'store: "sqlite:///${SWITCHGEAR_TEST_FOLDER}/state.db"\n',
    **{
        f"preset {name}": f"circuits:\n  - {{match: 'op/*', policy: {name}}}\n  - {{match: 'session/*', policy: {name}}}\n"
        for name in sorted(PRESETS)
    },
    **{
        f"detector {each.kind}": f"circuits:\n  - match: 'session/*'\n    policy: {{detectors: [{DETECTORS.get(each.kind, each.kind)}]}}\n"
        for each in ALL
    },
}
"""What configurations may hold, each thing alone; those that need more to be valid are left out."""


def of_the_docs() -> dict[str, tuple[str, str]]:
    """The whole configurations that the pages show."""
    found = {}
    for page in sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]):
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found[f"{page.name}:{line}"] = (match[1], match[2])
    return found


CASES = {**{name: ("yaml", text) for name, text in OWN.items()}, **of_the_docs()}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def is_valid(suffix: str, text: str, folder: Path) -> bool:
    folder.mkdir(exist_ok=True)
    file = folder / f"switchgear.{suffix}"
    file.write_text(text)
    try:
        load_config(str(file))
    except ConfigError:
        return False
    return True


def ask(project: Path, data: dict[str, Any]) -> tuple[int, Any, str]:
    done = subprocess.run(
        command(project),
        input=json.dumps(data).encode(),
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
        env={
            "HOME": str(project.parent),
            "PATH": os.defpath,
            "SWITCHGEAR_STORE": f"sqlite:///{project}/state.db",
            "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
            **VARIABLES,
        },
    )
    return done.returncode, json.loads(done.stdout or b"{}"), done.stderr.decode()


def test_most_examples_of_the_pages_are_covered(tmp_path: Path) -> None:
    valid = [name for name, case in CASES.items() if is_valid(*case, tmp_path / "x")]
    shown = [name for name in valid if ".md:" in name]
    assert len(shown) >= 20
    assert [name for name in OWN if name not in valid] == []
    assert {"agents", "glob in the middle", "all sections", "own rules"} <= {*valid}


KEPT = {"nothing", "all sections", "agents", "own rules", "glob in the middle"}


@pytest.mark.parametrize("name", some_of(CASES, KEPT))
def test_the_hook_gives_the_same_answer_with_and_without_caches(name: str, tmp_path: Path) -> None:
    suffix, text = CASES[name]
    if not is_valid(suffix, text, tmp_path / "try"):
        pytest.skip("a part of a configuration, or one that is shown to be wrong")
    calm, broken = tmp_path / "calm", tmp_path / "broken"
    for project in (calm, broken):
        (project / ".git").mkdir(parents=True)
        config = project / f"switchgear.{suffix}"
        config.write_text(text)
        trust_file(str(config), variables=VARIABLES)
    for number in range(3):
        session = {"session_id": f"h{number}"}
        call = ("Bash", {"command": "ls"}, f"h{number}")
        assert ask(calm, {**before(*call), **session}) == (0, {}, ""), number
        assert ask(calm, {**after(*call), **session}) == (0, {}, ""), number
    for number in range(3):
        call = ("Bash", {"command": "switchgear reset '*'"}, f"f{number}")
        code, told, said = ask(broken, {**before(*call), "session_id": f"s{number}"})
        told = told["hookSpecificOutput"]
        assert (code, told["permissionDecision"], said) == (0, "deny", ""), number
        assert "rule guard/" in told["permissionDecisionReason"], number
