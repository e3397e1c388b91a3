"""What the SDK costs per call, without the network.

    python benchmarks/overhead.py [calls]

The wire is replaced by one that answers at once, so what is left is ours: binding and encoding
the arguments, the canonical form and the signature, the bodies of both requests, the reading of
both answers, the heartbeat's book-keeping. What httpx adds to build and read a request is measured
beside it, with its own transport replaced.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import Any

import httpx

from undolog_sdk import CompensationDescriptor, ToolTier, UndoLogClient, UndoLogSession
from undolog_sdk import undolog_tool as tool

LIMIT_US = 200.0
ARGS: dict[str, Any] = {
    "to": "ann@example.com",
    "subject": "Your invoice",
    "lines": [{"item": f"item {n}", "price": n * 1.25, "tags": ["a", "b"]} for n in range(5)],
}
EXECUTE = json.dumps(
    {"status": "executed", "executed_by": "client", "effect_id": "e", "attempt": 1}
).encode()
REPORTED = b'{"effect_id":"e","status":"committed"}'


def answer(path: str) -> httpx.Response:
    return httpx.Response(200, content=EXECUTE if path.endswith("tool_call") else REPORTED)


class InstantWire:
    """Answers without sending."""

    async def send_async(self, ask: Any) -> httpx.Response:
        return answer(ask.path)

    def send_sync(self, ask: Any) -> httpx.Response:
        return answer(ask.path)


def instant() -> UndoLogClient:
    client = UndoLogClient("http://nowhere")
    client._wire = InstantWire()
    return client


def through_httpx() -> UndoLogClient:
    async def handle(request: httpx.Request) -> httpx.Response:
        return answer(request.url.path)

    transport = httpx.MockTransport(handle)
    return UndoLogClient("http://nowhere", httpx.AsyncClient(transport=transport))


def decorated(tier: ToolTier, client: UndoLogClient) -> tuple[Any, Any]:
    undo = CompensationDescriptor.new("undo") if tier.is_compensable else None

    @tool(tier=tier, compensation=undo, client=client)
    async def send(to: str, subject: str, lines: list[dict[str, Any]]) -> dict[str, str]:
        return {"status": "sent"}

    @tool(tier=tier, compensation=undo, client=client)
    def send_sync(to: str, subject: str, lines: list[dict[str, Any]]) -> dict[str, str]:
        return {"status": "sent"}

    return send, send_sync


async def measure_async(fn: Any, session: UndoLogSession, calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        await fn(**ARGS, _session=session)
        times.append((time.perf_counter_ns() - began) / 1000)
    return times


def measure_sync(fn: Any, session: UndoLogSession, calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        fn(**ARGS, _session=session)
        times.append((time.perf_counter_ns() - began) / 1000)
    return times


def show(name: str, times: list[float]) -> float:
    times = sorted(times[len(times) // 10 :])
    median, p95 = statistics.median(times), times[int(len(times) * 0.95)]
    print(f"{name:<42} median {median:7.1f} µs   p95 {p95:7.1f} µs")
    return median


async def main(calls: int) -> bool:
    client = instant()
    safe, _ = decorated(ToolTier.SAFE, client)
    send, send_sync = decorated(ToolTier.COMPENSABLE, client)
    session = UndoLogSession("acme", client=client)
    show("safe tool, async", await measure_async(safe, session, calls))
    medians = [
        show("compensable tool, async", await measure_async(send, session, calls)),
        show("compensable tool, sync", measure_sync(send_sync, session, calls)),
    ]
    wire = through_httpx()
    send, _ = decorated(ToolTier.COMPENSABLE, wire)
    session = UndoLogSession("acme", client=wire)
    show("compensable, async, httpx's share included", await measure_async(send, session, calls))
    await wire.aclose()
    within = max(medians) < LIMIT_US
    print(f"the SDK's own share is {'below' if within else 'ABOVE'} {LIMIT_US:.0f} µs per call")
    return within


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    sys.exit(0 if asyncio.run(main(count)) else 1)
