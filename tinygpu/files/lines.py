"""A file of JSON lines that grows: each line is on disk as soon as it is written, and a kill can cut only the last.

The first line says what the file is. A file that begins as something else is never changed, whatever it holds.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tinygpu.files.error import FileError
from tinygpu.files.json_text import seal_of, sealed, unsealed

# Bytes of a file, and of one line.
MOST_BYTES, MOST_LINE_BYTES = 2**30, 2**24


class LineFile:
    """An open file of lines, locked against other writers where the system has locks.

    path  the file; made if it is not there
    key   the first member of its first line: "tinygpu_journal"
    what  the file in words: "a search journal"

    Raises FileError where the file is something else, is in use, or cannot be opened; it is then as it was.
    """

    def __init__(self, path: Path, key: str, what: str) -> None:
        self.path = path
        self._key = key
        self._what = what
        self._whole = 0
        self._seal = 0
        try:
            if path.exists() and not stat.S_ISREG(path.stat().st_mode):
                raise FileError(f"{path} is no regular file, and so not {what}; give another path")
            # unbuffered: what was not written does not wait to be written later
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115  closed by `close`
        except OSError as error:
            raise FileError(f"{path} cannot be opened: {error.strerror or error}; give another path") from None
        try:
            _lock(self._file.fileno(), path)
            if not begins(path, key):
                raise FileError(f"{path} is there and is not {what}; it is left as it is: give another path")
        except BaseException:
            self._file.close()
            raise

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """Where each whole line stands, in words, and its JSON text. Raises FileError for one that was changed."""
        for where, text, end, seal in read_lines(self.path):
            yield where, text
            self._whole, self._seal = end, seal

    def resume(self) -> bool:
        """Drops what a kill cut short, after all `lines` were read; whether there are any."""
        self._file.truncate(self._whole)
        return self._whole > 0

    def write(self, line: Mapping[str, Any]) -> None:
        """One more line; it is the operating system's when this returns, and survives kill -9.

        Raises FileError where it cannot be written; what stands before it is still whole.
        """
        text = sealed(line, self._seal).encode()
        data = memoryview(text + b"\n")
        try:
            rest = data
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            self._file.truncate(self._whole)
            raise FileError(f"{self.path} cannot be written to: {error.strerror or error}") from None
        self._whole += len(data)
        self._seal = seal_of(text)

    def close(self) -> None:
        self._file.close()


def begins(path: Path, key: str) -> bool:
    """Whether a file begins as one of these, or is empty, or was cut within its first member."""
    wanted = f'{{"{key}": '.encode()
    with open(path, "rb") as file:
        first = file.read(len(wanted))
    return first == wanted or (len(first) < len(wanted) and wanted.startswith(first))


def read_lines(path: Path) -> Iterator[tuple[str, bytes, int, int]]:
    """Where each whole line stands, in words, its JSON text, where in the file it ends, and its checksum.

    Where the first line has a checksum, every line has one, over that of the line before it too. Raises FileError.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileError(f"{path} cannot be read: it is no regular file")
        if path.stat().st_size > MOST_BYTES:
            raise FileError(f"{path} cannot be read: it has more than {MOST_BYTES:,} bytes")
        with open(path, "rb") as file:
            number, end, seal, has_seals = 0, 0, 0, False
            while (line := file.readline(MOST_LINE_BYTES)).endswith(b"\n"):
                number, end = number + 1, end + len(line)
                where = f"{path}, line {number}"
                text = unsealed(line[:-1], where, seal)
                seal = seal_of(line[:-1])
                is_sealed = len(text) < len(line) - 1
                has_seals = is_sealed if number == 1 else has_seals
                if has_seals and not is_sealed:
                    raise FileError(f"{where} was changed after it was written: it has no checksum")
                yield where, text, end, seal
            if len(line) == MOST_LINE_BYTES:
                raise FileError(f"{path}, line {number + 1} has more than {MOST_LINE_BYTES:,} bytes")
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None


def _lock(descriptor: int, path: Path) -> None:
    """Refuses a file that another process writes; the lock goes with the process, however it ends."""
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileError(f"{path} is being written by another process; give another path, or wait for it") from None
    except OSError:  # a file system without locks
        return


