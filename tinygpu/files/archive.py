"""Zip files whose members are named beforehand and bounded: bundles of kernels, NumPy archives."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from tinygpu.files.array import array_of
from tinygpu.files.error import FileError, cause, excerpt

MOST_MEMBERS = 100_000


class Archive:
    """A zip file in memory. Nothing of it is ever unpacked to disk, so that its names form no paths.

    most         bytes that all members may have together, decompressed
    most_member  bytes that one may have; no more than this is in memory at a time, unless all are read

    Raises FileError for what is none, or is larger.
    """

    def __init__(self, data: bytes, where: str, most: int, most_member: int | None = None) -> None:
        self.where = where
        try:
            self._file = zipfile.ZipFile(io.BytesIO(data))
            found = self._file.infolist()
        except _BROKEN as error:
            raise FileError(f"{where} is no zip file, or damaged: {cause(error)}") from None
        if len(found) > MOST_MEMBERS:
            raise FileError(f"{where} has {len(found):,} members, and at most {MOST_MEMBERS:,} are read")
        largest = max((info.file_size for info in found), default=0)
        if most_member is not None and largest > most_member:
            raise FileError(f"{where} holds {largest:,} bytes in one member, and at most {most_member:,} are read")
        total = sum(info.file_size for info in found)
        if total > most:
            raise FileError(f"{where} grows to {total:,} bytes when it is decompressed, and at most {most:,} are read")
        self._members = {info.filename: info for info in found}
        if len(self._members) != len(found):
            raise FileError(f"{where} is damaged: two of its members have one name")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._members)

    def read(self, name: str) -> bytes:
        """One member. Raises FileError where it is not there, or is damaged."""
        info = self._members.get(name)
        if info is None:
            raise FileError(f"{self.where} has no member {excerpt(name)}")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileError(f"{self.where}: {excerpt(name)} is packed in a way that tinygpu does not write")
        try:
            # no more than the size that was counted, whatever the data give
            with self._file.open(info) as member:
                data = member.read(info.file_size + 1)
        except _BROKEN as error:
            why = cause(error) or "its end is missing"
            raise FileError(f"{self.where}: {excerpt(name)} is damaged: {why}") from None
        if len(data) != info.file_size:
            raise FileError(f"{self.where}: {excerpt(name)} is damaged: it has not {info.file_size:,} bytes")
        return data

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Every member that is an array, NAME.npy under NAME."""
        return {
            name.removesuffix(".npy"): array_of(self.read(name), f"{self.where}: {excerpt(name)}")
            for name in self._members
            if name.endswith(".npy")
        }


# What zipfile raises for files that are cut, changed or made by others.
_BROKEN = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError, OSError,
)  # fmt: skip
