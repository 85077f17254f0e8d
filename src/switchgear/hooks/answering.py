"""One hook call from its bytes to its reply, whoever carries them: a process or the server.

Nothing that comes in may crash the agent: what cannot be read, asked or decided becomes a reply
that says so, and an event.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from switchgear.core.types import EventKind
from switchgear.errors import StoreError
from switchgear.hooks import trouble
from switchgear.hooks.compiled import Compiled, Unconfigured, compiled, place_of, read
from switchgear.hooks.decide import RULES, decide
from switchgear.hooks.dialects import dialect_of
from switchgear.hooks.facts import BadInput, HookFacts, Moment
from switchgear.hooks.ruling import Errand, Reply, Ruling, allow
from switchgear.redact import redact
from switchgear.stores.base import Store
from switchgear.stores.places import FOLDER, default_file

LARGEST_BYTES = 4 * 1024 * 1024
"""Input beyond this is not read: parsing it would take longer than any tool."""
TOO_LARGE = f"it is larger than {LARGEST_BYTES // 1024 // 1024} MiB"
_PROJECT_VARIABLES = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "QWEN_PROJECT_DIR")
"""Where agents say what their project is, whatever folder they work in at the moment."""

Opener = Callable[[Compiled], Store]


def answer(agent: str, raw: bytes, root: str | None, open_store: Opener) -> Reply:
    """The reply to one hook call. Never raises what comes of the input, the store or the files.

    - `agent`: one of `command.AGENTS`; `raw`: what it wrote on standard input.
    - `root`: the project that is guarded; `None`: as the agent says.
    """
    dialect = dialect_of(agent)
    facts: HookFacts | None = None
    errands: list[Errand] = []
    try:
        facts = dialect.read(parsed(raw))
    except BadInput as error:
        return undecided(agent, f"{agent} sent what cannot be used: {error}", root, open_store)
    except Exception as error:  # noqa: BLE001  hostile input finds what nobody thought of
        why = f"{agent} sent what cannot be read: {type(error).__name__}: {error}"
        return undecided(agent, why, root, open_store)
    if facts.moment is Moment.OTHER and not facts.cost_micros:
        return dialect.write(allow(), facts)
    root = whole_project(root or project_of(facts.cwd))
    try:
        known = compiled(root)
        store = open_store(known)
        trouble.fold_spill(_folder(root), store, known.policy_for)
        if known.changed:
            _tell_change(root, known, store, facts)
        ruling = decide(facts, known, store, dialect.warns, errands)
        if known.untrusted and facts.moment is Moment.SESSION_START and not ruling.remark:
            ruling = ruling._replace(remark=f"switchgear: {'; '.join(known.untrusted)}")
    except Exception as error:  # noqa: BLE001  an agent must not be stopped by our defects
        ruling = _undecided(agent, _why(error), facts, root, open_store)
    reply = dialect.write(ruling, facts)
    return reply._replace(errand=errands[0]) if errands else reply


def _tell_change(root: str, known: Compiled, store: Store, facts: HookFacts) -> None:
    """Leave the event that the guard is another one than before, once."""
    from switchgear.hooks.recompiling import take_change  # noqa: PLC0415  only after a change

    changed = take_change(root)
    if changed:
        seen = f"{changed}; seen by session/{facts.session} at {facts.event}"
        trouble.remark(store, known.policy_for(RULES), RULES, EventKind.GUARD_CHANGED, redact(seen))


def undecided(agent: str, why: str, root: str | None, open_store: Opener) -> Reply:
    """The reply to a call of which not even the event is known. It is counted as well."""
    return trouble.blind_reply(agent, _undecided(agent, why, None, root, open_store))


def overdue(agent: str, raw: bytes, root: str | None, after_s: float) -> Reply:
    """The reply when the time is over: as the configuration says that held last, without the store."""
    why = f"after {after_s:g} s there is still no answer: the store is busy or slow, or another hook compiles"
    facts: HookFacts | None = None
    try:
        dialect = dialect_of(agent)
        facts = dialect.read(parsed(raw))
    except Exception:  # noqa: BLE001  then not even the event is known
        facts = None
    root = whole_project(root or project_of("" if facts is None else facts.cwd))
    held = read(place_of(root)) or {}
    ruling = trouble.ruling_on(why, held.get("on_trouble", "admit"), facts)
    trouble.spill(_folder(root), agent, why, wait=False)
    return trouble.blind_reply(agent, ruling) if facts is None else dialect.write(ruling, facts)


def parsed(raw: bytes) -> Mapping[str, Any]:
    """The input as a mapping. Raises `BadInput`."""
    if len(raw) > LARGEST_BYTES:
        raise BadInput(TOO_LARGE)
    try:
        data = json.loads(raw.decode(errors="replace").removeprefix("\ufeff"))
    except RecursionError:
        raise BadInput("it is nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"it is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadInput(f"it is not a JSON object but {type(data).__name__}")
    return data


def project_of(cwd: str, environ: Mapping[str, str] | None = None) -> str:
    """The project of an agent that works in `cwd`: as the agent's variables say, else that folder."""
    environ = os.environ if environ is None else environ
    told = next((environ[name] for name in _PROJECT_VARIABLES if environ.get(name)), "")
    folder = told or cwd
    return folder if os.path.isabs(folder) and os.path.isdir(folder) else os.getcwd()


def whole_project(folder: str) -> str:
    """The project around a folder, so that a sub-folder is guarded as the whole is."""
    home = _folder(folder)
    return os.path.dirname(home) if os.path.basename(home) == FOLDER else folder


def _undecided(
    agent: str, why: str, facts: HookFacts | None, root: str | None, open_store: Opener
) -> Ruling:
    """Say and count that a hook could not decide."""
    why = redact(why)
    root = whole_project(root or project_of("" if facts is None else facts.cwd))
    known: Compiled | None = None
    try:
        known = compiled(root)
    except Unconfigured as error:
        known = error.last
    except Exception:  # noqa: BLE001  told below, in the agent's dialect
        known = None
    on_trouble = "admit" if known is None else known.on_trouble
    try:
        if known is None:
            raise StoreError("?", "no configuration", "mend it")
        policy = known.policy_for(trouble.hooks_circuit(agent))
        trouble.leave_event(open_store(known), policy, agent, why)
    except Exception:  # noqa: BLE001  the store is what cannot be reached
        trouble.spill(_folder(root), agent, why)
    return trouble.ruling_on(why, on_trouble, facts)


def _why(error: Exception) -> str:
    known = (StoreError, Unconfigured)
    return str(error) if isinstance(error, known) else f"{type(error).__name__}: {error}"


def _folder(root: str) -> str:
    return os.path.dirname(default_file(root))
