"""The section `hooks`: how the hooks of agents decide."""

from typing import Any

from switchgear.config.model import Hooks
from switchgear.config.parts import construct, fields_of
from switchgear.config.problems import Node, Report
from switchgear.core import record
from switchgear.stores.base import checked_name

ON_TROUBLE = ("admit", "refuse")


def hooks_of(
    *,
    on_trouble: str = Hooks().on_trouble,
    lease_s: float = Hooks().lease_s,
    story: str | None = None,
    context_tokens: int | None = None,
) -> Hooks:
    """Checks the values as the parts of a policy do."""
    if story is not None:
        checked_name(record.text("Hooks.story", story))
    return Hooks(
        record.one_of("Hooks.on_trouble", on_trouble, ON_TROUBLE),
        record.seconds("Hooks.lease_s", lease_s),
        story,
        None
        if context_tokens is None
        else record.whole("Hooks.context_tokens", context_tokens, least=1000),
    )


def build_hooks(node: Node, report: Report) -> Hooks:
    """The section; the default for what is wrong, which is reported."""
    nodes = report.mapping(node, fields_of(hooks_of))
    given: dict[str, Any] = {name: child.plain() for name, child in nodes.items()}
    return construct(hooks_of, given, nodes, node, report) or Hooks()
