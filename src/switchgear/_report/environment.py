"""The templates and the colours of the reports. Values are escaped; control characters are shown as escapes."""

from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from switchgear._report import charts, facts
from switchgear._text.formats import percent

_LIGHT = """
  --bg: #f6f7f8; --card: #ffffff; --line: #d9dee2; --text: #16242a; --dim: #52636b;
  --accent: #0b6b60; --accent-text: #ffffff; --focus: #0b6b60;
  --red: #b3261e; --red-bg: #fdecea; --amber: #8a5300; --amber-bg: #fff3dd;
  --green: #1c6b36; --green-bg: #e6f4ea; --blue: #1b5e9e; --blue-bg: #e7f0fa; --grey-bg: #eceff1;
  --purple: #7a4bb5; --orange: #b4501a; --pink: #a5305f; --grey: #66717e; --on: #ffffff;
"""
_DARK = """
  --bg: #0f1518; --card: #182126; --line: #2d3b42; --text: #e4ecef; --dim: #9fb1b9;
  --accent: #5fd4c4; --accent-text: #06251f; --focus: #5fd4c4;
  --red: #ff9b92; --red-bg: #3a1d1b; --amber: #ffc670; --amber-bg: #37290f;
  --green: #86dba0; --green-bg: #14301d; --blue: #93c5ff; --blue-bg: #14283d; --grey-bg: #232f35;
  --purple: #c3a0ee; --orange: #f0a06a; --pink: #ec92b5; --grey: #9aa6b2; --on: #0f1518;
"""

DESIGN = f"""
:root {{ color-scheme: light dark;{_LIGHT}
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{{_DARK}}} }}
:root[data-theme="dark"] {{ color-scheme: dark;{_DARK}}}
:root[data-theme="light"] {{ color-scheme: light; }}
"""
"""Light and dark, by the system's preference or the attribute `data-theme` of the root."""


def render(template: str, **values: Any) -> str:
    page: str = _environment().get_template(template).render(**values)
    return page


_FACTS = (
    *("count", "items", "kind_name", "mapping", "money", "number", "phase_name", "span"),
    *("text", "tone", "whole"),
)
"""Functions that the templates call."""


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("switchgear._report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.globals.update({name: getattr(facts, name) for name in _FACTS})
    environment.globals.update(charts=charts, percent=percent, design=Markup(DESIGN))  # noqa: S704  our own
    environment.filters["mapping"] = facts.mapping
    environment.filters["short"] = partial(facts.text, longest=100)
    return environment


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markup) else charts.printable(str(value))
