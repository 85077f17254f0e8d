"""A guarded project in a separate folder, as `switchgear hooks install` leaves it, and its verdicts."""

import subprocess
from pathlib import Path
from typing import Any

from switchgear._agents.registry import dialect_of
from switchgear._hooks.hook_config import config_of
from switchgear._hooks.inspect_call import inspect_tool_call

FILES = {
    "README.md": "# a project\n",
    "package.json": '{"name": "a-project", "scripts": {"test": "true"}}\n',
    "src/app.py": "print('hello')\n",
    "src/util.py": "x = 1\n",
    "tests/test_app.py": "def test_app(): pass\n",
    "docs/guide.md": "see .claude/settings.json\n",
    "run.sh": "#!/bin/sh\necho run\n",
    "Makefile": "test:\n\ttrue\n",
}
GUARD = {
    "switchgear.yaml": "hooks: {}\n",
    ".claude/settings.json": '{"hooks": {"PreToolUse": []}}\n',
    ".claude/settings.local.json": "{}\n",
    ".codex/hooks.json": "{}\n",
    ".codex/config.toml": "\n",
    ".gemini/settings.json": "{}\n",
    ".qwen/settings.json": "{}\n",
    ".opencode/plugin/switchgear.js": "\n",
    ".pi/extensions/switchgear.ts": "\n",
    ".switchgear/state.db": "",
    ".switchgear/.gitignore": "*\n",
}
OTHERS = {
    ".env": "TOKEN=1\n",
    ".gitignore": ".env\nnode_modules\n",
    "node_modules/x/index.js": "\n",
    "build/out.o": "\n",
    "list": ".claude/settings.json\nREADME.md\n",
    "names.txt": "build/a\nbuild/b\nold.txt\n",
    "packages.txt": "vim\ncurl\n",
    "requirements.txt": "x\n",
    "urls.txt": "http://example.com/x\n",
}


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class Project:
    """A project on the disk, with its guard installed and not committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _write(folder, FILES)
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
            subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
        _write(folder, {**GUARD, **OTHERS})
        self.known = config_of(str(folder))

    def refusal(self, command: str, tool: str = "Bash") -> str | None:
        """The rule that a shell command would break, or `None`."""
        return self.tool_refusal(tool, {"command": command})

    def tool_refusal(self, tool: str, args: Any) -> str | None:
        """The same for a call of any tool."""
        data = {
            "session_id": "s",
            "cwd": str(self.folder),
            "hook_event_name": "PreToolUse",
            "tool_name": tool,
            "tool_input": args,
            "tool_use_id": "t",
        }
        return inspect_tool_call(dialect_of("claude-code").read(data), self.known).broken
