"""UndoLog's Python SDK: tools whose calls are recorded before they run, and undone on failure.

```python
from undolog_sdk import CompensationDescriptor, ToolTier, UndoLogSession, undolog_tool

@undolog_tool(
    tier=ToolTier.COMPENSABLE,
    compensation=CompensationDescriptor.new("delete_user", {"id": "{result.id}"}),
)
async def create_user(email: str) -> dict: ...

async with UndoLogSession(org_id="acme"):
    await create_user("ann@example.com")
```
"""

from ._installed import warn_of_another
from ._outcome import not_a_failure
from ._pulse import stop_requested
from .client import InterceptResponse, UndoLogClient
from .decorators import AwaitingApprovalError, StoppedError, undolog_tool
from .errors import (
    ArgumentsChangedError,
    BadResponseError,
    ConflictError,
    DeniedError,
    ExpiredError,
    InProgressError,
    InvalidCallError,
    LimitError,
    NotApplied,
    NotFoundError,
    NotRegisteredError,
    OpenEffectsError,
    OutcomeUnknownError,
    RateLimitedError,
    ResultDecodingError,
    ResultEncodingError,
    ResumeMismatchError,
    RollbackIncompleteError,
    SessionAwaitingApprovalError,
    SessionOverError,
    UnauthorizedError,
    UnavailableError,
    UndoLogError,
    UndoneError,
)
from .session import RollbackResult, Savepoint, UndoLogSession, current_session
from .signature import call_signature, canonical_json
from .tier import CompensationDescriptor, ToolTier

__version__ = "0.1.0"

warn_of_another()

__all__ = [
    "ArgumentsChangedError",
    "AwaitingApprovalError",
    "BadResponseError",
    "CompensationDescriptor",
    "ConflictError",
    "DeniedError",
    "ExpiredError",
    "InProgressError",
    "InterceptResponse",
    "InvalidCallError",
    "LimitError",
    "NotApplied",
    "NotFoundError",
    "NotRegisteredError",
    "OpenEffectsError",
    "OutcomeUnknownError",
    "RateLimitedError",
    "ResultDecodingError",
    "ResultEncodingError",
    "ResumeMismatchError",
    "RollbackIncompleteError",
    "RollbackResult",
    "Savepoint",
    "SessionAwaitingApprovalError",
    "SessionOverError",
    "StoppedError",
    "ToolTier",
    "UnauthorizedError",
    "UnavailableError",
    "UndoLogClient",
    "UndoLogError",
    "UndoLogSession",
    "UndoneError",
    "call_signature",
    "canonical_json",
    "current_session",
    "not_a_failure",
    "stop_requested",
    "undolog_tool",
]
