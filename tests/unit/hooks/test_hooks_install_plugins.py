"""The plugin for OpenCode and the extension for pi: only our file is changed, and the plugins obey the hook's decision."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.registry import dialect_of
from switchgear._hooks.install.files import CannotChange
from switchgear._hooks.install.settings import hook_file
from timeouts import LIMIT_S

PLUGINS = ("opencode", "pi")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
HOOK = """
import json, sys, time
told = json.load(sys.stdin)
open({log!r}, "a").write(json.dumps(told) + "\\n")
kind = (told.get("input") or told.get("event") or {{}})
tool = kind.get("tool") or kind.get("toolName") or ""
if tool == "slow": time.sleep(60)
if tool == "broken": sys.exit("no answer")
if tool == "silent": sys.exit(0)
if tool == "garbled": sys.exit(print('{{"action": "perhaps"}}'))
action = tool if tool in ("warn", "deny", "stop") else "allow"
print(json.dumps({{"action": action, "text": "because" if action != "allow" else "", "remark": ""}}))
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("agent", PLUGINS)
def test_a_file_of_another_program_is_left_alone(agent: str, tmp_path: Path) -> None:
    there = hook_file(agent, "project", str(tmp_path))
    path = Path(there.path)
    path.parent.mkdir(parents=True)
    path.write_text("export const Mine = async () => ({})\n")
    with pytest.raises(
        CannotChange, match="another file with this name, which Switchgear did not write"
    ):
        there.install()
    assert not there.uninstall().changed
    assert path.read_text() == "export const Mine = async () => ({})\n"
    assert not there.state().installed


@pytest.mark.parametrize("agent", PLUGINS)
def test_an_older_plugin_is_replaced_and_saved(agent: str, tmp_path: Path) -> None:
    there = hook_file(agent, "project", str(tmp_path))
    there.install()
    path = Path(there.path)
    older = path.read_text().replace("MAX_CHARS = 20000", "MAX_CHARS = 1")
    path.write_text(older)
    assert there.state().outdated
    backup = there.install().backup
    assert backup is not None
    assert Path(backup).read_text() == older
    assert not there.state().outdated


@pytest.mark.parametrize("agent", PLUGINS)
def test_other_plugins_stay_unchanged(agent: str, tmp_path: Path) -> None:
    there = hook_file(agent, "project", str(tmp_path))
    folder = Path(there.path).parent
    folder.mkdir(parents=True)
    (folder / "mine.js").write_text("// mine\n")
    there.install()
    there.uninstall()
    assert [found.name for found in folder.iterdir()] == ["mine.js"]


def test_the_command_is_read_back_from_the_file(tmp_path: Path) -> None:
    there = hook_file("pi", "project", str(tmp_path))
    assert there.commands() == {}
    there.install()
    commands = there.commands()
    assert set(commands) >= {"tool_call", "tool_result"}
    assert commands["tool_call"].endswith(f"entry.py pi --root {tmp_path}")


OPENCODE = """
import {{ Switchgear }} from {path!r}
const said = []
const client = {{ session: {{ abort: async (what) => said.push(["abort", what.path.id]) }} }}
if ({screen}) client.app = {{ log: async ({{ body }}) => said.push(["said", body.message]) }}
const hooks = await Switchgear({{ client, directory: {folder!r} }})
for (const tool of {tools}) {{
  const input = {{ tool, sessionID: "s1", callID: tool }}
  try {{
    await hooks["tool.execute.before"](input, {{ args: {{ command: "x".repeat(50000) }} }})
    const output = {{ output: "result", metadata: {{ exit: 1 }} }}
    await hooks["tool.execute.after"](input, output)
    said.push([tool, output.output])
  }} catch (error) {{
    said.push([tool, "thrown: " + error.message])
  }}
}}
await hooks.event({{ event: {{ type: "message.part.updated", properties: {{ part: {{ type: "step-finish", sessionID: "s1", cost: 0.25 }} }} }} }})
await hooks.event({{ event: {{ type: "session.idle", properties: {{ sessionID: "s1" }} }} }})
if ({tools}.includes("delegate")) {{
  for (const [id, parentID] of [["s2", "s1"], ["s3", "s2"]])
    await hooks.event({{ event: {{ type: "session.created", properties: {{ info: {{ id, parentID }} }} }} }})
  await hooks["chat.params"]({{ sessionID: "s3", model: {{ limit: {{ context: 1000 }} }} }})
  const tokens = {{ input: 40, output: 10, cache: {{ read: 50, write: 0 }} }}
  for (const part of [
    {{ type: "text", text: "do it" }},
    {{ type: "step-start" }},
    {{ type: "text", text: "I look at it." }},
    {{ type: "step-finish", cost: 0.5, tokens }},
  ])
    await hooks.event({{ event: {{ type: "message.part.updated", properties: {{ part: {{ ...part, sessionID: "s3" }} }} }} }})
  await hooks["tool.execute.after"]({{ tool: "plain", sessionID: "s3", callID: "c" }}, {{ output: "result" }})
}}
console.log(JSON.stringify(said))
"""
PI = """
import extension from {path!r}
const said = [], handlers = {{}}
extension({{ on: (name, handler) => (handlers[name] = handler) }})
const ctx = {{
  cwd: {folder!r},
  sessionManager: {{ getSessionId: () => "s1" }},
  getContextUsage: () => ({{ tokens: 10, contextWindow: 1000 }}),
  abort: () => said.push(["abort", "s1"]),
}}
if ({screen}) {{
  ctx.hasUI = true
  ctx.ui = {{ notify: (text) => said.push(["said", text]) }}
}}
handlers.message_end({{ message: {{ usage: {{ cost: {{ total: 0.25 }} }} }} }})
for (const toolName of {tools}) {{
  const call = {{ toolName, toolCallId: toolName, input: {{ command: "x".repeat(50000) }} }}
  const blocked = await handlers.tool_call(call, ctx)
  if (blocked) {{ said.push([toolName, "thrown: " + blocked.reason]); continue }}
  const result = {{ ...call, content: [{{ type: "text", text: "result" }}], isError: true }}
  const edited = await handlers.tool_result(result, ctx)
  said.push([toolName, (edited?.content ?? result.content).map((part) => part.text).join("\\n\\n")])
}}
await handlers.agent_end({{ messages: [] }}, ctx)
console.log(JSON.stringify(said))
"""


def play(agent: str, tmp_path: Path, tools: list[str], **facts: Any) -> tuple[list[Any], list[Any]]:
    """The plugin's reactions to the answers for these tools, and the events that the hook received."""
    there = hook_file(agent, "project", str(tmp_path))
    there.install()
    screen = json.dumps(facts.pop("screen", False))
    log, path = tmp_path / "log", Path(there.path).with_suffix(".mjs")
    hook = [sys.executable, "-c", HOOK.format(log=str(log))]
    lines = Path(there.path).read_text().splitlines()
    marked = [i for i, line in enumerate(lines) if line.startswith("const SWITCHGEAR = ")]
    told = json.loads(lines[marked[0]].partition(" = ")[2])
    lines[marked[0]] = f"const SWITCHGEAR = {json.dumps({**told, 'command': hook, **facts})}"
    path.write_text("\n".join(lines))
    script = (OPENCODE if agent == "opencode" else PI).format(
        path=str(path), folder=str(tmp_path), tools=json.dumps(tools), screen=screen
    )
    runner = tmp_path / "runner.mjs"
    runner.write_text(script)
    done = subprocess.run(
        ["node", runner], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    sent = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [*json.loads(done.stdout), done.stderr], sent


@needs_node
@pytest.mark.parametrize("agent", PLUGINS)
def test_a_plugin_warns_refuses_and_stops(agent: str, tmp_path: Path) -> None:
    (plain, warned, denied, aborted, stopped, _), sent = play(
        agent, tmp_path, ["plain", "warn", "deny", "stop"]
    )
    assert plain == ["plain", "result"]
    assert warned == ["warn", "result\n\nbecause"]
    assert denied == ["deny", "thrown: because"]
    assert aborted == ["abort", "s1"]
    assert stopped == ["stop", "thrown: because"]
    assert "x" * 50_000 in json.dumps(sent[0]), "what is about to run is judged as a whole"
    assert len(json.dumps(sent[1])) < 25_000, "what came of it is cut"
    assert sent[1]["duration_ms"] >= 0
    assert [told["cost"] for told in sent if "cost" in told] == [0.25]


@needs_node
def test_opencode_reports_the_parent_of_a_sub_agent_its_usage_and_its_reply(
    tmp_path: Path,
) -> None:
    _, sent = play("opencode", tmp_path, ["delegate"])
    facts = dialect_of("opencode").read(sent[-1])
    assert (facts.session, facts.subagent) == ("s1", "s3"), "also a sub-agent of a sub-agent"
    assert (facts.context_used, facts.cost_micros) == (0.1, 500_000)
    assert facts.thought == "I look at it."
    begun = dialect_of("opencode").read(sent[-2])
    assert (begun.moment, begun.session, begun.subagent) == ("agent_start", "s1", "s3")
    own = dialect_of("opencode").read(sent[0])
    assert (own.session, own.subagent) == ("s1", "")


@needs_node
@pytest.mark.parametrize("agent", PLUGINS)
@pytest.mark.parametrize(
    ("tool", "timeout_s"), [("slow", 1), ("broken", 60), ("silent", 60), ("garbled", 60)]
)
def test_a_hook_that_does_not_answer_refuses_the_call_and_reports_it(
    agent: str, tool: str, timeout_s: int, tmp_path: Path
) -> None:
    (done, told), _ = play(agent, tmp_path, [tool], timeout_s=timeout_s)
    assert done[1].startswith("thrown: switchgear: the hook gave no answer")
    assert "the call is refused" in told


@needs_node
@pytest.mark.parametrize("agent", PLUGINS)
def test_a_hook_that_cannot_be_started_refuses_calls_and_nothing_else(
    agent: str, tmp_path: Path
) -> None:
    (done, told), _ = play(agent, tmp_path, ["plain"], command=["/no/such/program"])
    assert done[1].startswith("thrown: switchgear: the hook gave no answer")
    assert told.count("the call is refused") == 1
    assert told.count("the event is not recorded") >= 1


@needs_node
@pytest.mark.parametrize("agent", PLUGINS)
def test_nothing_is_printed_over_the_screen_of_an_agent(agent: str, tmp_path: Path) -> None:
    (first, *_, told), _ = play(agent, tmp_path, ["broken"], screen=True)
    assert first[0] == "said"
    assert first[1].startswith("switchgear: the hook gave no answer")
    assert "switchgear" not in told
