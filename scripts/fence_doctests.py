"""Docstrings end with examples for `doctest`; the reference shows them as code, not as quotations.

A Griffe extension, loaded by mkdocs.yml: each run of lines from `>>>` to the next blank line is put
into a fence before the docstring is rendered.
"""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)


class FenceDoctests(griffe.Extension):
    """Puts the examples of every docstring into fences."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of what was just found."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value
            )
