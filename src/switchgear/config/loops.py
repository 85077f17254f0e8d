"""The `loops` section: presets of the user's own for `switchgear run --preset NAME`."""

from typing import Any

from switchgear.config.parts import construct
from switchgear.config.problems import Node, Report, shown, suggestion
from switchgear.core import record
from switchgear.loop_presets import LOOP_PRESETS, LoopPreset


def build_loops(node: Node, report: Report) -> dict[str, LoopPreset]:
    """The presets by their names; one may extend one of ours, or one that stands before it."""
    built: dict[str, LoopPreset] = {}
    for name, child in report.mapping(node).items():
        nodes = report.mapping(child, ("extends", *KEYS))
        base = _base(nodes.pop("extends", None), built, report)
        given = {key: value.plain() for key, value in nodes.items()}
        told = {} if base is None else {key: getattr(base, key) for key in KEYS}
        if "max_iterations" not in {**told, **given}:
            report.add(child, "needs the key 'max_iterations', or a loop that it extends")
            continue
        preset = construct(loop_preset, {**told, **given}, nodes, child, report)
        if preset is not None:
            built[name] = preset._replace(name=name)
    return built


def loop_preset(
    *,
    max_iterations: int,
    description: str = "",
    prompt: str = "",
    consecutive_failures: int = 3,
    same_error: int = 5,
    validate: bool = True,
    commit: bool = False,
) -> LoopPreset:
    """A loop: how long it may run, what stops it, and what the agent is told before the task."""
    for field, value in (("validate", validate), ("commit", commit)):
        if not isinstance(value, bool):
            raise ValueError(f"loop.{field} is {value!r}: it must be true or false")
    for field, text in (("description", description), ("prompt", prompt)):
        if not isinstance(text, str):
            raise ValueError(f"loop.{field} is {text!r}: it must be a text")
    return LoopPreset(
        "",
        record.whole("loop.max_iterations", max_iterations),
        description,
        prompt,
        record.whole("loop.consecutive_failures", consecutive_failures),
        record.whole("loop.same_error", same_error),
        validate,
        commit,
    )


KEYS = (
    *("max_iterations", "description", "prompt", "consecutive_failures", "same_error"),
    *("validate", "commit"),
)


def _base(node: Node | None, built: dict[str, LoopPreset], report: Report) -> LoopPreset | None:
    if node is None:
        return None
    known = {**LOOP_PRESETS, **built}
    name: Any = node.value
    if name in known if isinstance(name, str) else False:
        return known[name]
    hint = suggestion(str(name), sorted(known))
    report.add(node, f"is {shown(name)}: there is no such loop before it; {hint}")
    return None
