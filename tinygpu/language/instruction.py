"""Instructions: what one PTX-backed operation needs, brings and costs. The shipped ones are in `tinygpu.ptx.isa`.

An instruction belongs to one of seven families, which say how its operands are partitioned:

    Transfer         moves vectors between two memories, thread by thread (ld, st, cp.async)
    BulkTransfer     moves a whole tile, issued by one thread (TMA)
    MatrixLoad       moves matrices from SMEM or TMEM to fragments in registers (ldmatrix, tcgen05.ld)
    MatrixStore      moves fragments from registers to SMEM (stmatrix)
    MatrixMultiply   multiplies fragments, or tiles in SMEM (mma.sync, wgmma, tcgen05.mma)
    Elementwise      computes value by value (fma, add, ex2, cvt)
    Shuffle          exchanges values between lanes (shfl.sync)

Each says in `meaning` what it does to whole tiles, in NumPy, whoever holds which element: what `Program.run` carries
out, and what `tinygpu check` compares with the text. An instruction that does something else says so in its own.

A user's own instruction subclasses one of them, in the user's own file; it is then bound, searched, costed and lowered
like a shipped one. Rates and latencies belong to the Device, so that calibration never edits an instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, tf32_read
from tinygpu.expressions import Expr, Operand, all_of, any_of, expr
from tinygpu.language.memories import RMEM, SMEM, Memory
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import E, Step

Unit = Literal["lsu", "alu", "fma", "sfu", "tensor", "copy", "fp64"]
Scope = Literal["thread", "warp", "warpgroup", "cta", "cluster"]
# "bulk group": cp.async.bulk.commit_group (stores by TMA); "wgmma group": wgmma.commit_group.
Completion = Literal["", "commit group", "bulk group", "wgmma group", "mbarrier", "tcgen05 commit"]

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
    """

    target: ClassVar[int] = OLDEST_TARGET
    only: ClassVar[tuple[int, ...]] = ()
    isa: ClassVar[tuple[int, int]] = (7, 0)
    scope: ClassVar[Scope] = "thread"
    unit: ClassVar[Unit] = "alu"
    completion: ClassVar[Completion] = ""
    proxy: ClassVar[Literal["generic", "async"]] = "generic"
    source: ClassVar[str] = ""

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
    """

    vector: Operand = 1

    reads: ClassVar[Memory]
    writes: ClassVar[Memory]
    opcode: ClassVar[str] = ""
    # Legal widths of one thread's access, in bytes (PTX ISA: ld, st, cp.async).
    widths_bytes: ClassVar[tuple[int, ...]] = (1, 2, 4, 8, 16)
    # The width at which data from GMEM does not pass through L1; 0: none.
    past_l1_bytes: ClassVar[int] = 0
    unit: ClassVar[Unit] = "lsu"

    @property
    def label(self) -> str:
        return self.opcode

    def meaning(self, values: Any) -> Any:
        """What arrives of a tile: its values as they are."""
        return values

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
    """Moves a whole tile between two memories at once: one thread issues it, an engine carries it out (TMA)."""

    reads: ClassVar[Memory]
    writes: ClassVar[Memory]
    unit: ClassVar[Unit] = "copy"
    proxy: ClassVar[Literal["generic", "async"]] = "async"

    def meaning(self, values: Any) -> Any:
        """What arrives of a tile: its values as they are."""
        return values

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        """Constraints from moving `source` to `target`."""
        raise NotImplementedError

    def multicast_rules(self, source: Tile, target: Tile, ctas: Expr) -> tuple[Constraint, ...]:
        """What it asks where `ctas` CTAs of a cluster each bring a part of the tile to all of them."""
        return ()


@dataclass(frozen=True, eq=False)
class MatrixLoad(Instruction):
    """Moves matrices into fragments: 8x8 ones of 16-bit elements from SMEM to a warp, rows of TMEM to a warpgroup."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = RMEM
    scope: ClassVar[Scope] = "warp"
    unit: ClassVar[Unit] = "lsu"

    def meaning(self, values: Any) -> Any:
        """The tile that the fragments hold together: its values as they are in memory."""
        return values

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class MatrixStore(Instruction):
    """Moves the fragments of a warp into memory as 8x8 matrices."""

    reads: ClassVar[Memory] = RMEM
    writes: ClassVar[Memory] = SMEM
    scope: ClassVar[Scope] = "warp"
    unit: ClassVar[Unit] = "lsu"

    def meaning(self, values: Any) -> Any:
        """The tile in memory: the values that the fragments hold together."""
        return values

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving `memory_side` (an SMEM tile) under `partition`."""
        raise NotImplementedError


# Who holds what of one operand of a matrix instruction: (lane or thread, value) -> coordinates along its two axes, low
# element of the first register first; None for an operand that lies in memory.
Fragment: TypeAlias = Layout | None


@dataclass(frozen=True, eq=False)
class MatrixMultiply(Instruction):
    """c += a @ b on fragments or tiles: a is (m, k), b is (k, n), c is (m, n).

    places  the memories of a, b and c
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

    def meaning(self, *values: Any) -> Any:
        """The same in NumPy, of arrays of the operands' types that broadcast against each other."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        first = self.text().split()[:1]
        return first[0] if first and first[0][0].isalpha() else type(self).__name__.lower()

    @property
    def flops(self) -> int:
        """Floating-point operations per value (0 for conversions and moves)."""
        return 1


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


def since(what: str, target: int, only: tuple[int, ...] = ()) -> str:
    """Which GPUs have `what`. Of what is as old as the oldest GPU that kernels are written for, PTX may say less."""
    if only:
        return f"{what} exists on {_or([f'sm_{cc}' for cc in only])} only"
    return f"{what} exists from sm_{target} on" if target > OLDEST_TARGET else WRITTEN_FOR


def _or(values: Sequence[int | str]) -> str:
    words = [str(v) for v in values]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
