"""Messages between processes: Python values in a stream of bytes, each behind its length."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from tinygpu.users_code import at, place_of

_LENGTH = struct.Struct("<Q")


def packed(value: Any) -> bytes:
    """A value as its message. Raises what pickle raises for a value that cannot be sent."""
    data = pickle.dumps(value)
    return _LENGTH.pack(len(data)) + data


def write(stream: BinaryIO, message: bytes) -> None:
    """Sends a message; raises OSError where nobody reads any more."""
    stream.write(message)
    stream.flush()


def read(stream: BinaryIO) -> Any:
    """The next value; raises EOFError where the stream ends, also in the middle of a message."""
    return pickle.loads(_exactly(stream, _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]))


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call returned or raised, as it can be sent."""

    value: Any = None
    error: Exception | None = None

    @classmethod
    def of(cls, call: Callable[[], Any]) -> Outcome:
        try:
            return cls(call())
        except Exception as error:
            return cls(error=_sendable(at(error, place_of(error))))  # what was running is not sent

    def result(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


def _sendable(error: Exception) -> Exception:
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:  # whatever a class of somebody else's does when it is copied
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")
