"""The style sheet of the report: light and dark as the reader's system has it, and on paper."""

from html import escape

VOID = frozenset({"br", "meta", "col"})


class Markup(str):
    """HTML that was made by `element`, not text."""

    __slots__ = ()


def shown(text: str) -> Markup:
    r"""A text as HTML.

    >>> shown("<b>\x1b[31m")
    '&lt;b&gt;\\x1b[31m'
    """
    if not text.isprintable():
        text = "".join(
            sign
            if sign.isprintable() or sign == "\n"
            else sign.encode("unicode_escape").decode("ascii")
            for sign in text
        )
    return Markup(escape(text, quote=True))


def element(tag: str, *inside: str, **attributes: str | float | None) -> Markup:
    """An element. An attribute that is `None` is left out; `class_` is `class`, `_` is `-`.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in VOID:
        return Markup(f"<{tag}{named}>")
    return Markup(f"<{tag}{named}>{joined(*inside)}</{tag}>")


def joined(*parts: str) -> Markup:
    """Several parts, one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else shown(part) for part in parts))


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return shown(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")


STYLE = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #fff; --ink: #1d232b; --dim: #5d6875; --rule: #dde2e8; --code: #eef1f4;
  --good: #2f9e5b; --best: #1f7a8c; --bad: #cf3f3f; --warn: #c98a12; --idle: #97a1ad;
  --away: #8a5bc2; --asks: #2f74c8; --cut: #66717e; --on: #fff;
  --k0: #2f74c8; --k1: #cf5a1f; --k2: #2f9e5b; --k3: #8a5bc2; --k4: #b1376c; --k5: #66717e; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12161b; --card: #1a2027; --ink: #e4e8ec; --dim: #9aa6b2; --rule: #2e3742; --code: #232b34;
  --good: #4fbf7f; --best: #53b6c9; --bad: #ef6b6b; --warn: #e0ac46; --idle: #71808f;
  --away: #b18be4; --asks: #6aa6ee; --cut: #8c98a5; --on: #12161b;
  --k0: #6aa6ee; --k1: #f08f5a; --k2: #4fbf7f; --k3: #b18be4; --k4: #e57aa6; --k5: #9aa6b2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 24px; line-height: 1.3; margin: 4px 0 8px; overflow-wrap: anywhere; white-space: pre-line; }
h2 { font-size: 17px; margin: 0 0 10px; }
h3 { font-size: 14px; margin: 0 0 6px; color: var(--dim); font-weight: 600; }
p { margin: 0 0 8px; overflow-wrap: anywhere; }
section, header { background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: 18px 20px; margin: 0 0 16px; }
header { border-left: 6px solid var(--idle); }
header.e-best { border-left-color: var(--best); } header.e-bad { border-left-color: var(--bad); }
header.e-warn { border-left-color: var(--warn); } header.e-asks { border-left-color: var(--asks); }
header.e-cut { border-left-color: var(--cut); }
.dim { color: var(--dim); } .small { font-size: 13px; }
.reason { font-size: 17px; font-weight: 600; margin: 8px 0 4px; white-space: pre-line; }
.files { white-space: pre-line; }
.badge { display: inline-block; padding: 1px 9px; border-radius: 999px; font-size: 13px;
  font-weight: 600; color: var(--on); white-space: nowrap; }
.facts { display: flex; flex-wrap: wrap; gap: 10px 28px; margin: 14px 0 0; padding: 0; }
.facts div { min-width: 90px; } .facts dt { color: var(--dim); font-size: 13px; }
.facts dd { margin: 0; font-size: 18px; font-weight: 600; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 8px 24px; }
svg { vertical-align: middle; } figure { margin: 0; } figure > svg { width: 100%; height: auto; display: block; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; color: var(--dim); font-size: 13px; margin: 6px 0 0; }
.key { display: inline-flex; align-items: center; gap: 6px; }
.chip { width: 11px; height: 11px; border-radius: 3px; display: inline-block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--dim); font-weight: 600; font-size: 13px; white-space: nowrap; }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td { overflow-wrap: anywhere; } td.n, th.n { text-align: right; white-space: nowrap; }
td.t { white-space: nowrap; overflow-wrap: normal; }
td.long { min-width: 220px; white-space: pre-line; }
tr:last-child td { border-bottom: 0; }
.held td:nth-child(-n+3) { width: 1%; } .wide > svg { min-width: 620px; } .warned { color: var(--warn); }
.told th.n, .told td.n { width: 1%; } ul + .scroll { margin-top: 12px; }
ul { margin: 0; padding-left: 20px; } li { overflow-wrap: anywhere; white-space: pre-line; }
code, pre { font: 13px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { background: var(--code); border-radius: 4px; padding: 1px 5px; overflow-wrap: anywhere; }
pre { background: var(--code); border-radius: 6px; padding: 10px 12px; margin: 4px 0 10px;
  overflow: auto; max-height: 360px; white-space: pre-wrap; overflow-wrap: anywhere; }
details { border-top: 1px solid var(--rule); padding: 7px 0; }
details:first-of-type { border-top: 0; } summary { cursor: pointer; overflow-wrap: anywhere; }
details > div { padding: 8px 0 4px 18px; }
a { color: var(--k0); }
.t-good { fill: var(--good); background: var(--good); } .t-best { fill: var(--best); background: var(--best); }
.t-bad { fill: var(--bad); background: var(--bad); } .t-warn { fill: var(--warn); background: var(--warn); }
.t-idle { fill: var(--idle); background: var(--idle); } .t-away { fill: var(--away); background: var(--away); }
.t-asks { fill: var(--asks); background: var(--asks); } .t-cut { fill: var(--cut); background: var(--cut); }
.ring { fill: none; stroke-width: 1.8; } .s-good { stroke: var(--good); } .s-warn { stroke: var(--warn); }
.s-bad { stroke: var(--bad); } .s-idle { stroke: var(--idle); }
.empty { fill: var(--rule); }
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: var(--ink); }
text.axis { fill: var(--dim); } text.on { fill: var(--on); font-weight: 700; } text.nudge { fill: var(--warn); font-weight: 700; }
.grid { stroke: var(--rule); } .limit { stroke: var(--bad); stroke-dasharray: 5 4; }
.mark-warn { stroke: var(--warn); stroke-width: 2; stroke-dasharray: 3 3; } .mark-bad { stroke: var(--bad); stroke-width: 2; }
text.word-warn { fill: var(--warn); } text.word-bad { fill: var(--bad); }
text.limit-word { fill: var(--bad); } .start { stroke: var(--dim); stroke-dasharray: 2 4; }
.line { fill: none; stroke-linejoin: round; } .dot { stroke: none; } .area { stroke: none; opacity: .16; }
.line.k-0 { stroke: var(--k0); } .line.k-1 { stroke: var(--k1); } .line.k-2 { stroke: var(--k2); }
.line.k-3 { stroke: var(--k3); } .line.k-4 { stroke: var(--k4); } .line.k-5 { stroke: var(--k5); }
.dot.k-0, .area.k-0 { fill: var(--k0); } .dot.k-1, .area.k-1 { fill: var(--k1); }
.dot.k-2, .area.k-2 { fill: var(--k2); } .dot.k-3, .area.k-3 { fill: var(--k3); }
.dot.k-4, .area.k-4 { fill: var(--k4); } .dot.k-5, .area.k-5 { fill: var(--k5); }
footer { color: var(--dim); font-size: 13px; }
@media (max-width: 560px) { main { padding: 12px 8px 40px; } section, header { padding: 14px 12px; }
  td.long { min-width: 120px; } }
@media print { body { background: #fff; } section, header { break-inside: avoid; } pre { max-height: none; } }
"""
