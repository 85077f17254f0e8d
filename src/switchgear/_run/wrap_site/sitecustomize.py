"""Starts the guard of `switchgear wrap` in a Python process, then the user's own `sitecustomize`.

Python imports this module when it starts, because its folder is first in PYTHONPATH. It costs little: the
guard itself is imported when the process imports an HTTP library that model SDKs use.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any  # slow to import, and not needed

_HERE = os.path.dirname(os.path.abspath(__file__))
_TARGETS = ("httpx", "httpx2", "google.genai._api_client")
"""Modules that are guarded after their import."""


class _GuardingLoader:
    """Loads a module with its own loader, then guards it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_module(self, spec: Any) -> Any:
        return self._inner.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Load the module, then guard what it contains."""
        module.__spec__.loader = module.__loader__ = self._inner
        self._inner.exec_module(module)
        from switchgear.integrations._wrapped import loaded

        loaded(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _GuardingFinder:
    """Finds modules to guard with the other finders, and Switchgear itself where it is not installed."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._searching: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module with the guard behind its loader; `None`: not a guarded module."""
        if name == "switchgear" and importlib.machinery.PathFinder.find_spec(name, path) is None:
            init = os.path.join(self._package, "__init__.py")
            return importlib.util.spec_from_file_location(
                name, init, submodule_search_locations=[self._package]
            )
        if name not in _TARGETS or name in self._searching:
            return None
        self._searching.add(name)
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = None if find is None or finder is self else find(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _GuardingLoader(spec.loader)
                    return spec
        finally:
            self._searching.discard(name)
        return None


def _install() -> None:
    settings = json.loads(os.environ["SWITCHGEAR_WRAP"])
    sys.meta_path.insert(0, _GuardingFinder(settings["package"]))
    with open(settings["journal"], "a", encoding="utf-8") as journal:
        journal.write(json.dumps({"kind": "process", "pid": os.getpid()}) + "\n")


def _import_user_sitecustomize() -> None:
    """Import the `sitecustomize` that Python would have found without this one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("SWITCHGEAR_WRAP"):
    _install()
_import_user_sitecustomize()
