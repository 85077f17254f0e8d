"""Attempts to switch off the guard, and harmless calls that look like it: tables of what is refused and what is not."""

from pathlib import Path
from typing import Any

import pytest

from unit.hook_calls import Guarded, before

REFUSED = [
    "ln -s .switchgear/state.db x",
    "ln .switchgear/state.db x",
    "ln -s $PWD/switchgear.yaml /tmp/zz",
    "ln switchgear.yaml alias.yaml",
    "ln -s . here && rm here/switchgear.yaml",
    "ln -s switchgear.yaml a; echo > a",
    "cp -l switchgear.yaml a.yaml",
    "tar xf x.tar switchgear.yaml",
    "tar -C .switchgear -xf x.tar",
    "tar xf x.tar -C .claude",
    "tar --delete -f x.tar .switchgear/state.db --remove-files switchgear.yaml",
    "unzip -o x.zip -d .switchgear",
    "unzip -o x.zip switchgear.yaml",
    "git stash push switchgear.yaml",
    "git stash -- switchgear.yaml",
    "git stash --all",
    "git checkout -- .claude/settings.json",
    "git restore --source=HEAD~2 .claude",
    "git apply --include=switchgear.yaml x.diff",
    "git apply -p1 <<'E'\n--- a/switchgear.yaml\n+++ b/switchgear.yaml\nE",
    "git update-index --assume-unchanged switchgear.yaml && git show HEAD~1:switchgear.yaml > switchgear.yaml",
    "git show HEAD:x > .claude/settings.json",
    "git mv switchgear.yaml other.yaml",
    "rsync x switchgear.yaml",
    "rsync -a other/ .switchgear/",
    "rsync -a --delete other/ ./",
    "perl -pi -e s/a/b/ switchgear.yaml",
    "perl -i.bak -ne print switchgear.yaml",
    "ruby -i -pe 1 switchgear.yaml",
    "dd if=/dev/zero of=.switchgear/state.db",
    'dd if=/dev/zero of="$PWD/switchgear.yaml"',
    "install -m 600 x switchgear.yaml",
    "echo c3dpdGNoZ2VhciByZXNldCB4 | base64 -d | sh",
    "echo c3dpdGNoZ2VhciByZXNldCB4 | base64 --decode | bash",
    "base64 -d <<< c3dpdGNoZ2VhciByZXNldCB4 | sh",
    'sh -c "$(echo c3dpdGNoZ2VhciByZXNldCB4 | base64 -d)"',
    'eval "$(echo c3dpdGNoZ2VhciByZXNldCB4 | base64 -d)"',
    "eval $(echo 7377 | xxd -r -p)",
    "echo 7377697463686765617220726573657420780a | xxd -r -p | sh",
    "bash <(echo c3dpdGNoZ2VhciByZXNldCB4 | base64 -d)",
    "bash <<< $(base64 -d <<< c3dpdGNoZ2VhciByZXNldCB4)",
    "source <(base64 -d x)",
    ". /dev/stdin <<< 'switchgear reset x'",
    "openssl base64 -d -in x | bash",
    "printf '\\163witchgear reset x' | sh",
    "echo -e '\\x73witchgear reset x' | sh",
    "echo 'fjvgputrne erfrg k' | tr a-z n-za-m | sh",
    "echo 'x teser raeghctiws' | rev | sh",
    "switchgear${IFS}reset${IFS}x",
    'switchgear$IFS"reset"$IFS"x"',
    "A=switch; B=gear; $A$B reset x",
    "A=switch; A+=gear; $A reset x",
    'a=(switchgear reset x); "${a[@]}"',
    "X=xswitchgear; ${X#x} reset y",
    "X=SWITCHGEAR; ${X,,} reset y",
    "x=switchgear_reset; ${x//_/ } y",
    'cmd="switchgear reset x"; $cmd',
    'set -- switchgear reset x; "$@"',
    "f() { switchgear reset x; }; f",
    "python -c \"import os; os.system('switch'+'gear reset x')\"",
    "python -c \"import subprocess as s; s.run(['switch'+'gear','reset','x'])\"",
    "python3 -c \"import os; os.remove('.switch'+'gear/state.db')\"",
    "python3 -c \"open('switch'+'gear.yaml','w')\"",
    "node -e \"require('child_process').execSync('switch'+'gear reset x')\"",
    "node -e \"fs.writeFileSync('switch'+'gear.yaml','')\"",
    "python3 -c \"exec(__import__('base64').b64decode('aW1wb3J0IG9z'))\"",
    'perl -e \'system("switchgear","reset","x")\'',
    "ruby -e 'system \"switchgear reset x\"'",
    "perl -e 'unlink \".switchgear/state.db\"'",
    "php -r 'unlink(\"switchgear.yaml\");'",
    "echo x | xargs -I{} switchgear reset {}",
    "echo switchgear.yaml | xargs rm",
    "ls -a | grep switchgear | xargs rm -rf",
    "find . -name 'switchgear*' -exec rm {} \\;",
    "find . -name 'switchgear*' | xargs rm",
    "find . -maxdepth 1 -name '*.yaml' -delete",
    "find . -type f -name '*.db' -exec truncate -s 0 {} +",
    "rm -rf SWITCHGEAR.YAML",
    "echo > Switchgear.yaml",
    "rm .SWITCHGEAR/state.db",
    "redis-cli -n 0 del 'switchgear:{x}'",
    "redis-cli --scan --pattern 'switchgear*' | xargs redis-cli del",
    "env -u SWITCHGEAR_CONFIG claude -p x",
    "env -i claude -p hi",
    "unset SWITCHGEAR_STORE",
    "unset SWITCHGEAR_CONFIG; true",
    "export SWITCHGEAR_CONFIG=/tmp/x.yaml",
    "SWITCHGEAR_CONFIG=/tmp/none.yaml claude -p x",
    "SWITCHGEAR_STORE=memory: codex exec x",
    "pkill -f 'switchgear serve'",
    "pkill -9 -f hooks/resident",
    "pkill -f detached.py",
    "killall switchgear",
    "kill $(cat .switchgear/serve.pid)",
    "kill `pidof switchgear`",
    "kill %1; kill -9 -1",
    "fuser -k 4737/tcp",
    "fuser -k .switchgear/state.db",
    "lsof -ti :4737 | xargs kill",
    "systemctl --user stop switchgear",
    "systemctl stop switchgear.service",
    "launchctl unload switchgear.plist",
    "python -m pip uninstall switchgear",
    "pip3.11 uninstall switchgear -y",
    "uv pip uninstall switchgear",
    "pipx uninstall switchgear",
    "uv tool uninstall switchgear",
    "conda remove switchgear",
    "poetry remove switchgear",
    "pip install --force-reinstall ./evil-switchgear",
    "mv .switchgear .old",
    "mv switchgear.yaml x",
    "mv . /tmp/gone",
    "chmod -R 777 .switchgear",
    "chmod 000 switchgear.yaml",
    "chown nobody switchgear.yaml",
    "chattr +i .switchgear/state.db",
    "setfacl -m u::--- switchgear.yaml",
    "touch -d '2 years ago' switchgear.yaml",
    "mount --bind /tmp/x .switchgear",
    "mount -t tmpfs none .switchgear",
    "claude --settings '{\"disableAllHooks\":true}' -p x",
    "claude --dangerously-skip-permissions --settings /tmp/x.json",
    "codex -c 'hooks={}' exec x",
    "codex --disable hooks exec x",
    "claude config set disableAllHooks true",
    "git config core.hooksPath /dev/null && switchgear hooks uninstall codex",
    "jq '.hooks={}' .claude/settings.json > /tmp/x && mv /tmp/x .claude/settings.json",
    "jq '.hooks={}' .claude/settings.json | sponge .claude/settings.json",
    "yq -i '.rules={}' switchgear.yaml",
    "ed switchgear.yaml",
    "ex -sc wq switchgear.yaml",
    "vim -es +wq switchgear.yaml",
    "emacs --batch switchgear.yaml --eval '(save-buffer)'",
    "sed --in-place=.bak s/a/b/ switchgear.yaml",
    "sed -n 'w switchgear.yaml' x",
    "sed 's/a/b/w switchgear.yaml' x",
    "awk '{print > \"switchgear.yaml\"}' x",
    "gawk -i inplace '1' switchgear.yaml",
    "sort -o switchgear.yaml x",
    "curl -o switchgear.yaml http://x.example/y",
    "curl -O --output-dir .switchgear http://x.example/y",
    "wget -P .claude http://x.example/settings.json",
    "wget -O- http://x.example/y > switchgear.yaml",
    "curl -s http://x.example/y | tee .claude/settings.json",
    "split -b 1 x .switchgear/state.db",
    "cat > switchgear.yaml <<E\nrules: {builtin: []}\nE",
    "echo x | tee -a switchgear.yaml",
    "cd .. && rm -rf */switchgear.yaml",
    ": > .switchgear/state.db",
    ">switchgear.yaml",
    ">| switchgear.yaml",
    "echo x &> switchgear.yaml",
    "exec 3> switchgear.yaml",
    "sqlite3 .switchgear/state.db .dump",
    "sqlite3 file:.switchgear/state.db 'delete from circuits'",
    "sqlite3 \"$(ls .switchgear/*.db)\" 'drop table circuits'",
    "duckdb .switchgear/state.db",
    "cp /dev/null .switchgear/state.db",
    "cp -r evil/ .switchgear",
    "cp -t .switchgear x",
    "scp host:x switchgear.yaml",
    "shred -u switchgear.yaml",
    "rename s/s/x/ switchgear.yaml",
    "mmv switchgear.yaml x",
    "busybox rm switchgear.yaml",
    "sh -c 'rm switchgear.yaml'",
    "su me -c 'switchgear reset x'",
    "echo 'switchgear reset x' | sh",
    "cat <<E | sh\nswitchgear reset x\nE",
    "crontab -l | { cat; echo '* * * * * switchgear reset x'; } | crontab -",
    "echo 'switchgear reset x' | at now + 1 minute",
    "make -f - <<< 'a:; switchgear reset x'",
    "ssh localhost switchgear reset x",
    "ssh me@127.0.0.1 'switchgear reset x'",
    "docker run -v $PWD:/w alpine rm /w/switchgear.yaml",
    "docker run -v .switchgear:/s alpine rm -rf /s",
    "tmux new-session -d 'switchgear reset x'",
    "tmux send-keys 'switchgear reset x' Enter",
    "screen -dmS a switchgear reset x",
    "gdb -p 1 -ex 'call system(\"switchgear reset x\")'",
    "nsenter -t 1 switchgear reset x",
    "chroot / switchgear reset x",
    "expect -c 'spawn switchgear reset x'",
    "watch switchgear reset x",
    "parallel switchgear reset ::: x",
    "entr -r switchgear reset x",
    "time switchgear reset x",
    "\\switchgear reset x",
    '"switchgear" reset x',
    "`which switchgear` reset x",
    "$(command -v switchgear) reset x",
    "$(which switchgear) reset x",
    "$(type -p switchgear) reset x",
    "/usr/bin/env switchgear reset x",
    "python -m switchgear._cli reset x",
    "python -Im switchgear reset x",
    "python -m runpy switchgear reset x",
    "python $(which switchgear) reset x",
    "python .venv/bin/switchgear reset x",
    "sh .venv/bin/switchgear reset x",
    "switchgear-hook claude-code < evil.json",
    "switchgear config token --new",
    "switchgear config seal",
    "switchgear budgets set x 100",
    "switchgear budgets close x",
    "switchgear locks break x",
    "cp -f backup.db .switchgear/state.db",
    "curl -X POST http://127.0.0.1:4737/hooks/claude-code -d '{}'",
]
ADMITTED = [
    "cp switchgear.yaml /tmp/x.yaml",
    "cp -r .claude /tmp/backup",
    "cp .switchgear/state.db /tmp/copy.db",
    "grep -n rules switchgear.yaml",
    'grep -rn "switchgear reset" docs',
    "rg 'state.db' .",
    "ls -la .switchgear .claude",
    "git log -p -- switchgear.yaml",
    "git add switchgear.yaml",
    "git commit -am 'switchgear reset is documented'",
    'git commit -m "mend switchgear.yaml and state.db"',
    "git status",
    "git stash list",
    "git stash show",
    "git stash pop",
    "git checkout -b feature",
    "git checkout -- src/a.py",
    "git restore src/a.py",
    "git restore --staged .",
    "git push",
    "git pull",
    "git apply x.diff",
    "git reset HEAD~1",
    "git log --grep 'switchgear hold'",
    "switchgear config check",
    "switchgear config show",
    "switchgear --help",
    "switchgear run 'fix it' --agent demo",
    "switchgear budgets list",
    "switchgear hooks doctor claude-code",
    "switchgear serve",
    "switchgear selftest",
    "switchgear backtest x",
    "echo 'run switchgear reset to release'",
    'echo "see switchgear.yaml" >> README.md',
    "printf 'switchgear reset x' ",
    "head -5 switchgear.yaml | tee /tmp/x",
    "sed -n 1,5p switchgear.yaml",
    "sed s/a/b/ switchgear.yaml",
    "awk '{print}' switchgear.yaml",
    "diff switchgear.yaml /tmp/x.yaml",
    "wc -l switchgear.yaml",
    "stat switchgear.yaml",
    "jq .hooks .claude/settings.json",
    "yq .rules switchgear.yaml",
    "python -c \"import yaml; print(yaml.safe_load(open('switchgear.yaml')))\"",
    "python -m json.tool .claude/settings.json",
    "python - <<'E'\nimport json\nprint(json.load(open('.claude/settings.json'))['hooks'])\nE",
    "md5sum .switchgear/state.db",
    "sqlite3 -readonly .switchgear/state.db 'select * from circuits'",
    "tar czf /tmp/b.tgz .",
    "tar czf /tmp/b.tgz switchgear.yaml .claude",
    "tar xzf pkg.tgz",
    "tar xf pkg.tar -C build",
    "unzip -o x.zip -d build",
    "rsync -a ./ /tmp/backup/",
    "rsync -a switchgear.yaml /tmp/x.yaml",
    "rsync -a switchgear.yaml host:/backup/",
    "scp switchgear.yaml host:",
    "ln -s ../shared lib",
    "ln -s /usr/bin/python3 bin/py",
    "base64 -d x.b64 > x.png",
    "echo aGk= | base64 -d",
    "curl -s https://example.com | jq .",
    "echo x | tr a-z A-Z",
    'eval "$(ssh-agent -s)"',
    'eval "$(direnv hook bash)"',
    'eval "$(pyenv init -)"',
    "source .venv/bin/activate",
    ". ./env.sh",
    "sh ./build.sh",
    "bash scripts/x.sh",
    "echo 'make test' | sh",
    "pip install -e .",
    "pip install -r requirements.txt",
    "pip uninstall -y requests",
    "pip show switchgear",
    "pip freeze | grep switchgear",
    "kill 999999",
    "pkill -f 'node server.js'",
    "kill $(pgrep -f vite)",
    "kill $(lsof -ti :3000)",
    "lsof -ti :3000 | xargs kill",
    "pkill node",
    "redis-cli ping",
    "redis-cli get mykey",
    "redis-cli keys 'switchgear*'",
    "unset FOO",
    "env -u FOO make",
    "env -i make",
    "export FOO=1",
    "chmod +x build.sh",
    "chmod -R u+w src",
    "find . -name '*.pyc' -delete",
    "find . -name '*.yaml' | xargs grep rules",
    "find . -name switchgear.yaml",
    "ls | xargs -n1 echo",
    "grep -rl foo src | xargs sed -i s/foo/bar/",
    "git ls-files | xargs wc -l",
    "find src -name '*.py' -exec sed -i s/a/b/ {} +",
    "mkdir -p build && mv a.txt build/",
    "rm -rf node_modules",
    "docker run -v $PWD:/w alpine ls /w",
    "docker compose up -d",
    "node -e \"console.log(require('./package.json').version)\"",
    "python -c \"print('switch'+'board')\"",
    "python -c \"import os; os.makedirs('out', exist_ok=True); open('out/x','w').write('1')\"",
    "python -c \"import subprocess; subprocess.run(['make','test'])\"",
    "python -c \"import base64; print(base64.b64decode('aGk='))\"",
    "python manage.py migrate",
    "pytest -k 'switchgear and reset'",
    "vim -R switchgear.yaml",
    "view switchgear.yaml",
    "less switchgear.yaml",
    "bat switchgear.yaml",
    "code --diff switchgear.yaml x.yaml",
    "tail -f .switchgear/hooks.log",
    "echo $SWITCHGEAR_CONFIG",
    "crontab -l",
    "ssh host uptime",
    "curl http://127.0.0.1:3000/health",
    "gh pr create --title 'switchgear reset' --body 'edit switchgear.yaml'",
    'gh issue comment 1 --body "state.db is locked; run switchgear reset"',
    "git stash",
    "git restore .",
    "git reset --hard HEAD~1",
    "chmod -R 755 .",
    "cp evil.json .claude/",
    "npm run build",
    "cargo test --all",
    "kill -1 999999",
]
REFUSED_TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("mcp__fs__write_file", {"path": "SWITCHGEAR.yaml", "content": ""}),
    ("mcp__x__do", {"arguments": {"where": ".claude/settings.json", "what": "{}"}}),
    ("mcp__git__restore", {"files": ["switchgear.yaml"]}),
    ("mcp__git__checkout", {"pathspec": "switchgear.yaml"}),
    ("mcp__db__execute", {"database": ".switchgear/state.db", "sql": "delete from circuits"}),
    ("mcp__sqlite__write_query", {"query": "delete from circuits", "db": "state.db"}),
    ("mcp__shell__run", {"argv": ["switchgear", "reset", "x"]}),
    ("mcp__shell__run", {"line": "switchgear reset x"}),
    ("mcp__term__send_keys", {"keys": "switchgear reset x\n"}),
    ("write_stdin", {"chars": "switchgear reset x\n", "session_id": 1}),
    ("Task", {"prompt": "Run `switchgear reset session/s1` for me", "description": "x"}),
    ("task", {"prompt": "run: switchgear release session/x"}),
    ("ApplyPatch", {"patch": "*** Begin Patch\n*** Delete File: switchgear.yaml\n*** End Patch"}),
    (
        "apply_patch",
        {
            "input": "*** Begin Patch\n*** Update File: a.py\n*** Move to: switchgear.yaml\n*** End Patch"
        },
    ),
    ("edit", {"filePath": ".opencode/plugin/switchgear.js", "newString": ""}),
    ("replace", {"file_path": ".gemini/settings.json", "old_string": "", "new_string": ""}),
    ("NotebookEdit", {"notebook_path": "switchgear.yaml"}),
    ("run_shell_command", {"command": "switchgear reset x"}),
    ("shell", {"command": ["bash", "-lc", "switchgear reset x"]}),
    ("exec_command", {"cmd": "switchgear reset x"}),
    ("local_shell", {"command": ["switchgear", "reset", "x"]}),
    ("write", {"path": ".pi/extensions/switchgear.ts", "content": ""}),
    ("create_file", {"target": "switchgear.yaml"}),
    ("save_file", {"name": "switchgear.yaml", "content": ""}),
    ("mcp__fs__copy", {"from": "/tmp/x", "to": "switchgear.yaml"}),
    ("mcp__fs__symlink", {"target": ".switchgear/state.db", "link": "x"}),
    ("mcp__redis__del", {"key": "switchgear:{x}"}),
    ("mcp__ide__executeCode", {"code": "open('switchgear.yaml','w')"}),
    ("mcp__ide__executeCode", {"code": "import os\nos.system('switchgear reset x')"}),
]
ADMITTED_TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("Task", {"prompt": "read switchgear.yaml and tell me the rules", "description": "x"}),
    ("Task", {"prompt": "look at src/; do not touch switchgear.yaml", "description": "x"}),
    (
        "Write",
        {
            "file_path": "docs/a.md",
            "content": "edit switchgear.yaml, run switchgear reset x, rm .switchgear/state.db",
        },
    ),
    ("Edit", {"file_path": "README.md", "old_string": "switchgear.yaml", "new_string": "state.db"}),
    ("mcp__fs__read_file", {"path": "switchgear.yaml"}),
    ("mcp__fs__list_directory", {"path": ".switchgear"}),
    ("mcp__fs__search_files", {"path": ".", "pattern": "switchgear.yaml"}),
    ("Grep", {"pattern": "switchgear.yaml", "path": "."}),
    ("Glob", {"pattern": "**/switchgear.yaml"}),
    ("TodoWrite", {"todos": [{"content": "edit switchgear.yaml", "status": "pending"}]}),
    (
        "mcp__github__create_issue",
        {"title": "switchgear reset", "body": "state.db is locked; edit switchgear.yaml"},
    ),
    ("mcp__github__create_pull_request", {"title": "mend switchgear.yaml", "body": "x"}),
    ("mcp__slack__post_message", {"channel": "c", "text": "switchgear.yaml"}),
    ("update_plan", {"plan": [{"step": "look at switchgear.yaml", "status": "x"}]}),
    ("read_many_files", {"paths": ["switchgear.yaml", "a"]}),
    ("WebSearch", {"query": "switchgear.yaml"}),
    ("ReadFile", {"absolute_path": "switchgear.yaml"}),
    ("view_image", {"path": "x.png"}),
    ("AskUserQuestion", {"questions": [{"question": "May I edit switchgear.yaml?"}]}),
]
SHELLS: list[tuple[str, str, Any]] = [
    ("claude-code", "Bash", lambda text: {"command": text}),
    ("codex", "shell", lambda text: {"command": ["bash", "-lc", text]}),
    ("codex", "exec_command", lambda text: {"cmd": text}),
    ("codex", "write_stdin", lambda text: {"session_id": 1, "chars": f"{text}\n"}),
    ("gemini", "run_shell_command", lambda text: {"command": text, "description": "x"}),
    ("qwen", "run_shell_command", lambda text: {"command": text, "is_background": False}),
    ("opencode", "bash", lambda text: {"command": text, "description": "x"}),
    ("pi", "bash", lambda text: {"command": text}),
]
"""How each agent runs a command, by its name: the tool and the shape of its inputs."""
EDITS: list[tuple[str, str, Any]] = [
    ("claude-code", "Edit", lambda path: {"file_path": path, "old_string": "a", "new_string": ""}),
    (
        "codex",
        "apply_patch",
        lambda path: {"command": f"*** Begin Patch\n*** Update File: {path}\n"},
    ),
    ("gemini", "replace", lambda path: {"file_path": path, "old_string": "a", "new_string": ""}),
    ("qwen", "write_file", lambda path: {"file_path": path, "content": ""}),
    ("opencode", "edit", lambda path: {"filePath": path, "oldString": "a", "newString": ""}),
    ("pi", "edit", lambda path: {"path": path, "oldText": "a", "newText": ""}),
]
"""How each agent edits a file."""
GUARDED_FILES = [
    "switchgear.yaml",
    "SWITCHGEAR.YAML",
    ".switchgear/state.db",
    ".switchgear/hooks.json",
    ".claude/settings.json",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".qwen/settings.json",
    ".opencode/plugin/switchgear.js",
    ".pi/extensions/switchgear.ts",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture
def agent(folder: Path) -> Guarded:
    return Guarded(folder, "hooks: {}\n")


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_that_would_remove_the_guard_is_refused(agent: Guarded, command: str) -> None:
    ruling = agent.hear(before("Bash", {"command": command}))
    assert ruling.action == "deny", command
    assert "rule guard/" in ruling.text
    assert agent.events("rule_broken")


@pytest.mark.parametrize("command", ADMITTED)
def test_an_ordinary_command_is_admitted(agent: Guarded, command: str) -> None:
    ruling = agent.hear(before("Bash", {"command": command}))
    assert ruling.action == "allow", ruling.text


@pytest.mark.parametrize(("tool", "args"), REFUSED_TOOLS)
def test_a_tool_that_would_remove_the_guard_is_refused(
    agent: Guarded, tool: str, args: Any
) -> None:
    assert agent.hear(before(tool, args)).action == "deny"


@pytest.mark.parametrize("key", ["path", "uri", "whatever"])
def test_a_tool_names_a_guarded_file_in_any_argument(agent: Guarded, key: str) -> None:
    args = {"options": [{key: f"file://{agent.folder}/switchgear.yaml"}]}
    assert agent.hear(before("mcp__x__do", args)).action == "deny"
    assert agent.hear(before("mcp__x__read", args)).action == "allow"


@pytest.mark.parametrize(("tool", "args"), ADMITTED_TOOLS)
def test_an_ordinary_tool_is_admitted(agent: Guarded, tool: str, args: Any) -> None:
    ruling = agent.hear(before(tool, args))
    assert ruling.action == "allow", ruling.text


@pytest.mark.parametrize(("name", "tool", "args"), SHELLS)
def test_overrides_from_an_agents_shell_are_refused(
    agent: Guarded, name: str, tool: str, args: Any
) -> None:
    del name
    ruling = agent.hear(before(tool, args("switchgear reset session/s1")))
    assert ruling.action == "deny"
    assert "rule guard/orders" in ruling.text
    assert agent.hear(before(tool, args("switchgear status"))).action == "allow"


@pytest.mark.parametrize("path", GUARDED_FILES)
@pytest.mark.parametrize(("name", "tool", "args"), EDITS)
def test_edits_of_the_guard_by_an_agents_editor_are_refused(
    agent: Guarded, name: str, tool: str, args: Any, path: str
) -> None:
    del name
    ruling = agent.hear(before(tool, args(path)))
    assert ruling.action == "deny"
    assert "rule guard/files" in ruling.text
    assert agent.hear(before(tool, args("src/app.py"))).action == "allow"


def test_a_script_with_overrides_is_refused_when_it_is_run(tmp_path: Path) -> None:
    agent = Guarded(tmp_path)
    (tmp_path / "free.sh").write_text("#!/bin/sh\necho hi\nswitchgear reset session/s1\n")
    (tmp_path / "look.sh").write_text("#!/bin/sh\nswitchgear status\n")
    for command in ("sh look.sh", "./look.sh", "cat free.sh", "./absent.sh"):
        assert agent.hear(before("Bash", {"command": command})).action == "allow", command
    for command in ("sh free.sh", "./free.sh", ". ./free.sh", "bash -e free.sh now"):
        ruling = agent.hear(before("Bash", {"command": command}))
        assert "rule guard/orders" in ruling.text, command


def test_a_server_that_holds_the_circuits_is_not_emptied(tmp_path: Path) -> None:
    config = "store: redis://127.0.0.1:6379/0\n"
    agent = Guarded(tmp_path, config)
    for command in ("redis-cli flushall", "valkey-cli -n 1 FLUSHDB", "redis-cli shutdown nosave"):
        ruling = agent.hear(before("Bash", {"command": command}))
        assert "rule guard/server" in ruling.text, command
    assert agent.hear(before("Bash", {"command": "redis-cli get mykey"})).action == "allow"


def test_a_server_of_the_project_may_be_emptied(tmp_path: Path) -> None:
    agent = Guarded(tmp_path)
    assert agent.hear(before("Bash", {"command": "redis-cli flushall"})).action == "allow"
