r"""HTML from texts that nobody vouches for: every text is escaped here, and nowhere else.

`Markup` is text that is already HTML; anything else that is put into an element is escaped. What
is not printable is shown as an escape such as `\x1b`, so that it is seen and does nothing.
"""

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
