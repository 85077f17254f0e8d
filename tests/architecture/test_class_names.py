"""Class names have one meaning each, so that they make sense on their own in a traceback."""

import importlib.util
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "scripts" / "ambiguous_names.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ambiguous_names", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_class_name_has_two_meanings() -> None:
    names = script().ambiguous()
    assert not names, f"rename these by what they are: {names}"


def test_a_second_definition_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Row: ...\nclass Column: ...\n")
    (tmp_path / "two.py").write_text("def make():\n    class Row: ...\n")
    assert script().ambiguous(tmp_path) == {"Row": ["one.py:1", "two.py:2"]}
