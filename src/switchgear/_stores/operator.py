"""Overrides need the operator token: a guarded agent must not be able to remove its guards.

The digest of the token is kept in the store as soon as a process that is configured with one uses
it. From then on a configuration that leaves it out opens nothing.
"""

from switchgear._core.errors import OverrideRefused, StoreError
from switchgear._stores.base import IDLE_S, KEEP_EVENTS, Store


class OperatorLock:
    """The lock on a store's orders, and the key that was given, if any. Thread-safe."""

    __slots__ = ("_kept", "_token", "digest")

    def __init__(self, digest: str | None = None, token: str | None = None) -> None:
        self.digest: str | None = None if digest is None else digest.lower()
        """What this process is configured with."""
        self._token = token
        self._kept = digest is None

    def keep_in(self, store: Store) -> None:
        """Let the store remember the digest, once; a store that is gone is asked again later."""
        if self._kept or self.digest is None:
            return
        try:
            store.set_operator_digest(self.digest, instead_of=None)
            self._kept = True
        except StoreError:
            return  # the next use of the store reports it

    def keep_again_in(self, store: Store) -> None:
        """The same for a store that was gone, and may have come back empty."""
        self._kept = self.digest is None
        self.keep_in(store)

    def allows(self, store: Store) -> bool:
        """Whether orders may be given: no token is asked for, or ours fits. Raises `StoreError`."""
        self.keep_in(store)  # also by refused callers: the next may come without a digest
        digest = store.operator_digest() or self.digest
        return digest is None or fits(self._token, digest)

    def demand(self, store: Store, name: str, what: str = "") -> None:
        """Raise `OverrideRefused` unless overrides are allowed, `StoreError` when that is unknown.

        `name` is the circuit that is meant; `what`, if it is none, the thing that was tried.
        """
        if not self.allows(store):
            raise OverrideRefused(name, what)

    def demand_for_vacuum(self, store: Store, keep_events: int, idle_s: float) -> None:
        """The same for removing more than the minimum retention: events are history."""
        if keep_events < KEEP_EVENTS or idle_s < IDLE_S:
            least = f"{KEEP_EVENTS:,} events or {IDLE_S / 86_400:g} days"
            self.demand(store, "vacuum", f"a vacuum that keeps less than {least}")

    def change(self, store: Store, digest: str | None) -> None:
        """Another token from now on, or none. Raises `OverrideRefused` without the present one."""
        what = "a change of the operator token"
        self.demand(store, "*", what)
        present = store.operator_digest()
        if not store.set_operator_digest(digest, instead_of=present):
            raise OverrideRefused("*", what)  # another process changed it in between


def fits(token: str | None, digest: str) -> bool:
    """Whether the token has this SHA-256 digest, in hexadecimal; takes as long either way."""
    if token is None:
        return False
    # Imported only with a token: guarding calls does not need OpenSSL.
    from hashlib import sha256  # noqa: PLC0415
    from hmac import compare_digest  # noqa: PLC0415

    return compare_digest(sha256(token.encode(errors="replace")).hexdigest(), digest.lower())
