"""Every example of `docs/compensations.md` does what the page says, against the real program."""

import json
import re
import sys
from pathlib import Path

import httpx
import pytest

from undolog_sdk import InvalidCallError, NotApplied, UndoLogSession

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "compensations.md").read_text()
sys.path.insert(0, str(ROOT / "sdk/python/examples"))

from crm import Crm  # noqa: E402


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def rows(heading):
    """The cells of the table under a heading of its columns."""
    _, _, after = TEXT.partition(f"| {heading} |")
    table = after.split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


@pytest.fixture
def crm():
    import threading

    crm = Crm()
    thread = threading.Thread(target=crm.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield crm
    crm.shutdown()
    crm.server_close()
    thread.join()


@pytest.fixture
def page(undolog_client, undolog_org, crm, monkeypatch):
    """The page's registrations, and its Python as one module, with a service of the test's own."""
    for text in blocks("json"):
        contents = json.loads(text.replace("https://crm.example", crm.url))
        # The worker of the development server has no secrets.
        contents["fn_body"].get("headers", {}).pop("Authorization", None)
        name = contents.pop("fn_name")
        undolog_client.blocking.register_compensation(name, org_id=undolog_org, **contents)
    module = {"httpx": httpx, "__name__": "page"}
    for text in blocks("python"):
        exec(compile(text.replace("https://crm.example", crm.url), "page", "exec"), module)
    return module


def test_what_is_registered_is_taken_as_it_stands(undolog_client, undolog_org):
    calls = undolog_client.blocking
    registered = [json.loads(text) for text in blocks("json")]
    assert len(registered) == 5
    for contents in registered:
        name = contents.pop("fn_name")
        assert calls.register_compensation(name, org_id=undolog_org, **contents)["created"]


def test_a_call_is_undone(page, crm, undolog_client, undolog_org):
    session = UndoLogSession(undolog_org, client=undolog_client)
    with pytest.raises(RuntimeError, match="gave up"), session:
        page["create_user"]("ann@example.com")
        page["create_user_as"]("u-1", "bob@example.com")
        assert len(crm.users) == 2
        raise RuntimeError("gave up")
    assert session.wait_settled_sync() == "compensated"
    assert crm.users == {}


def test_what_did_not_happen_is_not_undone(page, crm, undolog_client, undolog_org):
    session = UndoLogSession(undolog_org, client=undolog_client)
    with pytest.raises(NotApplied), session:
        page["create_user_checked"]("ann")
    session.wait_settled_sync()
    [effect] = undolog_client.blocking.list_effects(session.session_id, org_id=undolog_org)
    assert (effect["state"], effect["outcome"]) == ("failed", "not_applied")


def test_the_test_of_an_undo(page, crm, undolog_client, undolog_org):
    page["test_the_undo_restores"](undolog_client, undolog_org)
    assert crm.users == {}


def refusals():
    return [pytest.param(json.loads(a.strip("`")), b.strip("`"), id=b) for a, b in rows(
        "`fn_body` | says"
    )]  # fmt: skip


@pytest.mark.parametrize(("fn_body", "says"), refusals())
def test_what_is_refused(undolog_client, undolog_org, fn_body, says):
    with pytest.raises(InvalidCallError) as caught:
        undolog_client.blocking.register_compensation("x", org_id=undolog_org, fn_body=fn_body)
    assert says in str(caught.value)


def test_the_table_of_fields_is_whole():
    """Each field of the parser has a row, with the parser's default."""
    source = (ROOT / "core/src/fn_body/parse.rs").read_text()
    known = re.findall('"(\\w+)"', source.partition("const FIELDS")[2].partition("];")[0])
    _, _, after = TEXT.partition("The fields of `fn_body`")
    table = [line for line in after.split("\n\n")[1].splitlines() if line.startswith("| `")]
    assert re.findall(r"^\| `(\w+)` \|", "\n".join(table), re.MULTILINE) == known


def test_the_defaults_are_those_of_the_page(undolog_client, undolog_org):
    calls = undolog_client.blocking
    made = calls.register_compensation(
        "plain", org_id=undolog_org, fn_body={"endpoint": "https://a.example"}
    )["compensation"]
    assert (made["fn_version"], made["max_retries"], made["retry_backoff_ms"]) == ("1.0.0", 3, 1000)
    assert (made["open"], made["is_active"], made["args_schema"]) == (False, True, {})
