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
    made.globals.update(
        charts=charts,
        design=Markup(DESIGN),  # noqa: S704  our own
        count=facts.count,
        items=facts.items,
        kind_name=facts.kind_name,
        mapping=facts.mapping,
        money=facts.money,
        number=facts.number,
        percent=facts.percent,
        phase_name=facts.phase_name,
        span=facts.span,
        text=facts.text,
        tone=facts.tone,
        whole=facts.whole,
    )
    made.filters["mapping"] = facts.mapping
    made.filters["short"] = partial(facts.text, longest=100)
    return made


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markup) else charts.printable(str(value))
