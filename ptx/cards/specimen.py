"""Evidence for an instruction's rules: kernels small enough to read, spellings to try, and illegal twins.

Each instruction brings, beside its rules, what shows that they are true: an example that assembles and runs, the domain
of spellings over which "legal by our rules" must mean "it assembles", and for each rule an illegal twin with the judge
that refuses it. Cards and tests are made of these; search and lowering never look at them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tinygpu.constraints.constraint import Constraint, Judge
from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import expr, symbol
from tinygpu.language.blocked import blocked
from tinygpu.language.buffer import Buffer
from tinygpu.language.instruction import OLDEST_TARGET, Instruction
from tinygpu.language.memories import SMEM
from tinygpu.language.partition import Partition
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile

# The targets over which legality is tried, and the lowest .version that states each of them (each assembled).
TARGETS: tuple[tuple[str, tuple[int, int]], ...] = (
    ("sm_80", (7, 0)),
    ("sm_86", (7, 1)),
    ("sm_89", (7, 8)),
    ("sm_90", (7, 8)),
    ("sm_100a", (8, 6)),
    ("sm_120", (8, 7)),
)
# The most shared memory that a kernel declares, in bytes; what is more is dynamic (CUDA programming guide).
STATIC_SMEM = 48 * 1024
# The newest .version that the oldest supported assembler (CUDA 13.0) reads.
NEWEST_ISA = (9, 0)

_REGISTER_TYPES = {"r": "b32", "d": "b64", "h": "b16", "p": "pred"}
_REGISTER = re.compile(r"%([rdhp])(\d+)\b")


def compute_capability(target: str) -> int:
    """The number in "sm_90a"."""
    found = re.fullmatch(r"sm_(\d+)[af]?", target)
    if found is None:
        raise ValueError(f"a target is written like 'sm_80' or 'sm_90a', not {target!r}")
    return int(found[1])


@dataclass(frozen=True, slots=True)
class Field:
    """A buffer in GMEM: `per_thread` elements for each thread, in the order of the threads.

    span  the whole numbers [first, end) that an input is drawn from; (): small ones, exact in every type
    """

    name: str
    dtype: str
    per_thread: int
    access: Literal["in", "out"] = "in"
    span: tuple[int, int] | tuple[()] = ()

    @property
    def bytes_per_thread(self) -> int:
        return self.per_thread * dtype(self.dtype).bytes


@dataclass(frozen=True, slots=True)
class FieldMap:
    """A tensor map of a field, which the launch makes and passes by value behind the fields.

    field        whose elements it describes
    dims         elements of the tensor along each axis, the contiguous one first
    box          elements that one copy moves along each axis
    swizzle_bytes width of the swizzle in shared memory; 0: none
    pitch_bytes  from one row to the next; 0: the rows follow each other
    element      type of elements that share bytes of the field, and are padded in shared memory; "": the field's
    """

    field: str
    dims: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0
    pitch_bytes: int = 0
    element: str = ""

    @property
    def name(self) -> str:
        return f"{self.field}_map"

    def __str__(self) -> str:
        rows = f"rows of {self.pitch_bytes} bytes" if self.pitch_bytes else "dense rows"
        box, dims = (" x ".join(map(str, extents)) for extents in (self.box, self.dims))
        of = f" of {self.element}" if self.element else ""
        swizzle = f"swizzle {self.swizzle_bytes} bytes wide" if self.swizzle_bytes else "no swizzle"
        return f"{self.name}: {dims} elements{of} in {rows}, boxes of {box}, {swizzle}"


@dataclass(frozen=True, slots=True)
class Specimen:
    """A kernel around one instruction. One CTA runs it, or one cluster, or several.

    title       what the body shows, in the machine's words
    body        PTX statements. %t is the thread, %s the address of the CTA's shared memory, %NAME the address of the
                thread's first element of the field NAME (where the body names it), or the address of the map NAME; %r,
                %d, %h and %p with a number are registers of 32, 64 and 16 bits and predicates
    fields      buffers, in the order of the kernel's parameters; the last one is the result
    meaning     NumPy: arrays (threads, per_thread) of the inputs -> the result of the same form
    target      `.target`, as a number
    isa         lowest `.version` that has the instruction
    threads     of a CTA
    smem_bytes  shared memory; more than a kernel may declare is dynamic
    maps        tensor maps
    smem_align  alignment of the shared memory, in bytes
    ctas        of a cluster; the threads of all are counted through
    clusters    of the grid
    specific    it runs on `target` alone, by instructions that other architectures do not have
    """

    title: str
    body: str
    fields: tuple[Field, ...]
    meaning: Callable[..., Any]
    target: int = OLDEST_TARGET
    isa: tuple[int, int] = (7, 0)
    threads: int = 32
    smem_bytes: int = 0
    maps: tuple[FieldMap, ...] = ()
    smem_align: int = 128
    ctas: int = 1
    specific: bool = False
    clusters: int = 1

    def __post_init__(self) -> None:
        if [f.access for f in self.fields] != ["in"] * (len(self.fields) - 1) + ["out"]:
            raise ValueError(f"{self.title}: the last field of a specimen is its result, and the only one")
        for m in self.maps:
            if m.field not in [f.name for f in self.fields]:
                raise ValueError(f"{self.title}: there is no field {m.field} for a tensor map to describe")

    @property
    def dynamic_smem(self) -> int:
        """Bytes of shared memory that the launch brings."""
        return self.smem_bytes if self.smem_bytes > STATIC_SMEM else 0

    def respelled(self, old: str, new: str) -> Specimen:
        """The same kernel with another text in its body."""
        return replace(self, body=self.body.replace(old, new))

    @property
    def grid(self) -> int:
        """CTAs of all clusters."""
        return self.ctas * self.clusters

    @property
    def architecture(self) -> str:
        """The oldest architecture that runs it, as the assembler calls it."""
        return f"sm_{self.target}{'a' if self.specific else ''}"

    @property
    def ptx(self) -> str:
        """The whole module."""
        lowest = max([v for t, v in TARGETS if compute_capability(t) <= self.target] + [self.isa])
        parameters = [f".param .u64 {f.name}" for f in self.fields]
        parameters += [f".param .align 64 .b8 {m.name}[128]" for m in self.maps]
        return "\n".join(
            [
                f".version {version(lowest)}",
                f".target {self.architecture}",
                ".address_size 64",
                "",
                *([f".extern .shared .align {self.smem_align} .b8 smem[];", ""] if self.dynamic_smem else []),
                f".visible .entry specimen({', '.join(parameters)})",
                f".maxntid {self.threads}, 1, 1",
                *([f".reqnctapercluster {self.ctas}, 1, 1"] if self.ctas > 1 else []),
                "{",
                *(f"  {line}" for line in self._prologue()),
                f"  // {self.title}",
                *(f"  {line}" for line in self.statements),
                "  ret;",
                "}",
                "",
            ]
        )

    @property
    def statements(self) -> list[str]:
        return [line.strip() for line in self.body.strip().splitlines()]

    def _prologue(self) -> Iterator[str]:
        yield ".reg .b32 %t;"
        named = [f for f in self.fields if re.search(rf"%{f.name}\b", self.body)]
        if named:
            yield f".reg .b64 {', '.join(f'%{f.name}' for f in named)};"
        counts: dict[str, int] = {}
        for kind, number in _REGISTER.findall(self.body):
            counts[kind] = max(counts.get(kind, 0), int(number) + 1)
        for kind, count in counts.items():
            yield f".reg .{_REGISTER_TYPES[kind]} %{kind}<{count}>;"
        if self.smem_bytes:
            yield ".reg .b32 %s;"
            if not self.dynamic_smem:
                yield f".shared .align {self.smem_align} .b8 smem[{self.smem_bytes}];"
            yield "mov.u32 %s, smem;"
        yield "mov.u32 %t, %tid.x;"
        counted = "%t"
        if self.grid > 1 and named:
            counted = "%g"
            yield ".reg .b32 %g;"
            yield "mov.u32 %g, %ctaid.x;"
            yield f"mad.lo.u32 %g, %g, {self.threads}, %t;"
        for f in named:
            yield f"ld.param.u64 %{f.name}, [{f.name}];"
            yield f"cvta.to.global.u64 %{f.name}, %{f.name};"
            yield f"mad.wide.u32 %{f.name}, {counted}, {f.bytes_per_thread}, %{f.name};"
        for m in self.maps:
            yield f".reg .b64 %{m.name};"
            yield f"mov.b64 %{m.name}, {m.name};"
            yield f"cvta.param.u64 %{m.name}, %{m.name};"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to write an instruction, for one target.

    text         one or more statements on one line, over the registers of a specimen
    legal        whether the instruction's rules admit it
    not_offered  why the rules leave it out although the assembler takes it; "" where rules and assembler must agree
    """

    text: str
    target: str
    legal: bool
    not_offered: str = ""

    def __post_init__(self) -> None:
        if self.legal and self.not_offered:
            raise ValueError(f"{self.text}: what is legal is offered, and this says {self.not_offered!r}")


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A rule that no candidate can break, because declarations or lowering keep it; it has its judge all the same."""

    name: str
    sentence: str
    judge: Judge


@dataclass(frozen=True, slots=True)
class Twin:
    """Two specimens that differ in one thing: the legal one passes, the other breaks a rule and its judge refuses it.

    rule     name of the constraint or guarantee
    refusal  words of the judge's message; WRONG_VALUES where the kernel runs and its result is not what it should be
    device   the architecture that the illegal one is assembled for; "" is its own target
    """

    rule: str
    judge: Judge
    legal: Specimen
    illegal: Specimen
    refusal: str
    device: str = ""


WRONG_VALUES = "the result differs from what the instruction means"


@dataclass(frozen=True, slots=True)
class Card:
    """All that a reader, the tests and the documentation need of one instruction.

    name         file name of the card, and the instruction's PTX name
    instruction  the object, bound to symbols where it has parameters
    operands     (operand, memory, shape, dtype), in words
    rules        the constraints that it brings to a space, bound to a tile of the card's own
    guarantees   rules kept by declarations and by lowering
    meaning      one line of NumPy
    cost         what it occupies and how its amount of work is counted
    example      the smallest kernel around it
    twins        for every rule and guarantee at least one
    variants     the domain over which the rules and the assembler must agree
    pictures     (title, text) of fragments
    """

    name: str
    instruction: Instruction
    operands: tuple[tuple[str, str, str, str], ...]
    rules: tuple[Constraint, ...]
    guarantees: tuple[Guarantee, ...]
    meaning: str
    cost: str
    example: Specimen
    twins: tuple[Twin, ...]
    variants: Callable[[], Iterator[Variant]]
    pictures: Callable[[], tuple[tuple[str, str], ...]] = tuple

    def __post_init__(self) -> None:
        ruled = {r.name for r in self.rules} | {g.name for g in self.guarantees}
        shown = {t.rule for t in self.twins}
        if ruled != shown:
            without_twin, without_rule = sorted(ruled - shown), sorted(shown - ruled)
            raise ValueError(f"{self.name}: rules without a twin {without_twin}, twins without a rule {without_rule}")


# -- what cards are bound to -------------------------------------------------------------------------------------------

ROWS, COLUMNS = symbol("rows"), symbol("columns")


def gmem_operand(kind: DType, name: str = "x") -> Tile:
    """A rows x columns window of a row-major matrix in GMEM."""
    access: Literal["in", "out"] = "out" if name == "y" else "in"
    tensor = Tensor(name, kind, ("m", "n"), access)
    return gmem_tile(tensor, (0, 0), (ROWS, COLUMNS))


def smem_operand(kind: DType, name: str = "stage", contiguous: int = 1) -> Tile:
    """A rows x columns buffer in SMEM whose rows are padded by `pad` elements."""
    shape = (ROWS, COLUMNS)
    buffer = Buffer(name, SMEM, kind, shape, contiguous, symbol("pad"), "", expr(1))
    return Tile(name, SMEM, kind, shape, (expr(0), expr(0)), buffer=buffer)


def swizzled_operand(kind: DType, name: str = "stage", contiguous: int = 1, padded: bool = False) -> Tile:
    """A rows x columns buffer in SMEM under a swizzle `swizzle` bytes wide."""
    tile = smem_operand(kind, name, contiguous)
    if tile.buffer is None:
        raise ValueError(f"{name} has no buffer")
    return replace(tile, buffer=replace(tile.buffer, pad=expr(0), swizzle_bytes=symbol("swizzle"), padded=padded))


def exists_on(instruction: Instruction, target: str) -> bool:
    """Whether an architecture has an instruction: later ones do, or with `only` these with their "a"."""
    cc = compute_capability(target)
    if instruction.only:
        return cc in instruction.only and target.endswith("a")
    return cc >= instruction.target


def held_partition() -> Partition:
    """Who holds the tile: `held` neighbours per thread at a time."""
    return blocked((ROWS, COLUMNS), threads=symbol("threads"), vector=symbol("held"))


def version(isa: tuple[int, int]) -> str:
    """7.8 for (7, 8)."""
    return f"{isa[0]}.{isa[1]}"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table for a card."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def target_twin(instruction: Instruction, specimen: Specimen, feature: str = "") -> Twin:
    """The rule on the oldest target: as written for it, and for sm_75.

    feature  the assembler's words where it is the instruction that sm_75 lacks; without them it is the kernel's own
             `.target` that sm_75 cannot run
    """
    rule = instruction.target_rule().name
    if feature:
        return Twin(rule, "assembler", specimen, replace(specimen, target=75), feature)
    stated = f"the PTX states .target sm_{specimen.target}, which runs on sm_{specimen.target} and later, not on sm_75"
    return Twin(rule, "assembler", specimen, specimen, stated, device="sm_75")


__all__ = [
    "COLUMNS",
    "NEWEST_ISA",
    "OLDEST_TARGET",
    "ROWS",
    "TARGETS",
    "WRONG_VALUES",
    "Card",
    "Field",
    "FieldMap",
    "Guarantee",
    "Specimen",
    "Twin",
    "Variant",
    "compute_capability",
    "exists_on",
    "gmem_operand",
    "held_partition",
    "markdown_table",
    "smem_operand",
    "swizzled_operand",
    "target_twin",
    "version",
]
