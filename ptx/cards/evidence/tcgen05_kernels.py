"""What kernels around tcgen05 share: tensor memory for one warpgroup, operands and their descriptors, reading back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygpu.layouts.layout import Layout
from tinygpu.ptx.cards.evidence.wgmma_kernels import Image, fragments
from tinygpu.ptx.cards.specimen import Guarantee
from tinygpu.ptx.isa.tcgen05_ld import Tcgen05Ld
from tinygpu.ptx.isa.tcgen05_mma import Tcgen05Mma

BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
# What the emulator says of the fence behind a wait.
NO_FENCE = "tcgen05.fence::after_thread_sync is missing after the wait"
ALLOCATE = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%s+{}], {};"
MEET = ("barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;")
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [{}];"
# A commit of a pair, which arrives in both: the register %h1 has their mask.
COMMIT_OF_PAIR = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [{}], %h1;"
# A commit of a pair that arrives in the first CTA alone.
COMMIT_TO_ONE = COMMIT.replace("cta_group::1", "cta_group::2")
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 {}, {};"


@dataclass(frozen=True, slots=True)
class Frame:
    """Columns of tensor memory that the first warp of 128 threads allocates and frees.

    at       bytes in shared memory of a barrier, and 8 behind it of the address
    address  register that has it in all threads; the one behind it is that of the warp's own lanes
    """

    at: int
    columns: int
    address: int
    allocate: str = ALLOCATE
    free: str = FREE
    lanes: str = "shl.b32 {0}, {0}, 21;"

    def begin(self) -> Iterator[str]:
        base, own = f"%r{self.address}", f"%r{self.address + 1}"
        yield "setp.ne.u32 %p1, %t, 0;"
        yield f"@!%p1 mbarrier.init.shared.b64 [%s+{self.at}], 1;"
        yield "setp.ge.u32 %p2, %t, 32;"
        yield "bar.warp.sync -1;"
        yield "@%p2 bra $allocated;"
        yield self.allocate.format(self.at + 8, self.columns)
        yield "$allocated:"
        yield from (BEFORE, "bar.sync 0;", AFTER)
        yield f"ld.shared.u32 {base}, [%s+{self.at + 8}];"
        yield f"shr.u32 {own}, %t, 5;"
        yield self.lanes.format(own)
        yield f"add.u32 {own}, {own}, {base};"

    def end(self) -> Iterator[str]:
        yield from (BEFORE, "bar.sync 0;", AFTER, "@%p2 bra $freed;")
        yield self.free.format(f"%r{self.address}", self.columns)
        yield "$freed:"


@dataclass(frozen=True, slots=True)
class PairFrame:
    """The same of two CTAs of a cluster, of which the first thread alone gets to what is issued for both.

    at       bytes in shared memory of a barrier, and 8 behind it of the address
    address  register that has it in all threads; the one behind it is that of the warp's own lanes, the next is free
    """

    at: int
    columns: int
    address: int

    def begin(self) -> Iterator[str]:
        base, own, free = (f"%r{self.address + i}" for i in range(3))
        yield "setp.ne.u32 %p1, %t, 0;"
        yield f"@!%p1 mbarrier.init.shared.b64 [%s+{self.at}], 1;"
        yield from ("fence.mbarrier_init.release.cluster;", "bar.warp.sync -1;", *MEET)
        yield from ("setp.ge.u32 %p2, %t, 32;", "@%p2 bra $allocated;")
        yield f"tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%s+{self.at + 8}], {self.columns};"
        yield from ("$allocated:", BEFORE, *MEET, AFTER)
        yield from (f"ld.shared.u32 {base}, [%s+{self.at + 8}];", f"shr.u32 {own}, %t, 5;")
        yield from (f"shl.b32 {own}, {own}, 21;", f"add.u32 {own}, {own}, {base};")
        yield from (f"mov.u32 {free}, %cluster_ctarank;", f"or.b32 {free}, {free}, %t;")
        yield from (f"setp.ne.u32 %p1, {free}, 0;", "@%p1 bra $issued;")

    def end(self) -> Iterator[str]:
        yield from (BEFORE, *MEET, AFTER, "@%p2 bra $freed;")
        yield f"tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r{self.address}, {self.columns};"
        yield "$freed:"


def described(image: Image, to: str, first: int, code: int = 0, further: int = 0) -> Iterator[str]:
    """The descriptor of an instruction's operand, `further` bytes behind the start; `code` of another swizzle."""
    across, apart = image.blocks > 1 or image.atom > 16, image.rows * image.swizzle_bytes
    word = Tcgen05Mma().descriptor(image.swizzle_bytes, apart, across, image.atom) >> 32
    if code:
        word = word & 0x1FFFFFFF | code << 29
    low = apart // 16 if across else 1
    yield f"add.u32 %r{first}, %s, {image.at + image.start + further};"
    yield f"shr.u32 %r{first}, %r{first}, 4;"
    yield f"or.b32 %r{first}, %r{first}, {low << 16:#x};"
    yield f"mov.b32 %r{first + 1}, {word:#010x};"
    yield f"mov.b64 {to}, {{%r{first}, %r{first + 1}}};"


def waited(at: int) -> Iterator[str]:
    """All threads wait until the barrier's first phase has completed."""
    yield "$wait:"
    yield f"mbarrier.try_wait.parity.shared::cta.b64 %p4, [%s+{at}], 0;"
    yield "@!%p4 bra $wait;"


def told_and_read(
    frame: Frame | PairFrame, scratch: str, cells: str, held: list[str], commit: str, after: str
) -> Iterator[str]:
    """The issuing thread commits; all wait, and each stores the words that its lane has.

    scratch  a register that is free
    cells    address of the words of a warp's lanes
    held     registers that they come to
    commit   of the barrier `{}`; "" where the copies are told of by none, and the threads only meet
    after    the fence behind the wait
    """
    yield f"add.u32 {scratch}, %s, {frame.at};"
    yield from (commit.format(scratch), "$issued:")
    yield from waited(frame.at) if commit else ("bar.sync 0;",)
    yield after
    yield f"tcgen05.ld.sync.aligned.32x32b.x{len(held)}.b32 {{{', '.join(held)}}}, [{cells}];"
    yield "tcgen05.wait::ld.sync.aligned;"
    yield from fragments("st.global.v4.b32 [%out{1}], {0};", held)
    yield from frame.end()


def multiplied_and_read(
    frame: Frame | PairFrame, scratch: str, held: Sequence[str], commit: str, columns: int = 0
) -> Iterator[str]:
    """The issuing thread commits its products; all wait, and each stores what its lane has of the sums.

    scratch  a register that is free
    held     registers that sums come to
    commit   of the barrier `{}`
    columns  of the sums in tensor memory, where a row is not one lane's
    """
    yield f"add.u32 {scratch}, %s, {frame.at};"
    yield from (commit.format(scratch), "$issued:", *waited(frame.at), AFTER)
    yield from loaded(Tcgen05Ld(), held, f"%r{frame.address + 1}", columns or len(held))
    yield from fragments("st.global.v4.b32 [%out{1}], {0};", held)
    yield from frame.end()


def of_completion(label: str) -> tuple[Guarantee, Guarantee]:
    """What lowering keeps so that others find what an instruction wrote: a commit that is waited for, and a fence."""
    return (
        Guarantee(f"{label} completion", "a commit is waited for before others use the columns", "emulator"),
        Guarantee(f"{label} fence", "tcgen05.fence::after_thread_sync stands behind the wait", "emulator"),
    )


def loaded(ld: Tcgen05Ld, registers: Sequence[str], address: str, columns: int) -> Iterator[str]:
    """Columns from the address of a warp's lanes on, sixteen registers at a time."""
    for first in range(0, len(registers), 16):
        at = f"[{address}+{first * ld.per_register}]"
        yield ld.statement(registers[first : first + 16], at, columns // ld.windows)
    yield ld.complete()


def held_of(ld: Tcgen05Ld, tile: Any, path: Layout) -> Any:
    """(threads, registers) what a warpgroup has of a tile (rows, columns) that lies along a path."""
    at = ld.held(tile.shape, path).coordinates()
    return np.asarray(tile)[at[:, :, 0], at[:, :, 1]]
