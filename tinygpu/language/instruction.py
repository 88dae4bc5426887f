"""Instructions: what one PTX-backed operation needs, brings and costs. The shipped ones are in `tinygpu.ptx.isa`.

An instruction belongs to one of seven families, which say how its operands are partitioned:

    Transfer         moves vectors between two memories, thread by thread (ld, st, cp.async)
    BulkTransfer     moves a whole tile, issued by one thread (TMA)
    MatrixLoad       moves matrices from SMEM or TMEM to fragments in registers (ldmatrix, tcgen05.ld)
    MatrixStore      moves fragments from registers to SMEM (stmatrix)
    MatrixMultiply   multiplies fragments, or tiles in SMEM (mma.sync, wgmma, tcgen05.mma)
    Elementwise      computes value by value (fma, add, ex2, cvt)
    Shuffle          exchanges values between lanes (shfl.sync); a LaneRead reads any lane

Each says in `meaning` what it does to whole tiles, in NumPy, whoever holds which element: what `Program.run` carries
out, and what `tinygpu check` compares with the text. An instruction that does something else says so in its own.

A user's own instruction subclasses one of them, in the user's own file; it is then bound, searched, costed and lowered
like a shipped one: lowering knows the families alone, and what it needs of an instruction its family asks for. Rates
and latencies belong to the Device, so that calibration never edits an instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype, tf32_read
from tinygpu.expressions import Expr, Operand, all_of, any_of, expr
from tinygpu.language.matrix_fragments import MATRIX_ROW_BYTES, WORD_BITS, is_fragment, runs_across
from tinygpu.language.memories import GMEM, RMEM, SMEM, Memory
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import E, Step

Unit = Literal["lsu", "alu", "fma", "sfu", "tensor", "copy", "fp64"]
Scope = Literal["thread", "warp", "warpgroup", "cta", "cluster"]
# "bulk group": cp.async.bulk.commit_group (stores by TMA); "wgmma group": wgmma.commit_group.
Completion = Literal["", "commit group", "bulk group", "wgmma group", "mbarrier", "tcgen05 commit"]

# Rows that a BulkTransfer moves one by one: a statement each.
MOST_ROWS = 256
# The oldest GPUs that kernels are written for, and what is said of an instruction that these have.
OLDEST_TARGET = 80
WRITTEN_FOR = f"kernels are written for sm_{OLDEST_TARGET} and later"


@dataclass(frozen=True, eq=False)
class Instruction:
    """One PTX-backed operation.

    target      oldest `.target` that has it, as a number: 80, 90, 100
    only        the compute capabilities that have it, where later ones do not ("a" targets: wgmma on 90); () otherwise
    isa         lowest PTX `.version` that has it, as (major, minor)
    scope       how many threads act as one
    unit        what it occupies
    completion  for an asynchronous instruction: what completes it
    proxy       through which proxy it touches shared memory
    source      where its facts come from
    traced_only  programs with it are traced, printed and counted, and no kernel is written
    """

    target: ClassVar[int] = OLDEST_TARGET
    only: ClassVar[tuple[int, ...]] = ()
    isa: ClassVar[tuple[int, int]] = (7, 0)
    scope: ClassVar[Scope] = "thread"
    unit: ClassVar[Unit] = "alu"
    completion: ClassVar[Completion] = ""
    proxy: ClassVar[Literal["generic", "async"]] = "generic"
    source: ClassVar[str] = ""
    traced_only: ClassVar[bool] = False

    @property
    def asynchronous(self) -> bool:
        return self.completion != ""

    @property
    def label(self) -> str:
        """The instruction's name in listings: its PTX spelling without operands."""
        return type(self).__name__

    def __str__(self) -> str:
        return self.label

    def target_rule(self) -> Constraint:
        return Constraint(
            f"{self.label} target",
            any_of([self._cc() == cc for cc in self.only]) if self.only else self._cc() >= self.target,
            since(self.label, self.target, self.only),
            source=self.label,
            judge="assembler",
            why=self.source,
        )

    def available(self, *types: DType) -> tuple[int, tuple[int, int]]:
        """(oldest target, lowest `.version`); `types` are those of the operands a and b of a MatrixMultiply."""
        return self.target, self.isa

    def unwritten(self) -> str:
        """Why no kernel can be written with it, as what follows its name; "" where one can."""
        return ""

    def _silent(self, name: str, *arguments: Any) -> str:
        """Why a method that gives PTX gives none for these arguments; "" where it does."""
        try:
            said = getattr(self, name)(*arguments)
        except Exception as error:  # the author's own code
            return f"cannot be written: {name}() raises {type(error).__name__}: {error}"
        given = isinstance(said, str) and bool(said.strip())
        return "" if given else f"cannot be written: {name}() gives {said!r}, and PTX is text"

    def _owes(self, family: type[Instruction], *names: str) -> str:
        """What of its family's interface the class does not state."""
        missing = [f"{name}()" for name in names if getattr(type(self), name) is getattr(family, name)]
        own = next(base.__name__ for base in type(self).__mro__ if base.__module__ == __name__)
        return f"does not state {_and(missing)}, as a {own} does" if missing else ""

    @staticmethod
    def _cc() -> Expr:
        from tinygpu.expressions import symbol

        return symbol("device.cc")

    def rule(self, name: str, condition: Expr | bool, sentence: str, judge: Any = "emulator") -> Constraint:
        """A legality constraint that this instruction brings."""
        title = f"{self.label} {name}"
        return Constraint(title, _condition(condition), sentence, "legality", self.label, judge, self.source)


def _run(partition: Partition, contiguous: int | None) -> Expr:
    """Neighbouring elements, in memory, that open the list of one thread's values."""
    size, step = partition.values.steps[0]
    return expr(size) if contiguous is not None and step == E(contiguous) else expr(1)


def _condition(value: Expr | bool) -> Expr:
    return value if isinstance(value, Expr) else all_of([value])


@dataclass(frozen=True, eq=False)
class Transfer(Instruction):
    """Moves `vector` neighbouring elements per thread between two memories.

    vector  elements per thread and instruction: a number or a parameter

    From or to registers by `statement`; between two memories by `copy`, asynchronously in commit groups.
    """

    vector: Operand = 1

    reads: ClassVar[Memory]
    writes: ClassVar[Memory]
    opcode: ClassVar[str] = ""
    # Legal widths of one thread's access, in bytes (PTX ISA: ld, st, cp.async).
    widths_bytes: ClassVar[tuple[int, ...]] = (1, 2, 4, 8, 16)
    # The width at which data from GMEM does not pass through L1; 0: none.
    past_l1_bytes: ClassVar[int] = 0
    # Types of the elements that it moves; (): all.
    kinds: ClassVar[tuple[str, ...]] = ()
    # Whether it reads through the read-only path: what nothing writes while the kernel runs.
    read_only: ClassVar[bool] = False
    unit: ClassVar[Unit] = "lsu"

    @property
    def label(self) -> str:
        return self.opcode

    def meaning(self, values: Any) -> Any:
        """What arrives of a tile: its values as they are."""
        return values

    def combine(self, there: Any, values: Any) -> Any:
        """For a store that does not replace what is there: what becomes of it, in NumPy.

        Such a store is atomic: whoever stores to an element, however often and in whatever order, nothing gets lost.
        """
        raise NotImplementedError

    @property
    def combines(self) -> bool:
        """Whether it combines what it stores with what is there."""
        return type(self).combine is not Transfer.combine

    def statement(self, kind: DType, piece: str, registers: Sequence[str], address: str) -> str:
        """PTX that moves neighbouring elements between registers and memory.

        kind       type of the elements
        piece      PTX type of one register: b16 or b64 for one element, b32 for as many as fit, s8 or u8 for one byte
        registers  that hold `vector` elements in all, or at a tensor's edge fewer
        address    of the first element, in brackets
        """
        count = len(registers)
        moved = registers[0] if count == 1 else f"{{{', '.join(registers)}}}"
        operands = f"{address}, {moved}" if self.reads is RMEM else f"{moved}, {address}"
        return f"{self.opcode}{f'.v{count}' if count > 1 else ''}.{piece} {operands};"

    def copy(self, width_bytes: int, target: str, source: str, existing: str = "") -> str:
        """PTX that copies `width_bytes` from address to address, both in brackets; at a tensor's edge only as many as
        `existing` says (a register), and zeros behind them."""
        raise NotImplementedError

    def unwritten(self) -> str:
        if self.combines and (self.reads, self.writes) != (RMEM, GMEM):
            return f"combines on the way from {self.reads} to {self.writes}; what combines is a store from RMEM to GMEM"
        if RMEM in (self.reads, self.writes):
            return f"is completed by a {self.completion}, and what goes through registers at once" * self.asynchronous
        if (self.reads, self.writes) != (GMEM, SMEM) or self.completion != "commit group":
            done = f"completed by a {self.completion}" if self.completion else "completed at once"
            return (
                f"copies {self.reads} to {self.writes}, {done}; without registers, threads copy GMEM to SMEM, in "
                "commit groups"
            )
        return self._owes(Transfer, "copy")

    def width_bytes(self, dtype: DType) -> Expr:
        return expr(self.vector) * dtype.bits // 8

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving `memory_side` (a GMEM or SMEM tile) under `partition`."""
        width = self.width_bytes(memory_side.dtype)
        rules = [
            self.rule(
                f"width of {memory_side.name}",
                any_of([width == w for w in self.widths_bytes]),
                f"{self.label} moves {_or(self.widths_bytes)} bytes per thread",
                "assembler",
            )
        ]
        if memory_side.tensor is not None:
            rules += self._gmem_rules(memory_side, width)
        if memory_side.buffer is not None:
            rules.append(
                self.rule(
                    f"alignment of {memory_side.name}",
                    memory_side.buffer.pitch_bytes % width == 0,
                    f"the rows of {memory_side.name} are aligned to the vectors that {self.label} moves",
                )
            )
        run = _run(partition, memory_side.contiguous)
        rules.append(
            self.rule(
                f"vector along {memory_side.name}",
                run % expr(self.vector) == 0,
                f"the elements that a thread moves at once are neighbours in {memory_side.name}",
            )
        )
        return tuple(rules)

    def _gmem_rules(self, tile: Tile, width: Expr) -> list[Constraint]:
        tensor = tile.tensor
        if tensor is None:
            return []
        aligned = [tensor.align % width == 0]
        if tensor.rank > 1:
            aligned.append((tensor.ld * tensor.dtype.bits // 8) % width == 0)
        rules = [
            self.rule(
                f"alignment of {tensor.name}",
                all_of(aligned),
                f"the pointer and the rows of {tensor.name} are aligned to the vectors that {self.label} moves",
            )
        ]
        return rules


@dataclass(frozen=True, eq=False)
class BulkTransfer(Instruction):
    """Moves a whole tile between two memories at once: one thread issues it, an engine carries it out (TMA).

    From GMEM it completes on an mbarrier, to GMEM in a bulk group. What it moves in GMEM are boxes that a tensor map
    describes, of rows as wide as a span of the buffer (`statement`); or rows of the tile, one by one, which lie within
    the tensor and whole in a buffer without swizzle (`row_statement`).
    """

    reads: ClassVar[Memory]
    writes: ClassVar[Memory]
    unit: ClassVar[Unit] = "copy"
    proxy: ClassVar[Literal["generic", "async"]] = "async"
    # What pointers and rows in GMEM are multiples of (cuTensorMapEncodeTiled; PTX ISA, cp.async.bulk).
    align_bytes: ClassVar[int] = 16

    def statement(self, rank: int, shared: str, tensor: str, barrier: str = "", ctas: str = "") -> str:
        """PTX that moves one box.

        rank     axes of the tensor
        shared   address of the box in SMEM, in brackets
        tensor   address of the tensor map and coordinates, the fastest axis first, in brackets
        barrier  address of the mbarrier that counts the bytes that arrive, in brackets
        ctas     register of 16 bits with the ranks of the CTAs of the cluster that all receive it; "": this CTA alone
        """
        raise NotImplementedError

    def row_statement(self, size_bytes: int, shared: str, tensor: str, barrier: str = "") -> str:
        """PTX that moves `size_bytes` of a row; `shared` and `tensor` are where they begin, addresses in brackets."""
        raise NotImplementedError

    @property
    def by_rows(self) -> bool:
        """Whether it moves rows one by one, and no boxes."""
        return type(self).row_statement is not BulkTransfer.row_statement

    def unwritten(self) -> str:
        known = {(GMEM, SMEM): "mbarrier", (SMEM, GMEM): "bulk group"}
        if known.get((self.reads, self.writes)) != self.completion:
            done = f"completed by {self.completion}" if self.completion else "completed at once"
            return (
                f"moves {self.reads} to {self.writes}, {done}; a BulkTransfer moves GMEM to SMEM by mbarrier, or SMEM "
                "to GMEM by bulk group"
            )
        return "" if self.by_rows else self._owes(BulkTransfer, "statement", "legality")

    def meaning(self, values: Any) -> Any:
        """What arrives of a tile: its values as they are."""
        return values

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        """Constraints from moving `source` to `target`."""
        if not self.by_rows:
            raise NotImplementedError
        window, side = (source, target) if source.tensor is not None else (target, source)
        tensor, buffer, axis = window.tensor, side.buffer, window.contiguous
        if tensor is None or buffer is None or axis is None:
            raise ValueError(f"{self.label} moves rows between a tensor in GMEM and a buffer in SMEM")
        if axis != buffer.contiguous:
            raise ValueError(f"{buffer.name} has rows along another axis than {tensor.name}: {self.label} moves rows")
        if buffer.span is not None or buffer.layout:
            raise ValueError(f"{self.label} leaves rows as they are: {buffer.name} has neither swizzle= nor layout=")
        if not all(o.same(0) for o in side.offset) or not buffer.shape[0].same(side.shape[0]):
            raise ValueError(f"{self.label} moves to or from all of {buffer.name}, not a window of it")
        row_bytes = window.shape[axis] * tensor.dtype.bits // 8
        pitches = [buffer.pitch_bytes, *([tensor.ld * tensor.dtype.bits // 8] if tensor.rank > 1 else [])]
        aligned = [of % self.align_bytes == 0 for of in (tensor.align, row_bytes, *pitches)]
        rows = expr(1)
        for along, extent in enumerate(window.shape):
            rows = rows * (1 if along == axis else extent)
        return (
            self.rule(
                f"rows of {tensor.name}",
                all_of(aligned),
                f"the pointer and the rows of {tensor.name}, and what is moved of each, are multiples of "
                f"{self.align_bytes} bytes",
            ),
            self.rule(
                f"number of rows of {tensor.name}",
                rows <= MOST_ROWS,
                f"a thread issues the moves of {MOST_ROWS} rows at most, one after another",
                "model",
            ),
        )

    def multicast_rules(self, source: Tile, target: Tile, ctas: Expr) -> tuple[Constraint, ...]:
        """What it asks where `ctas` CTAs of a cluster each bring a part of the tile to all of them."""
        return ()


@dataclass(frozen=True, eq=False)
class MatrixMove(Instruction):
    """What MatrixLoad and MatrixStore share: 8x8 matrices of 16-bit elements in SMEM, by the lanes of a warp.

    Each matrix is eight rows of 16 bytes. Lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i. Lane l holds
    the row l / 4 and the 32 bits l % 4 of each in one register; where the move is transposed, rows and columns of
    16-bit elements change places. `matrix_fragments` writes this as layouts, HELD and ADDRESSED.
    """

    reads: ClassVar[Memory]
    writes: ClassVar[Memory]
    scope: ClassVar[Scope] = "warp"
    unit: ClassVar[Unit] = "lsu"
    # Matrices that one instruction can move.
    counts: ClassVar[tuple[int, ...]] = (1, 2, 4)
    # What the lanes have to do with a matrix, as what follows the label.
    holds: ClassVar[str] = "moves the row l / 4 and the 32 bits l % 4 of an 8x8 matrix to or from lane l"

    def transposes(self, tile: Tile, partition: Partition) -> bool:
        """Whether the fragment's register pairs run across the contiguous axis of the buffer."""
        return runs_across(partition, tile.contiguous)

    def meaning(self, values: Any) -> Any:
        """The tile that the fragments hold together: its values as they are in memory."""
        return values

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        """PTX that moves as many matrices as there are registers; `address`, in brackets, is the lane's row."""
        raise NotImplementedError

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving `memory_side` (an SMEM tile) under `partition`."""
        buffer, bits = memory_side.buffer, memory_side.dtype.bits
        if buffer is None:
            raise ValueError(f"{self.label} moves matrices of a buffer in SMEM, and {memory_side.name} is none")
        return (
            self.rule(
                f"fragment of {memory_side.name}",
                bits <= WORD_BITS and is_fragment(partition, WORD_BITS // bits),
                f"{self.label} {self.holds}",
            ),
            self.rule(
                f"transpose of {memory_side.name}",
                bits == 16 or not self.transposes(memory_side, partition),
                f"elements of {memory_side.name} that are not 16 bits wide lie along its rows, because "
                f"{self.label}.trans exchanges 16-bit ones (here they are {memory_side.dtype})",
            ),
            self.rule(
                f"row alignment of {memory_side.name}",
                buffer.pitch_bytes % MATRIX_ROW_BYTES == 0,
                f"rows of {memory_side.name} are whole {MATRIX_ROW_BYTES}-byte pieces",
            ),
        )

    def unwritten(self) -> str:
        if SMEM not in (self.reads, self.writes):
            return f"moves {self.reads} to {self.writes}, and matrices are moved between SMEM and registers"
        if self.counts[0] != 1:
            return f"moves {_or(self.counts)} matrices, and not a single one"
        tried = [(["%r0"] * count, "[%r1]", across) for count in self.counts for across in (False, True)]
        silent = (self._silent("statement", *arguments) for arguments in tried)
        return self._owes(MatrixMove, "statement") or next(filter(None, silent), "")


@dataclass(frozen=True, eq=False)
class MatrixLoad(MatrixMove):
    """Moves matrices into fragments: 8x8 ones of 16-bit elements from SMEM to a warp, rows of TMEM to a warpgroup."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = RMEM


@dataclass(frozen=True, eq=False)
class MatrixStore(MatrixMove):
    """Moves the fragments of a warp into memory as 8x8 matrices."""

    reads: ClassVar[Memory] = RMEM
    writes: ClassVar[Memory] = SMEM


# Who holds what of one operand of a matrix instruction: (lane or thread, value) -> coordinates along its two axes, low
# element of the first register first; None for an operand that lies in memory.
Fragment: TypeAlias = Layout | None


@dataclass(frozen=True, eq=False)
class MatrixMultiply(Instruction):
    """c += a @ b on fragments or tiles: a is (m, k), b is (k, n), c is (m, n).

    places  the memories of a, b and c: all RMEM for a warp, at once; or b, and perhaps a, in SMEM for a warpgroup, in
            wgmma groups
    ctas    CTAs of a cluster that multiply together: each holds its own rows of a and c, and 1/ctas of the columns of b
    """

    scope: ClassVar[Scope] = "warp"
    unit: ClassVar[Unit] = "tensor"
    places: ClassVar[tuple[Memory, Memory, Memory]] = (RMEM, RMEM, RMEM)
    ctas: ClassVar[int] = 1

    def meaning(self, accumulator: Any, a: Any, b: Any) -> Any:
        """(m, n) the accumulator afterwards, of the tiles before: of an accumulator (m, n), a (m, k) and b (k, n).

        All of them are f64, which holds every element of the narrower types; what is returned is rounded to the
        accumulator's type, once.
        """
        return accumulator + a @ b

    def operand(self, values: Any, kind: DType) -> Any:
        """The numbers that the unit reads of the elements of a or b, in f64: of tf32 its upper 19 bits."""
        return np.asarray(tf32_read(values) if kind.name == "tf32" else values, dtype=np.float64)

    def operand_rules(self, a: Tile, b: Tile) -> tuple[Constraint, ...]:
        """What it asks of operands that lie in memory: layouts, majors."""
        return ()

    def target_rule_for(self, a: DType, b: DType) -> Constraint:
        """The devices that have it for these operand types."""
        return self.target_rule()

    def shape(self, a: DType, b: DType) -> tuple[int, int, int]:
        """(m, n, k) of one instruction for these operand types."""
        raise NotImplementedError

    def fragments(self, a: DType, b: DType) -> tuple[Fragment, Fragment, Fragment]:
        """Fragments of a, b and c; one that is smaller than its operand repeats, along axis 0 first."""
        raise NotImplementedError

    def accumulator(self, a: DType, b: DType) -> DType:
        raise NotImplementedError

    def text(self, a: DType, b: DType) -> str:
        """The opcode with its types."""
        raise NotImplementedError

    def statement(self, a: DType, b: DType, d: str, x: str, y: str, across: tuple[bool, bool] = (False, False)) -> str:
        """PTX of one instruction, d += x @ y.

        d       registers of the accumulator, in braces, in the order of the fragment's values
        x, y    those of a and b; or a register of 64 bits with the descriptor of an operand in SMEM
        across  whether a in SMEM is contiguous along m, and b in SMEM along n
        """
        return f"{self.text(a, b)} {d}, {x}, {y}, {d};"

    def descriptor(self, span_bytes: int, apart_bytes: int, across: bool) -> int:
        """The 64 bits that describe an operand in SMEM, less its address: that is added in 16 bytes, in bits 0 to 13.

        span_bytes   32, 64 or 128: width of the swizzled spans of its rows
        apart_bytes  from a span of all rows to the next
        across       whether it is contiguous along m or n, not k
        """
        raise NotImplementedError

    def unwritten(self) -> str:
        owed = self._owes(MatrixMultiply, "shape", "fragments", "accumulator")
        if type(self).statement is MatrixMultiply.statement:
            owed = owed or self._owes(MatrixMultiply, "text")
        if self.places == (RMEM, RMEM, RMEM) and self.scope == "warp" and not self.asynchronous:
            return owed
        in_groups = self.places[1:] == (SMEM, RMEM) and self.places[0] in (SMEM, RMEM)
        if not in_groups or self.scope != "warpgroup" or self.completion != "wgmma group":
            places = _and([f"{name} in {place}" for name, place in zip("abc", self.places, strict=True)])
            return (
                f"is of a {self.scope}, with {places}; a MatrixMultiply is of a warp with all in RMEM, completed at "
                "once, or of a warpgroup with b in SMEM, a in SMEM or RMEM and c in RMEM, completed by wgmma group"
            )
        return owed or self._owes(MatrixMultiply, "descriptor")


@dataclass(frozen=True, slots=True, eq=False)
class Tiled:
    """A matrix instruction repeated over a tile by the warps of a role: the partitions of a, b and c.

    m, n, k  extents of one instruction
    """

    m: int
    n: int
    k: int
    a: Partition
    b: Partition
    c: Partition


def tiled(
    instruction: MatrixMultiply, a: DType, b: DType, shape: tuple[Operand, Operand], warps: tuple[Operand, Operand]
) -> Tiled:
    """Partitions of one step of `instruction` over an m x n tile, `warps` = (along m, along n) the grid of warps."""
    m, n, k = instruction.shape(a, b)
    bm, bn = expr(shape[0]), expr(shape[1])
    wm, wn = expr(warps[0]), expr(warps[1])
    (la, va), (lb, vb), (lc, vc) = (
        _held(f, extents) for f, extents in zip(instruction.fragments(a, b), ((m, k), (k, n), (m, n)), strict=True)
    )
    conditions = (
        Condition(
            f"{instruction.label} rows", bm % (wm * m) == 0, f"each warp's rows are a whole number of {m}-row fragments"
        ),
        Condition(
            f"{instruction.label} columns",
            bn % (wn * n) == 0,
            f"each warp's columns are a whole number of {n}-column fragments",
        ),
    )
    threads = (128 if instruction.scope == "warpgroup" else 32) * wm * wn
    along_m, along_n = (wm, (bm // wm) * E(0)), (wn, (bn // wn) * E(1))
    repeat_m, repeat_n = (bm // (wm * m), m * E(0)), (bn // (wn * n), n * E(1))
    idle_m, idle_n = (wm, 0), (wn, 0)
    a_held = Layout.of([*la, along_m, idle_n], [*va, repeat_m])
    b_held = Layout.of([*lb, idle_m, along_n], [*vb, repeat_n])
    c_held = Layout.of([*lc, along_m, along_n], [*vc, repeat_m, repeat_n])
    return Tiled(
        m,
        n,
        k,
        Partition((bm, expr(k)), a_held, conditions, threads),
        Partition((expr(k), bn), b_held, conditions, threads),
        Partition((bm, bn), c_held, conditions, threads),
    )


Digits: TypeAlias = tuple[tuple[Leaf, Leaf | Step], ...]


def _held(fragment: Fragment, extents: tuple[Operand, Operand]) -> tuple[Digits, Digits]:
    """Digits of the threads and of the values of an operand of these extents, over which a fragment repeats."""
    if fragment is None:
        return (), ()
    threads, values = fragment.modes
    repeats: list[tuple[Leaf, Leaf | Step]] = []
    for axis, extent in enumerate(extents):
        reach = fragment.along(axis).cosize
        if (expr(extent) % reach).is_number and int(expr(extent) % reach):
            raise ValueError(
                f"the fragment {fragment} has an extent of {reach} along axis {axis}, and its operand has {extent}, "
                "which is no multiple of it"
            )
        times = expr(extent) // reach
        if not times.same(1):
            repeats.append((times, reach * E(axis)))
    return threads.steps, (*values.steps, *repeats)


@dataclass(frozen=True, eq=False)
class Elementwise(Instruction):
    """Computes one value from one value of each operand.

    Class facts: `operands` dtypes, `result` dtype, `template` (PTX with {d}, {a}, {b}, {c}), `meaning` (NumPy).
    """

    operands: ClassVar[tuple[str, ...]] = ()
    result: ClassVar[str] = ""
    template: ClassVar[str] = ""

    def types(self) -> tuple[tuple[str, ...], str]:
        """(operand dtypes, result dtype) of this instance."""
        return self.operands, self.result

    def text(self) -> str:
        """PTX with the operands as {d}, {a}, {b}, {c}; several statements may be separated by newlines."""
        return self.template

    def packed_text(self) -> str:
        """PTX on as many neighbouring elements as a 32-bit register holds of the result; "": there is none.

        {d} is the register of the results. Of an operand as wide as the result, {a} is the register with as many; of
        another, {a0}, {a1} and so on are the elements. Where there is no `text`, threads hold whole registers.
        """
        return ""

    @property
    def at_once(self) -> int:
        """Elements that one instruction makes at least."""
        return 1 if self.text() else 32 // dtype(self.types()[1]).bits

    def meaning(self, *values: Any) -> Any:
        """The same in NumPy, of arrays of the operands' types that broadcast against each other."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        first = (self.text() or self.packed_text()).split()[:1]
        return first[0] if first and first[0][0].isalpha() else type(self).__name__.lower()

    @property
    def flops(self) -> int:
        """Floating-point operations per value (0 for conversions and moves)."""
        return 1

    def unwritten(self) -> str:
        if not (self.text() or self.packed_text()):
            return "states neither text() nor packed_text()"
        kind = dtype(self.types()[1])
        if not self.text() and kind.bits >= 32:
            return f"states no text(), and a register holds a single {kind}"
        count = len(self.types()[0])
        if count > len(OPERANDS):
            return f"takes {count} operands, and a text names {len(OPERANDS)} at most"
        names = {"d": "%r0"} | {f"{letter}{i}": "%r1" for letter in OPERANDS[:count] for i in ("", *range(4))}
        for text in (self.text(), self.packed_text()):
            try:
                text.format(**names)
            except (KeyError, IndexError, ValueError):
                letters = ", ".join(f"{{{letter}}}" for letter in OPERANDS[:count])
                return f"cannot be written: in {text!r} {{d}}, {letters} are filled in, and other braces are doubled"
        return ""


@dataclass(frozen=True, eq=False)
class Shuffle(Instruction):
    """Exchanges 32-bit values between the lanes of a warp (butterfly)."""

    scope: ClassVar[Scope] = "warp"
    unit: ClassVar[Unit] = "lsu"

    def meaning(self, combine: Callable[[Any, Any], Any], values: Any, axis: int) -> Any:
        """The tile combined along an axis, pair by pair and then pairs of pairs; it has extent 1 there."""
        while (count := values.shape[axis]) > 1:
            low, high, rest = np.split(values, [count // 2, count // 2 * 2], axis=axis)
            values = np.concatenate([combine(low, high), rest], axis=axis)
        return values

    def statement(self, result: str, value: str, mask: int) -> str:
        """PTX that gives each lane the value of the lane whose number differs in the bits of `mask`; in 32 bits."""
        raise NotImplementedError

    def unwritten(self) -> str:
        return self._owes(Shuffle, "statement") or self._silent("statement", "%r0", "%r1", 1)


# The operands of an element-wise instruction in its text; {d} is the result.
OPERANDS = "abcefghij"


@dataclass(frozen=True, eq=False)
class LaneRead(Shuffle):
    """A shuffle in which each lane may read any lane of its warp, and one lane may be read by many."""

    def read(self, result: str, value: str, lane: str) -> str:
        """PTX that gives each lane the value of lane `lane`, a register or a number; in 32 bits."""
        raise NotImplementedError

    def unwritten(self) -> str:
        return super().unwritten() or self._owes(LaneRead, "read")


def since(what: str, target: int, only: tuple[int, ...] = ()) -> str:
    """Which GPUs have `what`. Of what is as old as the oldest GPU that kernels are written for, PTX may say less."""
    if only:
        return f"{what} exists on {_or([f'sm_{cc}' for cc in only])} only"
    return f"{what} exists from sm_{target} on" if target > OLDEST_TARGET else WRITTEN_FOR


def _or(values: Sequence[int | str]) -> str:
    words = [str(v) for v in values]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
