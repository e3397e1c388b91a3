"""The outcome of a granted call: reported at once, else by a thread until it is taken."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ._flow import Ask, Flow
from ._ours import InterceptOptions, ReportOptions
from ._outcome import NOT_APPLIED
from ._pulse import Grant
from ._text import error_text
from ._tool import ToolSpec
from ._wire import dumps
from .client import UndoLogClient, own_flows
from .codec import encode
from .errors import (
    InvalidCallError,
    LimitError,
    RateLimitedError,
    ResultEncodingError,
    StatusError,
    UnavailableError,
    UndoLogError,
)
from .session import UndoLogSession

logger = logging.getLogger("undolog_sdk")

# What the service stores of a result. Much more it would not even read to its end.
RESULT_BYTES_MAX = 4 * 1024 * 1024


class StoppedError(UndoLogError):
    """The service stopped this call while it ran: its session is over, or its grant is."""

    def __init__(self, session_id: str, effect_id: str, state: str | None) -> None:
        message = f"the call was stopped while it ran (session: {state or 'its grant is over'})"
        super().__init__(message)
        details = {"session_id": session_id, "effect_id": effect_id}
        self._tell(code="STOPPED", message=message, details=details)


def ask(
    client: UndoLogClient,
    method: str,
    options: InterceptOptions | ReportOptions,
    **arguments: Any,
) -> Ask:
    """A call of one of the client's documented methods, with the documented arguments."""
    is_own = (
        own_flows(client) is not None
        and method not in vars(client)
        and getattr(type(client), method) is getattr(UndoLogClient, method)
    )
    return Ask(getattr(client, method), arguments, options, is_own)


class Report:
    """The outcome of one granted call. It is sent once more by itself if it cannot be sent now."""

    def __init__(
        self,
        spec: ToolSpec,
        client: UndoLogClient,
        session: UndoLogSession,
        grant: Grant,
        *,
        before: Callable[[], Flow[Grant | None]] | None = None,
    ) -> None:
        self._spec = spec
        self._client = client
        self._session = session
        self._grant = grant
        self._before = before

    def committed(self, value: Any, duration_ms: int) -> Flow[None]:
        """The call is done, whatever becomes of its result: it must never run again."""
        fault: ResultEncodingError | None = None
        output: Any = None

        def drop(error: Exception) -> None:
            nonlocal fault, output
            kind = type(value).__qualname__
            fault = ResultEncodingError(
                f"{self._spec.name} returned a {kind}, which cannot be stored ({error}); the call "
                "is recorded as done, without its result"
            )
            fault.__cause__ = error
            output = None

        try:
            made = encode(value, "result")
            if len(dumps(made)) > RESULT_BYTES_MAX:
                raise ValueError(f"its JSON is larger than {RESULT_BYTES_MAX} bytes")
            output = made
        except Exception as error:
            # Whatever a property or a mapping of the value's own raises.
            drop(error)
        else:
            self._spec.warn_of_other_types(value, output)

        def commit() -> Flow[None]:
            grant = yield from self._granted()
            if grant is None:
                return
            result = {"success": True, "output": output, "error": None, "duration_ms": duration_ms}
            session = self._session
            yield ask(
                self._client,
                "commit",
                ReportOptions(grant.attempt),
                org_id=session.org_id,
                session_id=session.session_id,
                effect_id=grant.effect_id,
                result=result,
            )

        def flow() -> Flow[None]:
            try:
                yield from commit()
            except (InvalidCallError, LimitError) as refused:
                if fault is not None:
                    raise
                # The service's word on what it can store: too deep, half of a surrogate pair, …
                drop(refused)
                logger.warning("effect %s: %s", self._grant.effect_id, fault)
                yield from commit()

        if self._before is not None:
            self._later(flow, "committed")
        else:
            yield from self._send(flow, "committed")
        if fault is not None:
            raise fault

    def failed(self, error: BaseException, effect: str) -> Flow[None]:
        """The call did not succeed; what that does to the session goes with the report."""
        text = error_text(error)
        session = self._session
        policy = session._policy_of(error, self._spec.name)

        def flow() -> Flow[None]:
            grant = yield from self._granted()
            if grant is None:
                return
            yield ask(
                self._client,
                "fail",
                ReportOptions(grant.attempt, effect, policy),
                org_id=session.org_id,
                session_id=session.session_id,
                effect_id=grant.effect_id,
                error=text,
            )

        if not isinstance(error, Exception) or self._before is not None:
            # A cancelled task or an ending process must not wait for an answer.
            self._later(flow, "failed")
            return
        try:
            yield from self._send(flow, "failed")
        except UndoLogError as refused:
            # The tool's own exception is the one that matters.
            logger.warning("the failure of %s was not taken: %s", self._spec.name, refused)

    def not_run(self, error: Exception) -> Flow[None]:
        """The call was granted and did not run."""
        yield from self.failed(error, NOT_APPLIED)

    def _granted(self) -> Flow[Grant | None]:
        if self._before is None:
            return self._grant
        return (yield from self._before())

    def _send(self, flow: Callable[[], Flow[None]], what: str) -> Flow[None]:
        try:
            yield from flow()
        except (UnavailableError, RateLimitedError) as error:
            logger.warning("%s: its outcome will be reported later: %s", self._spec.name, error)
            self._later(flow, what)
        except StatusError:
            raise
        except BaseException:
            self._later(flow, what)
            raise

    def _later(self, flow: Callable[[], Flow[None]], what: str) -> None:
        own = own_flows(self._client) or own_flows(self._session._client())
        text = f"{self._spec.name} {what}, effect {self._grant.effect_id}"
        if own is None:
            logger.error("the report '%s' cannot be delivered by this client", text)
            return
        own._reporter.put(self._session.session_id, text, flow)
