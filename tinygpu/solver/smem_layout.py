"""Where each byte of a tile lies in shared memory: rows at a pitch, each row's columns XORed by bits of its number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.composed import ComposedLayout
from tinygpu.layouts.rows import whole_rows

Bytes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SmemLayout:
    """address(row, column) = row * pitch + (column ^ XOR of the masks of the row's set bits), all in bytes.

    rows         rows of the tile
    row_bytes    bytes of a row that hold data
    pitch_bytes  distance between rows; what exceeds row_bytes is padding
    xor          (row bit, column mask in bytes) pairs, each row bit at most once

    The XOR keeps every column inside its row's pitch, so the map is injective and in bounds.

    >>> layout = SmemLayout(16, 128, 128, ((0, 16), (1, 32), (2, 64)))
    >>> int(layout.address(np.array(3), np.array(4)))
    436
    >>> print(layout)
    16 rows x 128 B, column ^= (row & 7) << 4
    """

    rows: int
    row_bytes: int
    pitch_bytes: int
    xor: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.rows < 1 or self.row_bytes < 1:
            raise ValueError(
                f"[smem layout] a tile has at least one row and one byte, not {self.rows} x {self.row_bytes}"
            )
        if self.pitch_bytes < self.row_bytes:
            raise ValueError(f"[smem layout] rows of {self.row_bytes} B overlap at a pitch of {self.pitch_bytes} B")
        bits = [bit for bit, _ in self.xor]
        if bits != sorted(set(bits)):
            raise ValueError(f"[smem layout] row bits are listed once each, in rising order, not as {bits}")
        for bit, mask in self.xor:
            if not 0 <= bit < row_bits(self.rows):
                raise ValueError(
                    f"[smem layout] the numbers of {self.rows} rows have {row_bits(self.rows)} bits, "
                    f"so bit {bit} moves nothing"
                )
            if mask < 1 or 1 << mask.bit_length() > xor_block_bytes(self.row_bytes, self.pitch_bytes):
                raise ValueError(
                    f"[smem layout] the mask {mask} of row bit {bit} must be positive and below "
                    f"{xor_block_bytes(self.row_bytes, self.pitch_bytes)} B, so that no column leaves its row"
                )

    @property
    def size_bytes(self) -> int:
        """Bytes from the first to the last, padding of every row included."""
        return self.rows * self.pitch_bytes

    @property
    def padding_bytes(self) -> int:
        """Unused bytes of each row."""
        return self.pitch_bytes - self.row_bytes

    @property
    def vector_bytes(self) -> int:
        """Longest run of bytes, a power of two up to 16, that stays whole and aligned in every row."""
        bits = self.pitch_bytes | 16
        for _, mask in self.xor:
            bits |= mask
        return bits & -bits

    @property
    def layout(self) -> ComposedLayout:
        """(row, column byte, 0) -> byte."""
        return whole_rows(((self.rows, 1, 0), (self.row_bytes, 0, 1)), self.rows, self.pitch_bytes, self.xor)

    def address(self, row: Bytes, column_byte: Bytes) -> Bytes:
        """Byte offset of each (row, column byte), elementwise; both are int64 arrays that broadcast.

        Raises ValueError where a coordinate lies outside the tile.
        """
        row, column_byte = np.asarray(row, dtype=np.int64), np.asarray(column_byte, dtype=np.int64)
        for name, values, extent in (("row", row, self.rows), ("column byte", column_byte, self.row_bytes)):
            if values.size and (values.min() < 0 or values.max() >= extent):
                worst = values.min() if values.min() < 0 else values.max()
                raise ValueError(f"[smem layout] {name} {worst} lies outside the tile's 0 to {extent - 1}")
        row, column_byte = np.broadcast_arrays(row, column_byte)
        return self.layout.at_coordinates(np.stack([row, column_byte, np.zeros_like(row)], axis=-1))

    def shift_form(self) -> tuple[int, int, int] | None:
        """(count, row shift, column shift) where column ^= ((row >> row shift) & (2^count - 1)) << column shift.

        None where the masks are no such run; (0, 0, 0) without any XOR. Three instructions compute this form.
        """
        if not self.xor:
            return (0, 0, 0)
        first_bit, first_mask = self.xor[0]
        run = tuple((first_bit + place, first_mask << place) for place in range(len(self.xor)))
        if self.xor != run or first_mask & (first_mask - 1):
            return None
        return (len(self.xor), first_bit, first_mask.bit_length() - 1)

    def hardware_swizzle(self) -> str | None:
        """ "none", "32B", "64B" or "128B" where TMA and wgmma know this layout, else None (alignment not counted)."""
        # Sw<B,4,3> on byte addresses: B address bits from bit 7 on are XORed into the bits from bit 4 on
        # (PTX ISA, "Tensor swizzling modes").
        if self.padding_bytes:
            return None
        if not self.xor:
            return "none"
        for name, wanted in hardware_masks(self.rows, self.pitch_bytes):
            if wanted == self.xor:
                return name
        return None

    def picture(self, chunk_bytes: int = 16, rows: int = 8) -> str:
        """A text grid of the first rows: which chunk of its row lies at each place, from left to right.

        chunk_bytes   bytes of one chunk
        rows          rows shown, one to a line
        """
        if chunk_bytes < 1 or self.vector_bytes % chunk_bytes or self.row_bytes % chunk_bytes:
            raise ValueError(
                f"[smem layout] chunks of {chunk_bytes} B do not stay whole here; {self.vector_bytes} B or a power of "
                "two below it does"
            )
        columns = np.arange(0, self.row_bytes, chunk_bytes, dtype=np.int64)
        lines = []
        for row in range(min(self.rows, rows)):
            slots = ["."] * (self.pitch_bytes // chunk_bytes)
            places = self.address(np.full_like(columns, row), columns) - row * self.pitch_bytes
            for chunk, place in enumerate(places // chunk_bytes):
                slots[int(place)] = str(chunk)
            lines.append(f"row {row:2d}: " + " ".join(f"{slot:>2}" for slot in slots))
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary from which `from_json` builds the same layout."""
        return {
            "rows": self.rows,
            "row_bytes": self.row_bytes,
            "pitch_bytes": self.pitch_bytes,
            "xor": [list(pair) for pair in self.xor],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SmemLayout:
        """The layout that `to_json` wrote."""
        xor = tuple((int(bit), int(mask)) for bit, mask in data["xor"])
        return cls(data["rows"], data["row_bytes"], data["pitch_bytes"], xor)

    def __str__(self) -> str:
        size = f"{self.rows} rows x {self.row_bytes} B"
        padding = f", padded to {self.pitch_bytes} B" if self.padding_bytes else ""
        return f"{size}{padding}{self._xor_text()}"

    def _xor_text(self) -> str:
        if not self.xor:
            return ""
        form = self.shift_form()
        if form is not None:
            count, row_shift, column_shift = form
            rows = f"row >> {row_shift} & {(1 << count) - 1}" if row_shift else f"row & {(1 << count) - 1}"
            return f", column ^= ({rows}) << {column_shift}"
        return ", column ^= " + " ^ ".join(f"{mask} * (row bit {bit})" for bit, mask in self.xor)


def row_bits(rows: int) -> int:
    """Bits of the number of the last row."""
    return (rows - 1).bit_length()


def xor_block_bytes(row_bytes: int, pitch_bytes: int) -> int:
    """Largest power of two within whose multiples a column may be XORed without leaving the row's pitch.

    >>> xor_block_bytes(128, 128), xor_block_bytes(96, 96), xor_block_bytes(96, 128)
    (128, 32, 128)
    """
    block = 1
    while -(-row_bytes // (2 * block)) * 2 * block <= pitch_bytes:
        block *= 2
    return block


def hardware_masks(rows: int, pitch_bytes: int) -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:
    """The swizzle modes of TMA and wgmma that act as an XOR by row bits at this pitch: (name, xor), cheapest first."""
    log_pitch = pitch_bytes.bit_length() - 1
    if pitch_bytes != 1 << log_pitch or log_pitch > 7:
        return
    for count, name in ((1, "32B"), (2, "64B"), (3, "128B")):
        if 4 + count > log_pitch:
            return
        pairs = ((7 + place - log_pitch, 16 << place) for place in range(count))
        yield name, tuple((bit, mask) for bit, mask in pairs if bit < row_bits(rows))
