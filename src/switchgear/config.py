"""The configuration file: find, load and check it.

>>> from switchgear.config import DEFAULT
>>> DEFAULT.store is None
True
"""

from switchgear._breaker.rules import RuleGuard, place_at
from switchgear._config import (
    DEFAULT,
    CircuitPolicy,
    Config,
    ConfigError,
    Problem,
    Retention,
    RuleBook,
    config_schema,
    find_config,
    load_config,
    preset_policy,
)
from switchgear._rules.builtin import builtin_rules
from switchgear._rules.effects import Place
from switchgear._rules.rules import judge

__all__ = [
    "DEFAULT",
    "CircuitPolicy",
    "Config",
    "ConfigError",
    "Place",
    "Problem",
    "Retention",
    "RuleBook",
    "RuleGuard",
    "builtin_rules",
    "config_schema",
    "find_config",
    "judge",
    "load_config",
    "place_at",
    "preset_policy",
]
