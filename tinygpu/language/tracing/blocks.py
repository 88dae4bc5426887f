"""The verbs of a program that open blocks: the grid, roles, loops, and the buffers that pipelines hand over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tinygpu.dtypes import DType, dtype, not_in_memory
from tinygpu.expressions import Expr, Operand, all_of, any_of, ceil_div, expr, symbol
from tinygpu.language.buffer import Buffer
from tinygpu.language.instruction import CHUNK_BYTES, Elementwise, Transfer
from tinygpu.language.instruction.base import or_of
from tinygpu.language.memories import SMEM, TMEM, Memory
from tinygpu.language.parameters import Size, UnknownLayout
from tinygpu.language.partition import Condition
from tinygpu.language.roles import Pipeline, Role
from tinygpu.language.roles import role as make_role
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.extents import extent_of
from tinygpu.language.tracing.ring import BufferSpec, Ring, completion
from tinygpu.language.tracing.sharing_checks import SharingChecks
from tinygpu.language.verb import verb
from tinygpu.layouts.layout import Layout
from tinygpu.program import nodes as n
from tinygpu.program.tree import uses
from tinygpu.schedulers.scheduler import TileScheduler
from tinygpu.users_code import line_under_way

# PTX ISA, "Swizzling Modes": the widths that TMA, wgmma and tcgen05 share.
SWIZZLES = (32, 64, 128)
# The same: bytes that stay together, of all widths and of the widest.
ATOMS = (16, 32)
# Why what a loop makes is not there behind it.
BY_ROUND = (
    "in every round of a loop, and used behind the loop; begin it with p.full before the loop, and write into it "
    "there, as `x += y` does, or into= of p.apply, p.cast and p.where"
)


@dataclass(slots=True, eq=False)
class Blocks(SharingChecks):
    """Who works on what: tiles, warps, rounds and buffers."""

    # -- work ------------------------------------------------------------------------------------------------------
    @verb("p.grid")
    @contextmanager
    def grid(
        self,
        *axes: tuple[Expr | int, Operand] | tuple[Expr | int, Operand, Operand],
        raster: Operand = 1,
        cluster: Operand | tuple[Operand, ...] = 1,
        portable: bool = True,
        persistent: bool = False,
        slices: Operand = 1,
        stream_k: Operand = 0,
        launch_control: Operand = 0,
        scheduler: TileScheduler | None = None,
    ) -> Iterator[tuple[Expr, ...]]:
        """Tiles over the problem, one per CTA: yields the first element of the CTA's tile along each axis.

        axes        (dim, extent of a tile) per axis, the slowest first; (dim, extent, groups) where data divide the dim
                    into so many groups, none of whose tiles has elements of two
        raster      rasterisation: so many rows of tiles are visited column by column, for locality in L2
        cluster     neighbouring tiles along each axis whose CTAs form a cluster; one number: along the first axis
        portable    clusters are no larger than every GPU with clusters takes; False: than this one does
        persistent  as many CTAs as are resident, and each takes tile after tile
        slices      split-K: CTAs (or clusters) that share each tile; they divide loops, and fix up what they have
        stream_k    1: all CTAs (or clusters) of a persistent grid do the same number of rounds of divided loops, over
                    the tiles in a row; they share, and fix up, the tiles in which one ends and the next begins
        launch_control  1: a persistent grid has one CTA (or cluster) for each tile, and those that run take over the
                    tiles of those that have not begun, whoever is done first going on first (sm_100 and later)
        scheduler   how tiles are dealt, instead of these four (`tinygpu.schedulers.scheduler`)
        """
        if self.grid_node is not None:
            raise self.fail("a program has one grid, and this opens a second; bring all roles into the first")
        if not axes:
            raise self.fail("a grid has at least one axis: (dim, extent of a tile)")
        beside = cluster if isinstance(cluster, tuple) else (cluster, *[1] * (len(axes) - 1))
        if len(beside) != len(axes):
            raise self.fail(f"the cluster has {len(beside)} extents, and the grid has {len(axes)} axes")
        made = tuple(
            n.Axis(f"tile{i}", _dim(size), expr(extent), expr(c), _dim(*groups) if groups else expr(1))
            for i, ((size, extent, *groups), c) in enumerate(zip(axes, beside, strict=True))
        )
        ctas = expr(1)
        for axis in made:
            ctas = ctas * axis.cluster
        dealt = self._dealt(persistent, slices, stream_k, launch_control, ctas, scheduler)
        self.grid_node = n.Grid(made, expr(raster), ctas, dealt, portable)
        yield tuple(symbol(a.index) * a.extent for a in made)

    @verb("p.rank")
    def rank(self, axis: int) -> Expr:
        """Place of the CTA in its cluster along an axis of the grid: 0 up to the cluster's extent there."""
        if self.grid_node is None or not 0 <= axis < len(self.grid_node.axes):
            raise self.fail(f"there is no axis {axis} of the grid along which a CTA has a rank")
        of = self.grid_node.axes[axis]
        return symbol(of.index) % of.cluster

    @verb("p.role")
    @contextmanager
    def role(
        self, name: str, *, warps: Operand, first: Operand = 0, registers: int = 0, share: tuple[int, int] = (0, 1)
    ) -> Iterator[Role]:
        """What some warps of the CTA do; `warps` of them, from warp `first` on.

        registers  budget per thread: what this role gives to or takes from the others (0: all roles the same)
        share      (r, n): of the tiles that a persistent CTA takes, those whose number leaves r when divided by n
        """
        if self.grid_node is None:
            raise self.fail(f"role {name!r} stands outside the grid; open `with p.grid(...)` first")
        if self.current_role is not None:
            raise self.fail(f"role {name!r} stands inside role {self.current_role.name!r}; roles stand side by side")
        made = make_role(name, warps, first, registers, share)
        known = next((r for r in self.roles if r.name == name), None)
        if known is None:
            self._check_role(made)
            self.roles.append(made)
        elif not (known.warps.same(made.warps) and known.first.same(made.first)):
            raise self.fail(f"role {name!r} is declared twice with different warps")
        elif (registers, share) not in ((known.registers, known.share), (0, (0, 1))):
            raise self.fail(f"role {name!r} is declared twice with different registers or shares")
        self.current_role = known or made
        with self.nested() as body:
            yield made
        self.current_role = None
        self.emit(n.InRole(name, tuple(body)))

    @verb("p.loop")
    @contextmanager
    def loop(self, extent: Operand, *, step: Operand = 1, divided: bool = False) -> Iterator[Expr]:
        """A loop at run time over `extent` elements, `step` at a time; yields the first element of the round.

        divided  the CTAs that share a tile divide the rounds, one slice after the other. With `slices`, each does the
                 same number; over a dim, rounds beyond it touch nothing where slices do not divide them, and over
                 anything else slices divide them
        """
        index = self._name("i")
        self._check_step(step)
        said = sorted(expr(extent).symbols & self.defined.keys())
        if said and expr(extent).sympy not in self.untils:
            raise self.fail(f"p.loop goes over {extent}, which data say; write p.loop(p.until({extent}), ...)")
        rounds, first = ceil_div(extent if divided else extent_of(self, extent), step), expr(0)
        if divided:
            parts = self._divides(expr(extent), rounds)
            rounds = ceil_div(rounds, parts)
            if not parts.same(1):
                first = symbol(n.PART) * rounds
        self.counted[index] = expr(extent), expr(step), expr(1)
        with self._ending(BY_ROUND), self.nested() as body, self.deeper():
            yield symbol(index) * expr(step)
        self.emit(n.Loop(index, rounds, False, tuple(body), first, divided))

    @verb("p.loops")
    @contextmanager
    def loops(self, *axes: tuple[Operand, Operand]) -> Iterator[tuple[Expr, ...]]:
        """One loop at run time over several axes, each (extent, step): the last of them runs fastest.

        Yields the first element of the round along each. A ring goes on from the end of one axis to the next.
        """
        if not axes:
            raise self.fail("p.loops runs over at least one axis: (extent, step)")
        counts = [ceil_div(extent_of(self, extent), step) for extent, step in axes]
        rounds = expr(1)
        for count in counts:
            rounds = rounds * count
        with self.loop(rounds) as number:
            out: list[Expr] = []
            for place, (count, (_, step)) in reversed(list(enumerate(zip(counts, axes, strict=True)))):
                out.append((number % count if place else number) * expr(step))
                number = number // count
            yield tuple(reversed(out))

    @verb("p.unroll")
    @contextmanager
    def unroll(self, extent: Operand, *, step: Operand = 1) -> Iterator[Expr]:
        """A loop that lowering writes out; `step` must divide `extent`, which knows only parameters."""
        index = self._name("u")
        runtime = expr(extent).symbols & set(self.machine.dim_names())
        if runtime:
            raise self.fail(f"unroll over {extent}, which is known at launch only; write p.loop")
        self._check_step(step)
        self.unrolled[index] = expr(extent) // expr(step)
        self.rounds.append(index)
        with self.nested() as body, self.deeper():
            yield symbol(index) * expr(step)
        self.rounds.pop()
        self._check_pieces(index, body)
        divides = expr(extent) % expr(step) == 0
        self.require((Condition(f"steps of {extent}", divides, f"{extent} is a whole number of steps of {step}"),))
        self.emit(n.Loop(index, expr(extent) // expr(step), True, tuple(body)))

    # -- buffers ---------------------------------------------------------------------------------------------------
    @verb("p.smem")
    def smem(
        self,
        dtype_of: str | DType,
        shape: tuple[Operand, ...],
        *,
        contiguous: int = -1,
        pad: Operand = 0,
        layout: UnknownLayout | None = None,
        swizzle: Operand | None = None,
        atom: int = 16,
        padded: bool = False,
    ) -> BufferSpec:
        """A shared-memory buffer for `pipeline`; `pad` elements are added to every row.

        swizzle  width of the swizzle in bytes, as TMA and wgmma lay rows out (32, 64 or 128), instead of pad and
                 layout; 16: rows of 16 bytes, of which none are exchanged, as scales come
        atom     bytes that the swizzle leaves together: 16; or 32, of a swizzle of 128 bytes
        padded   elements of 4 or 6 bits lie as tensor cores read them beside 8-bit ones, 16 of them in 16 bytes; others
                 lie as they always do
        """
        made = self.buffer(SMEM, dtype_of, shape, contiguous=contiguous, pad=pad, layout=layout)
        if atom not in ATOMS:
            raise self.fail(f"a swizzle leaves {or_of(ATOMS)} bytes together, not {atom}")
        if padded and made.dtype.bits < 8:
            made = replace(made, padded=True)
        if swizzle is None:
            if made.padded or atom != ATOMS[0]:
                what = "padded elements" if made.padded else f"atoms of {atom} bytes"
                raise self.fail(f"a buffer with {what} lies as TMA writes it; give the width of its swizzle, 128")
            return made
        if layout is not None or not expr(pad).same(0):
            raise self.fail("a buffer has a swizzle, or a layout and padding of its own, not both")
        width = expr(swizzle)
        row_bytes = made.shape[made.contiguous] * (8 if made.padded else made.dtype.bits) // 8
        if width.same(CHUNK_BYTES) and row_bytes.same(CHUNK_BYTES):
            return replace(made, swizzle_bytes=width)
        widths, said = any_of([width == w for w in SWIZZLES]), "a swizzle is 32, 64 or 128 bytes wide"
        if atom != ATOMS[0]:
            widths, said = all_of([width == max(SWIZZLES)]), f"a swizzle that leaves {atom} bytes together has 128"
        self.require(
            (
                Condition("swizzle", widths, said),
                Condition(
                    "swizzled rows", row_bytes % width == 0, f"rows of {row_bytes} bytes are whole widths of {width}"
                ),
            )
        )
        return replace(made, swizzle_bytes=width, atom_bytes=atom)

    @verb("p.buffer")
    def buffer(
        self,
        where: Memory,
        dtype_of: str | DType,
        shape: tuple[Operand, ...],
        *,
        contiguous: int = -1,
        pad: Operand = 0,
        layout: UnknownLayout | None = None,
        over: str = "",
        path: Layout | None = None,
    ) -> BufferSpec:
        """A buffer in shared or tensor memory.

        path  where its elements lie in TMEM, as an instruction's path(...) says; by default row r is in lane r
        over  another buffer of the slot, in TMEM, in whose columns it lies: what is written in one is lost in the other
        """
        if where not in (SMEM, TMEM):
            raise self.fail(f"a buffer lies in SMEM or TMEM, not in {where}")
        extents = tuple(expr(s) for s in shape)
        if why := not_in_memory(dtype(dtype_of)):
            raise self.fail(f"a buffer has elements that memory holds, and {dtype_of} {why}")
        if where is TMEM:
            self._check_tmem(extents, dtype(dtype_of), path)
        if path is not None and where is not TMEM:
            raise self.fail(f"buffers have paths to lanes in TMEM, and not in {where}; leave out path=")
        if over and where is not TMEM:
            raise self.fail(f"buffers lie in columns of others in TMEM, and not in {where}; leave out over={over!r}")
        return BufferSpec(
            where, dtype(dtype_of), extents, contiguous % len(extents), expr(pad), layout.name if layout else "", None,
            over, path,
        )

    @verb("p.pipeline")
    @contextmanager
    def pipeline(self, name: str, stages: Operand, **buffers: BufferSpec) -> Iterator[Ring]:
        """Buffers, `stages` times, that live as long as the block; hand them over with produce() and consume().

        Without buffers it is a turn that roles take one after the other: `with order.turn()`.
        """
        if any(p.name == name for p in self.pipelines):
            raise self.fail(f"two pipelines are called {name!r}")
        made = tuple(
            Buffer(
                f"{name}.{key}", s.memory, s.dtype, s.shape, s.contiguous, s.pad, s.layout, expr(stages),
                s.swizzle_bytes, f"{name}.{s.over}" if s.over else "", s.path, s.atom_bytes, s.padded,
            )
            for key, s in buffers.items()
        )
        self._check_over(made)
        for b in made:
            self._check_swizzle_atoms(b)
        position = len(self.pipelines)
        self.places[name] = line_under_way()
        self.pipelines.append(Pipeline(name, expr(stages), made))
        with self.nested() as body:
            yield Ring(self, name, made)
        found = {u.does for u in uses(tuple(body), name)}
        produced, consumed = "produce" in found, "consume" in found
        if made and not (produced and consumed):
            missing = "produced" if not produced else "consumed"
            raise self.fail(f"pipeline {name!r} is never {missing}: its buffers are handed to nobody")
        if not made and not consumed:
            raise self.fail(f"pipeline {name!r} has no buffers and nobody takes a turn in it")
        self.pipelines[position] = Pipeline(name, expr(stages), made, completion(tuple(body), name, made))
        self.emit(n.Scope((name,), tuple(body)))

    # -- tiles that CTAs share --------------------------------------------------------------------------------------
    @verb("p.fix_up")
    @contextmanager
    def fix_up(self, combine: Elementwise, store: Transfer, load: Transfer, value: Tile) -> Iterator[Tile]:
        """The CTAs that share a tile combine their values of it, in the order of the slices; yields the result.

        Only the CTA that comes last carries out the block. Each leaves its values in a workspace in GMEM by `store`,
        and the last takes them by `load`: vectors of as many values as both move. Where tiles have one part each, the
        result is the value, and nothing is moved.
        """
        name = self._instruction(combine, (Elementwise,), "fix_up")
        self._use(value)
        if value.partition is None:
            raise self.fail(f"{name} combines registers, and {value.name} lies in {value.memory}")
        takes, gives = combine.elements()
        if takes != (gives, gives) or value.dtype.name != gives:
            raise self.fail(f"{name} cannot combine {value.dtype}: it takes {', '.join(takes)} and gives {gives}")
        if value.dtype.bits != 32:
            raise self.fail(f"{name} combines {value.dtype}, and workspaces hold 32-bit values; convert to f32 or s32")
        self._check_fix_up(name, store, load, value)
        result = self._value(value.dtype, value.partition, f"the combination by {name}")
        self.fixed_up.add(value.name)
        self.fixing_up = True
        with self.nested() as body:
            yield result
        self.fixing_up = False
        piece = self.rounds[-1] if self.rounds else ""
        pieces = self.unrolled[piece] if piece else expr(1)
        self.emit(n.FixUp(name, combine, store, load, value, result, tuple(body), piece, pieces))


def _dim(size: Operand) -> Expr:
    """A number of elements or groups, by the name of its dim where it is a dim of a few values."""
    return symbol(size.dim) if isinstance(size, Size) else expr(size)
