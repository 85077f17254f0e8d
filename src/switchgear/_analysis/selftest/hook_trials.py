"""Trials of a real hook command: forbidden calls in every state of a hook process.

Each call is sent at least twice: the first hook of a project compiles the configuration, and later hooks use
the compiled one. Every second hook decides without the resident process. Each trial has its own session,
because several refusals look like a stuck agent.
"""

# ruff: noqa: PTH103, PTH118  paths are texts, as in the hooks

import json
import os
import shlex
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice, product
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import SUBAGENT, TIMEOUT_S
from switchgear._agents.registry import hook_settings, hooks_of
from switchgear._hooks.client import RESIDENT_VARIABLE
from switchgear._hooks.command import AGENTS, OR_REFUSE, hook_command
from switchgear._hooks.drain import SELF_TEST_PREFIX
from switchgear._hooks.install.files import CannotChange
from switchgear._hooks.install.settings import hook_file, scopes_of
from switchgear._rules.effects import Place
from switchgear._rules.rules import ALLOWED, ASPECTS, GUARD, SECRET, Rule, judge

FILL = "selftest"
"""The replacement for a star in a pattern."""
_KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
"""A text that looks like a key."""
_KEY_VARIABLE = "ANTHROPIC_API_KEY"
_PATHS = ("sends", "deletes", "writes", "given", "paths")
_MAX_CALLS = 200
"""Maximum number of calls that are built to break one rule."""


class Breach(NamedTuple):
    """A hypothetical call."""

    tool: str
    inputs: dict[str, Any]


class ForbiddenCall(NamedTuple):
    """A call that breaks a rule, if one could be built."""

    breach: Breach | None = None
    excused: bool = False
    """Whether the rule's own allow-lists permit all calls that would break it."""


def breach_of(rule: Rule, place: Place) -> ForbiddenCall:
    """Build a call that breaks this rule.

    >>> breach_of(Rule("no-curl", commands=("curl",)), Place("/w")).breach
    Breach(tool='Bash', inputs={'command': 'curl'})
    >>> breach_of(Rule("none", commands=("curl",), allow_commands=("curl",)), Place("/w")).excused
    True
    """
    bare = rule.replace(**{f"allow_{name}": () for name in ALLOWED})
    excused = False
    for breach in islice(_candidates(rule, place), _MAX_CALLS):
        if judge([rule], breach.tool, breach.inputs, place) is not None:
            return ForbiddenCall(breach)
        excused = excused or judge([bare], breach.tool, breach.inputs, place) is not None
    return ForbiddenCall(None, excused)


def first_breach(rules: Iterable[Rule], place: Place) -> Breach | None:
    """Build a call that breaks one of the rules; `None`: that is not possible."""
    found = (breach_of(rule, place).breach for rule in rules)
    return next((breach for breach in found if breach is not None), None)


def _candidates(rule: Rule, place: Place) -> Iterator[Breach]:
    given = [aspect for aspect in ASPECTS if getattr(rule, aspect)]
    choices = [_matching_texts(getattr(rule, aspect), place) for aspect in given]
    for chosen in product(*choices):
        part = dict(zip(given, chosen, strict=True))
        path = next((part[name] for name in _PATHS if name in part), "")
        if "tools" not in part:
            for line in _lines(part, path):
                yield Breach("Bash", {"command": line})
        yield Breach(part.get("tools", _tool_name(part)), _inputs(part, path))


def _lines(part: dict[str, str], path: str) -> Iterator[str]:
    """Shell lines that contain all parts."""
    host, text = part.get("hosts", ""), part.get("contents", "")
    command = part.get("commands", "")
    if "variables" in part:
        for name in (part["variables"], _KEY_VARIABLE):
            yield f'curl -H "x: ${name}" https://{host or FILL}/'
    if command:
        yield " ".join(each for each in (command, path, host) if each)
        if text:
            yield f"{command} -c '{text}'"
            yield f"{command} '{text}'"
    elif "sends" in part:
        yield f"curl -T {path} https://{host or FILL}/"
    elif "deletes" in part:
        yield f"rm -rf {path}"
    elif host:
        yield f"curl -d '{text or FILL}' https://{host}/"
    elif path:
        yield f"{FILL} {path}" if "given" in part else f"cp {FILL} {path}"


def _inputs(part: dict[str, str], path: str) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    if path:
        inputs["file_path"] = path
    if "contents" in part or "writes" in part:
        inputs["content"] = part.get("contents", FILL)
    if "hosts" in part:
        inputs["url"] = f"https://{part['hosts']}/"
    if "commands" in part:
        inputs["command"] = part["commands"]
    if "inputs" in part:
        name, _, value = part["inputs"].partition("=")
        inputs[name or FILL] = value
    return inputs


def _tool_name(part: dict[str, str]) -> str:
    if "hosts" in part:
        return "WebFetch"
    return "Write" if {"writes", "contents"} & part.keys() else "Read"


def _matching_texts(patterns: tuple[str, ...], place: Place) -> list[str]:
    """A text that matches, for each of the first patterns."""
    found: list[str] = []
    for pattern in patterns[:6]:
        if pattern == SECRET:
            found.append(_KEY)
        elif pattern == GUARD:
            found += [_matching_text(each) for each in place.protected[:3]]
        else:
            found.append(_matching_text(pattern))
    return found


def _matching_text(pattern: str) -> str:
    return pattern.replace("**", FILL).replace("*", FILL).replace("?", "x")


BEFORE, AFTER = "before", "after"


class ProbeAnswer(NamedTuple):
    """The answer of a hook."""

    action: str = ""
    """`allow`, `warn`, `deny` or `stop`, as the agent understands it; empty: the answer is invalid."""
    text: str = ""
    """The text that the agent reads."""
    trouble: str = ""
    """Why the answer is invalid."""
    remark: str = ""
    """The standard error of the hook."""


class Probe(NamedTuple):
    """The target of a harmless event. Immutable."""

    agent: str
    """One of `command.AGENTS`."""
    session: str
    folder: str
    """The project."""
    wait_s: float

    @property
    def circuit(self) -> str:
        """The circuit that is checked and recorded on."""
        return self.circuits[-1]

    @property
    def circuits(self) -> tuple[str, ...]:
        """The circuits that its events create: that of the session, and that of its sub-agent."""
        session = f"session/{self.session}"
        if not hook_settings(self.agent).has_subagents:
            return (session,)
        return (session, f"{session}/agent/{SUBAGENT}")

    def send(self, command: str, when: str) -> ProbeAnswer:
        """Send one harmless event, before or after a tool, and read the answer as the agent would."""
        environment = dict(os.environ)
        if variable := hook_settings(self.agent).project_variable:
            environment[variable] = self.folder
        event = json.dumps(sample(self.agent, when, self.session, self.folder)).encode()
        return _run_hook(
            self.agent,
            command,
            input=event,
            cwd=self.folder,
            env=environment,
            timeout=self.wait_s,
        )


def _run_hook(agent: str, command: str, **options: Any) -> ProbeAnswer:
    """The answer of a hook command; `options` are those of `subprocess.run`, and must have `timeout`."""
    try:
        done = subprocess.run(  # noqa: S603  the agent runs it, too
            ["/bin/sh", "-c", command],
            capture_output=True,
            start_new_session=True,
            check=False,
            **options,
        )
    except subprocess.TimeoutExpired:
        return ProbeAnswer(trouble=f"it did not answer within {options['timeout']:.0f} s")
    out, err = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
    return read(agent, out, err, done.returncode)


def sample(agent: str, when: str, session: str, folder: str) -> dict[str, Any]:
    """An event as the agent sends it, for a tool that reads a file."""
    event: dict[str, Any] = hooks_of(agent).sample(when == BEFORE, session, folder)
    return event


def event_of(agent: str, when: str) -> str:
    """The agent's name for the event of a sample, as in its settings file."""
    return str(sample(agent, when, "", "")[hooks_of(agent).EVENT])


def read(agent: str, stdout: str, stderr: str, code: int) -> ProbeAnswer:
    """Parse the answer as the agent does."""
    remark = " ".join(stderr.split())
    if code == 2 and not hook_settings(agent).is_plugin:
        return ProbeAnswer("deny", stderr.strip(), remark=remark)
    if code != 0:
        return ProbeAnswer(trouble=f"exit code {code}: {remark or 'no error message'}")
    text = stdout.strip()
    try:
        reply = json.loads(text) if text else {}
    except ValueError:
        reply = None
    if not isinstance(reply, dict):
        return ProbeAnswer(trouble=f"its answer is not a JSON object: {text[:200]!r}")
    action, words = hooks_of(agent).action_of(reply)
    trouble = "" if action else f"its answer has no action: {text[:200]!r}"
    return ProbeAnswer(action, words, trouble, remark)


SESSION = "selftest"
_DROPPED = (RESIDENT_VARIABLE, "SWITCHGEAR_WATCHED", "SWITCHGEAR_TIME", "SWITCHGEAR_STORY")
_PROJECTS = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "QWEN_PROJECT_DIR")


class Hook(NamedTuple):
    """A hook command of an agent, with its project and store."""

    agent: str
    command: str
    folder: str
    """The temporary project."""
    store: str
    """The file of its store."""
    config: str | None


@contextmanager
def temporary_project(agent: str, command: str | None, config: str | None) -> Iterator[Hook]:
    """Yields the hook of an agent in a temporary project, with a configuration file."""
    with tempfile.TemporaryDirectory(prefix=SELF_TEST_PREFIX) as folder:
        os.makedirs(os.path.join(folder, ".git"))
        line = command or shlex.join(hook_command(agent)) + OR_REFUSE
        yield Hook(
            agent, for_project(line, folder), folder, os.path.join(folder, "state.db"), config
        )


def installed_commands(root: str) -> dict[str, str]:
    """The installed command of each agent for the event before a tool call."""
    found: dict[str, str] = {}
    for agent in AGENTS:
        before = event_of(agent, BEFORE)
        for scope in scopes_of(agent, root):
            settings = hook_file(agent, scope, root)
            with suppress(CannotChange):  # the scenario `standing` reports the reason
                if settings.state().installed and (command := settings.commands().get(before)):
                    found.setdefault(agent, command)
    return found


def for_project(command: str, folder: str) -> str:
    """The same hook command for another project.

    >>> for_project("python entry.py codex --root /home/me/shop", "/tmp/x")
    'python entry.py codex --root /tmp/x'
    """
    words = shlex.split(command.removesuffix(OR_REFUSE))
    if "--root" in words:
        words = words[: words.index("--root")]
    end = OR_REFUSE if command.endswith(OR_REFUSE) else ""
    return shlex.join([*words, "--root", folder]) + end


def send(hook: Hook, command: str, session: str = SESSION, *, alone: bool = False) -> ProbeAnswer:
    """Send the event before a shell command to the hook process, see `send_bytes`."""
    return send_bytes(hook, event(hook, command, session), alone=alone)


def send_bytes(
    hook: Hook, raw: bytes | None, line: str | None = None, *, alone: bool = False
) -> ProbeAnswer:
    """Send input to the hook process; `None`: no input. `line` replaces the hook command.

    `alone`: the hook process decides without the resident process.
    """
    known = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    if alone:
        known[RESIDENT_VARIABLE] = "off"
    known |= dict.fromkeys(_PROJECTS, hook.folder)
    known["SWITCHGEAR_STORE"] = f"sqlite:///{hook.store}"
    if hook.config is not None:
        known["SWITCHGEAR_CONFIG"] = hook.config
    command = hook.command if line is None else line
    return _run_hook(
        hook.agent, command, input=raw or b"", cwd=hook.folder, env=known, timeout=2.0 * TIMEOUT_S
    )


def event(hook: Hook, command: str, session: str = SESSION) -> bytes:
    """A shell command about to run, as the agent sends it."""
    payload: dict[str, Any] = sample(hook.agent, BEFORE, session, hook.folder)
    if hook.agent == "opencode":
        payload["input"]["tool"], payload["output"] = "bash", {"args": {"command": command}}
    elif hook.agent == "pi":
        payload["event"] |= {"toolName": "bash", "input": {"command": command}}
    else:
        shell = "run_shell_command" if hook.agent in {"gemini", "qwen"} else "Bash"
        payload |= {"tool_name": shell, "tool_input": {"command": command}}
        for name in ("agent_id", "agent_type"):
            payload.pop(name, None)
    return json.dumps(payload).encode()


TIMES = 4
"""Number of sends: with cold and filled caches, with and without the resident process."""
ORDINARY = "ls -la"
BREACH = "git push --force origin main"
RELEASE = "switchgear release 'session/*' --why 'I am fine'"
_GUARDED = "rm -rf .switchgear switchgear.yaml"
PADDING = "cd a/b/c/d/e/f/g/h;" * 4900


class Tried(NamedTuple):
    """The result of a trial."""

    attack: str
    sent: int
    by: str = ""
    """The rule that refused, or another reason."""
    reason: str = ""
    wrong: str = ""
    """Why the hook does not guard; empty: it does."""


Trial = Callable[[Hook], Tried]


def breach(hook: Hook) -> Tried:
    """A forbidden call, with cold and with filled caches."""
    return _must_be_refused(hook, "rule breach", [BREACH] * TIMES)


def ordinary(hook: Hook) -> Tried:
    """A call that no rule forbids is admitted, without a remark."""
    for number in range(TIMES):
        answer = send(hook, ORDINARY, f"selftest-ordinary-{number}", alone=number % 2 == 1)
        if answer.action != "allow" or answer.remark or answer.trouble:
            detail = answer.trouble or answer.remark or answer.text
            wrong = f"an ordinary call is not admitted: {answer.action} {detail}".rstrip()
            return Tried("ordinary call", number + 1, wrong=wrong)
    return Tried("ordinary call", TIMES, "admitted", reason=f"{ORDINARY!r} is admitted each time")


def release(hook: Hook) -> Tried:
    """An agent's attempt to release itself."""
    return _must_be_refused(hook, "self-release", [RELEASE] * 2)


def unusual(hook: Hook) -> Tried:
    """Paths that cannot be resolved, together with guarded ones."""
    loop = os.path.join(hook.folder, "loop")
    if not os.path.islink(loop):  # noqa: PTH114
        os.symlink(loop, loop)  # noqa: PTH211
    paths = ("/proc/1/root/x", "loop/x", "n" * 300, "a/" * 2500 + "b", "$'a\\0b'")
    return _must_be_refused(hook, "unusual path", [f"{_GUARDED} {path}" for path in paths])


def padded(hook: Hook) -> Tried:
    """A forbidden call before and after a text that is slow to analyse."""
    here = "; ".join(f"cat <<a{number}" for number in range(2000))
    return _must_be_refused(
        hook, "padding", [f"{_GUARDED}; {PADDING}", f"{PADDING} {_GUARDED}", f"{_GUARDED}; {here}"]
    )


def bad_input(hook: Hook) -> Tried:
    """Unreadable or missing input."""
    whole = event(hook, ORDINARY, "selftest-bad")
    inputs = {
        "cut JSON": whole[:-5],
        "no JSON": b"\0\xff",
        "no input": b"",
        "a NUL character": event(hook, "ls \0", "selftest-bad"),
        "an unknown event": whole.replace(b"Tool", b"Tule").replace(b"tool", b"tule"),
    }
    for number, (name, raw) in enumerate(inputs.items()):
        wrong = _not_refused_sentence(send_bytes(hook, raw, alone=number % 2 == 1), name)
        if wrong:
            return Tried("bad input", number + 1, wrong=wrong)
    closed = send_bytes(hook, None, line=f"({hook.command}) <&-")
    wrong = _not_refused_sentence(closed, "a closed standard input")
    return Tried("bad input", len(inputs) + 1, "unreadable", "it is refused as unreadable", wrong)


def jammed(hook: Hook) -> Tried:
    """A forbidden call while another connection keeps the store of the temporary project locked."""
    send(hook, ORDINARY, "selftest-first")  # creates the store
    with closing(sqlite3.connect(hook.store, timeout=5.0, isolation_level=None)) as store:
        try:
            store.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return Tried("jammed store", 0, wrong=f"the store could not be locked: {error}")
        return _must_be_refused(hook, "jammed store", [RELEASE])


TRIALS: tuple[Trial, ...] = (breach, ordinary, release, unusual, padded, bad_input)
QUICK: tuple[Trial, ...] = (breach, ordinary, release, bad_input)


def _must_be_refused(hook: Hook, attack: str, commands: list[str]) -> Tried:
    answer = ProbeAnswer()
    for number, command in enumerate(commands):
        session = f"selftest-{attack.replace(' ', '-')}-{number}"
        answer = send(hook, command, session, alone=number % 2 == 1)
        wrong = _not_refused_sentence(answer, repr(command[:80]))
        if wrong:
            return Tried(attack, number + 1, wrong=wrong)
    rule = answer.text.partition("rule ")[2].partition(":")[0]
    by = f"rule {rule}" if rule else "unreadable"
    return Tried(attack, len(commands), by, f"{answer.action}: {answer.text}")


def _not_refused_sentence(answer: ProbeAnswer, what: str) -> str:
    """A sentence about an answer that does not refuse; empty: it refuses."""
    if answer.action in {"deny", "stop"}:
        return ""
    detail = answer.trouble or f"it answers {answer.action} {answer.remark}".rstrip()
    return f"{what} is not refused: {detail}"


def tried(agent: str, command: str, config: str | None) -> Iterator[Tried]:
    """The quick trials of a command, each in its own temporary project."""
    for trial in QUICK:
        with temporary_project(agent, command, config) as hook:
            yield trial(hook)
