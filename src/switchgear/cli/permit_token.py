"""A permit as a word that a shell script carries from `check --take` to `record --permit`."""

import re
from hashlib import sha256

from switchgear.cli.entry import fail
from switchgear.core.types import Permit

_TOKEN = re.compile(r"([0-9a-f]{8})-(\d{1,18})-(\d{1,18})(?:-(\d{1,18}(?:\.\d{1,20})?))?", re.ASCII)


def dump_permit(circuit: str, permit: Permit) -> str:
    """The permit, with a mark of its circuit: one of another circuit would be judged wrongly."""
    token = f"{_mark(circuit)}-{permit.generation}-{permit.probe}"
    return token if permit.lease_until_s is None else f"{token}-{permit.lease_until_s!r}"


def load_permit(circuit: str, token: str) -> Permit:
    """The inverse of `dump_permit`."""
    found = _TOKEN.fullmatch(token)
    if not found:
        fail(f"--permit is {token!r}: it must be what 'switchgear check --take' printed")
    mark, generation, probe, lease = found.groups()
    if mark != _mark(circuit):
        fail(f"--permit is {token!r}: it was given for another circuit than {circuit!r}")
    return Permit(int(generation), int(probe), None if lease is None else float(lease))


def _mark(circuit: str) -> str:
    return sha256(circuit.encode()).hexdigest()[:8]
