"""Many calls at once in one session: from tasks, and from the threads of a pool.

    undolog dev                              # in one terminal
    python examples/concurrent_calls.py      # in another

Tasks inherit the session from the block that they are made in. A pool's threads do not, so what
they run is bound to it. The run fails at its end, and everything is undone at a real HTTP service.
"""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
from crm import Crm

from undolog_sdk import (
    CompensationDescriptor,
    ToolTier,
    UndoLogClient,
    UndoLogSession,
    undolog_tool,
)

ORG = os.environ.get("UNDOLOG_ORG", "dev")
DELETE = CompensationDescriptor.new("concurrent_delete_user", {"id": "{result.id}"})
crm = Crm()


@undolog_tool(tier=ToolTier.COMPENSABLE, compensation=DELETE)
async def create_user(email: str) -> dict[str, str]:
    async with httpx.AsyncClient() as http:
        made: dict[str, str] = (await http.post(crm.url + "/users", json={"email": email})).json()
        return made


@undolog_tool(tier=ToolTier.COMPENSABLE, compensation=DELETE)
def create_user_slowly(email: str) -> dict[str, str]:
    made: dict[str, str] = httpx.post(crm.url + "/users", json={"email": email}).json()
    return made


async def agent(session: UndoLogSession) -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(4) as pool:
        tasks = [asyncio.create_task(create_user(f"task{n}@example.com")) for n in range(10)]
        create = session.bind(create_user_slowly)
        threads = [loop.run_in_executor(pool, create, f"thread{n}@example.com") for n in range(10)]
        made = await asyncio.gather(*tasks, *threads)
    print("made:", len({user["id"] for user in made}), "users:", len(crm.users))
    raise RuntimeError("the agent gave up")


async def main() -> None:
    threading.Thread(target=crm.serve_forever, daemon=True).start()
    async with UndoLogClient() as client:
        await client.register_compensation(
            "concurrent_delete_user",
            org_id=ORG,
            fn_body={
                "kind": "http",
                "method": "DELETE",
                "endpoint": crm.url + "/users/{comp.id}",
                "done_statuses": [404],
            },
            open=True,
        )
        session = UndoLogSession(ORG, client=client, agent_name="example")
        try:
            async with session:
                await agent(session)
        except RuntimeError as error:
            print("failed:", error)
        print("session:", await session.wait_settled(), "users:", len(crm.users))


if __name__ == "__main__":
    asyncio.run(main())
