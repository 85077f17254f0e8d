"""Lazy imports of the command work in any order."""

import re
import subprocess
import sys
from pathlib import Path

import switchgear
from switchgear._cli import VERBS

SOURCE = Path(switchgear.__file__).parent
EXTRAS = ("switchgear._mcp.server",)
"""Modules of an extra that is not in the development environment: `make integrations` imports them."""
LAZY = re.compile(r"^ +from (switchgear\.[\w.]+) import (\w+)", re.MULTILINE)
IN_FORKS = """
import importlib, os, sys, traceback
import switchgear._cli
for target in sys.argv[1:]:
    module, _, names = target.partition(":")
    if os.fork() == 0:
        try:
            for name in names.split(","):
                getattr(importlib.import_module(module), name, None) or importlib.import_module(f"{module}.{name}")
        except BaseException:
            print(f"import of {names} from {module}:", flush=True)
            traceback.print_exc(limit=-2, file=sys.stdout)
            sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def test_every_lazy_import_of_the_command_works_if_it_is_the_first_import() -> None:
    found: dict[str, set[str]] = {}
    for place, _ in VERBS.values():
        module, _, verb = place.partition(".")
        found.setdefault(f"switchgear._cli.{module}", set()).add(verb)
    for path in (SOURCE / "_cli").rglob("*.py"):
        for module, name in LAZY.findall(path.read_text(encoding="utf-8")):
            if module not in EXTRAS:
                found.setdefault(module, set()).add(name)
    assert len(found) > 20
    targets = [f"{module}:{','.join(sorted(names))}" for module, names in sorted(found.items())]
    command = [sys.executable, "-c", IN_FORKS, *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_verb_is_imported_without_the_others() -> None:
    code = (
        "import sys; from switchgear._cli import main; main.commands['status']; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    verbs = {f"switchgear._cli.{name}" for name in ("status", "run", "doctor", "export")}
    assert verbs & {*done.stdout.split()} == {"switchgear._cli.status"}
