"""The errors that Switchgear raises, and the classification of the errors that model providers return.

All errors of Switchgear derive from `SwitchgearError` and can be pickled.

>>> from switchgear.errors import classify_response
>>> classify_response(529).kind
<ProviderErrorKind.OVERLOAD: 'overload'>
"""

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
from switchgear._providers.errors import (
    ProviderError,
    classify,
    classify_response,
    is_provider_failure,
)
from switchgear._providers.table import ProviderErrorKind

__all__ = [
    "BudgetRefused",
    "LockLost",
    "LockTimeout",
    "NoRoute",
    "OverrideRefused",
    "ProviderError",
    "ProviderErrorKind",
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
    "classify",
    "classify_response",
    "is_provider_failure",
]
