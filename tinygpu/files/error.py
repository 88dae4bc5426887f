"""The error of every file that is not what it should be."""

from __future__ import annotations


class FileError(ValueError):
    """A file that cannot be read, or must not be replaced; the message says which, what is wrong, and what is right."""


# Longest excerpt of a file's own text in a message, and of what another library says, which may quote it whole.
_EXCERPT, _CAUSE = 60, 300


def excerpt(value: object) -> str:
    """A value of a file as a message shows it: on one line, and never long.

    >>> excerpt("ring")
    "'ring'"
    >>> len(excerpt("x" * 1000)), excerpt("x" * 5000)
    (60, 'a text of 5,000')
    """
    if isinstance(value, str | bytes | list | tuple | dict) and len(value) > 20 * _EXCERPT:
        kind = {str: "text", bytes: "bytes", dict: "object"}.get(type(value), "list")
        return f"a {kind} of {len(value):,}" if kind != "bytes" else f"{len(value):,} bytes"
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        return f"a very large {type(value).__name__}"
    return text if len(text) <= _EXCERPT else text[: _EXCERPT - 3] + "..."


def cause(error: BaseException) -> str:
    """What another library says of a file, as a message goes on with it: on one line, and never long.

    >>> cause(ValueError("bad name\\nin header " + "x" * 1000))[:24]
    'bad name in header xxxxx'
    >>> len(cause(ValueError("x" * 1000)))
    300
    """
    text = " ".join(str(error)[: 20 * _EXCERPT].split())
    return text if len(text) <= _CAUSE else text[: _CAUSE - 3] + "..."
