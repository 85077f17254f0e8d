"""What the rules refuse and admit over whole sets of commands, however these are written."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from depth import scaled
from rules import grammar
from rules.attacks import ADMITTED, ATTACKS, TOOL_ATTACKS
from rules.evasions import WRAPPERS, offences, rewritten, wrapped
from rules.harmless import COMMANDS, QUOTED
from rules.project import Project
from switchgear._rules.effects import UNREADABLE, Place
from switchgear._rules.rules import Rule, judge

FUZZED = int(os.environ.get("SWITCHGEAR_FUZZ_COMMANDS", str(scaled(3000, 300))))
"""Random commands; `SWITCHGEAR_FUZZ_COMMANDS=100000` for a thorough run."""
SAME_TEXT = [name for name in WRAPPERS if name not in {"base64", "ssh"}]
"""Ways to run a command that leave its meaning as it is: a decoder is refused for itself, and
`ssh` runs at home."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", "/home/ada")  # in a temporary folder everything may be removed
        yield Project(tmp_path_factory.mktemp("project"))


def test_every_plain_attack_is_refused(project: Project) -> None:
    assert [text for text in offences() if project.refusal(text) is None] == []


def test_an_attack_is_refused_however_its_path_is_written(project: Project) -> None:
    assert [text for text in rewritten() if project.refusal(text) is None] == []


def test_an_attack_is_refused_however_it_is_run(project: Project) -> None:
    assert [text for text in wrapped() if project.refusal(text) is None] == []


@pytest.mark.parametrize("kind", ATTACKS)
def test_attacks_of_every_kind_are_refused(project: Project, kind: str) -> None:
    assert [text for text in ATTACKS[kind] if project.refusal(text) is None] == []


def test_attacks_by_other_tools_are_refused(project: Project) -> None:
    assert [call for call in TOOL_ATTACKS if project.tool_refusal(*call) is None] == []


@pytest.mark.parametrize(
    ("tool", "inputs"),
    [
        ("mcp__git__git_push", {"force_with_lease": True, "tags": True}),
        ("mcp__git__git_push", {"branch": "fix/force", "message": "use --force"}),
        ("mcp__git__git_push", {"repo_path": ".", "force": False}),
        ("mcp__x__send_session_message", {"text": "do not run rm -rf .claude"}),
        ("write_stdin", {"session_id": 1, "chars": "print(open('switchgear.yaml').read())\n"}),
        ("WebFetch", {"url": "https://docs.example.com/.env", "prompt": "what is .env for?"}),
        ("mcp__github__create_issue", {"title": "x", "body": "rm -rf .claude is refused"}),
    ],
)
def test_everyday_calls_of_other_tools_are_admitted(
    project: Project, tool: str, inputs: dict[str, object]
) -> None:
    assert project.tool_refusal(tool, inputs) is None


def test_the_documented_limits_of_the_rules_exist(project: Project) -> None:
    assert [text for text in ADMITTED if project.refusal(text) is not None] == []


def test_harmless_commands_are_admitted(project: Project) -> None:
    refused = {text: rule for text in COMMANDS if (rule := project.refusal(text))}
    assert refused == {}


@pytest.mark.deep
@pytest.mark.parametrize("name", SAME_TEXT)
def test_a_harmless_command_is_admitted_however_it_is_run(project: Project, name: str) -> None:
    random = Random(name)
    plain = [text for text in COMMANDS if "{}" not in text and not text.startswith(QUOTED)]
    texts = [WRAPPERS[name](text) for text in random.sample(plain, scaled(60, 15))]
    refused = {text: rule for text in texts if (rule := project.refusal(text))}
    assert refused == {}


@pytest.mark.deep
@pytest.mark.timeout(7200)  # a hundred thousand take long on a busy machine
def test_random_commands_are_evaluated_without_errors_and_the_same_after_padding(
    project: Project,
) -> None:
    random = Random(FUZZED)
    for _ in range(FUZZED):
        text = grammar.text(random)
        begun = time.process_time()
        broken = project.refusal(text)
        assert time.process_time() - begun < 10.0, text
        assert UNREADABLE not in (broken or ""), text
        if broken is not None:
            padded = "true\n" * 20 + f":\n{text}"
            assert project.refusal(padded) is not None, text


@pytest.mark.deep
def test_tools_with_random_inputs_are_evaluated_without_failing(project: Project) -> None:
    random = Random(5)
    keys = ("command", "path", "chars", "code", "url", "content", "patch", "args", "x", "cwd")
    tools = (
        "Bash",
        "Write",
        "write_stdin",
        "mcp__x__run",
        "find_and_replace",
        "apply_patch",
        "Read",
    )
    for _ in range(FUZZED // 5):
        args = {random.choice(keys): grammar.text(random, 4) for _ in range(random.randint(0, 3))}
        broken = project.tool_refusal(random.choice(tools), args)
        assert UNREADABLE not in (broken or ""), args


@pytest.mark.parametrize(
    "tool", ["find_and_replace", "search_replace", "view_edit", "read_write", "get_or_create"]
)
def test_a_tool_whose_name_contains_read_is_not_a_reader(project: Project, tool: str) -> None:
    assert project.tool_refusal(tool, {"path": ".claude/settings.json"}) is not None
    assert project.tool_refusal(tool, {"path": "src/app.py"}) is None


@pytest.mark.parametrize("tool", ["read_file", "search_files", "grep_search", "view", "list_dir"])
def test_a_tool_that_only_reads_may_read_the_guard(project: Project, tool: str) -> None:
    assert project.tool_refusal(tool, {"path": ".claude/settings.json"}) is None


@pytest.mark.parametrize(
    "chars",
    [
        *("rm .claude/settings.json\n", "rm -rf .cla", "rm -rf ", "switchgear reset x\n", "switch"),
        *("echo x > switchgear.yaml\r", "\x03rm -rf .claude\n", "cd .claude; rm settings.json\n"),
    ],
)
def test_text_typed_into_a_shell_is_a_command(project: Project, chars: str) -> None:
    assert project.tool_refusal("write_stdin", {"session_id": 1, "chars": chars}) is not None


@pytest.mark.parametrize(
    "chars", ["y\n", "q", "\x03", "npm test\n", "print(1)\n", "", "\x1b[A", "ls"]
)
def test_harmless_shell_input_is_admitted(project: Project, chars: str) -> None:
    assert project.tool_refusal("write_stdin", {"session_id": 1, "chars": chars}) is None


def test_a_tracked_guard_survives_a_cleaning_and_an_untracked_one_does_not(tmp_path: Path) -> None:
    import subprocess  # noqa: PLC0415

    project = Project(tmp_path)
    assert project.refusal("git clean -fd") is not None

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    assert project.refusal("git add -A && git stash") is not None
    git("add", "-f", ".")
    assert project.refusal("git clean -fd") is None
    assert project.refusal("git checkout -- .") is None
    for text in ("git stash", "git reset --hard", "git checkout -f main"):
        assert project.refusal(text) is not None, "it is not in the last commit"
    git("commit", "-qm", "guard")
    for text in ("git stash", "git reset --hard", "git checkout -f main", "git clean -fd"):
        assert project.refusal(text) is None
    assert project.refusal("git sparse-checkout set src") is not None
    (tmp_path / "switchgear.yaml").write_text("hooks: {lease: 5m}\n")
    assert project.refusal("git stash") is not None
    assert project.refusal("git checkout -- .") is not None
    assert project.refusal("git reset --hard") is not None


def test_a_file_that_doubles_with_each_command_is_bounded(project: Project) -> None:
    text = "echo a > x; " + "cat x x >> x; " * 40 + "cat x | sh"
    begun = time.process_time()
    assert "readable" in (project.refusal(text) or "")
    assert time.process_time() - begun < 2.0


def test_a_patch_file_that_changes_the_guard_is_not_applied(project: Project) -> None:
    patch = project.folder / "x.diff"
    patch.write_text("--- a/switchgear.yaml\n+++ b/switchgear.yaml\n@@ -1 +1 @@\n-a\n+b\n")
    assert project.refusal("git apply x.diff") is not None
    assert project.refusal("patch -p1 < x.diff") is not None
    patch.write_text("--- a/src/app.py\n+++ b/src/app.py\n@@ -1 +1 @@\n-a\n+b\n")
    assert project.refusal("git apply x.diff") is None


@pytest.mark.parametrize(
    "words",
    [
        *("--context=prod-eu get po", "--context prod-eu get po", "get po --context prod-eu"),
        *("-n prod delete po x", "-nprod delete po x", "-n=prod delete po x"),
    ],
)
def test_an_option_of_a_rule_is_found_in_every_spelling(words: str) -> None:
    rule = Rule("not-production", commands=("kubectl --context=prod*", "kubectl -n=prod"))
    place = Place("/w")
    assert judge([rule], "Bash", {"command": f"kubectl {words}"}, place) is not None
    assert judge([rule], "Bash", {"command": "kubectl --context dev get po"}, place) is None


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf **/.cl*",
        "ls -a | grep claude | xargs rm -rf",
        "ls -a | sed 1,2d | xargs rm -rf",
        "find . | grep claude | xargs rm -rf",
        "find . -name '.cl*' | xargs rm -rf",
        "find . -name '.cl*' -exec sh -c 'rm -rf \"$1\"' _ {} \\;",
        "find . -path '*claude*' -delete",
        "find . -path '*claude*' -exec sh -c 'rm \"$1\"' _ {} \\;",
        "ls .claude | xargs -I{} rm .claude/{}",
        "ls .claude | while read f; do rm .claude/$f; done",
        "for f in $(ls .claude); do rm .claude/$f; done",
        "git ls-files .claude | xargs rm",
        "git grep -l hooks .claude | xargs sed -i s/a/b/",
        "grep -rlZ hooks .claude/ | xargs -0 rm",
        "grep -l hooks .claude/* | xargs rm",
        "rg --files .claude | xargs rm",
        "fd . .claude | xargs rm",
        "fd -H settings | xargs rm",
        "tree -fi .claude | xargs rm",
        "du -a .claude | cut -f2 | xargs rm",
        "echo x:.claude | cut -d: -f2 | xargs rm -rf",
        "git submodule foreach 'rm -rf ../.claude'",
        "python3 -c 'import switchgear._panel.panel'",
    ],
)
def test_listed_files_are_passed_to_the_next_program(project: Project, command: str) -> None:
    assert project.refusal(command) is not None


@pytest.mark.parametrize(
    "command",
    [
        "ls -a | grep log | xargs rm -f",
        "rm -rf ./**/*cache*",
        "find . -path '*/node_modules/*' -delete",
        "find . -path '*.egg-info*' -delete",
        "grep -rl TODO src | xargs sed -i s/TODO/DONE/",
        "grep -rl foo . | xargs sed -i s/foo/bar/",
        "rg -l foo | xargs sed -i s/foo/bar/",
        "git ls-files '*.py' | xargs black",
        "git ls-files -m | xargs git add",
        "git grep -l foo src | xargs sed -i s/foo/bar/",
        "fd -e pyc | xargs rm",
        "fd . build | xargs rm -f",
        "du -a src | sort -n | tail -5",
        "ls src | xargs -I{} cp src/{} /tmp/{}",
        "git submodule foreach git pull",
        "python3 -c 'import switchgear; print(switchgear.__version__)'",
    ],
)
def test_listed_files_of_other_folders_are_harmless(project: Project, command: str) -> None:
    assert project.refusal(command) is None


@pytest.mark.parametrize("key", [None, "arguments", "params"])
def test_inputs_that_are_json_texts_are_read(project: Project, key: str | None) -> None:
    for inputs, is_refused in (({"command": "rm -rf /etc"}, True), ({"command": "ls"}, False)):
        text = json.dumps(inputs)
        broken = project.tool_refusal("Bash", text if key is None else {key: text})
        assert (broken is not None) is is_refused
    assert project.tool_refusal("Bash", "{ls; rm -rf /etc; }") is not None
    assert project.tool_refusal("Bash", "{" * 100_000) is not None
