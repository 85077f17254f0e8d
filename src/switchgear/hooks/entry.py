"""The file that agents run: `python -I -S …/entry.py AGENT`. As small as can be: it has no cache.

The package is entered by a side door. `switchgear/__init__.py` brings the whole library along,
and a hook needs a tenth of it; so the package is registered by its folder alone.
"""

import os
import sys


def run() -> None:
    """Answer one hook call; does not return."""
    if "switchgear" not in sys.modules:
        package = type(sys)("switchgear")
        package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
        sys.modules["switchgear"] = package
    from switchgear.hooks.process import main  # noqa: PLC0415  found only now

    main(sys.argv)


if __name__ == "__main__":
    run()
