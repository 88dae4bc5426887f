"""Demand: what a kernel asks of a GPU, counted per CTA and phase, without a word about any GPU.

Every count may be a number or an array over candidates; arrays broadcast against each other. Rates and latencies belong
to the Device, so a Demand is the same on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Cells: TypeAlias = int | float | NDArray[np.int64] | NDArray[np.float64]
TensorPath = Literal["mma.sync", "wgmma", "tcgen05"]

SECTOR_BYTES = 32
# What a slice of L2 serves in a clock. Source: NVIDIA A100 whitepaper (80 slices, 5,120 bytes per clock).
ACCESS_BYTES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Amounts of work of one CTA in one phase, by the unit that does it. Work adds up, and scales by a count.

    tensor_flops           dense tensor-core FLOP (2 per multiply-add; OP for integers), as many as the time takes
    idle_flops             of these, those of tensor cores' lanes that have no rows: they take time, and no power
    fma_flops              f32 FLOP on the FMA lanes (2 per FMA, 1 lane slot per add or multiply counts as 2)
    alu_ops                integer and logic operations, counted per lane
    sfu_ops                ex2, rcp, rsqrt, tanh and the like, counted per lane
    warp_instructions      instructions issued, counted per warp, of all kinds
    smem_load_wavefronts   shared-memory wavefronts of loads (ld.shared, ldmatrix)
    smem_store_wavefronts  shared-memory wavefronts of stores (st.shared, and the shared side of cp.async)
    l1_wavefronts          wavefronts of the same array in which global loads pass through L1, and rounds of shuffles
    sectors_read           32-byte sectors that global loads ask of L2
    sectors_written        32-byte sectors that global stores send to L2
    accesses_read          accesses of L2, of up to 64 bytes each, that bring these sectors; more than half as many as
                           sectors where requests ask for short runs. 0: as few as the sectors fill
    accesses_written       the same of stores
    accesses_to_one        of stores that combine: accesses of the one place that is asked for most, whose slice of
                           L2 serves them one after another
    """

    tensor_flops: Cells = 0
    idle_flops: Cells = 0
    fma_flops: Cells = 0
    alu_ops: Cells = 0
    sfu_ops: Cells = 0
    warp_instructions: Cells = 0
    smem_load_wavefronts: Cells = 0
    smem_store_wavefronts: Cells = 0
    l1_wavefronts: Cells = 0
    sectors_read: Cells = 0
    sectors_written: Cells = 0
    accesses_read: Cells = 0
    accesses_written: Cells = 0
    accesses_to_one: Cells = 0

    # An array times work is work, not an array of it.
    __array_ufunc__: ClassVar[None] = None

    def __post_init__(self) -> None:
        _refuse_negative("work", self)

    def __add__(self, other: Work) -> Work:
        return Work(*(np.add(a, b) for a, b in zip(_values(self), _values(other), strict=True)))

    def __mul__(self, count: Cells) -> Work:
        return Work(*(np.multiply(a, count) for a in _values(self)))

    __rmul__ = __mul__


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Latencies that one CTA waits for in series, and cannot hide behind its own work; counts of each kind.

    barriers      CTA barriers
    smem_loads    shared-memory loads or ldmatrix
    mmas          tensor-core instructions whose result is waited for
    fmas          dependent f32 or integer operations
    sfus          dependent special-function operations
    global_loads  round trips to global memory
    l2_trips      round trips to L2, to what CTAs have just left there for each other
    """

    barriers: Cells = 0
    smem_loads: Cells = 0
    mmas: Cells = 0
    fmas: Cells = 0
    sfus: Cells = 0
    global_loads: Cells = 0
    l2_trips: Cells = 0

    def __post_init__(self) -> None:
        _refuse_negative("chain", self)


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """A stretch of a CTA's life: the work that it does and the latencies that it waits for."""

    work: Work = field(default_factory=Work)
    chain: Chain = field(default_factory=Chain)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What one kernel launch asks for; one candidate, or many at once.

    ctas                     grid size
    cluster                  CTAs of a cluster, which take SMs of one GPC
    threads_per_cta
    registers_per_thread     as the assembler reports them, or an estimate
    smem_bytes_per_cta       static + dynamic
    tmem_bytes_per_cta       tensor memory that it allocates
    iterations               main-loop iterations of one CTA; 1 for a kernel without a loop
    iteration                one iteration of the main loop
    prologue, epilogue       before and after the loop
    prefetch_iterations      how many iterations ahead of its use the loop's global data is asked for (stages - 1 of a
                             pipeline); 0: an iteration waits for its own loads
    bytes_in_flight_per_cta  global bytes of one CTA under way at a time in the loop (stages - 1 tiles of a pipeline)
    held                     1: what is under way holds its place until it has been used, since roles of their own fill
                             and drain; 0: it is asked for while the tile before is in use
    late                     share of the places of what is under way that products still read when the next ones begin;
                             less than 1
    ahead                    1: products of a round are asked for while those of the one before go on (wgmma, tcgen05),
                             which hide what a round waits for in series
    even                     1: CTAs share the rounds of the last tiles, so that all do the same number (stream-K)
    persistent               1: CTAs take tile after tile, and fetch the next one's data while they finish this one
    asks                     1: behind each tile a CTA hears which one is next, for which it has asked where it began
    turns                    tiles that a CTA works on at a time: one is multiplied while others are stored
    one_stores               1: one role stores all of them, each behind the one before
    in_turn                  1: groups of warps take turns within a tile, round after round; what one waits for is
                             hidden by what the others do meanwhile
    handed_on                trips to L2 that CTAs make one after another in a row of tiles, each for the next
    chained                  tiles of such a row; 0: there are none
    chains_beside            such rows whose tiles are launched by turns
    multiplying_warps        of a CTA, where other warps do other things; 0: all
    circulating              slots of tensor memory of a CTA that go from products to warps and back, round after round,
                             each at one of both at a time; 0: warps multiply themselves, or take sums behind the loop
    scored_ahead             1: what warps make of sums goes back in slots of its own, and is multiplied after the next
                             sums: a slot waits for no product while warps have others
    rows                     of such loops, per role that takes the slots: what it does and waits for in one round, in
                             steps, each of which begins when the one before is done (`tinygpu.cost.in_steps`)
    dram_bytes_read          in total, of the whole launch (`tinygpu.cost.locality` for reuse in L2)
    dram_bytes_written
    compulsory_dram_bytes    least DRAM traffic of the problem, for the roofline; defaults to the traffic above
    useful_tensor_flops      tensor work of the problem without padding, for the roofline; defaults to that of the CTAs
    operand, accumulator     dtypes of the tensor work
    tensor_path              the instruction that does it
    """

    ctas: Cells
    threads_per_cta: Cells
    registers_per_thread: Cells
    smem_bytes_per_cta: Cells
    iteration: Phase
    cluster: Cells = 1
    iterations: Cells = 1
    prologue: Phase = field(default_factory=Phase)
    epilogue: Phase = field(default_factory=Phase)
    prefetch_iterations: Cells = 0
    bytes_in_flight_per_cta: Cells = 0
    tmem_bytes_per_cta: Cells = 0
    held: Cells = 0
    late: Cells = 0
    ahead: Cells = 0
    even: Cells = 0
    persistent: Cells = 0
    asks: Cells = 0
    turns: Cells = 1
    one_stores: Cells = 0
    in_turn: Cells = 0
    handed_on: Cells = 0
    chained: Cells = 0
    chains_beside: Cells = 1
    multiplying_warps: Cells = 0
    circulating: Cells = 0
    scored_ahead: Cells = 0
    rows: tuple[tuple[Phase, ...], ...] = ()
    dram_bytes_read: Cells = 0
    dram_bytes_written: Cells = 0
    compulsory_dram_bytes: Cells | None = None
    useful_tensor_flops: Cells | None = None
    operand: str = "f16"
    accumulator: str = "f32"
    tensor_path: TensorPath = "mma.sync"

    def __post_init__(self) -> None:
        for name in ("ctas", "cluster", "iterations", "threads_per_cta", "turns"):
            value = np.asarray(getattr(self, name))
            if value.size and value.min() < 1:
                raise ValueError(f"a demand needs at least 1 for {name}, not {value.min()}")
        _refuse_negative("demand", self)
        reads = np.asarray(self.iteration.work.sectors_read)
        in_flight = np.asarray(self.bytes_in_flight_per_cta)
        if np.any((reads > 0) & (in_flight <= 0)):
            raise ValueError(
                "a demand whose iterations read global memory must say how many bytes of it are under way at a time: "
                "bytes_in_flight_per_cta is 0"
            )
        if self.tensor_path not in ("mma.sync", "wgmma", "tcgen05"):
            raise ValueError(f"unknown tensor path {self.tensor_path!r}; known: mma.sync, wgmma, tcgen05")

    @property
    def total(self) -> Work:
        """Work of one CTA over all phases."""
        return self.prologue.work + self.iterations * self.iteration.work + self.epilogue.work

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the candidates: () for a single one."""
        shapes: list[tuple[int, ...]] = []
        _visit(self, lambda name, value: shapes.append(np.shape(value)))
        return np.broadcast_shapes(*shapes)


_NUMBERS = (int, float, np.integer, np.floating)
_WORDS = ("operand", "accumulator", "tensor_path")


def _values(work: Work) -> list[Cells]:
    return [getattr(work, f.name) for f in fields(work)]


def _visit(value: Demand | Phase | Work | Chain, see: Callable[[str, Cells], None]) -> None:
    """Calls see(name, cells) for every count in a demand, in the order of the fields."""
    for f in fields(value):
        inner = getattr(value, f.name)
        if isinstance(inner, Work | Chain | Phase):
            _visit(inner, see)
        elif isinstance(inner, tuple):
            for phase in (phase for row in inner for phase in row):
                _visit(phase, see)
        elif inner is not None and f.name not in _WORDS:
            see(f.name, inner)


def _refuse_negative(kind: str, value: Demand | Phase | Work | Chain) -> None:
    def check(name: str, cells: Cells) -> None:
        if isinstance(cells, _NUMBERS) and cells >= 0:
            return
        array = np.asarray(cells)
        if array.dtype.kind not in "iuf":
            raise TypeError(f"{name} of a {kind} must be a number or an array of numbers, not {cells!r}")
        if array.size and not array.min() >= 0:
            raise ValueError(f"{name} of a {kind} must not be negative, not {array.min()}")

    _visit(value, check)
