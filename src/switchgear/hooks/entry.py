"""The command that agents run for each event: `python -I -S …/entry.py AGENT [--root FOLDER]`.

It is small because Python compiles it each time; the rest is in `_hooks/client.py`. The settings of agents
contain its path.
"""

import sys


def run() -> None:
    """Respond to one hook event; does not return."""
    try:
        # A stand-in for `switchgear/__init__.py`, which would import the whole library.
        package = type(sys)("switchgear")
        package.__path__ = [__file__.rpartition("/hooks/")[0]]
        sys.modules["switchgear"] = package
        from switchgear._hooks.client import run  # noqa: PLC0415

        run()
    except BaseException as error:  # noqa: BLE001  agents take any exit code but 2 as an approval
        sys.stderr.write(f"Switchgear could not check this call, and refused it: {error!r}\n")
    finally:
        import os  # noqa: PLC0415

        os._exit(2)


if __name__ == "__main__":
    run()
