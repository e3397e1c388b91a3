"""Free texts of reports: whatever an exception says, the service can take it."""

from __future__ import annotations

TEXT_BYTES_MAX = 64 * 1024
ERROR_CHARS_MAX = 4000


def plain(text: str) -> str:
    """The text as valid UTF-8 without NUL, cut to what the service takes.

    What cannot be stored is shown by its escape: an error must not be lost for its own wording.
    """
    data = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")
    return data[:TEXT_BYTES_MAX].decode("utf-8", "ignore")


def error_text(error: BaseException) -> str:
    """An exception's type and message, also of one whose message cannot be made."""
    try:
        text = str(error)
    except Exception as fault:
        text = f"(its message cannot be made: {type(fault).__name__})"
    return plain(f"{type(error).__name__}: {text}"[:ERROR_CHARS_MAX])
