"""One hook call from its bytes to its reply, whether a process or the server carries them.

First the call is read, then the rules are evaluated, and only then is the store opened and are the
circuits consulted. What each failure means is in `pending`. Nothing that comes in may crash the agent:
what cannot be read, evaluated or decided becomes a reply with the reason, and an event.
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
from switchgear._hooks.inspect_call import CallInspection, look_at
from switchgear._hooks.undecided import Pending, in_dialect
from switchgear._stores.base import Store
from switchgear._stores.url import FOLDER, default_file
from switchgear._stuck.messages import tampering_text
from switchgear._system.files import state_folder
from switchgear._text.redact import redact


def built_in(root: str) -> HookConfig:
    """All built-in rules and guard rules for the project at `root`, and no circuits."""
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


DEEPEST = 64
_NEED_A_COMMAND = frozenset(
    ("bash", "shell", "run_shell_command", "exec_command", "local_shell", "execute_bash")
)
_COMMANDS = ("command", "cmd")
_TEXTS = {
    *("command", "cmd", "script", "shell_command", "file_path", "filePath", "notebook_path"),
    *("absolute_path", "path", "url", "uri", "cwd", "workdir", "dir_path"),
}
"""Arguments that must be texts, or lists of texts."""


def check(facts: HookFacts, data: Mapping[str, Any], raw: bytes) -> None:
    """Raise `BadInput` unless the input of a call before a tool is complete and unambiguous."""
    args = facts.args
    if not isinstance(args, dict | str):
        given = "missing" if args is None else f"of the type {type(args).__name__}"
        raise BadInput(f"the arguments of the tool are {given}, and must be an object")
    if "cwd" in data and not isinstance(data["cwd"], str | None):
        raise BadInput("the field 'cwd' is not a text")
    if isinstance(args, dict):
        _check_types(facts.tool, args)
    if b"\\u" in raw or b"\0" in raw:  # JSON escapes of the characters in question
        _check_characters([facts.tool, facts.cwd, args])
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise BadInput(
                f"it is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}"
            ) from None


def _check_types(tool: str, args: Mapping[str, Any]) -> None:
    for name in _TEXTS & args.keys():
        value = args[name]
        is_text = isinstance(value, str) or (
            isinstance(value, list) and all(isinstance(each, str) for each in value)
        )
        if not is_text and (value is not None or name in _COMMANDS):
            raise BadInput(
                f"the argument {name!r} is of the type {type(value).__name__}, not a text"
            )
    if tool.lower() in _NEED_A_COMMAND and not any(args.get(name) for name in _COMMANDS):
        raise BadInput(f"the tool {tool[:60]!r} is called without a command")


def _check_characters(value: Any) -> None:
    left = [(value, 0)]
    while left:
        each, depth = left.pop()
        if isinstance(each, str):
            if "\0" in each:
                raise BadInput("an argument contains the character NUL")
            if not each.isascii() and any("\ud800" <= sign <= "\udfff" for sign in each):
                raise BadInput("an argument contains half of a surrogate pair")
        elif depth >= DEEPEST:
            raise BadInput(f"the arguments are nested more than {DEEPEST} deep")
        elif isinstance(each, dict):
            left += [(part, depth + 1) for pair in each.items() for part in pair]
        elif isinstance(each, list):
            left += [(part, depth + 1) for part in each]


LARGEST_BYTES = 4 * 1024 * 1024
"""Input beyond this is not read: parsing it would take longer than any tool."""
TOO_LARGE = f"it is larger than {LARGEST_BYTES // 1024 // 1024} MiB"
_PROJECT_VARIABLES = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "QWEN_PROJECT_DIR")
"""Variables in which agents name their project, whatever their working directory is."""
_AFTER_CALLS = frozenset({Moment.AFTER_TOOL, Moment.BATCH})
"""Where a tool call has just ended."""

Opener = Callable[[HookConfig], Store]


def answer(
    agent: str, raw: bytes, root: str | None, open_store: Opener, so_far: Pending | None = None
) -> Reply:
    """The reply to one hook call. Never raises errors of the input, the store or the files.

    - `agent`: one of `command.AGENTS`; `raw`: what it wrote on standard input.
    - `root`: the project that is guarded; `None`: as in the event.
    - `so_far`: is kept up to date, for the deadline.
    """
    so_far = Pending() if so_far is None else so_far
    try:
        return _answer(agent, raw, root, open_store, so_far)
    except Exception as error:  # noqa: BLE001  whatever it is, the agent gets an answer
        return so_far.reply(agent, so_far.ruling(_describe_error(error)))


def _answer(agent: str, raw: bytes, root: str | None, open_store: Opener, so_far: Pending) -> Reply:
    dialect = so_far.dialect = dialect_of(agent)
    data: Any = None
    try:
        data = parsed(raw)
        facts = dialect.read(data)
        if facts.moment is Moment.BEFORE_TOOL:
            check(facts, data, raw)
    except Exception as error:  # noqa: BLE001  hostile input may raise anything
        why = f"{agent} sent an invalid event: {_describe_error(error)}"
        return refused_unread(agent, why, root, open_store, so_far, data=data)
    so_far.facts = facts
    if facts.moment is Moment.OTHER and not facts.cost_micros:
        return dialect.write(allow(), facts)
    root = so_far.root = whole_project(root or project_of(facts.cwd))
    known, doubt = _configuration(root, during_call=facts.moment in _AFTER_CALLS)
    so_far.on_trouble = known.on_trouble
    looked = _inspect(facts, known, so_far)
    errands: list[WorkAfterReply] = []
    try:
        if doubt is not None:
            raise doubt
        ruling = _circuits(facts, known, open_store, looked, errands, event=so_far.event)
        if known.untrusted and facts.moment is Moment.SESSION_START and not ruling.remark:
            ruling = ruling._replace(remark=f"switchgear: {'; '.join(known.untrusted)}")
    except Exception as error:  # noqa: BLE001  a defect of Switchgear must not stop an agent
        why = redact(_describe_error(error))
        ruling = so_far.ruling(why)
        if isinstance(error, StoreError):  # waiting again would take as long
            undecided.spill(_folder(root), agent, so_far.reasons(why))
        else:
            _record_undecided(agent, so_far.reasons(why), open_store, known)
    if so_far.refusal is not None and ruling.action not in REFUSING:
        ruling = so_far.refusal
    reply = in_dialect(dialect, facts, ruling)
    return reply._replace(errand=errands[0]) if errands else reply


def _configuration(root: str, *, during_call: bool = False) -> tuple[HookConfig, Exception | None]:
    """What holds for the project, and why that is not its configuration of now, if it is not.

    The last one that could be read holds until the new one can be; without one, the built-in rules do.
    """
    try:
        return config_of(root, during_call=during_call), None
    except Unconfigured as error:
        doubt: Exception = error
        if error.last is not None:
            return error.last, doubt
    except Exception as error:  # noqa: BLE001  the parser of YAML cannot be imported, for one
        doubt = error
    return built_in(root), Unconfigured(
        f"only the built-in rules apply: {_describe_error(doubt)}", None
    )


def _inspect(facts: HookFacts, known: HookConfig, so_far: Pending) -> CallInspection | None:
    if facts.moment is not Moment.BEFORE_TOOL:
        so_far.judged(None)
        return None
    try:
        looked = look_at(facts, known)
    except Exception as error:  # noqa: BLE001  a path that cannot be resolved, for one
        so_far.judged(
            undecided.unreadable(f"its effects cannot be determined: {_describe_error(error)}")
        )
        return None
    so_far.judged(None if looked.broken is None else rule_refusal(looked.broken))
    if known.tampered and looked.broken is None:
        so_far.judged(stop(tampering_text(known.tampered)))
    return looked


def _circuits(
    facts: HookFacts,
    known: HookConfig,
    open_store: Opener,
    looked: CallInspection | None,
    errands: list[WorkAfterReply],
    *,
    event: str,
) -> Ruling:
    """The decision of the circuits. Raises `StoreError`."""
    if looked is None and facts.moment is Moment.BEFORE_TOOL:
        raise BadInput("its effects cannot be determined")
    store = open_store(known)
    undecided.fold_spill(_folder(known.root), store, known.policy_for)
    if known.changed or known.tampered:
        from switchgear._hooks import recompile  # noqa: PLC0415  only after a change

        changed = recompile.take_change(known.root) if known.changed else ""
        for text in filter(None, (changed, "; ".join(known.tampered))):
            seen = redact(f"{text}; seen by session/{facts.session} at {facts.event}")
            undecided.remark(store, known.policy_for(RULES), RULES, EventKind.GUARD_CHANGED, seen)
    warns = dialect_of(facts.agent).warns
    ruling = decide(facts, known, store, warns, errands, looked=looked, event=event)
    if known.tampered:
        recompile.take_tampering(known.root, known.tampered)
    return ruling


def refused_unread(
    agent: str, why: str, root: str | None, open_store: Opener, so_far: Pending, *, data: Any = None
) -> Reply:
    """The reply to input that cannot be used: refused, unless `data` is surely not before a tool.

    It is counted, too.
    """
    other = so_far.dialect is not None and so_far.dialect.is_surely_not_before_a_tool(data)
    ruling = undecided.ruling_on(why, undecided.ADMIT, None) if other else undecided.unreadable(why)
    so_far.judged(None if other else ruling)
    try:
        root = so_far.root = whole_project(root or project_of(""))
        known, _ = _configuration(root)
        _record_undecided(agent, why, open_store, known)
    except Exception:  # noqa: BLE001, S110  the refusal stands, with or without an event
        pass
    return undecided.reply_without_event(agent, ruling)


def overdue(agent: str, so_far: Pending) -> Reply:
    """The reply at the deadline, without the store: it follows from the stage reached."""
    if so_far.judged_s is None:
        why = "the rules could not be evaluated in time"
    else:
        why = "the circuits could not be consulted in time: the store is busy or slow"
    ruling = so_far.ruling(why)
    if so_far.root is not None:
        undecided.spill(_folder(so_far.root), agent, so_far.reasons(why))
    return so_far.reply(agent, ruling)


def parsed(raw: bytes) -> Mapping[str, Any]:
    """The input as a mapping. Raises `BadInput`."""
    if len(raw) > LARGEST_BYTES:
        raise BadInput(TOO_LARGE)
    if not raw.strip():
        raise BadInput("it is empty")
    try:
        text = raw.decode(errors="replace").removeprefix("\ufeff")
        data = json.loads(text, object_pairs_hook=_without_repetition)
    except RecursionError:
        raise BadInput("it is nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"it is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadInput(f"it is not a JSON object but {type(data).__name__}")
    return data


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises `BadInput` for a repeated key: parsers differ in which value they take."""
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in made if names.count(name) > 1)
        raise BadInput(f"it has the key {repeated[:60]!r} twice in one object")
    return made


def project_of(cwd: str, environ: Mapping[str, str] | None = None) -> str:
    """The project of an agent that works in `cwd`: from the agent's variables, else that folder.

    Raises `BadInput` if there is no such folder: without one, no rule about paths can be judged.
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
            # Removed in the meantime: its name still shows what is outside.
            return os.path.normpath(cwd)
    raise BadInput("the working directory no longer exists; start the agent in one that does")


def whole_project(folder: str) -> str:
    """The project that contains a folder: a sub-folder is guarded as the whole project is."""
    home = _folder(folder)
    return os.path.dirname(home) if os.path.basename(home) == FOLDER else folder


def _record_undecided(agent: str, why: str, open_store: Opener, known: HookConfig) -> None:
    """Count an undecided call in the store, or in a file beside it if the store is unavailable."""
    try:
        policy = known.policy_for(undecided.hooks_circuit(agent))
        undecided.record_undecided(open_store(known), policy, agent, redact(why))
    except Exception:  # noqa: BLE001  the store is what cannot be reached
        undecided.spill(_folder(known.root), agent, why)


def _describe_error(error: Exception) -> str:
    known = (StoreError, Unconfigured, BadInput)
    return str(error) if isinstance(error, known) else f"{type(error).__name__}: {error}"


def _folder(root: str) -> str:
    return os.path.dirname(default_file(root))
