"""Reading the pages of the documentation: their fenced blocks, and the Python examples."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*sorted(DOCS.rglob("*.md")), *TOP]

FENCE = re.compile(r"^(\s*)(```+)\s*(\w*).*$")


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    """The line of the page on which its first line stands."""
    language: str
    text: str
    follows_block: bool
    """Only blank lines lie between it and the block before it."""


def blocks(page: str) -> Iterator[Block]:
    fence: re.Match[str] | None = None
    start, body, last_end = 0, list[str](), -1
    lines = page.splitlines()
    for number, line in enumerate(lines, 1):
        found = FENCE.match(line)
        if fence is None and found:
            fence, start, body = found, number, []
        elif fence is not None and line.strip() == fence[2]:
            between = lines[last_end : start - 1] if last_end > 0 else ["first"]
            text = textwrap.dedent("\n".join(body))
            yield Block(start + 1, fence[3], text, follows_block=not any(map(str.strip, between)))
            fence, last_end = None, number
        elif fence is not None:
            body.append(line)
    assert fence is None, f"the block that begins in line {start} never ends"


class Example(NamedTuple):
    """A Python block and the output that the page shows for it."""

    block: Block
    output: str


def examples(page: str) -> list[Example]:
    found: list[Example] = []
    before = ""
    for block in blocks(page):
        if block.language == "python":
            found.append(Example(block, ""))
        elif block.language == "text" and block.follows_block and before == "python":
            found[-1] = Example(found[-1].block, block.text)
        before = block.language
    return found


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
