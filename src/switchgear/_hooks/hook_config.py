"""The configuration as hooks read it: a small JSON file beside the store, compiled from the sources.

Parsing YAML would take too long for a hook. The file is compiled again when the time, size or inode of any
possible configuration file has changed, or when Switchgear has changed. It is used only if no other user could
have written it. It is as trustworthy as its sources: a process that can write one can write the other.

A process that decides several events caches the file's content, and the policies and rules created from it, as
long as the file stays the same. Every event checks whether the sources have changed.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from switchgear._agents.fields import parsed
from switchgear._core.errors import SwitchgearError
from switchgear._core.policy import Policy
from switchgear._detectors.policy_wire import load_policy
from switchgear._stores.url import default_file, keep_out_of_git
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.score import session_policy
from switchgear._system.files import read_private, state_folder, write_private, write_whole
from switchgear._text.fingerprint import digest

FORMAT = 4
COMPILED_NAME = "hooks.json"
MAX_BYTES = 1_000_000
MAX_CACHED = 8
CONFIG_VARIABLE = "SWITCHGEAR_CONFIG"
STORE_VARIABLE = "SWITCHGEAR_STORE"
STORY_VARIABLE = "SWITCHGEAR_STORY"
SESSION_PREFIX = "session/"
SOURCES = ("switchgear.yaml", "switchgear.yml", "switchgear.toml", "pyproject.toml")


T = TypeVar("T")


class HookConfig(NamedTuple):
    """The configuration that a hook needs. Immutable."""

    store: str
    root: str
    rules: Sequence[Any]
    protected: Sequence[str]
    """The paths that the guard of this project protects."""
    circuits: Sequence[Sequence[Any]] = ()
    """Globs and stored policies, in order: the user's first, then the defaults."""
    own: int = 0
    """How many of `circuits` are the user's."""
    on_trouble: str = "admit"
    lease_s: float = 0.0
    story: str | None = None
    context_tokens: int | None = None
    session_s: float | None = None
    interventions: Interventions = Interventions()
    second_opinion: Mapping[str, Any] | None = None
    """The settings of the second opinion before a stuck agent is stopped; `None`: not configured."""
    listens: bool = False
    """Whether events must be passed on: to sinks, a fleet or notification targets."""
    changed: str = ""
    """What has changed since the previous configuration, until an event reports it."""
    tampered: Sequence[str] = ()
    """Changes to the guard of the project that no operator made, until events report them."""
    untrusted: Sequence[str] = ()
    """The configuration files that have no effect because the user has not trusted them, and why."""
    cache: dict[Any, Any] | None = None
    """The policies and rules created from the fields above; `None`: they are not cached."""

    def policy_for(self, name: str) -> Policy:
        """The policy of a circuit: that of the first matching glob.

        A session has one circuit, whose policy combines those of `session/*` and `progress/*`.
        """
        index = self._index(name)
        if not name.startswith(SESSION_PREFIX):
            return self._policy_at(index)
        progress = None
        if self.interventions.progress:
            progress = self._index(f"progress/{name.removeprefix(SESSION_PREFIX)}")

        more = None if progress is None else self._policy_at(progress)
        return self._once((index, progress), lambda: session_policy(self._policy_at(index), more))

    def listed_policy(self, name: str) -> Policy:
        """The policy of the first matching glob, without the additions for sessions."""
        return self._policy_at(self._index(name))

    def _index(self, name: str) -> int:
        for index, (glob, _) in enumerate(self.circuits):
            if _matches(glob, name):
                return index
        raise KeyError(name)

    def _policy_at(self, index: int) -> Policy:
        return self._once(index, lambda: load_policy(self.circuits[index][1]))

    def _once(self, key: Any, make: Callable[[], T]) -> T:
        if self.cache is None:
            return make()
        if key not in self.cache:
            self.cache[key] = make()
        found: T = self.cache[key]
        return found

    def is_configured(self, name: str) -> bool:
        return any(_matches(glob, name) for glob, _ in self.circuits[: self.own])

    def broken_rule(self, effects: Any, place: Any, only: str = "") -> str | None:
        """The absolute rule that these effects break, among those whose names begin with `only`."""
        from switchgear._rules.rules import judge_effects, load_rules_about  # noqa: PLC0415  before a tool

        cache: dict[int, Any] = self._once("rules", dict)
        rules = load_rules_about(list(self.rules), effects, cache)
        named = (rule for rule in rules if rule.name.startswith(only))
        broken = judge_effects(named, effects, place)
        return None if broken is None else str(broken)


class Unconfigured(SwitchgearError):
    """The configuration cannot be read. `last` is the last readable one, if there is one."""

    def __init__(self, why: str, last: HookConfig | None) -> None:
        super().__init__(why)
        self.last = last


def config_of(root: str, *, during_call: bool | None = None) -> HookConfig:
    """The configuration of the project at `root`. Raises `Unconfigured`.

    `during_call`: whether a tool call has just ended, so that changed files were changed during it; `None`:
    unknown, because the caller does not handle an event.
    """
    path = compiled_path(root)
    variables = (os.environ.get(STORE_VARIABLE), os.environ.get(STORY_VARIABLE))
    cache_key = (root, _file_state(path), variables)
    cached = _cached.pop(path, None)
    if cached is not None and cached[0] != cache_key:
        cached = None
    data = read(path) if cached is None else cached[1]
    if data is not None and is_current(root, path, data, during_call=during_call):
        config = load(data, root) if cached is None else cached[2]
        is_constant = "${" not in data["store"]
        if is_constant and cache_key[1] is not None and cache_key[1] == _file_state(path):
            _cached[path] = (cache_key, data, config)
            while len(_cached) > MAX_CACHED:
                del _cached[next(iter(_cached))]
        return config
    from switchgear._hooks.recompile import recompiled  # noqa: PLC0415  only after a change

    return recompiled(root, path, during_call=during_call)


_cached: dict[str, tuple[Any, dict[str, Any], HookConfig]] = {}
"""The configurations that this process read last, by path of the compiled file."""


def _file_state(path: str) -> tuple[int, ...] | None:
    """The identity and the change time of a file; `None`: it does not exist."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ctime_ns, found.st_ino, found.st_dev, found.st_size, found.st_mode


def is_current(root: str, path: str, data: Mapping[str, Any], *, during_call: bool | None) -> bool:
    """Whether a compiled configuration is up to date: its sources are unchanged, and no repair is pending."""
    if data.get("mark") != signature(root, data):
        return False
    if data.get("unrepaired") or (data.get("unsettled") and during_call is not None):
        return False
    return is_valid(path, data)


def is_valid(path: str, data: Mapping[str, Any]) -> bool:
    """Whether a file contains a configuration and was last written by Switchgear.

    The seal in the user's state folder records its change time and inode, so that a file written or damaged by
    another program is compiled again.
    """
    try:
        return "store" in data and read_private(_seal_path(path), 200) == _seal(path)
    except OSError:
        return False


def _seal(path: str) -> bytes:
    found = os.lstat(path)
    return f"{found.st_ctime_ns} {found.st_ino} {found.st_size}".encode()


def _seal_path(path: str) -> str:
    return os.path.join(state_folder("guard"), f"compiled-{digest(path)}")


def compiled_path(root: str) -> str:
    return os.path.join(os.path.dirname(default_file(root)), COMPILED_NAME)


def enable_site_packages() -> None:
    """Make the packages in `site-packages` importable; hooks run without them (`python -S`)."""
    if sys.flags.no_site:
        import site  # noqa: PLC0415

        site.main()


def signature(root: str, data: Mapping[str, Any] | None) -> list[list[Any]]:
    """The state of all files on which a compiled configuration depends; it changes when any of them does.

    These are the possible configuration files in the project and above, the file that a variable names, the
    user's configuration, Switchgear itself, and the guarded files recorded in `data`.
    """
    named = os.environ.get(CONFIG_VARIABLE, "")
    config_home = os.environ.get("XDG_CONFIG_HOME", "")
    base = config_home if os.path.isabs(config_home) else os.path.expanduser("~/.config")
    # The user's configuration, and the records of trusted files.
    own = [os.path.join(base, "switchgear", name) for name in SOURCES[:3]] + [state_folder("trust")]
    places = [*([named] if named else []), *_config_paths(root), *own]
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    marks: list[list[Any]] = [[FORMAT, root, *own]]  # another HOME has other protected files
    wired = () if data is None else (*data.get("wired", ()), *data.get("watched", ()))
    package = (ours, os.path.join(ours, "_hooks"), os.path.join(ours, "_breaker", "presets.py"))
    for path in (*places, *package, *wired):
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            continue
        # The change time: unlike the modification time, no program can set it.
        marks.append([path, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode])
    return marks


def _config_paths(root: str) -> list[str]:
    home = os.path.realpath(os.path.expanduser("~"))
    folder = os.path.realpath(root)
    found: list[str] = []
    while True:
        found += [os.path.join(folder, name) for name in SOURCES]
        above = os.path.dirname(folder)
        if folder in {above, home}:
            return found
        folder = above


def read(path: str) -> dict[str, Any] | None:
    """The content of a compiled file; `None`: there is none, or it is not trustworthy."""
    data = read_private_json(path)
    return data if isinstance(data, dict) and data.get("format") == FORMAT else None


def read_private_json(path: str) -> Any:
    """The JSON in a file that only this user can write; `None`: there is none."""
    return parsed(read_private(path, MAX_BYTES) or b"null")


def write(path: str, data: dict[str, Any]) -> None:
    """Save the compiled configuration atomically. If that fails, each hook compiles it again."""
    try:
        make_folder(path)
        write_whole(path, json.dumps(data))
        write_private(_seal_path(path), _seal(path))
    except OSError:
        return


def make_folder(path: str) -> None:
    """Create the folder of a Switchgear file, private to this user and ignored by git. Raises OSError."""
    keep_out_of_git(os.path.dirname(path))
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)


def load(data: dict[str, Any], root: str) -> HookConfig:
    """The configuration in a compiled file, for the project at `root`."""
    fields = {name: data[name] for name in HookConfig._fields if name in data}
    plan = dict(data["interventions"])
    plan["when_alone"] = tuple(plan["when_alone"])
    fields["interventions"] = Interventions(**plan)
    fields["store"] = os.environ.get(STORE_VARIABLE) or _expand_variables(data["store"])
    fields["story"] = os.environ.get(STORY_VARIABLE) or data["story"]
    fields["root"] = root
    return HookConfig(**fields, cache={})


def _expand_variables(url: str) -> str:
    """The URL with the values of its variables, which are secret and therefore not in the compiled file."""
    for part in url.split("${")[1:]:
        name = part.partition("}")[0]
        url = url.replace(f"${{{name}}}", os.environ.get(name, ""))
    return url


def _matches(glob: str, name: str) -> bool:
    if glob[-1:] == "*" and not any(sign in glob[:-1] for sign in "*?["):
        return name.startswith(glob[:-1])
    from switchgear._text.glob import matcher  # noqa: PLC0415  most globs are a name or a prefix

    matches: Callable[[str], bool] = matcher(glob)
    return matches(name)
