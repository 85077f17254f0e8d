"""The configuration file: where it is, what it says, and what is wrong with it.

>>> from switchgear.config import DEFAULT
>>> DEFAULT.store is None
True
"""

from typing import Any

from switchgear.config.loading import load_config
from switchgear.config.model import DEFAULT, Config, Retention, Rule, RuleBook
from switchgear.config.places import find_config
from switchgear.config.policies import preset_policy
from switchgear.config.problems import ConfigError, Problem


def config_schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors: made from the registries, so always complete."""
    from switchgear.config.schema import schema  # noqa: PLC0415  only an editor's set-up asks

    return schema()


__all__ = [
    "DEFAULT",
    "Config",
    "ConfigError",
    "Problem",
    "Retention",
    "Rule",
    "RuleBook",
    "config_schema",
    "find_config",
    "load_config",
    "preset_policy",
]
