"""tcgen05.mma: one thread has tiles in SMEM multiplied into tensor memory.

operands   a (128 x k) and b (k x n) in SMEM, in the layouts of TMA; c (128 x n) in TMEM, a row in each lane
legality   which n and types exist; majors; operands swizzled, 32, 64 or 128 bytes wide; steps along k of 32 bytes
meaning    c += a @ b; c = a @ b where nothing was added up yet
cost       2 m n k operations of the tensor cores; 32 bytes of each row of a and b from SMEM
lowering   `Tcgen05Mma.issue`, matrix descriptors made of the operands' places, commits by the pipeline
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Operand, all_of, any_of, expr
from tinygpu.language.instruction import Completion, MatrixMultiply, Scope
from tinygpu.language.memories import SMEM, TMEM, Memory
from tinygpu.language.tile import Tile


@dataclass(frozen=True, slots=True)
class Kind:
    """One `.kind`: what it multiplies.

    codes        element types of a and b, by their code in the instruction descriptor
    accumulator  type of c
    result       its code there
    targets      compute capabilities that have it
    """

    name: str
    codes: dict[str, int]
    accumulator: str
    result: int
    targets: tuple[int, ...]


# PTX ISA, tcgen05.mma: kinds (table 38), codes in the instruction descriptor (table 42). kind::i8 is of sm_100a, and
# no longer of sm_103a (each assembled).
KINDS = (
    Kind("f16", {"f16": 0, "bf16": 1}, "f32", 1, (100, 103)),
    Kind("tf32", {"tf32": 2}, "f32", 1, (100, 103)),
    Kind("f8f6f4", {"e4m3": 0, "e5m2": 1}, "f32", 1, (100, 103)),
    Kind("i8", {"u8": 0, "s8": 1}, "s32", 2, (100,)),
)
# kind::f16 multiplies equal types; the others any pair of theirs.
EQUAL = ("f16",)
ROWS, K_BYTES, MOST_COLUMNS = 128, 32, 256
# PTX ISA, matrix descriptor of tcgen05: code of the swizzle, by its width in bytes, and bits that are always so.
SWIZZLES = {128: 2, 64: 4, 32: 6}
ALWAYS = 1 << 46


@dataclass(frozen=True, eq=False)
class Tcgen05Mma(MatrixMultiply):
    """tcgen05.mma.cta_group::1 of 128 rows with both operands in SMEM; K is 32 bytes of the operands' type.

    n  columns of one instruction
    """

    n: Operand = 128

    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)
    scope: ClassVar[Scope] = "thread"
    completion: ClassVar[Completion] = "tcgen05 commit"
    proxy: ClassVar[Any] = "async"
    places: ClassVar[tuple[Memory, Memory, Memory]] = (SMEM, SMEM, TMEM)
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

    def shape(self, a: DType, b: DType) -> Any:
        return ROWS, self.n, K_BYTES * 8 // a.bits

    def accumulator(self, a: DType, b: DType) -> DType:
        return dtype(self.kind(a, b).accumulator)

    def fragments(self, a: DType, b: DType) -> Any:
        """None: all operands lie in memory."""
        return None, None, None

    def suffix(self, *types: DType) -> Literal["", "a", "f"]:
        a, b = types
        return "a" if len(self.kind(a, b).targets) == 1 else "f"

    def text(self, a: DType, b: DType) -> str:
        return f"tcgen05.mma.cta_group::1.kind::{self.kind(a, b).name}"

    def instruction_descriptor(self, a: DType, b: DType, across: tuple[bool, bool]) -> int:
        """PTX ISA, instruction descriptor: types, majors and extents in 32 bits."""
        kind, n = self.kind(a, b), int(expr(self.n))
        types = kind.result << 4 | kind.codes[a.name] << 7 | kind.codes[b.name] << 10
        return types | across[0] << 15 | across[1] << 16 | n >> 3 << 17 | ROWS >> 4 << 24

    def issue(self, a: DType, b: DType, d: str, x: str, y: str, across: tuple[bool, bool], added: str) -> str:
        return f"{self.text(a, b)} [{d}], {x}, {y}, {self.instruction_descriptor(a, b, across):#010x}, {added};"

    def descriptor(self, swizzle_bytes: int, apart_bytes: int, across: bool) -> int:
        """PTX ISA, matrix descriptor of tcgen05: offsets in 16 bytes; the swizzle in bits 61 to 63.

        The stride between groups of eight rows follows from the swizzle. The leading offset is that between swizzle
        widths along m or n, and not used along k.
        """
        leading = apart_bytes // 16 if across else 1
        return SWIZZLES[swizzle_bytes] << 61 | ALWAYS | (8 * swizzle_bytes // 16) << 32 | leading << 16

    def target_rule_for(self, a: DType, b: DType) -> Constraint:
        """Columns that exist for these types, on GPUs that have the kind."""
        n, kind = expr(self.n), self.kind(a, b)
        legal = all_of([n % 16 == 0, n >= 16, n <= MOST_COLUMNS, any_of([self._cc() == cc for cc in kind.targets])])
        having = " and ".join(f"sm_{cc}" for cc in kind.targets)
        sentence = f"an instruction of kind::{kind.name} has 16 to {MOST_COLUMNS} columns, in steps of 16, on {having}"
        return self.rule(f"columns for {a}", legal, sentence, "emulator")

    def operand_rules(self, a: Tile, b: Tile) -> tuple[Constraint, ...]:
        """Layouts and majors of operands in SMEM."""
        out = []
        for name, tile, k_axis in (("a", a, 1), ("b", b, 0)):
            buffer = tile.buffer
            if buffer is None or buffer.memory is not SMEM:
                continue
            if buffer.swizzle_bytes is None:
                raise ValueError(
                    f"{buffer.name} is an operand of tcgen05.mma: give the width of its swizzle, swizzle=32, 64 or 128"
                )
            step = buffer.dtype.bits * tile.shape[k_axis] // 8
            out.append(
                self.rule(
                    f"step of {name}",
                    all_of([step == K_BYTES]),
                    f"each instruction multiplies {K_BYTES} bytes along k of operand {name}",
                )
            )
            if buffer.contiguous == k_axis:
                continue
            if name == "b":
                columns = expr(self.n) * buffer.dtype.bits // 8
                whole = [columns % buffer.swizzle_bytes == 0, buffer.swizzle_bytes % columns == 0]
                out.append(
                    self.rule(
                        "swizzle of b",
                        any_of(whole),
                        "where operand b is contiguous along n, the columns of an instruction are whole widths of its "
                        "swizzle, or whole instructions make one",
                    )
                )
            # PTX ISA, tables 51 and 52: tf32 across k needs a swizzle with atoms of 32 bytes, which TMA has of its own.
            out.append(
                self.rule(
                    f"major of {name}",
                    all_of([expr(buffer.dtype.bits) <= 16]),
                    f"operand {name} is contiguous along k, unless its elements have 8 or 16 bits (they have "
                    f"{buffer.dtype.bits})",
                )
            )
        return tuple(out)
