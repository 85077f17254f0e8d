"""The start of a stand-in agent's script.

Tests start thousands of these agents. To import json, pathlib and subprocess takes twice as long as
to start Python, so a script imports only the modules that its body names.
"""

import re

_MODULES = ("json", "os", "pathlib", "signal", "subprocess", "sys", "time")
_START = """\
prompt = sys.stdin.read()
n = int(os.environ["SWITCHGEAR_ITERATION"])
def tell(**line): import json; print(json.dumps(line), flush=True)
def write(name, text="x"):
    with open(name, "w") as file: file.write(text)
def done(): tell(type="result", text="done", success=True)
def fail(text): print(text, flush=True); sys.exit(1)
"""


def script(body: str) -> str:
    """The text of an agent that reads its prompt and then runs this body."""
    return f"import os, sys\n{_START}{with_imports(body)}"


def with_imports(body: str) -> str:
    """The text of a script that imports the modules that it names."""
    named = [name for name in _MODULES if re.search(rf"\b{name}\.", body)]
    return f"import {', '.join(named)}\n{body}" if named else body
