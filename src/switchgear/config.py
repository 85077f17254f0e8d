"""The configuration file: find, load and check it.

>>> from switchgear.config import DEFAULT
>>> DEFAULT.store is None
True
"""

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

__all__ = [
    "DEFAULT",
    "CircuitPolicy",
    "Config",
    "ConfigError",
    "Problem",
    "Retention",
    "RuleBook",
    "config_schema",
    "find_config",
    "load_config",
    "preset_policy",
]
