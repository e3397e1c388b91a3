"""What a tool says or returns may be anything: its report is taken all the same."""

import logging

import pytest
from tools import tool

from undolog_sdk import ResultEncodingError
from undolog_sdk._text import TEXT_BYTES_MAX, error_text, plain

SAYINGS = ["half \ud800 a pair", "a\0b", "\udc80" * 100_000, "\U0001f600" * 100_000, ""]


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("said", SAYINGS)
def test_a_text_is_valid_and_short(said):
    text = plain(said)
    assert len(text.encode("utf-8")) <= TEXT_BYTES_MAX
    assert "\0" not in text
    assert len(error_text(ValueError(said)).encode("utf-8")) <= TEXT_BYTES_MAX


def test_a_text_shows_what_it_cannot_hold():
    assert plain("a\0b \ud800 \u00e4") == "a\\x00b \\ud800 \u00e4"
    assert error_text(Speechless()) == "Speechless: (its message cannot be made: RuntimeError)"


@pytest.mark.parametrize("error", [*map(ValueError, SAYINGS), Speechless()])
async def test_a_failure_is_reported_whatever_it_says(fake, session, error):
    @tool()
    async def send():
        raise error

    with pytest.raises(type(error)):
        await send(_session=session)
    [body] = fake.bodies("/fail")
    assert body["error"].startswith(type(error).__name__)
    body["error"].encode("utf-8")
    assert "\0" not in body["error"]


async def test_so_are_texts_of_callers(fake, client, session):
    fake.approvals["a"] = {"state": "pending", "args": None}
    await client.approve("a", note="a\0\ud800")
    await client.fail("acme", session.session_id, (await granted(session, fake)), "b\0\ud800")
    await session.rollback("c\0\ud800")
    texts = [fake.bodies("/approve")[0]["note"], fake.bodies("/fail")[0]["error"]]
    texts.append(fake.bodies("/rollback")[0]["reason"])
    assert texts == [f"{name}\\x00\\ud800" for name in "abc"]


async def granted(session, fake):
    @tool()
    async def send(): ...

    await send(_session=session)
    return next(iter(fake.effects))


@pytest.mark.parametrize(
    "refused", [(400, "INVALID_ARGUMENT"), (413, ""), (422, ""), (413, "LIMIT_EXCEEDED")]
)
async def test_a_refused_result_is_left_out(fake, session, refused, caplog):
    ran = []

    @tool()
    async def send():
        ran.append(1)
        return {"large": True}

    fake.fail_next("/commit", refused)
    with pytest.raises(ResultEncodingError) as caught:
        await send(_session=session)
    assert caught.value.__cause__.response.status_code == refused[0]
    assert [b["result"]["output"] for b in fake.bodies("/commit")] == [{"large": True}, None]
    assert (fake.states(), ran) == (["committed"], [1])


async def test_a_result_that_is_too_large_is_not_sent(fake, session):
    @tool()
    async def send():
        return "x" * (4 * 1024 * 1024)

    with pytest.raises(ResultEncodingError, match="larger than"):
        await send(_session=session)
    assert [b["result"]["output"] for b in fake.bodies("/commit")] == [None]


async def test_a_refusal_of_the_bare_report_is_raised(fake, session):
    @tool()
    async def send():
        return 1

    fake.fail_next("/commit", (400, "INVALID_ARGUMENT"), (400, "INVALID_ARGUMENT"))
    with pytest.raises(Exception, match="INVALID_ARGUMENT") as caught:
        await send(_session=session)
    assert not isinstance(caught.value, ResultEncodingError)


async def test_a_refusal_is_heard_later_too(fake, session, client, quick, caplog):
    @tool()
    async def send():
        return 1

    fake.fail_next("/commit", *["drop"] * 4, (400, "INVALID_ARGUMENT"))
    with caplog.at_level(logging.WARNING, "undolog_sdk"):
        assert await send(_session=session) == 1
        assert client._reporter.flush(None, 60)
    assert fake.states() == ["committed"]
    assert fake.bodies("/commit")[-1]["result"]["output"] is None
    assert "without its result" in caplog.text
