"""For the tests of agents: a development server of one's own, and a check of undos.

The pytest plugin gives the fixtures `undolog_dev`, `undolog_org` and `undolog_client`.
"""

from .roundtrip import (
    UndoCheck,
    UndoCheckError,
    check_tool_undo,
    check_tool_undo_sync,
    check_undo,
)
from .server import DevServer, ServerUnavailable, dev_server, find_program

__all__ = [
    "DevServer",
    "ServerUnavailable",
    "UndoCheck",
    "UndoCheckError",
    "check_tool_undo",
    "check_tool_undo_sync",
    "check_undo",
    "dev_server",
    "find_program",
]
