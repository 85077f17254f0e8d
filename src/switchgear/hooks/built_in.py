"""The built-in rules as a configuration, for a project whose own configuration cannot be had.

Used where the configuration cannot be read and none was compiled before: a hook never judges without
rules. Circuits are not consulted then; `on_trouble` has its default.
"""

import os

from switchgear.core.rules_builtin import BUILTIN
from switchgear.core.rules_wire import dump_rules
from switchgear.hooks.compiled import SOURCES, Compiled
from switchgear.hooks.protect import GUARD_RULES, IN_PROJECTS, SHARED_STORE
from switchgear.ladder import Interventions
from switchgear.stores.places import default_file


def built_in(root: str) -> Compiled:
    """All built-in rules and guard rules for the project at `root`, and no circuits."""
    store = default_file(root)
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rules = [rule for group in BUILTIN.values() for rule in group]
    return Compiled(
        store=f"sqlite:///{store}",
        circuits=(),
        own=0,
        on_trouble="admit",
        lease_s=0.0,
        story=None,
        context_tokens=None,
        session_s=None,
        interventions=Interventions(),
        rules=dump_rules((*rules, *GUARD_RULES, SHARED_STORE)),
        protected=(
            os.path.join(os.path.dirname(store), "**"),
            *(os.path.join(root, name) for name in (*SOURCES[:3], *IN_PROJECTS)),
            os.path.join(ours, "**"),
        ),
        root=root,
    )
