"""Errors of a configuration are reported exactly: file, line, key, error, allowed values; all at once."""

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from switchgear import SwitchgearError, detectors
from switchgear._config import ConfigError, Problem, load_config
from switchgear._config.loader import KEYS, LARGEST_BYTES
from switchgear._config.problems import MOST_PROBLEMS
from switchgear._config.sections import LONGEST_CHAIN, MOST_DETECTORS
from switchgear._config.yaml_tree import DEEPEST


def rule_of(check: Callable[[], object]) -> str:
    """The rule in a constructor's error for a bad value: the loader repeats it."""
    with pytest.raises(ValueError) as caught:
        check()
    return str(caught.value).partition(": ")[2]


WHOLE = rule_of(lambda: detectors.ConsecutiveFailures(0))


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems(text: str | bytes, name: str = "switchgear.yaml") -> list[str]:
    """The problems, one line each."""
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as caught:
        load_config(name)
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return str(caught.value).splitlines()


def test_an_error_carries_its_problems_and_pickles() -> None:
    Path("switchgear.yaml").write_text("\nstor: 1\n")
    with pytest.raises(SwitchgearError) as caught:
        load_config("switchgear.yaml")
    error = caught.value
    assert isinstance(error, ConfigError)
    problem = Problem("switchgear.yaml", 2, "stor", "unknown key; did you mean 'store'?")
    assert error.problems == (problem,)
    assert str(error) == "switchgear.yaml:2: stor: unknown key; did you mean 'store'?"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_all_errors_are_reported_at_once_in_the_order_of_the_lines() -> None:
    text = """\
policies:
  patient:
    extends: providr
    detectors:
      - consecutive_failures: {thresold: 8}
      - failure_rate:
          window: "20"
          threshold: true
          min_calls: 3.5
      - slow_calls:
    recovery: {cooldown: {base_s: 600, max_s: 300, jitter: 2}}
    strict: maybe
circuits:
  - match: provider/*
    policy: pateint
retention: {events: 0}
stor: x
"""
    assert problems(text) == [
        (
            "switchgear.yaml:3: policies.patient.extends: is 'providr': there is no such policy or "
            "preset; did you mean 'provider'?"
        ),
        (
            "switchgear.yaml:5: policies.patient.detectors[0].consecutive_failures.thresold: "
            "unknown key; did you mean 'threshold'?"
        ),
        (f"switchgear.yaml:7: policies.patient.detectors[1].failure_rate.window: is '20': {WHOLE}"),
        (
            "switchgear.yaml:8: policies.patient.detectors[1].failure_rate.threshold: is True: it "
            "must be at least 0 and below 1"
        ),
        (
            f"switchgear.yaml:9: policies.patient.detectors[1].failure_rate.min_calls: is 3.5: {WHOLE}"
        ),
        (
            "switchgear.yaml:10: policies.patient.detectors[2].slow_calls: slow_calls needs the key "
            "'slow_seconds'"
        ),
        (
            "switchgear.yaml:11: policies.patient.recovery.cooldown.base_s: is 600: it must not be "
            "above max_s, 300"
        ),
        (
            "switchgear.yaml:11: policies.patient.recovery.cooldown.jitter: is 2: it must be at "
            "least 0 and below 1"
        ),
        "switchgear.yaml:12: policies.patient.strict: is 'maybe': it must be true or false",
        (
            "switchgear.yaml:15: circuits[0].policy: is 'pateint': there is no such policy or "
            "preset; did you mean 'patient'?"
        ),
        f"switchgear.yaml:16: retention.events: is 0: {WHOLE}",
        "switchgear.yaml:17: stor: unknown key; did you mean 'store'?",
    ]


def test_toml_has_lines_too() -> None:
    text = '''\
stor = "x" # a remark = with "signs"
note = """
retention = 1
"""

[retention]
events = true

[policies."a.b"]
detectors = [
  {consecutive_failures = {threshold = 1}},
  # a remark ]
  {failure_rate = {window = 20, threshold = "x" } },
]
recovery.cooldown.base_s = 'x'

[[circuits]]
match = "a"
policy = "provider"

[[circuits]]
match = [1]
'''
    assert problems(text, "switchgear.toml") == [
        "switchgear.toml:1: stor: unknown key; did you mean 'store'?",
        f"switchgear.toml:2: note: unknown key; allowed: {', '.join(sorted(KEYS))}",
        f"switchgear.toml:7: retention.events: is True: {WHOLE}",
        (
            "switchgear.toml:13: policies['a.b'].detectors[1].failure_rate.threshold: is 'x': it "
            "must be at least 0 and below 1"
        ),
        (
            "switchgear.toml:15: policies['a.b'].recovery.cooldown.base_s: is 'x': it must be a "
            "finite number of seconds above 0"
        ),
        "switchgear.toml:21: circuits[1]: needs the key 'policy'",
        (
            "switchgear.toml:22: circuits[1].match: is a list: it must be the name of a circuit or "
            "a glob"
        ),
    ]


def test_keys_of_a_project_file_are_named_in_full() -> None:
    text = "[project]\nname = 'x'\n\n[tool.switchgear]\nstor = 1\n"
    assert problems(text, "pyproject.toml") == [
        "pyproject.toml:5: tool.switchgear.stor: unknown key; did you mean 'store'?"
    ]


ONE_LINERS = {
    "[]": "switchgear.yaml:1: is a list: it must be a mapping of keys to values",
    "just text": "1: is 'just text': it must be a mapping of keys to values",
    "store: 5": "1: store: is 5: it must be one of memory:, sqlite:///, ",
    "store: ''": "1: store: is '': it must be one of memory:",
    "store: sqllite:///x": "did you mean 'sqlite:///'?",
    "store: state.db": "1: store: is 'state.db': it must begin with a known store; allowed: memory:",
    "store: 'memory:x'": "1: store: is 'memory:x': nothing may follow 'memory:'",
    "store: sqlite:///": "1: store: is 'sqlite:///': the path of a file must follow",
    "store: redis://${NOT_SET_AT_ALL}@h": "1: store: the environment variable NOT_SET_AT_ALL is not set",
    "store: redis://${NO NAME}": "1: store: '${NO NAME}' is not the name of a variable",
    "operator_token_sha256: 5": "1: operator_token_sha256: is not a text in quotes: it must be the SHA",
    "retention: 5": "1: retention: is 5: it must be a mapping of keys to values",
    "retention: {idle_days: -1}": "1: retention.idle_days: is -1: it must be a finite number above 0",
    "retention: {idle_days: .inf}": "idle_days: is inf: it must be a finite number above 0",
    "retention: {idle_days: .nan}": "idle_days: is nan: it must be a finite number above 0",
    "retention: {events: [1]}": "1: retention.events: is [1]: it must be a whole number",
    f"retention: {{events: 1{'0' * 400}}}": "is too large a number",
    f"retention: {{events: 1{'0' * 9000}}}": "is not a value that can be read",
    "policies: [a]": "1: policies: is a list: it must be a mapping of keys to values",
    "policies: {a: provider}": "1: policies.a: is 'provider': it must be a mapping with detectors, or",
    "policies: {a: }": "1: policies.a: is empty: it must be a mapping with detectors",
    "policies: {a: {}}": "1: policies.a: needs the key 'detectors', or 'extends'",
    "policies: {a: {extends: [b]}}": "1: policies.a.extends: is a list: it must be the name of a policy",
    "policies: {a: {extends: a}}": "a.extends: is 'a': policies extend each other in a cycle: a → a",
    "policies: {a: {detectors: []}}": "a.detectors: is empty: it must have at least one of actions_debt",
    "policies: {a: {detectors: {failure_rate: {}}}}": "a.detectors: is a mapping: it must be a list",
    "policies: {a: {detectors: [1]}}": "a.detectors[0]: is 1: it must be one of actions_debt",
    "policies: {a: {detectors: [{}]}}": "a.detectors[0]: is a mapping: it must be one of",
    "policies: {a: {detectors: [stuck_probability]}}": "a.detectors[0]: the trained model was removed: on "
    "sources that it was not trained on, it did not beat the preset 'default'; use 'stagnation' instead",
    "policies: {a: {detectors: [stuck_probability: {bias: -2}]}}": "detectors[0].stuck_probability: the trained",
    "policies: {a: {detectors: [failurerate]}}": "unknown kind 'failurerate'; did you mean 'failure_rate'?",
    "policies: {a: {detectors: [{failure_rate: {}, slow_calls: {}}]}}": "detectors[0]: has 2 keys, "
    "'failure_rate', 'slow_calls': it must have one of",
    "policies: {a: {detectors: [failure_rate: 5]}}": "failure_rate: is 5: it must be a mapping of keys",
    "policies: {a: {detectors: [failure_rate: {window: [5]}]}}": "window: is a list: it must be a single",
    "policies: {a: {detectors: [failure_rate: {window: []}]}}": "window: is a list: it must be a single",
    "policies: {a: {detectors: [failure_rate: {window: {}}]}}": "window: is a mapping: it must be a sing",
    "policies: {a: {detectors: [failure_rate: {window: }]}}": "window: is None: it must be a whole number",
    "policies: {a: {detectors: [failure_rate: {window: 5, min_calls: 6}]}}": "min_calls: is 6: it must not "
    "be above window, which is 5",
    "policies: {a: {extends: latency, recovery: {latched: {x: 1}}}}": "latched.x: unknown key; no key is "
    "allowed here",
    "policies: {a: {extends: latency, recovery: }}": "a.recovery: is empty: it must be one of cooldown",
    "policies: {a: {extends: latency, tripping_at: 2}}": "a.tripping_at: is 2: it must be above 0 and",
    "policies: {a: {extends: latency, tripping_at: [2]}}": "a.tripping_at: is a list: it must be a single",
    "policies: {a: {extends: latency, combine: all}}": "a.combine: unknown kind 'all'; allowed: any, weig",
    "policies: {a: {extends: latency, combine: weighted_sum}}": "a.combine: weighted_sum needs the key 'w",
    "policies: {a: {extends: latency, combine: {weighted_sum: {weights: 3}}}}": "weights: is 3: it must be "
    "a mapping",
    "policies: {a: {extends: latency, combine: {weighted_sum: {weights: {latency_p95: x}}}}}": "combine."
    "weighted_sum.weights.latency_p95: is 'x': it must be a finite number above 0",
    "policies: {a: {extends: latency, combine: {weighted_sum: {weights: {slow_calls: 9}}}}}": "a.combine."
    "weighted_sum.weights: has no weight for the detector 'latency_p95'",
    "policies: {a: {extends: latency, combine: {weighted_sum: {weights: {latency_p95: 9}}}}}": "a.combine: "
    "WeightedSum.threshold is 60: it must not be above the sum of the weights, 9",
    "circuits: {a: b}": "1: circuits: is a mapping: it must be a list",
    "circuits: [a]": "1: circuits[0]: is 'a': it must be a mapping of keys to values",
    "circuits: [{policy: provider}]": "1: circuits[0]: needs the key 'match'",
    "circuits: [{match: '', policy: provider}]": "circuits[0].match: is '': it must be the name of a circ",
    "circuits: [{match: a, policy: 5}]": "circuits[0].policy: is 5: it must be a mapping with detectors",
    "circuits: [{match: a, policy: latency, polcy: provider}]": "circuits[0].polcy: unknown key; did you mean 'policy'?",
    "sinks: log": "1: sinks: is 'log': it must be a list",
    "sinks: [logg]": "1: sinks[0]: unknown kind 'logg'; did you mean 'log'?",
    "sinks: [jsonl]": "1: sinks[0]: jsonl needs the key 'path'",
    "sinks: [jsonl: {path: 5}]": "sinks[0].jsonl.path: is 5: it must be a text that is not empty",
    "sinks: [jsonl: {path: ''}]": "sinks[0].jsonl.path: is '': it must be a text that is not empty",
    'sinks: [jsonl: {path: "a\\0b"}]': "jsonl.path: is '/",
    "sinks: [log: {level: loud}]": "log.level: is 'loud': it must be one of debug, info, warning, error",
    "sinks: [log: {level: 3}]": "log.level: is 3: it must be one of debug",
    "retention:\n  events: 5\n  events: 6": "3: retention.events: duplicate key; it is already in line 2",
    "policies:\n  on: {extends: provider}": "2: policies: the key 'on' is not a text; put it in quotes",
    "? [a]\n: b": "1: the key a list or mapping is not a text; put it in quotes",
    "store: !!python/object/apply:os.system [id]": "1: the tag 'tag:yaml.org,2002:python/object/apply:os.",
    "store: !secret x": "1: the tag '!secret' is not allowed",
    "store: !!binary aGk=": "1: the tag 'tag:yaml.org,2002:binary' is not allowed",
    "a: 1\n--- \nb: 2": "2: not valid YAML: expected a single document in the stream, but found another",
    "a:\n  - b\n c": "3: not valid YAML: ",
    "a: b: c": "1: not valid YAML: mapping values are not allowed here; a text that has ': ' in it",
    "a: 1\n\tb: 2": "2: not valid YAML: while scanning for the next token, found character '\\t'",
    "\n\na: \x07": "3: not valid YAML: the character '\\x07'",
    "a: *nobody": "1: not valid YAML: found undefined alias",
    "a: &x [*x]": "1: nested deeper than",
    "a: " + "[" * 100: f"1: not valid YAML: nested deeper than {DEEPEST} levels",
    "<<: 5": "1: is 5: it must be a mapping of keys to values",
    '"\\x1b[31m": 5': r"1: ['\x1b[31m']: unknown key",
}


@pytest.mark.parametrize(("text", "message"), ONE_LINERS.items())
def test_a_problem_is_reported_exactly(text: str, message: str) -> None:
    [told] = problems(text)
    assert message in told
    assert told.startswith("switchgear.yaml:")
    assert told.isprintable()


TOML_ONE_LINERS = {
    "a = ": "switchgear.toml:1: not valid TOML: Invalid value",
    "\n\na = [": "switchgear.toml:3: not valid TOML: ",
    "store = 1\nstore = 2": "switchgear.toml:2: not valid TOML: Cannot overwrite a value",
    "store = 2024-01-01": "switchgear.toml:1: store: is '2024-01-01': it must begin with a known store",
    f"retention.events = 1{'0' * 400}": "1: retention.events: is too large a number",
    f"retention.events = 1{'0' * 9000}": "switchgear.toml: not valid TOML: Exceeds the limit",
    "a = " + "[" * 5000: "switchgear.toml: not valid TOML: nested too deep",
    "a = " + "[" * 40 + "]" * 40: "switchgear.toml: nested deeper than 32 levels",
    "x = 1\n" + "a." * 50_000 + "a = 1": "switchgear.toml:2: a key of more than 32 parts",
}


@pytest.mark.parametrize(("text", "message"), TOML_ONE_LINERS.items())
def test_a_problem_of_a_toml_file_is_reported_exactly(text: str, message: str) -> None:
    [told] = problems(text, "switchgear.toml")
    assert message in told


def test_rules_that_can_never_be_used_are_reported() -> None:
    told = problems(
        "circuits:\n"
        "  - {match: a, policy: provider}\n"
        "  - {match: a, policy: operation}\n"
        "  - {match: '*', policy: provider}\n"
        "  - {match: b*, policy: provider}\n"
    )
    assert told == [
        (
            "switchgear.yaml:3: circuits[1].match: is 'a': never used; the first match wins, and "
            "line 2 matches all of it"
        ),
        (
            "switchgear.yaml:5: circuits[3].match: is 'b*': never used; the first match wins, and "
            "line 4 matches all of it"
        ),
    ]


def test_policies_that_extend_each_other_are_reported_with_the_cycle() -> None:
    told = problems("policies:\n  a: {extends: b}\n  b: {extends: c}\n  c: {extends: a}\n")
    assert (
        "policies.c.extends: is 'a': policies extend each other in a cycle: a → b → c → a"
        in told[2]
    )


def test_a_bad_part_that_others_inherit_is_reported_once() -> None:
    [told] = problems(
        "policies:\n"
        "  a: {detectors: [slow_calls]}\n"
        "  b: {extends: a}\n"
        "circuits: [{match: x, policy: b}, {match: y, policy: a}]\n"
    )
    assert told.startswith("switchgear.yaml:2: policies.a.detectors[0]: slow_calls needs the key")


def test_nothing_is_reported_about_values_that_are_not_in_the_file() -> None:
    told = problems(
        "policies:\n"
        "  a: {detectors: [failure_rate: {window: x, min_calls: 50}]}\n"
        "  b: {extends: provider, recovery: {cooldown: {base_s: 42, max_s: 30}}}\n"
    )
    assert told == [
        (f"switchgear.yaml:2: policies.a.detectors[0].failure_rate.window: is 'x': {WHOLE}"),
        (
            "switchgear.yaml:3: policies.b.recovery.cooldown.base_s: is 42: it must not be above "
            "max_s, 30"
        ),
    ]


# Secrets


def test_a_token_in_place_of_its_hash_is_not_shown() -> None:
    [told] = problems("operator_token_sha256: correct-horse")
    assert "has 13 characters: it must be the SHA-256 of the token" in told
    assert "horse" not in told


def test_the_values_of_variables_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2")
    [told] = problems("store: '${MY_SECRET}'")
    assert "is '${MY_SECRET}': it must begin with a known store" in told
    assert "hunter2" not in told


def test_a_password_in_a_wrong_url_is_not_shown() -> None:
    [told] = problems("store: rediz://user:hunter22@host")
    assert "hunter22" not in told


# Files that are no text


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"^gone\.yaml: cannot be read: No such file"):
        load_config("gone.yaml")


def test_a_folder_is_reported() -> None:
    Path("x.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"^x\.yaml: is not a regular file$"):
        load_config("x.yaml")


def test_a_pipe_is_reported_without_waiting() -> None:
    os.mkfifo("x.yaml")
    with pytest.raises(ConfigError, match=r"^x\.yaml: is not a regular file$"):
        load_config("x.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_reported() -> None:
    Path("x.yaml").touch(mode=0)
    with pytest.raises(ConfigError, match=r"^x\.yaml: cannot be read: Permission denied$"):
        load_config("x.yaml")


def test_an_impossible_file_name_is_reported() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config("a\0b.yaml")


def test_a_name_of_another_kind_is_reported() -> None:
    assert problems("", "switchgear.ini") == [
        "switchgear.ini: the name must end in .yaml, .yml or .toml"
    ]


def test_bytes_that_are_not_text_are_reported_with_their_line() -> None:
    assert problems(b"a: 1\nb: \xff\n") == ["switchgear.yaml:2: is not UTF-8 text: the byte 0xff"]
    assert problems("a: 1".encode("utf-16"))[0].endswith("is not UTF-8 text: the byte 0xff")


def test_a_file_that_is_too_large_is_reported() -> None:
    assert problems(b"#" * (LARGEST_BYTES + 1)) == ["switchgear.yaml: is larger than 256 KiB"]


def test_a_long_value_is_not_quoted_at_length() -> None:
    [told] = problems(f"sinks: [log: {{level: {'x' * 5000}}}]")
    assert told.startswith("switchgear.yaml:1: sinks[0].log.level: is 'xxx")
    assert told.endswith("xxx': it must be one of debug, info, warning, error, critical")
    assert len(told) < 500


# Files that would cost too much


def test_the_expansion_of_aliases_is_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    started = time.process_time()
    [told] = problems("\n".join(lines))
    assert "more than 50000 values, with aliases expanded" in told
    assert time.process_time() - started < 5


def test_a_long_chain_of_aliases_is_reported() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000))]
    assert "nested deeper than 32 levels, with aliases expanded" in problems("\n".join(lines))[0]


def test_a_long_chain_of_policies_is_reported() -> None:
    names = [f"p{n}" for n in range(LONGEST_CHAIN + 1)]
    lines = [f"  {name}: {{extends: {base}}}" for name, base in zip(names, names[1:], strict=False)]
    told = problems("policies:\n" + "\n".join(lines) + f"\n  {names[-1]}: {{extends: provider}}")
    assert told == [
        (
            f"switchgear.yaml:{LONGEST_CHAIN + 1}: policies.p{LONGEST_CHAIN - 1}.extends: extends "
            f"more than {LONGEST_CHAIN} policies in a chain"
        )
    ]


def test_a_policy_with_too_many_detectors_is_reported() -> None:
    crowd = ", ".join(["failure_rate"] * (MOST_DETECTORS + 1))
    [told] = problems(f"policies: {{a: {{detectors: [{crowd}]}}}}")
    assert f"a.detectors: has {MOST_DETECTORS + 1} detectors: at most {MOST_DETECTORS}" in told


def test_garbage_is_reported_up_to_a_hundred_problems() -> None:
    told = problems("".join(f"key{n}: 1\n" for n in range(5000)))
    assert len(told) == MOST_PROBLEMS + 1
    assert told[0] == "switchgear.yaml: has 100 problems or more; fix these first"
