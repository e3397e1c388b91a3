"""A service with users, in memory: what the examples' tools call, and what their undos reach.

    python examples/crm.py [port]

`POST /users` with `{"email": …}` makes one and `GET /users` shows all. `DELETE /users/{id}` deletes
one and answers 404 when it is gone already, so that an undo can be called twice.
"""

import json
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Crm(ThreadingHTTPServer):
    """The service, with its users by id."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.users: dict[str, dict[str, Any]] = {}
        self.made: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def create(self, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        """A new user; the same key again gives the same user."""
        with self.lock:
            if key is not None and key in self.made:
                return self.made[key]
            user = {"id": uuid.uuid4().hex[:8], **body}
            self.users[user["id"]] = user
            if key is not None:
                self.made[key] = user
            return user

    def delete(self, user_id: str) -> bool:
        """Whether there was such a user."""
        with self.lock:
            return self.users.pop(user_id, None) is not None


class Handler(BaseHTTPRequestHandler):
    """The three routes."""

    server: Crm

    def do_GET(self) -> None:
        with self.server.lock:
            self.answer(200, list(self.server.users.values()))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(201, self.server.create(body, self.headers.get("Idempotency-Key")))

    def do_DELETE(self) -> None:
        found = self.server.delete(self.path.rpartition("/")[2])
        self.answer(200 if found else 404, {})

    def answer(self, status: int, content: Any) -> None:
        """Answers with JSON."""
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


if __name__ == "__main__":
    Crm(int(sys.argv[1]) if len(sys.argv) > 1 else 8100).serve_forever()
