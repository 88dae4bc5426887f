"""The bytes of a file, within a limit, also of a compressed one."""

from __future__ import annotations

import lzma
import os
import stat
import zlib
from pathlib import Path

from tinygpu.files.error import FileError, cause

MIB = 2**20
# A document is parsed into Python objects, which take many times its bytes: see `json_text.MOST_WEIGHT`.
DOCUMENT_BYTES = 32 * MIB
# Journals, results and measured spaces are larger, and parsed line by line or straight into their schema.
TABLE_BYTES = 128 * MIB
_CHUNK = 4 * MIB


def read_file(path: str | Path, most: int = DOCUMENT_BYTES, hint: str = "") -> bytes:
    """All bytes of a regular file. Raises FileError where there is none, and where it is longer than `most`.

    hint  ends the sentence: what writes such a file
    """
    ending = f"; {hint}" if hint else ""
    try:
        # a pipe without a writer would be waited for
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(21, "Is a directory")
            if not stat.S_ISREG(status.st_mode):
                raise FileError(f"{path} cannot be read: it is no regular file{ending}")
            data = file.read(status.st_size + 1) if status.st_size <= most else b""
            while status.st_size < len(data) <= most and (more := file.read(_CHUNK)):  # it grows, or has no size
                data += more
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}{ending}") from None
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{str(path)!r} cannot be read: it is no path of a file{ending}") from None
    if status.st_size > most or len(data) > most:
        size = max(status.st_size, len(data))
        raise FileError(f"{path} cannot be read: it has {size:,} bytes, and such files have at most {most:,}{ending}")
    return data


def decoded(data: bytes, where: str) -> str:
    """UTF-8 as text. Raises FileError."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{where} is no text in UTF-8: byte {error.start:,} is 0x{data[error.start]:02x}") from None


def expanded(data: bytes, suffix: str, where: str, most: int = TABLE_BYTES) -> bytes:
    """What was compressed (".gz", ".xz"); other suffixes: the bytes as they are. Raises FileError."""
    try:
        if suffix == ".gz":
            return _gunzipped(data, where, most)
        if suffix == ".xz":
            return _unxzed(data, where, most)
    except (zlib.error, lzma.LZMAError) as error:
        why = f"it is damaged, or not compressed as its name says: {cause(error)}"
        raise FileError(f"{where} cannot be read: {why}") from None
    return data


def _gunzipped(data: bytes, where: str, most: int) -> bytes:
    out = bytearray()
    while data:
        member = zlib.decompressobj(wbits=31)
        while not member.eof and data:
            out += member.decompress(data, _CHUNK)
            data = member.unconsumed_tail
            _check_expanded(len(out), where, most)
        if not member.eof:
            raise FileError(f"{where} cannot be read: its compressed data end too early")
        data = member.unused_data.lstrip(b"\0")
    return bytes(out)


def _unxzed(data: bytes, where: str, most: int) -> bytes:
    out = bytearray()
    while data:
        member = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=64 * MIB + most)
        while not member.eof and (data or not member.needs_input):
            out += member.decompress(data, _CHUNK)
            data = b""
            _check_expanded(len(out), where, most)
        if not member.eof:
            raise FileError(f"{where} cannot be read: its compressed data end too early")
        data = member.unused_data.lstrip(b"\0")
    return bytes(out)


def _check_expanded(size: int, where: str, most: int) -> None:
    if size > most:
        raise FileError(f"{where} cannot be read: it grows to more than {most:,} bytes when it is decompressed")
