"""What our plugin for OpenCode and our extension for pi understand: the ruling as it is.

They run inside the agent and act on it with the agent's own means: throw, append, abort.
"""

import json

from switchgear._agents.hook_call import HookFacts
from switchgear._agents.hook_ruling import REFUSING, Reply, Ruling


def write(ruling: Ruling, facts: HookFacts) -> Reply:
    """`{"action": "allow" | "warn" | "deny" | "stop", "text": …, "remark": …}` on one line."""
    del facts
    return write_plain(ruling)


def write_plain(ruling: Ruling) -> Reply:
    """The same, whatever the event was."""
    output = {"action": ruling.action.value, "text": ruling.text, "remark": ruling.remark}
    refusal = ruling.text if ruling.action in REFUSING else ""
    return Reply(json.dumps(output), ruling.remark, refusal=refusal)
