"""What can go wrong, as types. `retryable` says whether the same call may work later."""

from __future__ import annotations

from typing import Any, TypeVar

import httpx

from ._secret import without_secrets

__all__ = [
    "ArgumentsChangedError",
    "BadResponseError",
    "ConflictError",
    "DeniedError",
    "ExpiredError",
    "InProgressError",
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
    "SessionAwaitingApprovalError",
    "SessionOverError",
    "UnauthorizedError",
    "UnavailableError",
    "UndoLogError",
    "UndoneError",
    "UnknownAnswerError",
]


class NotApplied(Exception):
    """Raised by a tool that knows that it changed nothing: there is nothing to undo."""


class ResultEncodingError(TypeError):
    """A tool returned what cannot be stored: it has no JSON form, or is too large or too deep.

    The call is recorded as done, without its result, and does not run again.
    """


class ResultDecodingError(TypeError):
    """A stored result is not of the type that the tool says it returns.

    The call was made and is not made again. The release that made it returned another type.
    """


class UndoLogError(Exception):
    """Any refusal or fault of UndoLog.

    `code` is the stable reason, `details` holds ids and names, `request_id` finds the request in
    the proxy's log.
    """

    retryable: bool = False
    """Whether the same call may work later."""

    code: str = ""
    message: str = ""
    request_id: str | None = None
    details: dict[str, str]
    retry_after: float | None = None

    def _tell(
        self,
        *,
        code: str,
        message: str,
        request_id: str | None = None,
        details: dict[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.code = code
        self.message = message
        self.request_id = request_id
        self.details = details or {}
        self.retry_after = retry_after

    @property
    def effect_id(self) -> str | None:
        """The call that this is about."""
        return self.details.get("effect_id")

    @property
    def session_id(self) -> str | None:
        """The session that this is about."""
        return self.details.get("session_id")

    @property
    def approval_id(self) -> str | None:
        """The approval request that this is about."""
        return self.details.get("approval_id")


class StatusError(UndoLogError, httpx.HTTPStatusError):
    """The proxy refused a request."""

    def __init__(self, message: str, *, request: httpx.Request, response: httpx.Response) -> None:
        httpx.HTTPStatusError.__init__(self, message, request=request, response=response)
        self._tell(code="", message=message)


class InProgressError(StatusError):
    """Another caller runs this very call now."""

    retryable = True


class ConflictError(StatusError):
    """Something else is recorded at this step, for this call or under this name."""


class DeniedError(StatusError):
    """An approver rejected the call, or the approval was taken back.

    `note` is what the approver wrote, `decided_by` who it was.
    """

    note: str = ""
    decided_by: str = ""


class ExpiredError(StatusError):
    """Nobody decided or ran the call in time, or the session is too old."""


class OutcomeUnknownError(StatusError):
    """Nobody knows whether an earlier run of this call took effect, so it is not run again."""


class UndoneError(StatusError):
    """The call was undone, is being undone, or could not be undone."""


class SessionOverError(StatusError):
    """The session has ended or is being rolled back."""


class SessionAwaitingApprovalError(StatusError):
    """The session waits for an approval and starts nothing new until it is decided."""

    retryable = True


class RollbackIncompleteError(UndoLogError):
    """A rollback did not bring the session back to where it can go on."""

    def __init__(self, session_id: str, state: str) -> None:
        message = f"the rollback of session {session_id} ended in the state {state}"
        super().__init__(message)
        self.state = state
        self._tell(code="ROLLBACK_INCOMPLETE", message=message, details={"session_id": session_id})


class ArgumentsChangedError(UndoLogError):
    """The arguments were changed while the call was being decided, so it did not run.

    What runs is what was recorded, and for an irreversible call what a human approved.
    """

    def __init__(self, tool_name: str, effect_id: str) -> None:
        message = (
            f"the arguments of {tool_name} were changed after they were recorded, so the call did "
            "not run; pass it values that nobody changes meanwhile"
        )
        super().__init__(message)
        self._tell(code="ARGUMENTS_CHANGED", message=message, details={"effect_id": effect_id})


class ResumeMismatchError(UndoLogError):
    """A resumed run does not make the calls that the earlier run made.

    The call did not run. The session stays open, so that it can be resumed correctly.
    """

    leaves_session_open = True

    def __init__(self, message: str, session_id: str) -> None:
        super().__init__(message)
        self._tell(code="RESUME_MISMATCH", message=message, details={"session_id": session_id})


class OpenEffectsError(StatusError):
    """The session still has calls without an outcome, so it cannot be completed."""


class UnauthorizedError(StatusError):
    """The API key is missing or unknown, or may not do this."""


class NotRegisteredError(StatusError):
    """The tool or its compensation is not registered, or cannot be used."""


class NotFoundError(StatusError):
    """There is no such thing for this key."""


class InvalidCallError(StatusError):
    """The request is malformed, or its arguments do not fit the tool's schema."""


class LimitError(StatusError):
    """Larger than a limit allows."""


class RateLimitedError(StatusError):
    """This key asks faster than it may."""

    retryable = True


class UnavailableError(UndoLogError):
    """UndoLog cannot answer now."""

    retryable = True


class UnavailableStatusError(UnavailableError, StatusError):
    """The proxy answers that it cannot serve now."""


class BadResponseError(UnavailableStatusError):
    """The answer is none of an UndoLog proxy's: something in between answered instead."""


class UnreachableError(UnavailableError, httpx.RequestError):
    """The proxy did not answer: no connection, or a time-out."""

    def __init__(self, message: str, *, request: httpx.Request | None = None) -> None:
        httpx.RequestError.__init__(self, message, request=request)
        self._tell(code="UNREACHABLE", message=message)


_BY_CODE: dict[str, type[StatusError]] = {
    "IN_PROGRESS": InProgressError,
    "STEP_CONFLICT": ConflictError,
    "RESULT_CONFLICT": ConflictError,
    "REGISTRATION_CONFLICT": ConflictError,
    "CONTRADICTED": ConflictError,
    "APPROVAL_ALREADY_RESOLVED": ConflictError,
    "ARGS_MODIFIED": ConflictError,
    "APPROVAL_REJECTED": DeniedError,
    "APPROVAL_REVOKED": DeniedError,
    "APPROVAL_VOIDED": DeniedError,
    "APPROVAL_TIMED_OUT": ExpiredError,
    "APPROVAL_LAPSED": ExpiredError,
    "SESSION_EXPIRED": ExpiredError,
    "OUTCOME_UNKNOWN": OutcomeUnknownError,
    "UNDO_RUNNING": UndoneError,
    "ALREADY_UNDONE": UndoneError,
    "UNDO_FAILED": UndoneError,
    "SESSION_COMPLETED": SessionOverError,
    "SESSION_FAILED": SessionOverError,
    "SESSION_COMPENSATING": SessionOverError,
    "SESSION_COMPENSATED": SessionOverError,
    "SESSION_HALTED": SessionOverError,
    "SESSION_AWAITING_APPROVAL": SessionAwaitingApprovalError,
    "EFFECTS_OPEN": OpenEffectsError,
    "TOOL_NOT_REGISTERED": NotRegisteredError,
    "COMPENSATION_UNUSABLE": NotRegisteredError,
    "COMPENSATION_NOT_FOUND": NotRegisteredError,
    "COMPENSATION_REFUSED": UnauthorizedError,
    "LIMIT_EXCEEDED": LimitError,
    "RATE_LIMITED": RateLimitedError,
    "UNAVAILABLE": UnavailableStatusError,
    "DEADLINE_EXCEEDED": UnavailableStatusError,
}

_BY_STATUS: dict[int, type[StatusError]] = {
    400: InvalidCallError,
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    408: UnavailableStatusError,
    409: ConflictError,
    413: LimitError,
    422: InvalidCallError,
    429: RateLimitedError,
}


def from_response(response: httpx.Response) -> StatusError:
    """The typed error of an answer that is not a success."""
    body = _body(response)
    code = _text(body.get("code"))
    message = _text(body.get("message")) or response.reason_phrase or "refused"
    kind = _BY_CODE.get(code) or _BY_STATUS.get(response.status_code, StatusError)
    if response.status_code >= 500 and kind is StatusError:
        # Of a proxy's own fault or of a balancer before it: the request itself was not refused.
        kind = UnavailableStatusError
    shown = f"{code}: {message}" if code else f"HTTP {response.status_code}: {message}"
    error = _status_error(kind, shown, response)
    details = body.get("details")
    error._tell(
        code=code,
        message=message,
        request_id=_text(body.get("request_id")) or None,
        details={str(k): str(v) for k, v in details.items()} if isinstance(details, dict) else {},
        retry_after=_seconds(response.headers.get("retry-after")),
    )
    return error


def bad_response(response: httpx.Response, why: str) -> BadResponseError:
    """The error of a success whose body a proxy would not have sent."""
    text = f"HTTP {response.status_code} from {_where(response)} is no answer of UndoLog: {why}"
    error = _status_error(BadResponseError, text, response)
    error._tell(code="BAD_RESPONSE", message=text)
    return error


class UnknownAnswerError(UndoLogError, httpx.RequestError):
    """The proxy speaks a later version of the wire."""

    def __init__(self, message: str) -> None:
        httpx.RequestError.__init__(self, message)
        self._tell(code="UNKNOWN_ANSWER", message=message)


def from_request_error(error: httpx.RequestError, base_url: str = "") -> UnreachableError:
    """The typed error of a request that got no answer."""
    request: httpx.Request | None = getattr(error, "_request", None)
    if request is not None:
        # Both exceptions may end in a report that others read.
        request = without_secrets(request)
        error.request = request
    at = base_url or (_origin(request) if request is not None else "")
    text = f"the UndoLog proxy {at} does not answer ({type(error).__name__}: {error})"
    if isinstance(error, httpx.ProxyError):
        text += "; the request went through the HTTP proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
    return UnreachableError(" ".join(text.split()), request=request)


def _origin(request: httpx.Request) -> str:
    return str(request.url.copy_with(path="/", query=None)).rstrip("/")


def _where(response: httpx.Response) -> str:
    return f"{response.request.method} {response.request.url}"


Kind = TypeVar("Kind", bound=StatusError)


def _status_error(kind: type[Kind], message: str, response: httpx.Response) -> Kind:
    request = without_secrets(response.request)
    response.request = request
    return kind(message, request=request, response=response)


def _body(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None
