"""The API key: it travels in one header and shows nowhere else."""

from __future__ import annotations

import httpx

HEADER = "X-Api-Key"
_HIDDEN = frozenset({"x-api-key", "authorization", "proxy-authorization", "cookie"})


class Secret:
    """A text that neither `repr` nor a log shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "Secret(…)"

    def reveal(self) -> str:
        """The text itself, for the request that needs it."""
        return self._text


def without_secrets(request: httpx.Request) -> httpx.Request:
    """A request as an exception may carry it: without the headers that prove who asks."""
    headers = {k: v for k, v in request.headers.items() if k.lower() not in _HIDDEN}
    return httpx.Request(request.method, request.url, headers=headers)
