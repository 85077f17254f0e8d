"""Configurations that tests write as the user would: trusted, as `switchgear trust` makes them."""

from pathlib import Path

from switchgear._config.trust import trust_file


def write_config(path: Path, text: str) -> None:
    """Write a configuration and trust it, so that it takes effect for hooks as well."""
    path.write_text(text)
    trust_file(str(path))
