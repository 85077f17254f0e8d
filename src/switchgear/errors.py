"""The errors that Switchgear raises: one root, `SwitchgearError`; all of them picklable."""

from switchgear._core.errors import (
    BudgetRefused,
    LockLost,
    LockTimeout,
    NoRoute,
    OverrideRefused,
    Refusal,
    Rejected,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    SwitchgearError,
    WrongContext,
)

__all__ = [
    "BudgetRefused",
    "LockLost",
    "LockTimeout",
    "NoRoute",
    "OverrideRefused",
    "Refusal",
    "Rejected",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnavailable",
    "SwitchgearError",
    "WrongContext",
]
