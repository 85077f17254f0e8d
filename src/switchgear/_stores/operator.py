"""Overrides need the operator token: a guarded agent must not be able to remove its guards.

As soon as a process that is configured with the digest of a token uses a store, the digest is saved in
the store. From then on, removing it from the configuration does not disable the check.
"""

from switchgear._core.errors import OverrideRefused, StoreError
from switchgear._stores.base import IDLE_S, KEEP_EVENTS, Store


class OperatorLock:
    """Checks the operator token before overrides of a store. Thread-safe."""

    __slots__ = ("_kept", "_token", "digest")

    def __init__(self, digest: str | None = None, token: str | None = None) -> None:
        self.digest: str | None = None if digest is None else digest.lower()
        """The digest that this process is configured with."""
        self._token = token
        self._kept = digest is None

    def keep_in(self, store: Store) -> None:
        """Save the digest in the store once; an unreachable store is tried again later."""
        if self._kept or self.digest is None:
            return
        try:
            store.set_operator_digest(self.digest, instead_of=None)
            self._kept = True
        except StoreError:
            return  # the next use of the store reports the error

    def keep_again_in(self, store: Store) -> None:
        """Save the digest in a store that was unreachable and may have restarted empty."""
        self._kept = self.digest is None
        self.keep_in(store)

    def allows(self, store: Store) -> bool:
        """Whether this process may override: no token is needed, or its token matches. Raises `StoreError`."""
        self.keep_in(store)  # even if refused: the next process may be configured without a digest
        digest = store.operator_digest() or self.digest
        return digest is None or fits(self._token, digest)

    def demand(self, store: Store, name: str, what: str = "") -> None:
        """Raise `OverrideRefused` unless overrides are allowed, `StoreError` when that is unknown.

        `name` is the circuit; `what` describes an operation that concerns no circuit.
        """
        if not self.allows(store):
            raise OverrideRefused(name, what)

    def demand_for_vacuum(self, store: Store, keep_events: int, idle_s: float) -> None:
        """`demand` for a vacuum that keeps less than the default retention, because events are history."""
        if keep_events < KEEP_EVENTS or idle_s < IDLE_S:
            least = f"{KEEP_EVENTS:,} events or {IDLE_S / 86_400:g} days"
            self.demand(store, "vacuum", f"a vacuum that keeps less than {least}")

    def change(self, store: Store, digest: str | None) -> None:
        """Change or remove the token. Raises `OverrideRefused` without the current one."""
        what = "a change of the operator token"
        self.demand(store, "*", what)
        current = store.operator_digest()
        if not store.set_operator_digest(digest, instead_of=current):
            raise OverrideRefused("*", what)  # another process changed it in between


def fits(token: str | None, digest: str) -> bool:
    """Whether the token has this hexadecimal SHA-256 digest, compared in constant time."""
    if token is None:
        return False
    # Imported only with a token: other processes need no OpenSSL.
    from hashlib import sha256  # noqa: PLC0415
    from hmac import compare_digest  # noqa: PLC0415

    return compare_digest(sha256(token.encode(errors="replace")).hexdigest(), digest.lower())
