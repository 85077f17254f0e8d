"""Every example of the documentation runs, and gives what it shows.

Every ```python block of a page is executed, top to bottom, in one namespace per page. What it
shows is checked: `expression  # → value` against the value's `str` or `repr`; in a compound
statement, such comments against the lines it prints; a ```text block right after it against all
that the block prints. Nothing may sleep or open a connection: examples use the fake clock.
"""

import ast
import asyncio
import io
import socket
import sys
import time
import tokenize
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from architecture.pages import PAGES, Block, Example, examples, page_name

ARROW = "# →"


class Runner:
    """Executes the examples of one page in one module."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self._namespace = module.__dict__
        self._name = name

    def run(self, example: Example) -> None:
        arrows = _arrows(example.block.text)
        left_over: list[str] = []
        for statement in ast.parse(example.block.text).body:
            printed, value = self._execute(statement, example.block)
            end = statement.end_lineno or statement.lineno
            shown = [
                arrows.pop(line) for line in range(statement.lineno, end + 1) if line in arrows
            ]
            if not shown:
                left_over += printed
                continue
            where = f"{self._name}, line {example.block.line + statement.lineno - 1}"
            if printed or _is_compound(statement):
                assert printed == shown, f"{where} prints {printed} and shows {shown}"
            else:
                assert shown[0] in {str(value), repr(value)}, (
                    f"{where} gives {value!r} and shows {shown[0]!r}"
                )
        assert not arrows, f"{self._name}: the comments {arrows} stand beside no statement"
        where = f"{self._name}, line {example.block.line}"
        assert "\n".join(left_over) == example.output, (
            f"{where} prints {left_over}, and the text block after it shows {example.output!r}"
        )

    def _execute(self, statement: ast.stmt, block: Block) -> tuple[list[str], Any]:
        """What the statement prints, and the value it gives or assigns."""
        ast.increment_lineno(statement, block.line - 1)
        printed = io.StringIO()
        value = None
        with redirect_stdout(printed):
            if isinstance(statement, ast.Expr):
                code = compile(ast.Expression(statement.value), self._name, "eval")
                value = eval(code, self._namespace)
            else:
                exec(compile(ast.Module([statement], []), self._name, "exec"), self._namespace)
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                    value = self._namespace[statement.targets[0].id]
        ast.increment_lineno(statement, 1 - block.line)
        return printed.getvalue().splitlines(), value


def _arrows(code: str) -> dict[int, str]:
    """The values shown in comments, by line."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {
        token.start[0]: token.string.removeprefix(ARROW).strip()
        for token in tokens
        if token.type == tokenize.COMMENT and token.string.startswith(ARROW)
    }


def _is_compound(statement: ast.stmt) -> bool:
    return hasattr(statement, "body")


@pytest.fixture
def quiet_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which an example can neither sleep nor open a connection."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("an example sleeps or opens a connection: use FakeClock, a stand-in")

    once = asyncio.sleep

    async def only_a_turn(delay: float, result: Any = None) -> Any:
        return await (once(0, result) if delay == 0 else never())

    monkeypatch.setattr(time, "sleep", never)
    monkeypatch.setattr(asyncio, "sleep", only_a_turn)
    monkeypatch.setattr(socket.socket, "connect", never)


@pytest.mark.usefixtures("quiet_world")
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_example_of_a_page_runs_and_gives_what_it_shows(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType(f"example_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    runner = Runner(module, page_name(page))
    for example in examples(page.read_text(encoding="utf-8")):
        runner.run(example)


def test_the_runner_detects_a_value_that_differs_from_the_one_shown() -> None:
    page = "```python\n1 + 1  # → 3\n```\n"
    with pytest.raises(AssertionError, match=r"line 2 gives 2 and shows '3'"):
        Runner(ModuleType("wrong"), "wrong.md").run(examples(page)[0])


def test_the_runner_detects_output_that_the_page_does_not_show() -> None:
    page = "```python\nprint('a')\n```\n\n```text\nb\n```\n"
    with pytest.raises(AssertionError, match=r"prints \['a'\].*shows 'b'"):
        Runner(ModuleType("wrong"), "wrong.md").run(examples(page)[0])
