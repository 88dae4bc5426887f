"""What single statements of a program ask for: amounts of work and latencies, as expressions.

The predictor adds them up by phase (`counting.py`); the timing simulator keeps them apart by role and by what waits for
what (`tinygpu.simulator.script`). Both therefore speak of the same work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tinygpu.cost.combining import Combined, preceding, reduced, scanned
from tinygpu.cost.demand import ACCESS_BYTES, SECTOR_BYTES, Chain, Work
from tinygpu.cost.drawn_rows import apart, bank_rounds, bank_turns, drawn_from, rows_of_a_warp, to_one_place
from tinygpu.cost.l1 import LINE_BYTES, Shared, shared_reads
from tinygpu.cost.look_back import looked_back
from tinygpu.cost.ordered_rows import in_order
from tinygpu.cost.pieces import pieces
from tinygpu.cost.relayouts import exchanged
from tinygpu.expressions import Expr, Operand, ceil_div, expr, maximum, minimum, where
from tinygpu.language.heuristic import Heuristic
from tinygpu.language.instruction import BulkTransfer, CellCopy, CellLoad, CellStore, Elementwise, Transfer
from tinygpu.language.memories import GMEM, RMEM, SMEM
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.access import Access, boxes, tensor_pitches, vectors
from tinygpu.program.in_place import meetings
from tinygpu.program.prefetched import steps
from tinygpu.program.program import BRANCH_PARTS, Program
from tinygpu.program.together import rounds_together
from tinygpu.program.tree import places, walk
from tinygpu.program.windows import window
from tinygpu.users_code import answer, at, written_at

WORK = tuple(f.name for f in fields(Work))
CHAIN = tuple(f.name for f in fields(Chain))

# One wavefront of shared memory: 32 banks of 4 bytes.
WAVEFRONT_BYTES = 128
# Operations of a lane in whose time a warp combines what all its lanes have: 16 results per clock and SM against 64
# (CUDA C++ programming guide, throughput of native arithmetic instructions: warp reduce, 8.x and 9.0).
AT_ONCE_OPERATIONS = 4
# Loads of the own shared memory in whose time one of another CTA's comes: 180 cycles against 29 (Luo et al.,
# Benchmarking and dissecting the Nvidia Hopper GPU architecture via microbenchmarking, 2024).
ABROAD_LOADS = 6



@dataclass(slots=True)
class Tally:
    """Amounts of one phase, as expressions."""

    work: dict[str, Expr] = field(default_factory=lambda: {k: expr(0) for k in WORK})
    chain: dict[str, Expr] = field(default_factory=lambda: {k: expr(0) for k in CHAIN})
    in_flight_bytes: Expr = field(default_factory=lambda: expr(0))

    def add(self, name: str, amount: Operand) -> None:
        self.work[name] = self.work[name] + amount

    def wait(self, name: str, amount: Operand = 1) -> None:
        self.chain[name] = self.chain[name] + amount

    def wait_for_slot(self, stages: Expr, times: Operand = 1) -> None:
        """A piece of a tile finds the only slot in use: it waits until that is read, and the threads meet."""
        alone = where(stages == 1, 1, 0) * times
        self.wait("smem_loads", alone)
        self.wait("barriers", alone)

    def take(self, branch: Tally, taken: Expr) -> None:
        """Adds what a branch asks for that is taken in so many of `BRANCH_PARTS` parts of the rounds."""

        def share(amount: Expr) -> Expr:
            return ceil_div(amount * taken, BRANCH_PARTS)

        for name in (name for name in WORK if not branch.work[name].same(0)):
            self.add(name, share(branch.work[name]))
        for name in (name for name in CHAIN if not branch.chain[name].same(0)):
            self.wait(name, share(branch.chain[name]))
        self.in_flight_bytes = self.in_flight_bytes + share(branch.in_flight_bytes)


@dataclass(slots=True)
class Operations:
    """Counts statements of one program.

    threads   of the role whose statements are counted
    prefetch  rounds that bulk copies run ahead, found from the pipelines that they fill
    shared    what loads ask of L2 where L1 holds what the CTA reads
    together  how many executions of a load are under way at a time, where its rounds are written out
    meetings  loads and stores of tensors in place before which the role's threads meet
    prefetched  1 for loads of steps of which the first is loaded a round ahead: nobody waits for them
    """

    program: Program
    heuristics: tuple[str | Heuristic, ...]
    threads: Expr
    prefetch: Expr = field(default_factory=lambda: expr(0))
    shared: Mapping[n.Statement, Shared] = field(init=False)
    together: Mapping[n.Statement, Expr] = field(init=False)
    prefetched: Mapping[n.Statement, Expr] = field(init=False)
    meetings: frozenset[n.Statement] = field(init=False)

    def __post_init__(self) -> None:
        rings = [s for s in walk(self.program.body) if isinstance(s, n.Pipelined) and not s.prefetch.same(0)]
        self.prefetched = {load: s.prefetch for s in rings for load in steps(s).loads}
        loads = (place for place in places(self.program.body) if isinstance(place.statement, n.Load))
        self.together = {place.statement: rounds_together(place) for place in loads}
        self.meetings = meetings(self.program)
        told = {"coalescing", "L1"} <= {h for h in self.heuristics if isinstance(h, str)}
        self.shared = shared_reads(self.program) if told else {}

    @property
    def warps(self) -> Expr:
        return ceil_div(self.threads, 32)

    def add(self, s: n.Statement, tally: Tally, times: Expr, looped: bool) -> None:
        """Adds what one statement, executed `times` times, asks for.

        looped  the statement belongs to the main loop, whose rounds have their global loads under way together
        """
        for own in self.heuristics:
            if isinstance(own, Heuristic):
                self._own(own, s, tally, times)
        if s in self.meetings:
            tally.wait("barriers", times * where(self.warps > 1, 1, 0))
        match s:
            case n.Constant():
                return  # registers that are written once, where their first use is
            case n.Load() if s.instruction.scope == "warp":
                registers = values_of(s.result) * s.source.dtype.bits // 32
                tally.add("smem_load_wavefronts", times * self.warps * registers)
                tally.add("warp_instructions", times * self.warps * ceil_div(registers, 4))
                if tally.chain["smem_loads"].same(0):
                    tally.wait("smem_loads", 1 - self.prefetched.get(s, expr(0)))
            case n.Load() | n.Store() if isinstance(s.instruction, CellLoad | CellStore):  # and a wait
                tally.add("warp_instructions", times * self.warps * 2)
                tally.wait("smem_loads", times)
            case n.Load() if isinstance(s.instruction, Transfer):
                shared = self.shared.get(s)
                sectors = self._transfer(s.instruction, s.source, s.result.partition, tally, times, shared)
                if s.source.memory is GMEM and not looped:
                    tally.wait("global_loads")
                elif s.source.memory is GMEM:  # of the sectors that are asked for, as these
                    under_way = SECTOR_BYTES * sectors * self.together.get(s, expr(1))
                    tally.in_flight_bytes = tally.in_flight_bytes + under_way
            case n.Store() if s.instruction.scope == "warp":
                registers = values_of(s.value) * s.target.dtype.bits // 32
                tally.add("smem_store_wavefronts", times * self.warps * registers)
                tally.add("warp_instructions", times * self.warps * ceil_div(registers, 4))
            case n.Store() if isinstance(s.instruction, Transfer):
                self._transfer(s.instruction, s.target, s.value.partition, tally, times)
            case n.Copy() if isinstance(s.instruction, BulkTransfer):
                self._bulk(s, s.instruction, tally, times)
            case n.Copy() if isinstance(s.instruction, CellCopy):
                tally.add("smem_load_wavefronts", times * ceil_div(bytes_of(s.source), WAVEFRONT_BYTES))
                tally.add("warp_instructions", times * s.instruction.pieces(bytes_of(s.source)))
            case n.Copy():
                for hop in s.instructions:
                    if isinstance(hop, Transfer) and s.partition is not None:
                        if hop.reads is s.source.memory and s.source.tensor is not None:
                            self._transfer(hop, s.source, s.partition, tally, times)
                        if hop.writes is SMEM:
                            one = self._requests(hop, s.partition)
                            width = hop.width_bytes(s.target.dtype)
                            passed = one * maximum(width // 4, 1) - self._spared(hop, s.partition, width)
                            tally.add("smem_store_wavefronts", times * passed)
                            if hop.reads is RMEM:
                                tally.add("warp_instructions", times * one)
            case n.Index() if s.result.partition is not None:  # of values at one coordinate, one is computed
                values = s.result.partition.along(s.axis).value_count
                tally.add("warp_instructions", times * self.warps * values)
                tally.add("alu_ops", times * self.threads * values)
            case n.Uniform():
                tally.add("warp_instructions", times * self.warps)
                tally.add("alu_ops", times * self.threads)
            case n.Apply():
                self._apply(s, tally, times)
            case n.Multiply():
                self._multiply(s, tally, times)
            case n.FixUp():
                self._fix_up(s, tally, times)
            case n.Reduce():
                self._combine(s, reduced(s), tally, times)
            case n.Scan():
                self._combine(s, scanned(s), tally, times)
            case n.PrecedingInCluster():
                self._combine(s, preceding(s), tally, times)
            case n.Preceding():
                self._look_back(s, tally, times)
            case n.Relayout():
                self._relayout(s, tally, times)
            case _:
                self._by_tiles(s, tally, times)

    def _combine(self, s: n.Combining, counts: Combined, tally: Tally, times: Expr) -> None:
        """Shuffles as in relayouts; what all lanes combine at once takes the place of several operations of a lane."""
        exchanged = counts.shuffles + counts.stores + counts.loads
        kept = counts.kept * len(s.results)
        issued = counts.merges * len(s.merge.steps) + exchanged + counts.at_once + counts.selects + kept
        tally.add("warp_instructions", times * self.warps * issued)
        tally.add("l1_wavefronts", times * self.warps * counts.shuffles)
        tally.add("smem_store_wavefronts", times * counts.stored)
        tally.add("smem_load_wavefronts", times * self.warps * counts.taken)
        moved = counts.selects + kept + AT_ONCE_OPERATIONS * counts.at_once
        tally.add("alu_ops", times * self.threads * moved)
        for step in s.merge.steps:
            self._computed(step.instruction, times * self.threads * counts.merges, tally)
        tally.wait("smem_loads", times * (counts.rounds + counts.barriers + ABROAD_LOADS * counts.abroad))
        tally.wait("barriers", times * counts.barriers)
        tally.wait("fmas", times * (counts.in_a_row * s.merge.steps_in_a_row + counts.chosen))

    def _look_back(self, s: n.Preceding, tally: Tally, times: Expr) -> None:
        looking = looked_back(s, self.warps)
        for name, amount in looking.work.items():
            tally.add(name, times * amount)
        for step in s.merge.steps:
            self._computed(step.instruction, times * looking.merges, tally)
        for name, amount in looking.waits.items():
            tally.wait(name, times * amount)

    def _relayout(self, s: n.Relayout, tally: Tally, times: Expr) -> None:
        """Shuffles go through shared memory's crossbar, a warp in each clock (CUDA programming guide, arithmetic
        instructions: 32 results per clock and SM); what is selected and permuted through the integer lanes.
        """
        counts = exchanged(s)
        moved = counts.selects + counts.permutes
        tally.add("warp_instructions", times * self.warps * (counts.shuffles + moved))
        tally.add("l1_wavefronts", times * self.warps * counts.shuffles)
        tally.add("alu_ops", times * self.threads * moved)
        if s.shuffle is not None:
            tally.wait("smem_loads", times)

    def _by_tiles(self, s: n.Statement, tally: Tally, times: Expr) -> None:
        """A statement of which nothing is known but what it reads and writes: once, in whole vectors of 4 bytes."""
        for verb, way, tiles in (("read", "load", s.reads), ("written", "store", s.writes)):
            for tile in tiles:
                moved = bytes_of(tile)
                if tile.memory is GMEM:
                    tally.add(f"sectors_{verb}", times * ceil_div(moved, SECTOR_BYTES))
                    tally.add(f"accesses_{verb}", times * ceil_div(moved, ACCESS_BYTES))
                elif tile.memory is SMEM:
                    tally.add(f"smem_{way}_wavefronts", times * ceil_div(moved, WAVEFRONT_BYTES))
                tally.add("warp_instructions", times * self.warps * ceil_div(moved, 4 * self.threads))

    def _fix_up(self, s: n.FixUp, tally: Tally, times: Expr) -> None:
        """What is left and taken of a tile that CTAs share, through L2, for which everybody waits: once, if in pieces.

        A structure may leave open how tiles are shared: each way counts where it is chosen.
        """
        grid, values = self.program.grid, values_of(s.value)
        sectors = ceil_div(self.threads * values * s.value.dtype.bits, 8 * SECTOR_BYTES)
        vectors = ceil_div(values, expr(s.store.vector))
        unit = {"fma": "fma_flops", "sfu": "sfu_ops"}.get(s.combine.unit, "alu_ops")
        each = self.threads * values * (2 if unit == "fma_flops" else 1)
        for way in grid.scheduler.sharing(grid.tiles, grid.cluster):
            shared, tiles = times * way.when, way.tiles

            def per_tile(amount: Expr, shared: Expr = shared, tiles: Expr = tiles) -> Expr:
                return shared * ceil_div(amount, tiles)

            tally.add("sectors_written", per_tile(way.left * sectors))
            tally.add("sectors_read", per_tile(way.taken * sectors))
            issued = (way.left + way.taken) * vectors + way.added * values
            tally.add("warp_instructions", per_tile(self.warps * issued))
            tally.add(unit, per_tile(each * way.added))
            tally.wait("barriers", ceil_div(per_tile(way.waits), s.pieces))
            some, in_turn = way.trips  # the count among them; and the values of some pieces at a time
            more = expr(0) if in_turn.same(0) else ceil_div(in_turn, s.parts_at_once)
            counts = per_tile(ceil_div(way.waits, 2))  # each count has a barrier before and behind it
            tally.wait("l2_trips", per_tile(some + more) - counts + ceil_div(counts, s.pieces))

    def _own(self, heuristic: Heuristic, s: n.Statement, tally: Tally, times: Expr) -> None:
        """Adds what a cost of the machine's own says of a statement."""
        costs = answer(heuristic.costs, s, self.warps, wanted="amounts by name, {} for none", fits=_are_amounts)
        for name, amount in costs.items():
            if name in WORK:
                tally.add(name, times * amount)
            elif name in CHAIN:
                tally.wait(name, times * amount)
            else:
                known = ", ".join((*WORK, *CHAIN))
                sentence = f"the heuristic {heuristic} charges for {name!r}; it may charge for {known}"
                raise at(ValueError(sentence), written_at(heuristic.costs))

    def _bulk(self, s: n.Copy, bulk: BulkTransfer, tally: Tally, times: Expr) -> None:
        """One instruction moves one box, 128 bytes of SMEM at a time; CTAs of a cluster share what is multicast."""
        held = bytes_of(s.target if s.source.memory is GMEM else s.source)
        access = boxes(s, bulk)
        shared = s.shared_by(self.program.grid.axes)
        begins = window(access.tile, tensor_pitches(access.tile), self.program.indices)
        sectors, accesses = (ceil_div(pieces(access, begins, size), shared) for size in (SECTOR_BYTES, ACCESS_BYTES))
        if s.source.memory is GMEM:
            tally.add("sectors_read", times * sectors)
            tally.add("accesses_read", times * accesses)
            tally.add("smem_store_wavefronts", times * ceil_div(held, WAVEFRONT_BYTES))
            stages = next((p.stages for p in self.program.pipelines if s.target.name.startswith(f"{p.name}.")), expr(1))
            # of the sectors that are asked for, as these: rows that begin within sectors ask for more than they have
            tally.in_flight_bytes = tally.in_flight_bytes + stages * sectors * SECTOR_BYTES
            self.prefetch = stages - 1
        else:
            tally.add("sectors_written", times * sectors)
            tally.add("accesses_written", times * accesses)
            tally.add("smem_load_wavefronts", times * ceil_div(held, WAVEFRONT_BYTES))
        tally.add("warp_instructions", times * access.starts.value_count)

    def _requests(self, hop: Transfer, partition: Partition) -> Expr:
        """Warp instructions that move a tile; threads of the role beyond the partition's take no part."""
        threads = partition.made_for if partition.made_for is not None else partition.thread_count
        return ceil_div(threads, 32) * (partition.value_count // expr(hop.vector))

    def _spared(self, hop: Transfer, partition: Partition, width: Expr) -> Expr:
        """Wavefronts that whole warps would take, and the last one does not, of whose lanes some take no part."""
        if partition.made_for is not None:
            return expr(0)
        rest, each = partition.thread_count % 32, maximum(width // 4, 1)
        spared = where(rest == 0, 0, each - ceil_div(rest * width, WAVEFRONT_BYTES))
        return spared * (partition.value_count // expr(hop.vector))

    def _transfer(
        self,
        hop: Transfer,
        tile: Tile,
        partition: Partition | None,
        tally: Tally,
        times: Expr,
        shared: Shared | None = None,
    ) -> Expr:
        """Adds what one hop asks for; the sectors of global memory that it touches once.

        shared  what a load asks of L2 where L1 holds what the CTA reads
        """
        sectors = expr(0)
        if partition is None:
            return sectors
        each = self._requests(hop, partition)
        if hop.reads is RMEM:
            each = each // idle_warps(partition)
        requests = times * each
        tally.add("warp_instructions", requests * 2)  # the access, and the arithmetic and predicate of its address
        width = hop.width_bytes(tile.dtype)
        if tile.memory.own:
            tally.add("l1_wavefronts", requests * self._passes(hop, tile, partition))
        elif tile.tensor is not None:
            verb = "written" if hop.writes is GMEM else "read"
            access = vectors("", hop, tile, partition, hop.writes is GMEM)
            ordered = in_order(self.program, access)
            begins = window(tile, tensor_pitches(tile), self.program.indices)
            for what, size in (("sectors", SECTOR_BYTES), ("accesses", ACCESS_BYTES)):
                if "coalescing" in self.heuristics:
                    touched = pieces(access, begins, size)
                    if ordered is not None:  # to the nearest bit rows straddle pieces, which whole rows do not
                        touched = minimum(pieces(ordered, begins, size), touched)
                    if tile.pick is not None and (values := drawn_from(self.program, tile)) is not None:
                        pitch = expr(tensor_pitches(tile)[tile.pick.home])
                        touched = touched * apart(values, rows_of_a_warp(access), pitch, 8 * size)
                else:
                    touched = each * ceil_div(expr(hop.vector) * 32 * tile.dtype.bits, 8 * size)
                if shared is not None:
                    touched = shared.pieces(size, touched)
                tally.add(f"{what}_{verb}", times * touched)
                sectors = touched if size == SECTOR_BYTES else sectors
                if hop.combines and what == "accesses":
                    tally.add("accesses_to_one", times * touched * self._to_one(access, tile))
            if hop.reads is GMEM:
                passes = where(width == hop.past_l1_bytes, 0, 1) if hop.past_l1_bytes else expr(1)
                wavefronts = requests * maximum(width // 4, 1)
                if shared is not None:  # what it finds, L1 serves line by line
                    wavefronts = maximum(wavefronts, times * pieces(ordered or access, begins, LINE_BYTES))
                tally.add("l1_wavefronts", wavefronts * passes)
        elif tile.memory is SMEM:
            name = "smem_store_wavefronts" if hop.writes is SMEM else "smem_load_wavefronts"
            served = requests * maximum(width // 4, 1) * self._bank_rounds(hop, tile, partition)
            tally.add(name, served - times * self._spared(hop, partition, width))
        return sectors

    def _to_one(self, access: Access, tile: Tile) -> Expr:
        """The share of the accesses of L2 that are for one place; 0 where nothing is known of where they go."""
        if tile.pick is None:
            return expr(0)
        values = drawn_from(self.program, tile)
        if values is None or "coalescing" not in self.heuristics:
            return expr(0)
        pitch = expr(tensor_pitches(tile)[tile.pick.home])
        return to_one_place(values, rows_of_a_warp(access), pitch, 8 * ACCESS_BYTES)

    def _bank_rounds(self, hop: Transfer, tile: Tile, partition: Partition) -> Expr:
        """What is more than one wavefront where lanes name words of shared memory at random."""
        if "bank conflicts" not in self.heuristics or tile.buffer is None or len(tile.buffer.shape) > 1:
            return expr(1)
        values = drawn_from(self.program, tile)
        if values is None or not expr(hop.vector).same(1):
            return expr(1)
        rows = rows_of_a_warp(vectors("", hop, tile, partition, hop.writes is SMEM))
        served = bank_turns if hop.combines else bank_rounds
        return served(values, rows, expr(tile.dtype.bits))

    def _passes(self, hop: Transfer, tile: Tile, partition: Partition) -> Expr:
        """How often a memory of the machine's own is asked for one warp instruction: lanes that read one piece share
        it, and as many pieces come at once as it has banks.
        """
        granule = tile.memory.granule_bytes
        size = max(granule, tile.dtype.bits // 8)
        touched = ceil_div(expr(hop.vector) * 32 * tile.dtype.bits, 8 * size)
        if "coalescing" in self.heuristics:
            begins = window(tile, tensor_pitches(tile), self.program.indices)
            together = pieces(vectors("", hop, tile, partition, False), begins, size)
            touched = ceil_div(together, self._requests(hop, partition))
        return ceil_div(touched * (size // granule), max(tile.memory.banks, 1))

    def _apply(self, s: n.Apply, tally: Tally, times: Expr) -> None:
        issued = s.instruction.issued(values_of(s.result))
        fused = s.instruction.on_fma_lanes(values_of(s.result))
        tally.add("warp_instructions", times * self.warps * issued)
        tally.add("fma_flops", times * self.threads * fused * 2)
        self._computed(s.instruction, times * self.threads * (issued - fused), tally)

    @staticmethod
    def _computed(instruction: Elementwise, lanes: Expr, tally: Tally) -> None:
        """An element-wise instruction, so many times by one lane."""
        unit = {"fma": "fma_flops", "sfu": "sfu_ops"}.get(instruction.unit, "alu_ops")
        tally.add(unit, lanes * 2 if unit == "fma_flops" else lanes)

    def _multiply(self, s: n.Multiply, tally: Tally, times: Expr) -> None:
        m, nn, k = s.instruction.shape(*(operand.dtype for operand in (s.a, s.b)))
        flops = 2 * s.accumulator.shape[0] * s.accumulator.shape[1] * s.a.shape[1]
        tally.add("tensor_flops", times * flops * s.instruction.share)
        tally.add("idle_flops", times * flops * (s.instruction.share - 1))
        count = flops // (2 * m * nn * k)
        if SMEM not in s.instruction.places:
            tally.add("warp_instructions", times * count)
            return
        # Operands come from SMEM: the rows of a for every instruction along n, the columns of b for every one along m.
        from_a = bytes_of(s.a) * (s.accumulator.shape[1] // nn) if s.a.memory is SMEM else expr(0)
        from_b = bytes_of(s.b) * (s.accumulator.shape[0] // m)
        tally.add("smem_load_wavefronts", times * ceil_div(from_a + from_b, WAVEFRONT_BYTES))
        tally.add("warp_instructions", times * count * (4 if s.instruction.scope == "warpgroup" else 1))


def _are_amounts(found: Any) -> bool:
    """Whether costs are whole numbers, zero or more, or expressions, by name."""
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        return False
    return all(isinstance(a, Expr) or (isinstance(a, int) and a >= 0) for a in found.values())


def idle_warps(partition: Partition) -> Expr:
    """Of how many warps one stores: warps that hold copies of what another holds leave storing to it."""
    copies = expr(1)
    lanes = expr(32)
    for size, stride in partition.threads.steps:
        here = minimum(size, lanes)
        lanes = lanes // here
        if not isinstance(stride, Step):
            copies = copies * (size // here)
    return copies


def sum_of(terms: Any) -> Expr:
    out = expr(0)
    for t in terms:
        out = out + t
    return out


def values_of(tile: Tile) -> Expr:
    return tile.partition.value_count if tile.partition is not None else expr(0)


def bytes_of(tile: Tile) -> Expr:
    out = expr(tile.dtype.bits if tile.buffer is None else tile.buffer.element_bits)
    for s in tile.shape:
        out = out * s
    return ceil_div(out, 8)
