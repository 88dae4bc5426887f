"""tcgen05.mma: one thread has tiles in SMEM multiplied into tensor memory, of its own CTA or of a pair of them.

operands   a (128 x k) and b (k x n) in SMEM, in the layouts of TMA; c (128 x n) in TMEM, a row in each lane
pairs      each CTA has 128 rows of a and of c, and n / 2 columns of b: the first CTA the left ones
legality   which n and types exist; majors; operands swizzled, 32, 64 or 128 bytes wide; steps along k of 32 bytes
meaning    c += a @ b; c = a @ b where nothing was added up yet
cost       2 m n k operations of the tensor cores; 32 bytes of each row of a and b from SMEM
lowering   `Tcgen05Mma.issue`, matrix descriptors made of the operands' places, commits by the pipeline
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Operand, all_of, any_of, expr
from tinygpu.language.buffer import Buffer
from tinygpu.language.instruction import CHUNK_BYTES, Completion, Scope
from tinygpu.language.instruction.base import or_of
from tinygpu.language.memories import SMEM, TMEM, Memory
from tinygpu.language.tile import Tile
from tinygpu.ptx.isa.shared_operands import K_BYTES, MOST_COLUMNS, SharedOperands


@dataclass(frozen=True, slots=True)
class Kind:
    """One `.kind`: what it multiplies.

    codes        element types of a and b, by their code in the instruction descriptor
    bits         of an element in shared memory, where narrower ones are padded
    accumulator  type of c
    result       its code there
    targets      compute capabilities that have it
    """

    name: str
    codes: dict[str, int]
    bits: int
    accumulator: str
    result: int
    targets: tuple[int, ...]


# PTX ISA, instruction descriptor (tables 42 and 44): codes of the types that kinds f8f6f4 and mxf8f6f4 multiply, any by
# any. In shared memory each 16 of them have 16 bytes.
BYTES = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
# PTX ISA, tcgen05.mma: kinds (table 38), codes in the instruction descriptor (table 42). kind::i8 is of sm_100a, and
# no longer of sm_103a (each assembled).
KINDS = (
    Kind("f16", {"f16": 0, "bf16": 1}, 16, "f32", 1, (100, 103)),
    Kind("tf32", {"tf32": 2}, 32, "f32", 1, (100, 103)),
    Kind("f8f6f4", BYTES, 8, "f32", 1, (100, 103)),
    Kind("i8", {"u8": 0, "s8": 1}, 8, "s32", 2, (100,)),
)
# kind::f16 multiplies equal types; the others any pair of theirs.
EQUAL = ("f16",)
ROWS = 128


@dataclass(frozen=True, eq=False)
class Tcgen05Mma(SharedOperands):
    """tcgen05.mma.cta_group::1 of 128 rows with both operands in SMEM; K is 32 bytes of the operands' type.

    n     columns of one instruction
    half  f16 by f16 is added up in f16, an element in the lower half of each cell
    """

    half: bool = field(default=False, kw_only=True)

    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)
    scope: ClassVar[Scope] = "thread"
    completion: ClassVar[Completion] = "tcgen05 commit"
    proxy: ClassVar[Any] = "async"
    places: ClassVar[tuple[Memory, Memory, Memory]] = (SMEM, SMEM, TMEM)
    rows: ClassVar[int] = ROWS
    across: ClassVar[tuple[int, ...]] = (8, 16, 32)
    majors: ClassVar[Literal["assembler", "emulator"]] = "emulator"
    # PTX ISA, matrix descriptor of tcgen05: code of the swizzle, by its width in bytes, from bit 61 on; bit 46 is set.
    swizzles: ClassVar[dict[int, int]] = {128: 2, 64: 4, 32: 6}
    code_at: ClassVar[int] = 61
    constant: ClassVar[int] = 1 << 46
    paired: ClassVar[int] = 1
    source: ClassVar[str] = "PTX ISA, tcgen05.mma; instruction descriptor; matrix descriptor"

    @property
    def label(self) -> str:
        return "tcgen05.mma"

    def kind(self, a: DType, b: DType) -> Kind:
        """The `.kind` for these operand types. Raises TypeError where there is none."""
        for kind in KINDS:
            if a.name in kind.codes and b.name in kind.codes and (a == b or kind.name not in EQUAL):
                return kind
        raise TypeError(f"tcgen05.mma does not multiply {a} by {b}")

    def shape(self, a: DType, b: DType) -> tuple[int, Operand, int]:  # type: ignore[override]
        return self.rows, self.n, K_BYTES * 8 // self.kind(a, b).bits

    def atom(self, kind: DType, across: bool) -> int:
        """PTX ISA, table 52: elements of 32 bits across k lie under a swizzle of 128 bytes that leaves 32 together."""
        return 32 if across and kind.bits == 32 else CHUNK_BYTES

    def padded(self, a: DType, b: DType) -> bool:
        """Whether it reads operands of these types padded where they are narrower than 8 bits: what p.smem asks."""
        return self.kind(a, b).bits == 8

    def rate(self, a: DType, b: DType) -> tuple[str, str]:
        """Of kinds of 8 bits that of the widest type: narrower ones are padded, and take as long."""
        narrow = self.padded(a, b) and a.bits < 8
        return "e4m3" if narrow else a.name, self.accumulator(a, b).name

    def accumulator(self, a: DType, b: DType) -> DType:
        if self.half and (a.name, b.name) != ("f16", "f16"):
            # PTX ISA, tables 38 and 42: other kinds are said to have it in one, and not in the other.
            raise TypeError(f"{self.label} adds up f16 by f16 in f16, and not {a} by {b}")
        return dtype("f16" if self.half else self.kind(a, b).accumulator)

    @property
    def rounds_to(self) -> str:
        return "float16" if self.half else ""

    def fragments(self, a: DType, b: DType) -> Any:
        """None: all operands lie in memory."""
        return None, None, None

    def suffix(self, *types: DType) -> Literal["", "a", "f"]:
        a, b = types
        return "a" if len(self.kind(a, b).targets) == 1 else "f"

    def text(self, a: DType, b: DType) -> str:
        return f"tcgen05.mma.cta_group::{self.ctas}.kind::{self.kind(a, b).name}"

    def instruction_descriptor(self, a: DType, b: DType, across: tuple[bool, bool]) -> int:
        """PTX ISA, instruction descriptor: types, majors and extents in 32 bits."""
        kind, n = self.kind(a, b), int(expr(self.n))
        result = 0 if self.half else kind.result
        types = result << 4 | kind.codes[a.name] << 7 | kind.codes[b.name] << 10
        return types | across[0] << 15 | across[1] << 16 | n >> 3 << 17 | self.rows * self.ctas >> 4 << 24

    def issue(self, a: DType, b: DType, d: str, x: str, y: str, across: tuple[bool, bool], added: str) -> str:
        return f"{self.text(a, b)} [{d}], {x}, {y}, {self.instruction_descriptor(a, b, across):#010x}, {added};"

    def type_rules(self, a: DType, b: DType) -> tuple[Constraint, ...]:
        """Columns that exist for these types; and of a kind that not all have, the GPUs that do."""
        kind = self.kind(a, b)
        columns = self.columns_rule(a, kind)
        if kind.targets == self.only:
            return (columns,)
        having = any_of([self._cc() == cc for cc in kind.targets])
        named = or_of([f"sm_{cc}" for cc in kind.targets])
        exists = self.rule(f"kind for {a}", having, f"kind::{kind.name} exists on {named} only", "assembler")
        return exists, columns

    def columns_rule(self, a: DType, kind: Kind) -> Constraint:
        """How many columns an instruction of a kind has; `a` names the rule."""
        n, step, also = expr(self.n), self.step(kind), self.also(kind)
        legal = any_of([all_of([n % step == 0, n >= step, n <= MOST_COLUMNS]), *(n == few for few in also)])
        more = f", or {or_of(also)}" if also else ""
        sentence = f"an instruction of kind::{kind.name} has {step} to {MOST_COLUMNS} columns, in steps of {step}{more}"
        return self.rule(f"columns for {a}", legal, sentence, "emulator")

    def step(self, kind: Kind) -> int:
        """Columns of an instruction are so many, or several times that."""
        return 16

    def also(self, kind: Kind) -> tuple[int, ...]:
        """Other numbers of columns that an instruction may have."""
        return ()

    def operand_rules(self, a: Tile, b: Tile) -> tuple[Constraint, ...]:
        for tile in (a, b):
            if tile.buffer is not None:
                self._check_padding(tile, tile.buffer, tile.dtype.bits < 8 and self.padded(a.dtype, b.dtype))
        return super().operand_rules(a, b)

    def _check_padding(self, tile: Tile, buffer: Buffer, padded: bool) -> None:
        if buffer.padded is not padded:
            other = {True: "padded to 16 bytes for each 16 of them", False: "one behind the other"}
            raise ValueError(
                f"{self.label} reads {tile.dtype} of {buffer.name} {other[padded]}, and they lie {other[not padded]}: "
                f"give its buffer padded={padded}"
            )

    def rules_of(self, name: str, tile: Tile, k_axis: int) -> Iterator[Constraint]:
        yield from super().rules_of(name, tile, k_axis)
        buffer, step = tile.buffer, 16 * self.ctas
        if name == "b" and buffer is not None and buffer.contiguous != k_axis and tile.dtype.bits == 8:
            # PTX ISA, table 52.
            sentence = f"where operand b has 8-bit elements contiguous along n, columns come in steps of {step}"
            yield self.rule("columns along n", expr(self.n) % step == 0, sentence)


@dataclass(frozen=True, eq=False)
class Tcgen05MmaPair(Tcgen05Mma):
    """tcgen05.mma.cta_group::2 of 256 rows: two CTAs of a cluster multiply together, and each reads half of b.

    One thread of the first CTA issues it for both. They are neighbours along the last axis of the grid.

    n  columns of one instruction, half of them in each CTA's part of b
    """

    ctas: ClassVar[int] = 2

    @property
    def label(self) -> str:
        return "tcgen05.mma.pair"

    def step(self, kind: Kind) -> int:
        """PTX ISA, table 39: 16, of integers 32."""
        return 32 if kind.name == "i8" else 16
