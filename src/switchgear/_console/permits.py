"""Permits as texts, for `switchgear check --take` and the API; both use the same format."""

import re
from hashlib import sha256

from switchgear._core.types import Permit

_TOKEN = re.compile(r"([0-9a-f]{8})-(\d{1,18})-(\d{1,18})(?:-(\d{1,18}(?:\.\d{1,20})?))?", re.ASCII)


def dump_permit(circuit: str, permit: Permit) -> str:
    """The permit as a text that is only valid for its circuit."""
    token = f"{_circuit_digest(circuit)}-{permit.generation}-{permit.probe}"
    return token if permit.lease_until_s is None else f"{token}-{permit.lease_until_s!r}"


def load_permit(circuit: str, token: str) -> Permit:
    """The inverse of `dump_permit`. Raises ValueError."""
    found = _TOKEN.fullmatch(token)
    if not found:
        raise ValueError(
            f"{token!r} is not a permit: pass the one that was returned with the admission"
        )
    circuit_digest, generation, probe, lease = found.groups()
    if circuit_digest != _circuit_digest(circuit):
        raise ValueError(f"permit {token!r} was issued for another circuit than {circuit!r}")
    return Permit(int(generation), int(probe), None if lease is None else float(lease))


def _circuit_digest(circuit: str) -> str:
    return sha256(circuit.encode()).hexdigest()[:8]
