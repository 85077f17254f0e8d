"""Who may give orders: whoever has the operator token. The guarded may not unguard themselves.

The digest of the token is kept in the store as soon as somebody who is configured with one uses
it. From then on a configuration that leaves it out opens nothing.
"""

from switchgear.errors import OrderRefused, StoreError
from switchgear.stores.base import Store


class OperatorLock:
    """The lock on a store's orders, and the key that was given, if any. Thread-safe."""

    __slots__ = ("_kept", "_token", "digest")

    def __init__(self, digest: str | None = None, token: str | None = None) -> None:
        self.digest = None if digest is None else digest.lower()
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
            return  # whoever needs the store is about to hear of it

    def keep_again_in(self, store: Store) -> None:
        """The same for a store that was gone, and may have come back empty."""
        self._kept = self.digest is None
        self.keep_in(store)

    def demand(self, store: Store, what: str) -> None:
        """Raise `OrderRefused` unless orders may be given, `StoreError` when nobody can tell."""
        digest = store.operator_digest() or self.digest
        if digest is not None and not fits(self._token, digest):
            raise OrderRefused(what)
        self.keep_in(store)

    def change(self, store: Store, digest: str | None) -> None:
        """Another token from now on, or none. Raises `OrderRefused` without the present one."""
        self.demand(store, "*")
        present = store.operator_digest()
        if not store.set_operator_digest(digest, instead_of=present):
            raise OrderRefused("*")  # somebody else changed it in between


def fits(token: str | None, digest: str) -> bool:
    """Whether the token has this SHA-256 digest, in hexadecimal; takes as long either way."""
    if token is None:
        return False
    # Imported for those who have a token; whoever only guards calls need not pay for OpenSSL.
    from hashlib import sha256  # noqa: PLC0415
    from hmac import compare_digest  # noqa: PLC0415

    return compare_digest(sha256(token.encode(errors="replace")).hexdigest(), digest.lower())
