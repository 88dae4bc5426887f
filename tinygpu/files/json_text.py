"""JSON to Python values and back, with all that JSON leaves open refused: see `parse`.

A text that tinyGPU wrote can be *sealed*: its last member is the CRC-32 of all before it, so that a byte that was lost
or changed since is found, whatever the change makes of the values.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

from tinygpu.files.error import FileError, excerpt
from tinygpu.files.reading import decoded

# Bytes that the objects of a document may take in memory, by the estimate of `_weight`.
MOST_WEIGHT = 256 * 2**20
_MOST_DIGITS = 60
_SEAL = re.compile(rb'(?:, )?"crc32": "([0-9a-f]{8})"\}\s*\Z')
_SEAL_BYTES = 64
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def dumped(value: Any, indent: int | None = None) -> str:
    """JSON text. Raises ValueError for what JSON has no word for, infinities among it."""
    return json.dumps(value, indent=indent, allow_nan=False)


def sealed(value: Mapping[str, Any], after: int = 0) -> str:
    """An object as JSON on one line, with a checksum as its last member.

    after  the checksum of the line before it, so that a line that is lost or stands twice is found

    >>> sealed({"a": 1})
    '{"a": 1, "crc32": "7aa88204"}'
    """
    body = dumped(dict(value))[:-1]
    return f'{body}{", " if value else ""}"crc32": "{zlib.crc32(body.encode(), after):08x}"}}'


def seal_of(data: bytes) -> int:
    """The checksum that a text says; 0 where it has none."""
    found = _SEAL.search(data, max(0, len(data) - _SEAL_BYTES))
    return 0 if found is None else int(found[1], 16)


def unsealed(data: bytes, where: str, after: int = 0) -> bytes:
    """The text without its checksum; a text that never had one as it is. Raises FileError where it does not fit."""
    found = _SEAL.search(data, max(0, len(data) - _SEAL_BYTES))
    if found is None:
        if b'"crc32":' in data[-_SEAL_BYTES:]:
            raise FileError(f"{where} was changed after it was written: its checksum is not where it was")
        return data
    body = data[: found.start()]
    if zlib.crc32(body, after) != int(found[1], 16):
        raise FileError(f"{where} is damaged: its checksum is {found[1].decode()}, and what is there has another")
    return body + b"}"


def parse(data: bytes, where: str) -> Any:
    """The value of a JSON text; of a sealed one, without its checksum.

    Raises FileError for what is no JSON, and where JSON readers differ: members that stand twice, numbers that are not
    finite or have thousands of digits, halves of characters, deep nesting; and for more than is sensible in memory.
    """
    data = unsealed(data, where)
    if _weight(data) > MOST_WEIGHT:
        raise FileError(f"{where} cannot be read: its values would take more than {MOST_WEIGHT // 2**20} MiB")
    text = decoded(data, where)
    try:
        value = json.loads(
            text, object_pairs_hook=_members, parse_constant=_constant, parse_float=_number, parse_int=_whole
        )
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        told = error.msg.removesuffix(" at")
        raise FileError(f"{where} is not JSON: {told} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise FileError(f"{where} is nested too deeply to be read") from None
    except UnicodeEncodeError:
        raise FileError(f"{where} is not JSON: it holds half of a character, \\ud800 to \\udfff") from None
    except _Refused as refused:
        raise FileError(f"{where} is not JSON as it is read here: {refused}") from None
    return value


class _Refused(Exception):
    """Python's reader would take it."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _Refused(f"the member {excerpt(twice)} stands twice in one object")
    return found


def _constant(word: str) -> Any:
    raise _Refused(f"{word} is no number of JSON")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused(f"the number {excerpt(text)} is too large")
    return value


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise _Refused(f"a whole number has {len(text):,} digits, and here it may have {_MOST_DIGITS}")
    return int(text)


def _weight(data: bytes) -> int:
    """Bytes that the values take at most, about: CPython's objects, dictionaries and lists."""
    return (
        232 * data.count(b"{") + 88 * data.count(b"[") + 100 * data.count(b":") + 40 * data.count(b",") + 4 * len(data)
    )
