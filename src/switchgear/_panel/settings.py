"""What a panel wants to know of a configuration, whoever reads it and from where."""

from collections.abc import Callable
from typing import Protocol

from switchgear._core.policy import Policy
from switchgear._sinks.dispatch import Sink

PolicyOf = Callable[[str], Policy | None]
"""The policy of a circuit by its name; `None`: nothing is said of it."""


class Retained(Protocol):
    """How much a store keeps."""

    @property
    def events(self) -> int:
        """How many events."""

    @property
    def idle_s(self) -> float:
        """After how many seconds without a change a circuit is forgotten."""


class Configured(Protocol):
    """What a panel wants to know of a configuration; `switchgear.config.Config` is one."""

    @property
    def store(self) -> str | None:
        """The URL of the store."""

    @property
    def operator_token_sha256(self) -> str | None:
        """The digest of the token that orders need."""

    @property
    def retention(self) -> Retained:
        """How much the store keeps."""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Who hears the events."""

    def policy_for(self, name: str) -> Policy | None:
        """The policy of a circuit, if it says."""
