"""The exception of a call that waits for a human."""

from __future__ import annotations

from typing import Any

__all__ = ["AwaitingApprovalError"]


class AwaitingApprovalError(RuntimeError):
    """A human decides before this call runs. The same call again hears the decision."""

    leaves_session_open = True
    retryable = True

    def __init__(self, approval_id: str, tool_name: str = "", step_index: int = 0) -> None:
        super().__init__(
            f"the call of {tool_name or 'a tool'} at step {step_index} waits for the approval "
            f"{approval_id}"
        )
        self.approval_id = approval_id
        self.tool_name = tool_name
        self.step_index = step_index
        self.effect_id: str | None = None
        self.session_id: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.approval_id, self.tool_name, self.step_index), self.__dict__
