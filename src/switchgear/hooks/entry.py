"""The file that agents run: `python -I -S …/entry.py AGENT`. As small as can be: it has no cache.

The package is entered by a side door. `switchgear/__init__.py` brings the whole library along,
and a hook needs a tenth of it; so the package is registered by its folder alone.
"""

import gc
import sys


def run() -> None:
    """Answer one hook call; does not return."""
    if "switchgear" not in sys.modules:
        package = type(sys)("switchgear")
        package.__path__ = [__file__.rpartition("/hooks/")[0]]
        sys.modules["switchgear"] = package
    gc.disable()  # so short a life leaves no garbage worth collecting
    from switchgear.hooks import lean  # noqa: PLC0415  found only now

    lean.install()
    from switchgear.hooks import bundle  # noqa: PLC0415

    modules = bundle.use()
    from switchgear.hooks.process import main  # noqa: PLC0415

    main(sys.argv, lambda: bundle.keep(modules))


if __name__ == "__main__":
    run()
