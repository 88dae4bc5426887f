"""Seeded damage: bytes that are cut or changed, values that change their type, and what a hostile hand would write."""

import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**40, 1.5, -0.0, 1e300, "", "x", "../../x", "/etc/passwd", "\0", "é",
    "nan", "10**10**10", [], {}, [[]], {"a": 1}, [None], ["x", 1], {"is": "os:system"}, {"expr": "10**10**10"},
    [1] * 50,
)  # fmt: skip
# What Python's JSON writer would not write.
TEXTS = (
    "NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, '"\\ud800"', "[" * 100_000, '{"a":' * 100_000, "1.0e", "+1",
)  # fmt: skip


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 40))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    new = rng.choice((rng.randbytes(rng.choice((1, 2, 8, 64))), b"\0" * 40, b"\xff\xfe", b'"', b"}", b"9" * 30, b"\n"))
    return data[:start] + new + data[start + rng.choice((0, len(new))) :]


def leave_out(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.choice((1, 2, 20, 200)) :]


def twice(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((1, 10, 300)))
    return data[:end] + data[start:]


def encoded(data: bytes, rng: random.Random) -> bytes:
    text = data.decode("latin-1")
    wide, upper = text.encode("utf-16"), text.upper().encode("utf-8")
    return rng.choice((wide, upper, b"\xef\xbb\xbf" + data, data + b"\xff", b""))


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (cut, flip, flip, overwrite, leave_out, twice, encoded)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where values stand in parsed JSON."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


def found_at(value: Any, path: tuple[Any, ...]) -> Any:
    """What stands at one of the places of a value."""
    for key in path:
        value = value[key]
    return value


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The value with another one at one of its places."""
    if not path:
        return new
    first, *rest = path
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[first] = with_value(value[first], tuple(rest), new)
    return changed


def change_value(text: str, rng: random.Random) -> str:
    """A JSON text with one value of another type, a member more, less, twice, or under another name."""
    value = json.loads(text)
    path = rng.choice(places(value))
    kind = rng.choice(("odd", "odd", "odd", "text", "less", "more", "name", "twice"))
    if not path:
        return json.dumps(rng.choice(ODD)) if kind != "text" else rng.choice(TEXTS)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    last = path[-1]
    if kind == "odd":
        holder[last] = rng.choice(ODD)
    elif kind == "text":
        mark = "0fb7c2_here"
        holder[last] = mark
        return json.dumps(value).replace(json.dumps(mark), rng.choice(TEXTS), 1)
    elif kind == "less":
        del holder[last]
    elif kind == "more" and isinstance(holder, dict):
        holder["more"] = rng.choice(ODD)
    elif kind == "name" and isinstance(holder, dict):
        holder[rng.choice(("", "../x", "__class__", str(last).upper() + "_"))] = holder.pop(last)
    elif kind == "twice" and isinstance(holder, dict):
        mark = json.dumps(last) + ":"
        return json.dumps(value, separators=(",", ":")).replace(mark, mark + "1," + mark, 1)
    return json.dumps(value)


def change_line(data: bytes, rng: random.Random) -> bytes:
    """One line of a file of JSON lines, or the only one."""
    lines = data.split(b"\n")
    number = rng.randrange(max(1, len(lines) - 1))
    lines[number] = change_value(lines[number].decode(), rng).encode("utf-8", "replace")
    return b"\n".join(lines)


def without_seals(data: bytes) -> bytes:
    """JSON lines as a hostile hand would write them: with no checksum to find the change by."""
    lines = []
    for line in data.split(b"\n"):
        if line:
            value = json.loads(line)
            for name in ("crc32", "checksum"):
                value.pop(name, None)
            line = json.dumps(value).encode()
        lines.append(line)
    return b"\n".join(lines)


def repacked(data: bytes, change: Callable[[str, bytes], tuple[str, bytes]]) -> bytes:
    """A zip file, whole, with a member changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(*change(info.filename, old.read(info)))
    return out.getvalue()
