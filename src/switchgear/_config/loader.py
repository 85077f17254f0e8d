"""Finds and parses configuration files, and checks every section before any is used."""

import os
import re
import stat
from collections.abc import Callable
from itertools import starmap
from typing import Any

from switchgear._config.parts import build_part
from switchgear._config.problems import ConfigNode, Problem, Report, shown, suggestion
from switchgear._config.proxy import build_proxy
from switchgear._config.sections import (
    CircuitPolicy,
    Config,
    Hooks,
    Policies,
    Retention,
    build_breakers,
    build_budgets,
    build_crew,
    build_loops,
    build_operations,
    build_rules,
    build_second_opinion,
    build_section,
    build_targets,
    hooks_of,
    interventions,
    time_rules,
)
from switchgear._core import values
from switchgear._fleet.categories import circuit_policies
from switchgear._sinks import SINKS, Sink
from switchgear._stores.base import IDLE_S, KEEP_EVENTS
from switchgear._stores.url import STORE_URLS
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.timeouts import Timeouts
from switchgear._text.glob import matcher
from switchgear._text.redact import redact

VARIABLE = "SWITCHGEAR_CONFIG"
NAMES = ("switchgear.yaml", "switchgear.yml", "switchgear.toml")
"""The names of configuration files, in order of precedence within a folder."""
PROJECT = "pyproject.toml"
LARGEST_BYTES = 256 * 1024
"""Maximum size of a file: more than anyone writes by hand; parsing that much takes seconds at worst."""
MOST_VALUES = 50_000
"""Maximum number of values with aliases expanded; hostile files expand to billions."""
_OUR_TABLE = re.compile(
    rb"^[ \t]*\[{1,2}[ \t]*tool[ \t]*\.[ \t]*[\"']?switchgear[\"']?[ \t]*[.\]]", re.MULTILINE
)


def find_config(start: str | None = None) -> str | None:
    """The configuration file for a folder, as an absolute path; `None`: there is none.

    The file that `SWITCHGEAR_CONFIG` names comes first, whether it exists or not. Otherwise, folders
    are searched from `start` (default: the current folder) up to the home folder or the root for
    `switchgear.yaml`, `.yml`, `.toml`, or a `pyproject.toml` with `[tool.switchgear]`. The last choice
    is the user's own file, see `user_config`. Trust is not checked here.
    """
    path = named_config()
    if path is not None:
        return path
    return next(filter(has_our_table, candidates(start)), None) or user_config()


def named_config() -> str | None:
    """The file that SWITCHGEAR_CONFIG names, whether it exists or not."""
    path = os.environ.get(VARIABLE)
    return os.path.abspath(os.path.expanduser(path)) if path else None


def candidates(start: str | None = None) -> list[str]:
    """Every path at which a configuration for a folder can be, in order of precedence."""
    home = os.path.realpath(os.path.expanduser("~"))
    folder = os.path.realpath(start or ".")
    found: list[str] = []
    while True:
        found += [os.path.join(folder, name) for name in (*NAMES, PROJECT)]
        above = os.path.dirname(folder)
        if folder in {above, home}:
            return found
        folder = above


def config_home() -> str:
    """The folder of the user's own configuration: `switchgear` in XDG_CONFIG_HOME (~/.config)."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    base = folder if os.path.isabs(folder) else os.path.expanduser("~/.config")
    return os.path.join(base, "switchgear")


def user_config() -> str | None:
    """The user's own configuration, for folders without one of a project; `None`: there is none."""
    places = (os.path.join(config_home(), name) for name in NAMES)
    return next((path for path in places if os.path.lexists(path)), None)


def has_our_table(path: str) -> bool:
    """Whether a path has a configuration: a file or, in a `pyproject.toml`, the table.

    A broken link counts, so that reading it reports an error.
    """
    if os.path.basename(path) != PROJECT:
        return os.path.lexists(path)
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return _OUR_TABLE.search(file.read(LARGEST_BYTES)) is not None
    except OSError:
        return False


KEYS = (
    *("store", "operator_token_sha256", "retention", "policies", "circuits", "loops", "rules"),
    *("hooks", "interventions", "second_opinion", "timeouts", "sinks", "circuit_breaker"),
    *("breakers", "agents", "stories", "notifications", "budgets", "proxy"),
)
_FLEET = ("breakers", "agents", "stories")
_SQLITE = "sqlite:///"
_VARIABLE = re.compile(r"\$(\$?)\{([^{}]*)\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_DAY_S = 86_400.0


def load_config(
    path: str | os.PathLike[str],
    *,
    text: str | None = None,
    may_read: Callable[[str], bool] | None = None,
) -> Config:
    """The configuration in a file. Raises `ConfigError` with all errors in it.

    The ending of the name determines the syntax: `.yaml`, `.yml` or `.toml`. In a `pyproject.toml`,
    only the table `[tool.switchgear]` is read. An empty file is the default configuration.

    `text` replaces the content of the file, if it was read already. `may_read` returns whether the
    file may use an environment variable; by default it may use all, because the caller trusts it.
    Trust is not checked, because a program that calls this already runs code of the project.
    """
    return load_with_notes(path, text=text, may_read=may_read)[0]


def load_with_notes(
    path: str | os.PathLike[str],
    *,
    text: str | None = None,
    may_read: Callable[[str], bool] | None = None,
) -> tuple[Config, tuple[Problem, ...]]:
    """The configuration, and notes about outdated keys that are still accepted."""
    name = os.fspath(path)
    report = Report(name)
    root = read_document(name, report, text)
    if may_read is not None:
        _check_variables(root, may_read, report)
    config = _Sections(os.path.abspath(name), report).config(root)
    report.raise_if_any()
    return config, report.notes


def read_document(
    path: str,
    report: Report,
    text: str | None = None,
    *,
    largest_bytes: int = LARGEST_BYTES,
    most_values: int = MOST_VALUES,
) -> ConfigNode:
    """The content of a configuration file, as nodes with their lines. Raises `ConfigError`."""
    text = _read(path, report, largest_bytes) if text is None else text.removeprefix("\ufeff")
    return _parse(path, text, report, most_values)


def _check_variables(root: ConfigNode, may_read: Callable[[str], bool], report: Report) -> None:
    """Report every variable that the file may not read; raises before any variable is read."""
    from switchgear._config.trust import used_variables  # noqa: PLC0415  it loads configurations

    for node, name in used_variables(root):
        if not may_read(name):
            remedy = f"'switchgear trust --allow-var {name}' allows it"
            report.add(node, f"a project's file may not read the variable {name}; {remedy}")
    report.raise_if_any()


def _read(path: str, report: Report, largest_bytes: int) -> str:
    try:
        # Checked before it is opened, because opening a pipe waits for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            report.fail(None, "is not a regular file")
        with open(path, "rb") as file:
            data = file.read(largest_bytes + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        report.fail(None, f"cannot be read: {why}")
    if len(data) > largest_bytes:
        report.fail(None, f"is larger than {largest_bytes // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        report.fail(line, f"is not UTF-8 text: the byte 0x{data[error.start]:02x}")


def _parse(path: str, text: str, report: Report, most_values: int) -> ConfigNode:
    name = os.path.basename(path)
    if name.endswith((".yaml", ".yml")):
        from switchgear._config.yaml_tree import parse_yaml  # noqa: PLC0415  PyYAML is slow to load

        return parse_yaml(text, report, most_values)
    if not name.endswith(".toml"):
        report.fail(None, "the name must end in .yaml, .yml or .toml")
    from switchgear._config.toml_tree import parse_toml  # noqa: PLC0415  only for TOML

    root = parse_toml(text, report)
    if name != PROJECT:
        return root
    for table in ("tool", "switchgear"):
        tables = root.value if isinstance(root.value, dict) else {}
        root = tables.get(table, ConfigNode({}))
    return root


class _Sections:
    """Builds the sections of one file. Used by one thread."""

    def __init__(self, path: str, report: Report) -> None:
        self._path = path
        self._report = report

    def config(self, root: ConfigNode) -> Config:
        """The configuration; problems are added to the report."""
        report = self._report
        sections = report.mapping(root, KEYS)

        def section(name: str) -> ConfigNode:
            return sections.get(name, ConfigNode(None))

        policies = Policies(report.mapping(section("policies")), report)
        crew = build_crew(section("agents"), section("stories"), report)
        has_fleet = any(name in sections for name in _FLEET)
        fleet = build_breakers(section("breakers"), report) if has_fleet else None
        circuits = self._circuits(section("circuits"), policies)
        circuits += build_operations(section("circuit_breaker"), report)
        if fleet is not None:  # for circuits that no entry of the user matches
            circuits += tuple(starmap(CircuitPolicy, circuit_policies(fleet, crew.story_budgets)))
        return Config(
            store=self._store(section("store")),
            operator_token_sha256=self._load_token(section("operator_token_sha256")),
            retention=build_section(_retention, section("retention"), report) or Retention(),
            policies=policies.all_named(),
            circuits=circuits,
            loop_presets=build_loops(section("loops"), report),
            rules=build_rules(section("rules"), report),
            hooks=build_section(hooks_of, section("hooks"), report) or Hooks(),
            interventions=build_section(interventions, section("interventions"), report)
            or Interventions(),
            second_opinion=build_second_opinion(section("second_opinion"), report),
            timeouts=build_section(time_rules, section("timeouts"), report) or Timeouts(),
            sinks=self._sinks(section("sinks")),
            breakers=fleet,
            crew=crew,
            notifications=build_targets(section("notifications"), report),
            budgets=build_budgets(section("budgets"), report),
            source=self._path,
            store_as_written=written
            if isinstance(written := section("store").value, str)
            else None,
            proxy=build_proxy(section("proxy"), report, self._path_of),
        )

    def _store(self, node: ConfigNode) -> str | None:
        if not isinstance(node.value, str) or not node.value.strip():
            if node.value is not None:
                allowed = ", ".join(STORE_URLS)
                self._report.add(node, f"is {shown(node.value)}: it must be one of {allowed}")
            return None
        url = self._expand_variables(node)
        if url is None:
            return None
        if url == "memory":  # YAML requires quotes around a text that ends in a colon
            url = "memory:"
        objection = _objection_to_store(url, node.value)
        if objection is not None:
            # The values of variables are secret, so the message quotes the text of the file.
            self._report.add(node, f"is {shown(redact(node.value))}: {objection}")
            return None
        if url.startswith(_SQLITE):
            return _SQLITE + self._path_of(url.removeprefix(_SQLITE))
        return url

    def _load_token(self, node: ConfigNode) -> str | None:
        if node.value is None:
            return None
        text = self._expand_variables(node) if isinstance(node.value, str) else ""
        if text is None:
            return None
        if not _HASH.fullmatch(text):
            # The value is not shown: it may be the token itself.
            what = f"has {len(text)} characters" if text else "is not a text in quotes"
            rule = "it must be the SHA-256 of the token, 64 hexadecimal digits"
            self._report.add(node, f"{what}: {rule}")
            return None
        return text.lower()

    def _circuits(self, node: ConfigNode, policies: Policies) -> tuple[CircuitPolicy, ...]:
        rules: list[CircuitPolicy] = []
        seen: dict[str, ConfigNode] = {}
        for item in self._report.items(node):
            keys = self._report.mapping(item, ("match", "policy"))
            if item.value is None or isinstance(item.value, dict):
                for name in ("match", "policy"):
                    if name not in keys:
                        self._report.add(item, f"needs the key {name!r}")
            match = self._match(keys["match"], seen) if "match" in keys else None
            policy = policies.of(keys["policy"]) if "policy" in keys else None
            if match is not None and policy is not None:
                rules.append(CircuitPolicy(match, policy))
        return tuple(rules)

    def _match(self, node: ConfigNode, seen: dict[str, ConfigNode]) -> str | None:
        match = node.value
        if not isinstance(match, str) or not match.strip():
            self._report.add(node, f"is {shown(match)}: it must be the name of a circuit or a glob")
            return None
        if match.startswith("dep/"):
            self._report.note(node, "is accepted; circuits of providers are now named provider/…")
            match = f"provider/{match.removeprefix('dep/')}"
        try:
            matcher(match)
        except re.error as error:
            self._report.add(node, f"is {shown(match)}: it is not a glob: {error}")
            return None
        earlier = seen.get(match) or seen.get("*")
        if earlier is not None:
            rule = f"the first match wins, and line {earlier.line} matches all of it"
            self._report.add(node, f"is {shown(match)}: never used; {rule}")
        seen.setdefault(match, node)
        return match

    def _sinks(self, node: ConfigNode) -> tuple[Sink, ...]:
        def prepare(field: str, child: ConfigNode) -> Any:
            text = self._expand_variables(child)
            return self._path_of(text) if text and field == "path" else text

        items = self._report.items(node)
        sinks = [build_part(item, SINKS, self._report, prepare) for item in items]
        return tuple(sink for sink in sinks if sink is not None)

    def _expand_variables(self, node: ConfigNode) -> str | None:
        """The text with `${NAME}` replaced by the variable; `$${NAME}` becomes `${NAME}`."""
        before = self._report.added

        def value(found: re.Match[str]) -> str:
            name = found[2]
            if found[1]:
                return found[0][1:]
            if not _VARIABLE_NAME.fullmatch(name):
                self._report.add(node, f"{shown(found[0])} is not the name of a variable")
            elif not os.environ.get(name):
                self._report.add(node, f"the environment variable {name} is not set, or is empty")
            return os.environ.get(name, "")

        text = _VARIABLE.sub(value, node.value)
        return text if self._report.added == before else None

    def _path_of(self, text: str) -> str:
        """The absolute path of a path in the file, which is relative to the file's folder or to `~`."""
        return os.path.normpath(os.path.join(os.path.dirname(self._path), os.path.expanduser(text)))


def _objection_to_store(url: str, written: str) -> str | None:
    """What is wrong with the URL of a store; `None` if nothing is."""
    if not url.startswith(STORE_URLS):
        scheme = written.partition(":")[0] + ":"
        return f"it must begin with a known store; {suggestion(scheme, STORE_URLS)}"
    if url.startswith("memory:") and url != "memory:":
        return "nothing may follow 'memory:'"
    if url == _SQLITE:
        return "the path of a file must follow"
    return None


def _retention(events: Any = KEEP_EVENTS, idle_days: Any = IDLE_S / _DAY_S) -> Retention:
    return Retention(
        values.check_int("retention.events", events),
        values.check_positive("retention.idle_days", idle_days) * _DAY_S,
    )
