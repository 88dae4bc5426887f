"""What kernels around a wgmma share, wherever its left operand lies: b, the accumulator, what both forms refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.ptx.cards.specimen import Field, Guarantee, Specimen, Twin
from tinygpu.ptx.runtime.narrow import unpacked


@dataclass(frozen=True, slots=True)
class Image:
    """An operand in shared memory as a specimen has it: `rows` as wide as the swizzle, `blocks` times.

    kind   element type; narrower than a byte, the field is of bytes, and each 16 elements begin 16 of them
    at     bytes from the start of shared memory
    start  bytes from there to what the instruction reads first
    atom   bytes that the swizzle leaves together
    """

    name: str
    kind: str
    rows: int
    swizzle_bytes: int
    at: int
    blocks: int = 1
    start: int = 0
    atom: int = 16

    def __post_init__(self) -> None:
        if self.size % (128 * self._held.bytes):
            raise ValueError(
                f"{self.size} bytes of {self.name} are not whole elements of {self.kind} for each of 128 threads"
            )

    @property
    def size(self) -> int:
        return self.rows * self.swizzle_bytes * self.blocks

    @property
    def _held(self) -> DType:
        return dtype(self.kind if dtype(self.kind).bits >= 8 else "u8")

    @property
    def field(self) -> Field:
        return Field(self.name, self._held.name, self.size // 128 // self._held.bytes)

    def written(self, first: int) -> Iterator[str]:
        """Every thread writes its part, with registers from `first` on."""
        part = self.size // 128
        piece = next(w for w in (16, 8, 4, 2) if part % w == 0)
        at, bits, value = f"%r{first}", f"%r{first + 1}", [f"%r{first + 2 + i}" for i in range(4)]
        words = ", ".join(value[: piece // 4])
        move = {16: f"v4.b32 {{{words}}}", 8: f"v2.b32 {{{words}}}", 4: f"b32 {words}", 2: "b16 %h0"}[piece]
        kind, registers = move.split(" ", 1)
        for offset in range(0, part, piece):
            yield f"mad.lo.u32 {at}, %t, {part}, {offset};" if offset else f"mul.lo.u32 {at}, %t, {part};"
            yield f"shr.u32 {bits}, {at}, {3 if self.atom == 16 else 2};"
            yield f"and.b32 {bits}, {bits}, {self.swizzle_bytes - self.atom};"
            yield f"xor.b32 {at}, {at}, {bits};"
            yield f"add.u32 {at}, {at}, %s;"
            yield f"ld.global.{kind} {registers}, [%{self.name}{near(offset)}];"
            yield f"st.shared.{kind} [{at}{near(self.at)}], {registers};"

    def described(self, to: str, first: int, code: int = 0, further: int = 0) -> Iterator[str]:
        """The descriptor of an instruction's operand, `further` bytes behind the start."""
        word = 8 * self.swizzle_bytes // 16 | (code or {128: 1, 64: 2, 32: 3}[self.swizzle_bytes]) << 30
        bytes_in = self.at + self.start + further
        if bytes_in:
            yield f"add.u32 %r{first}, %s, {bytes_in};"
        yield f"shr.u32 %r{first}, {f'%r{first}' if bytes_in else '%s'}, 4;"
        if self.blocks > 1:
            yield f"or.b32 %r{first}, %r{first}, {self.rows * self.swizzle_bytes // 16 << 16};"
        yield f"mov.b32 %r{first + 1}, {word:#010x};"
        yield f"mov.b64 {to}, {{%r{first}, %r{first + 1}}};"

    def matrix(self, x: Any) -> Any:
        """(rows, elements of a row) from the field's array."""
        kind = dtype(self.kind)
        if kind.bits < 8:
            chunks = np.ascontiguousarray(x).reshape(-1, 16)[:, : 16 * kind.bits // 8]
            x = np.stack([unpacked(chunk, kind.bits) for chunk in chunks]).view(kind.numpy)
        return np.asarray(x).reshape(self.blocks, self.rows, -1).transpose(1, 0, 2).reshape(self.rows, -1)


def near(offset: int) -> str:
    return f"+{offset}" if offset else ""


def sum_held_by(thread: int, value: int) -> tuple[int, int]:
    """(row, column) of an element of the accumulator: the value-th of a thread of the warpgroup.

    PTX ISA, wgmma register fragment D: of every 8 columns a thread holds two neighbours in each of two rows.
    """
    warp, group, place = thread // 32, thread % 32 // 4, thread % 4
    return 16 * warp + group + 8 * (value // 2 % 2), 8 * (value // 4) + 2 * place + value % 2


def right_operand(kind: str, n: int, swizzle: int, at: int, transposed: bool, columns: int, atom: int = 16) -> Image:
    """b in shared memory: n rows along k; or 16 rows of `columns` along n, of which the second n are read.

    atom  bytes that the swizzle leaves together: of 32, elements are those of which 8 rows are an instruction's
    """
    if not transposed:
        return Image("b", kind, n, swizzle, at)
    if atom > 16:
        return Image("b", kind, 8, swizzle, at, n * dtype(kind).bytes // swizzle, atom=atom)
    element, width = dtype(kind).bytes, n * dtype(kind).bytes
    start = width // swizzle * 16 * swizzle + width % swizzle if columns > n else 0
    return Image("b", kind, 16, swizzle, at, columns * element // swizzle, start)


def right_factor(b: Image, y: Any, n: int, transposed: bool, columns: int) -> Any:
    """(k, n) of what the instructions multiply by."""
    right = b.matrix(y).astype(np.float64)
    return right[:, n : 2 * n] if columns > n else right if transposed else right.T


def fragments(move: str, registers: Sequence[str]) -> list[str]:
    """Four registers at a time, `move` with braces for them and the place: "ld.global.v4.b32 {0}, [%c{1}];"."""
    groups = range(0, len(registers), 4)
    return [move.format("{" + ", ".join(registers[i : i + 4]) + "}", near(4 * i)) for i in groups]


def added(c: Any, product: Any) -> Any:
    """The accumulator's values, thread by thread, when the product was added."""
    return c + np.array([[product[sum_held_by(t, v)] for v in range(c.shape[1])] for t in range(128)])


def picture_of(cells: dict[tuple[int, int], str], rows: Iterable[int], columns: int) -> str:
    """thread:value at some rows and the first columns of a fragment."""
    lines = ["     " + " ".join(f"{c:>5}" for c in range(columns))]
    lines += [f"{row:>4} " + " ".join(f"{cells[row, c]:>5}" for c in range(columns)) for row in rows]
    return "\n".join(lines)


def refused_forms(
    good: Specimen, integer: Specimen, target: Constraint, floats: Constraint, integers: Constraint, exists: Guarantee
) -> tuple[Twin, ...]:
    """What the assembler refuses of both forms: another target, columns that there are not, types that are no pair.

    good, integer  64 x 8 of f16 and 64 x 32 of s8
    """
    return (
        Twin(target.name, "assembler", good, replace(good, target=100), "not supported on .target 'sm_100a'"),
        Twin(floats.name, "assembler", good, good.respelled("m64n8k16", "m64n12k16"), "m64n12k16"),
        Twin(integers.name, "assembler", integer, integer.respelled("m64n32k32", "m64n40k32"), "m64n40k32"),
        Twin(exists.name, "assembler", good, good.respelled("f32.f16.f16", "f32.f16.bf16"), "wgmma"),
    )


def across_widths(rule: Constraint, title: str, made: Callable[..., Specimen]) -> Twin:
    """b contiguous along n: columns that begin and end in one swizzle width, and some that run beyond it."""
    fits, runs_over = (
        made(title.format(n, 2 * n - 1), n, swizzle=64, transposed=True, columns=96) for n in (16, 24)
    )
    return Twin(rule.name, "emulator", fits, runs_over, "it would run into the next row")
