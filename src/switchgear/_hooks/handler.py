"""Handles one hook call: from the bytes of the event to the reply, for the hook process and the server.

The event is parsed, then the rules are evaluated, and only then the store is opened and the circuits are
consulted. If any of these fails, the reply contains the reason, and an event reports it; `undecided.py` defines
the reply to each failure. No input may crash the agent.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from switchgear._agents.hook_protocol import (
    REFUSING,
    BadInput,
    HookFacts,
    Moment,
    Reply,
    Ruling,
    WorkAfterReply,
    allow,
    stop,
)
from switchgear._agents.registry import dialect_of
from switchgear._core.errors import StoreError
from switchgear._core.types import EventKind
from switchgear._hooks import undecided
from switchgear._hooks.decide import RULES, decide, rule_refusal
from switchgear._hooks.hook_config import SOURCES, HookConfig, Unconfigured, config_of
from switchgear._hooks.inspect_call import CallInspection, inspect_tool_call
from switchgear._hooks.undecided import Pending, reply_in_dialect
from switchgear._stores.base import Store
from switchgear._stores.url import FOLDER, default_file
from switchgear._stuck.messages import tampering_text
from switchgear._system.files import state_folder
from switchgear._text.redact import redact


def built_in_config(root: str) -> HookConfig:
    """The configuration of a project without a readable one: all built-in and guard rules, no circuits."""
    from switchgear._rules.builtin import (  # noqa: PLC0415  only without a configuration
        BUILTIN,
        GUARD_RULES,
        IN_PROJECTS,
        RUNTIME_FOLDER,
        SHARED_STORE,
    )
    from switchgear._rules.rules import dump_rules  # noqa: PLC0415

    store = default_file(root)
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rules = [rule for group in BUILTIN.values() for rule in group]
    return HookConfig(
        store=f"sqlite:///{store}",
        rules=dump_rules((*rules, *GUARD_RULES, SHARED_STORE)),
        protected=(
            os.path.join(os.path.dirname(store), "**"),
            os.path.join(state_folder(), "**"),
            RUNTIME_FOLDER,
            *(os.path.join(root, name) for name in (*SOURCES[:3], *IN_PROJECTS)),
            os.path.join(ours, "**"),
        ),
        root=root,
    )


MAX_DEPTH = 64
_SHELL_TOOLS = frozenset(
    ("bash", "shell", "run_shell_command", "exec_command", "local_shell", "execute_bash")
)
_COMMANDS = ("command", "cmd")
_TEXT_ARGUMENTS = {
    *("command", "cmd", "script", "shell_command", "file_path", "filePath", "notebook_path"),
    *("absolute_path", "path", "url", "uri", "cwd", "workdir", "dir_path"),
}
"""Arguments whose values must be strings or lists of strings."""


def check_call(facts: HookFacts, data: Mapping[str, Any], raw: bytes) -> None:
    """Raise `BadInput` unless an event before a tool is complete and unambiguous."""
    args = facts.args
    if not isinstance(args, dict | str):
        given = "missing" if args is None else f"of the type {type(args).__name__}"
        raise BadInput(f"the arguments of the tool are {given}, and must be an object")
    if "cwd" in data and not isinstance(data["cwd"], str | None):
        raise BadInput("the field 'cwd' is not a text")
    if isinstance(args, dict):
        _check_types(facts.tool, args)
    if b"\\u" in raw or b"\0" in raw:  # invalid characters can only be there as JSON escapes
        _check_characters([facts.tool, facts.cwd, args])
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise BadInput(
                f"it is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}"
            ) from None


def _check_types(tool: str, args: Mapping[str, Any]) -> None:
    for name in _TEXT_ARGUMENTS & args.keys():
        value = args[name]
        is_text = isinstance(value, str) or (
            isinstance(value, list) and all(isinstance(each, str) for each in value)
        )
        if not is_text and (value is not None or name in _COMMANDS):
            raise BadInput(
                f"the argument {name!r} is of the type {type(value).__name__}, not a text"
            )
    if tool.lower() in _SHELL_TOOLS and not any(args.get(name) for name in _COMMANDS):
        raise BadInput(f"the tool {tool[:60]!r} is called without a command")


def _check_characters(value: Any) -> None:
    remaining = [(value, 0)]
    while remaining:
        each, depth = remaining.pop()
        if isinstance(each, str):
            if "\0" in each:
                raise BadInput("an argument contains the character NUL")
            if not each.isascii() and any("\ud800" <= sign <= "\udfff" for sign in each):
                raise BadInput("an argument contains half of a surrogate pair")
        elif depth >= MAX_DEPTH:
            raise BadInput(f"the arguments are nested more than {MAX_DEPTH} deep")
        elif isinstance(each, dict):
            remaining += [(part, depth + 1) for pair in each.items() for part in pair]
        elif isinstance(each, list):
            remaining += [(part, depth + 1) for part in each]


MAX_INPUT_BYTES = 4 * 1024 * 1024
"""Maximum size of an event: parsing a larger one would take longer than any tool."""
TOO_LARGE = f"it is larger than {MAX_INPUT_BYTES // 1024 // 1024} MiB"
_PROJECT_VARIABLES = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "QWEN_PROJECT_DIR")
"""Environment variables with which agents name their project."""
_AFTER_CALLS = frozenset({Moment.AFTER_TOOL, Moment.BATCH})
"""Events at the end of a tool call."""

Opener = Callable[[HookConfig], Store]


def answer(
    agent: str, raw: bytes, root: str | None, open_store: Opener, pending: Pending | None = None
) -> Reply:
    """The reply to one hook call. Never raises errors of the input, the store or the files.

    - `agent`: one of `command.AGENTS`; `raw`: its event, as JSON.
    - `root`: the project that is guarded; `None`: the project that the event names.
    - `pending`: is updated as the call proceeds; the deadline reads it.
    """
    pending = Pending() if pending is None else pending
    try:
        return _answer(agent, raw, root, open_store, pending)
    except Exception as error:  # noqa: BLE001  the agent must get a reply
        return pending.reply(agent, pending.ruling(_describe_error(error)))


def _answer(
    agent: str, raw: bytes, root: str | None, open_store: Opener, pending: Pending
) -> Reply:
    dialect = pending.dialect = dialect_of(agent)
    data: Any = None
    try:
        data = parse_event(raw)
        facts = dialect.read(data)
        if facts.moment is Moment.BEFORE_TOOL:
            check_call(facts, data, raw)
    except Exception as error:  # noqa: BLE001  hostile input may raise anything
        why = f"{agent} sent an invalid event: {_describe_error(error)}"
        return refuse_unreadable(agent, why, root, open_store, pending, data=data)
    pending.facts = facts
    if facts.moment is Moment.OTHER and not facts.cost_micros:
        return dialect.write(allow(), facts)
    root = pending.root = containing_project(root or project_of(facts.cwd))
    config, config_error = _configuration(root, during_call=facts.moment in _AFTER_CALLS)
    pending.on_trouble = config.on_trouble
    inspection = _inspect(facts, config, pending)
    work_after: list[WorkAfterReply] = []
    try:
        if config_error is not None:
            raise config_error
        event = pending.event
        ruling = _consult_circuits(facts, config, open_store, inspection, work_after, event=event)
        if config.untrusted and facts.moment is Moment.SESSION_START and not ruling.remark:
            ruling = ruling._replace(remark=f"switchgear: {'; '.join(config.untrusted)}")
    except Exception as error:  # noqa: BLE001  a defect of Switchgear must not stop an agent
        why = redact(_describe_error(error))
        ruling = pending.ruling(why)
        if isinstance(error, StoreError):  # another attempt would wait as long again
            undecided.spill(_store_folder(root), agent, pending.reasons(why))
        else:
            _record_undecided(agent, pending.reasons(why), open_store, config)
    if pending.refusal is not None and ruling.action not in REFUSING:
        ruling = pending.refusal
    reply = reply_in_dialect(dialect, facts, ruling)
    return reply._replace(work_after=work_after[0]) if work_after else reply


def _configuration(root: str, *, during_call: bool = False) -> tuple[HookConfig, Exception | None]:
    """The configuration that applies, and the error if it is not the current one.

    If the current configuration cannot be read, the last readable one applies; without one, the built-in rules.
    """
    try:
        return config_of(root, during_call=during_call), None
    except Unconfigured as error:
        config_error: Exception = error
        if error.last is not None:
            return error.last, config_error
    except Exception as error:  # noqa: BLE001  for example, the YAML parser cannot be imported
        config_error = error
    return built_in_config(root), Unconfigured(
        f"only the built-in rules apply: {_describe_error(config_error)}", None
    )


def _inspect(facts: HookFacts, config: HookConfig, pending: Pending) -> CallInspection | None:
    if facts.moment is not Moment.BEFORE_TOOL:
        pending.set_rules_result(None)
        return None
    try:
        inspection = inspect_tool_call(facts, config)
    except Exception as error:  # noqa: BLE001  for example, a path cannot be resolved
        why = f"its effects cannot be determined: {_describe_error(error)}"
        pending.set_rules_result(undecided.unreadable_ruling(why))
        return None
    pending.set_rules_result(None if inspection.broken is None else rule_refusal(inspection.broken))
    if config.tampered and inspection.broken is None:
        pending.set_rules_result(stop(tampering_text(config.tampered)))
    return inspection


def _consult_circuits(
    facts: HookFacts,
    config: HookConfig,
    open_store: Opener,
    inspection: CallInspection | None,
    work_after: list[WorkAfterReply],
    *,
    event: str,
) -> Ruling:
    """The ruling of the circuits. Raises `StoreError`."""
    if inspection is None and facts.moment is Moment.BEFORE_TOOL:
        raise BadInput("its effects cannot be determined")
    store = open_store(config)
    undecided.save_spilled(_store_folder(config.root), store, config.policy_for)
    if config.changed or config.tampered:
        from switchgear._hooks import recompile  # noqa: PLC0415  only after a change

        kind, policy = EventKind.GUARD_CHANGED, config.policy_for(RULES)
        changed = recompile.claim_change(config.root) if config.changed else ""
        for text in filter(None, (changed, "; ".join(config.tampered))):
            seen = redact(f"{text}; seen by session/{facts.session} at {facts.event}")
            undecided.record_event(store, policy, RULES, kind, seen)
    warns = dialect_of(facts.agent).warns
    ruling = decide(facts, config, store, warns, work_after, inspection=inspection, event=event)
    if config.tampered:
        recompile.clear_recorded_tampering(config.root, config.tampered)
    return ruling


def refuse_unreadable(
    agent: str,
    why: str,
    root: str | None,
    open_store: Opener,
    pending: Pending,
    *,
    data: Any = None,
) -> Reply:
    """The reply to an unreadable event: a refusal, unless `data` is certainly not an event before a tool.

    The call is recorded as undecided.
    """
    is_other = pending.dialect is not None and pending.dialect.is_surely_not_before_a_tool(data)
    ruling = undecided.unreadable_ruling(why)
    if is_other:
        ruling = undecided.undecided_ruling(why, undecided.ADMIT, None)
    pending.set_rules_result(None if is_other else ruling)
    try:
        root = pending.root = containing_project(root or project_of(""))
        config, _ = _configuration(root)
        _record_undecided(agent, why, open_store, config)
    except Exception:  # noqa: BLE001, S110  the ruling does not depend on the record
        pass
    return undecided.reply_without_event(agent, ruling)


def reply_at_deadline(agent: str, pending: Pending) -> Reply:
    """The reply at the deadline, according to the stage reached so far. It does not use the store."""
    if pending.rules_done_s is None:
        why = "the rules could not be evaluated in time"
    else:
        why = "the circuits could not be consulted in time: the store is busy or slow"
    ruling = pending.ruling(why)
    if pending.root is not None:
        undecided.spill(_store_folder(pending.root), agent, pending.reasons(why))
    return pending.reply(agent, ruling)


def parse_event(raw: bytes) -> Mapping[str, Any]:
    """The event as a mapping. Raises `BadInput`."""
    if len(raw) > MAX_INPUT_BYTES:
        raise BadInput(TOO_LARGE)
    if not raw.strip():
        raise BadInput("it is empty")
    try:
        text = raw.decode(errors="replace").removeprefix("\ufeff")
        data = json.loads(text, object_pairs_hook=_without_repeated_keys)
    except RecursionError:
        raise BadInput("it is nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"it is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadInput(f"it is not a JSON object but {type(data).__name__}")
    return data


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises `BadInput` for a repeated key: parsers differ in which value they use."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in found if names.count(name) > 1)
        raise BadInput(f"it has the key {repeated[:60]!r} twice in one object")
    return found


def project_of(cwd: str, environ: Mapping[str, str] | None = None) -> str:
    """The project of an agent that works in `cwd`: named by the agent's variables, else that folder.

    Raises `BadInput` if no folder is left: without one, rules about paths cannot be evaluated.
    """
    environ = os.environ if environ is None else environ
    named = next((environ[name] for name in _PROJECT_VARIABLES if environ.get(name)), "")
    for folder in (named, cwd):
        if os.path.isabs(folder) and os.path.isdir(folder):
            return folder
    try:
        return os.getcwd()
    except OSError:
        if os.path.isabs(cwd) and cwd.strip("/"):
            # The folder was removed; its path still determines which paths are outside.
            return os.path.normpath(cwd)
    raise BadInput("the working directory no longer exists; start the agent in one that does")


def containing_project(folder: str) -> str:
    """The root of the project that contains a folder: its configuration and store apply to all subfolders."""
    home = _store_folder(folder)
    return os.path.dirname(home) if os.path.basename(home) == FOLDER else folder


def _record_undecided(agent: str, why: str, open_store: Opener, config: HookConfig) -> None:
    """Record an undecided call in the store, or in a file beside it if the store is unavailable."""
    try:
        policy = config.policy_for(undecided.hooks_circuit(agent))
        undecided.record_undecided(open_store(config), policy, agent, redact(why))
    except Exception:  # noqa: BLE001  the store is unavailable
        undecided.spill(_store_folder(config.root), agent, why)


def _describe_error(error: Exception) -> str:
    explained = (StoreError, Unconfigured, BadInput)  # their texts are complete sentences
    return str(error) if isinstance(error, explained) else f"{type(error).__name__}: {error}"


def _store_folder(root: str) -> str:
    return os.path.dirname(default_file(root))
