"""The templates of the reports: every value is escaped, and control characters are shown as escapes."""

from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from switchgear._report import charts, facts
from switchgear._report.design import DESIGN


def render(template: str, **values: Any) -> str:
    page: str = _environment().get_template(template).render(**values)
    return page


_FACTS = (
    *("count", "items", "kind_name", "mapping", "money", "number", "percent", "phase_name"),
    *("span", "text", "tone", "whole"),
)
"""Functions that the templates call."""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("switchgear._report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.globals.update({name: getattr(facts, name) for name in _FACTS})
    made.globals.update(charts=charts, design=Markup(DESIGN))  # noqa: S704  our own
    made.filters["mapping"] = facts.mapping
    made.filters["short"] = partial(facts.text, longest=100)
    return made


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markup) else charts.printable(str(value))
