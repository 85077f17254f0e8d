"""The configuration file: find, load and check it.

>>> from switchgear.config import DEFAULT
>>> DEFAULT.store is None
True
"""

from switchgear._config import (
    DEFAULT,
    Config,
    ConfigError,
    Problem,
    Retention,
    CircuitPolicy,
    RuleBook,
    config_schema,
    find_config,
    load_config,
    preset_policy,
)

__all__ = [
    "DEFAULT",
    "Config",
    "ConfigError",
    "Problem",
    "Retention",
    "CircuitPolicy",
    "RuleBook",
    "config_schema",
    "find_config",
    "load_config",
    "preset_policy",
]
