"""The configuration file: its location, content and errors.

>>> from switchgear.config import DEFAULT
>>> DEFAULT.store is None
True
"""

from typing import Any

from switchgear._config.loader import find_config, load_config
from switchgear._config.problems import ConfigError, Problem
from switchgear._config.sections import (
    DEFAULT,
    CircuitPolicy,
    Config,
    Retention,
    RuleBook,
    preset_policy,
)


def config_schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors; generated from the registries."""
    from switchgear._config.schema import schema  # noqa: PLC0415  only editors need it

    return schema()


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
