"""Counts what a program asks of a GPU: from Program to Demand, for one candidate or for arrays of them.

The counts are expressions over parameters, dims and tensor facts, made once per structure and evaluated for all
candidates at once. They are exact for tiles inside the tensors whose rows begin at sector boundaries; edges run the
same instructions with fewer lanes. Shared-memory wavefronts are counted without bank conflicts: the layout solver says
which conflicts remain (`tinygpu.cost.conflicts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from tinygpu.cost.demand import SECTOR_BYTES, Chain, Demand, Phase, TensorPath, Work
from tinygpu.cost.locality import dram_read_bytes
from tinygpu.devices import Device
from tinygpu.expressions import Expr, Operand, ceil_div, compile_arrays, expr, maximum, minimum, symbol, where
from tinygpu.language.derive import buffer_bytes, registers_estimate
from tinygpu.language.instruction import BulkTransfer, Instruction, Transfer
from tinygpu.language.machine import HEURISTICS
from tinygpu.language.memories import GMEM, RMEM, SMEM
from tinygpu.language.partition import Partition
from tinygpu.language.route import Route
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk

WORK = tuple(f.name for f in fields(Work))
CHAIN = tuple(f.name for f in fields(Chain))

# Instructions that a warp issues beside the machine's own, per loop round and per memory access: counters, slot and
# address arithmetic, predicates. Counted in the PTX of the shipped machines.
ROUND_INSTRUCTIONS = 16
# One wavefront of shared memory: 32 banks of 4 bytes.
WAVEFRONT_BYTES = 128
PROLOGUE_INSTRUCTIONS = 60


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


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """The compiled counts of one structure."""

    program: n.Program
    names: tuple[str, ...]
    compute: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    operand: str
    accumulator: str
    heuristics: tuple[str, ...]
    path: TensorPath = "mma.sync"

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        """One of the counts by name: "iterations", "registers", "smem", ..."""
        return self.compute(values)[self.names.index(name)]

    def demand(self, values: Mapping[str, Any], device: Device, extra_wavefronts: Any = 0) -> Demand:
        """The demand for parameters (numbers or arrays), dims and tensor facts in `values`.

        extra_wavefronts  wavefronts per main-loop round beyond those without bank conflicts
        """
        v = dict(zip(self.names, self.compute(values), strict=True))

        def phase(prefix: str) -> Phase:
            work = {k: v[f"{prefix}.{k}"] for k in WORK}
            return Phase(Work(**work), Chain(**{k: v[f"{prefix}.{k}"] for k in CHAIN}))

        iteration = phase("iteration")
        if "bank conflicts" in self.heuristics:
            iteration = Phase(iteration.work + Work(smem_load_wavefronts=extra_wavefronts), iteration.chain)
        crowding = int("occupancy" in self.heuristics)
        ctas = v["ctas"]
        return Demand(
            ctas=ctas,
            threads_per_cta=v["threads"],
            registers_per_thread=crowding * np.minimum(v["registers"], device.max_registers_per_thread),
            smem_bytes_per_cta=crowding * v["smem"],
            iterations=v["iterations"],
            iteration=iteration,
            prologue=phase("prologue"),
            epilogue=phase("epilogue"),
            prefetch_iterations=v["prefetch"],
            bytes_in_flight_per_cta=np.maximum(v["in_flight"], 1),
            dram_bytes_read=self._dram_read(v, values, device),
            dram_bytes_written=v["written"],
            compulsory_dram_bytes=v["compulsory"],
            useful_tensor_flops=v["useful"] if self.operand else None,
            operand=self.operand or "f16",
            accumulator=self.accumulator or "f32",
            tensor_path=self.path,
        )

    def _dram_read(self, v: Mapping[str, Any], values: Mapping[str, Any], device: Device) -> Any:
        """Panels of a grid with two axes are read again when L2 forgot them; everything else is read once."""
        if "locality" not in self.heuristics:
            return v["compulsory"] - v["written"]
        if not self.program_has_panels:
            return v["read_once"]
        # CTAs that run at a time, by threads and shared memory: what bounds how far apart reuse is.
        per_sm = np.minimum(
            device.max_threads_per_sm // v["threads"],
            np.maximum(device.max_smem_bytes_per_sm // np.maximum(v["smem"] + 1024, 1), 1),
        )
        per_sm = np.minimum(per_sm, np.maximum(device.registers_per_sm // (v["registers"] * v["threads"]), 1))
        panels = dram_read_bytes(
            device.l2_near_bytes,
            v["row_panel"],
            v["column_panel"],
            v["tile_bytes"],
            v["tiles0"],
            v["tiles1"],
            v["group"],
            np.maximum(device.sm_count * per_sm, 1),
        )
        return panels + v["read_once"]

    @property
    def program_has_panels(self) -> bool:
        return "row_panel" in self.names


def count(program: n.Program, heuristics: tuple[str, ...] = HEURISTICS) -> Counts:
    """Prepares the counts of one structure; what is not among `heuristics` is counted as if it cost nothing."""
    counter = _Counter(program, heuristics)
    counter.run()
    named = counter.named()
    multiply = next((s for s in walk(program.body) if isinstance(s, n.Multiply)), None)
    operand = multiply.a.dtype.name if multiply else ""
    accumulator = multiply.accumulator.dtype.name if multiply else ""
    paths: dict[str, TensorPath] = {"wgmma group": "wgmma", "tcgen05 commit": "tcgen05"}
    path = paths.get(multiply.instruction.completion, "mma.sync") if multiply else "mma.sync"
    return Counts(program, tuple(named), compile_arrays(*named.values()), operand, accumulator, heuristics, path)


class _Counter:
    def __init__(self, program: n.Program, heuristics: tuple[str, ...]) -> None:
        self.program = program
        self.heuristics = heuristics
        self.threads = program.threads
        self.phases = {"prologue": Tally(), "iteration": Tally(), "epilogue": Tally()}
        self.iterations: Expr = expr(1)
        self.prefetch: Expr = expr(0)
        self.looped = False

    def run(self) -> None:
        loops = [s for s in walk(self.program.body) if isinstance(s, n.Pipelined) or _at_run_time(s)]
        self.looped = bool(loops)
        start = "prologue" if self.looped else "iteration"
        self._body(self.program.body, start, expr(1))
        warps = ceil_div(self.threads, 32)
        self.phases[start].add("warp_instructions", warps * PROLOGUE_INSTRUCTIONS)
        self.phases["prologue"].wait("fmas", 30)
        if self.looped:
            self.phases["prologue"].wait("global_loads", 1)

    # -- walking ---------------------------------------------------------------------------------------------------
    def _body(self, body: tuple[n.Statement, ...], phase: str, times: Expr) -> str:
        """Counts statements, each executed `times` times; returns the phase that what follows belongs to."""
        for s in body:
            phase = self._statement(s, phase, times)
        return phase

    def _statement(self, s: n.Statement, phase: str, times: Expr) -> str:
        tally = self.phases[phase]
        warps = ceil_div(self.threads, 32)
        match s:
            case n.Pipelined() if phase == "prologue":
                self.iterations = s.trips
                stages = self.program.pipeline(s.pipeline).stages
                self.prefetch = stages - 1
                inner = self.phases["iteration"]
                self._body(s.fill, "iteration", expr(1))
                inner.in_flight_bytes = maximum(stages - 1, 1) * _copied_bytes(s.fill)
                self._body(s.drain, "iteration", expr(1))
                inner.add("warp_instructions", warps * ROUND_INSTRUCTIONS)
                inner.wait("barriers", where(stages == 1, 2, 1))
                return "epilogue"
            case n.Loop() if not s.unrolled and phase == "prologue":
                self.iterations = s.trips
                self._body(s.body, "iteration", expr(1))
                self.phases["iteration"].add("warp_instructions", warps * ROUND_INSTRUCTIONS)
                return "epilogue"
            case n.Pipelined():
                self._body(s.fill, phase, times * s.trips)
                self._body(s.drain, phase, times * s.trips)
                tally.wait("barriers", times * s.trips)
            case n.Loop():
                self._body(s.body, phase, times * s.trips)
            case n.InRole() if len(self.program.roles) > 1:
                self._role(s)
            case n.Scope() | n.InRole():
                return self._body(s.body, phase, times)
            case n.Fill() | n.Drain():
                if isinstance(s, n.Drain):
                    tally.wait("barriers", times)
                return self._body(s.body, phase, times)
            case _:
                self._operation(s, tally, times)
        return phase

    def _role(self, s: n.InRole) -> None:
        """One of several roles that work at the same time: each has a prologue, rounds and an epilogue of its own.

        Of roles that take turns at tiles the first is counted, for the tile that is its own.
        """
        role = next(r for r in self.program.roles if r.name == s.role)
        if role.share[0]:
            return
        everybody, self.threads = self.threads, role.threads
        self._body(s.body, "prologue", expr(1))
        self.threads = everybody

    # -- operations ------------------------------------------------------------------------------------------------
    def _operation(self, s: n.Statement, tally: Tally, times: Expr) -> None:
        match s:
            case n.Load() if s.instruction.scope == "warp":
                registers = _values(s.result) * s.source.dtype.bits // 32
                warps = ceil_div(self.threads, 32)
                tally.add("smem_load_wavefronts", times * warps * registers)
                tally.add("warp_instructions", times * warps * ceil_div(registers, 4))
                if tally.chain["smem_loads"].same(0):
                    tally.wait("smem_loads")
            case n.Load() if isinstance(s.instruction, Transfer):
                self._transfer(s.instruction, s.source, s.result.partition, tally, times)
                if s.source.memory is GMEM and tally is not self.phases["iteration"]:
                    tally.wait("global_loads")
                elif s.source.memory is GMEM:
                    tally.in_flight_bytes = tally.in_flight_bytes + _bytes(s.source)
            case n.Store() if s.instruction.scope == "warp":
                registers = _values(s.value) * s.target.dtype.bits // 32
                warps = ceil_div(self.threads, 32)
                tally.add("smem_store_wavefronts", times * warps * registers)
                tally.add("warp_instructions", times * warps * ceil_div(registers, 4))
            case n.Store() if isinstance(s.instruction, Transfer):
                self._transfer(s.instruction, s.target, s.value.partition, tally, times)
            case n.Copy() if isinstance(s.instruction, BulkTransfer):
                self._bulk(s, tally, times)
            case n.Copy():
                hops: tuple[Instruction, ...] = (
                    s.instruction.hops if isinstance(s.instruction, Route) else (s.instruction,)
                )
                for hop in hops:
                    if isinstance(hop, Transfer) and s.partition is not None:
                        if hop.reads is GMEM:
                            self._transfer(hop, s.source, s.partition, tally, times)
                        if hop.writes is SMEM:
                            one = self._requests(hop, s.partition)
                            width = hop.width_bytes(s.target.dtype)
                            tally.add("smem_store_wavefronts", times * one * maximum(width // 4, 1))
                            if hop.reads is not GMEM:
                                tally.add("warp_instructions", times * one)
            case n.Apply():
                self._apply(s, tally, times)
            case n.Multiply():
                self._multiply(s, tally, times)
            case n.Reduce():
                values = _values(s.source)
                warps = ceil_div(self.threads, 32)
                results = _values(s.result)
                tally.add("warp_instructions", times * warps * (values + results * 10))
                tally.add("fma_flops", times * self.threads * 2 * (values + results * 5))
                tally.wait("smem_loads", 5)
                tally.wait("fmas", times * values)

    def _bulk(self, s: n.Copy, tally: Tally, times: Expr) -> None:
        """TMA: whole sectors in GMEM, and 128 bytes of SMEM at a time; CTAs of a cluster share what is multicast."""
        moved = _bytes(s.source)
        shared = expr(1) if s.multicast is None else self.program.grid.axes[s.multicast].cluster
        if s.source.memory is GMEM:
            tally.add("sectors_read", times * ceil_div(moved, SECTOR_BYTES * shared))
            tally.add("smem_store_wavefronts", times * ceil_div(moved, WAVEFRONT_BYTES))
            stages = next(
                (p.stages for p in self.program.pipelines if s.target.name.startswith(f"{p.name}.")), expr(1)
            )
            tally.in_flight_bytes = tally.in_flight_bytes + stages * moved
            self.prefetch = stages - 1
        else:
            tally.add("sectors_written", times * ceil_div(moved, SECTOR_BYTES))
            tally.add("smem_load_wavefronts", times * ceil_div(moved, WAVEFRONT_BYTES))
        tally.add("warp_instructions", times)

    def _requests(self, hop: Transfer, partition: Partition) -> Expr:
        """Warp instructions that move a tile; threads of the role beyond the partition's take no part."""
        threads = partition.made_for if partition.made_for is not None else partition.thread_count
        return ceil_div(threads, 32) * (partition.value_count // expr(hop.vector))

    def _transfer(
        self, hop: Transfer, tile: Tile, partition: Partition | None, tally: Tally, times: Expr
    ) -> None:
        if partition is None:
            return
        requests = times * self._requests(hop, partition)
        if hop.reads is RMEM:
            requests = requests // idle_warps(partition)
        tally.add("warp_instructions", requests * 2)  # the access, and the arithmetic and predicate of its address
        width = hop.width_bytes(tile.dtype)
        if tile.memory is GMEM and tile.tensor is not None:
            least = ceil_div(expr(hop.vector) * 32 * tile.dtype.bits, 8 * SECTOR_BYTES)
            touched = request_sectors(partition, tile, expr(hop.vector)) if "coalescing" in self.heuristics else least
            sectors = requests * touched
            tally.add("sectors_written" if hop.writes is GMEM else "sectors_read", sectors)
        elif tile.memory is SMEM:
            name = "smem_store_wavefronts" if hop.writes is SMEM else "smem_load_wavefronts"
            tally.add(name, requests * maximum(width // 4, 1))

    def _apply(self, s: n.Apply, tally: Tally, times: Expr) -> None:
        lanes = times * self.threads * _values(s.result)
        tally.add("warp_instructions", times * ceil_div(self.threads, 32) * _values(s.result))
        unit = {"fma": "fma_flops", "sfu": "sfu_ops"}.get(s.instruction.unit, "alu_ops")
        tally.add(unit, lanes * 2 if unit == "fma_flops" else lanes)

    def _multiply(self, s: n.Multiply, tally: Tally, times: Expr) -> None:
        m, nn, k = s.instruction.shape(s.a.dtype, s.b.dtype)
        flops = 2 * s.accumulator.shape[0] * s.accumulator.shape[1] * s.a.shape[1]
        tally.add("tensor_flops", times * flops)
        count = flops // (2 * m * nn * k)
        if s.instruction.scope != "warpgroup":
            tally.add("warp_instructions", times * count)
            return
        # Operands come from SMEM: the rows of a for every instruction along n, the columns of b for every one along m.
        from_a = _bytes(s.a) * (s.accumulator.shape[1] // nn)
        from_b = _bytes(s.b) * (s.accumulator.shape[0] // m)
        tally.add("smem_load_wavefronts", times * ceil_div(from_a + from_b, WAVEFRONT_BYTES))
        tally.add("warp_instructions", times * count * 4)

    # -- the whole -------------------------------------------------------------------------------------------------
    def named(self) -> dict[str, Expr]:
        p = self.program
        tiles = [ceil_div(a.size, a.extent) for a in p.grid.axes]
        ctas = expr(1)
        for t in tiles:
            ctas = ctas * t
        iteration = self.phases["iteration"]
        out = {
            "ctas": ctas,
            "threads": self.threads,
            "registers": registers_estimate(p),
            "smem": buffer_bytes(p, p.body, SMEM),
            "iterations": self.iterations,
            "prefetch": self.prefetch,
            "in_flight": iteration.in_flight_bytes,
        }
        for name, tally in self.phases.items():
            out |= {f"{name}.{k}": v for k, v in tally.work.items()}
            out |= {f"{name}.{k}": v for k, v in tally.chain.items()}
        read = [t for t in p.tensors if t.access != "out"]
        written = sum_of(tensor_bytes(t) for t in p.tensors if t.access != "in")
        out["written"] = written
        out["compulsory"] = sum_of(tensor_bytes(t) for t in read) + written
        out["useful"] = self._useful()
        return out | self._reads(read, tiles)

    def _useful(self) -> Expr:
        multiply = next((s for s in walk(self.program.body) if isinstance(s, n.Multiply)), None)
        if multiply is None:
            return expr(0)
        flops = expr(2)
        for d in dict.fromkeys(d for t in self.program.tensors for d in t.dims):
            flops = flops * symbol(d)
        return flops

    def _reads(self, read: list[Tensor], tiles: list[Expr]) -> dict[str, Expr]:
        """Row and column panels of a grid with two axes, and what is read once."""
        if len(tiles) != 2:
            return {"read_once": sum_of(tensor_bytes(t) for t in read)}
        axes = self.program.grid.axes
        panels = [expr(0), expr(0)]
        once = expr(0)
        for t in read:
            along = {i for i, a in enumerate(axes) if a.size.sympy.name in t.dims}
            if len(along) == 1:
                index = along.pop()
                other = expr(1)
                for d in t.dims:
                    if d != axes[index].size.sympy.name:
                        other = other * symbol(d)
                panels[index] = panels[index] + axes[index].extent * other * t.dtype.bits // 8
            else:
                once = once + tensor_bytes(t)
        written = sum_of(
            expr(t.dtype.bits) for t in self.program.tensors if t.access != "in"
        )
        return {
            "read_once": once,
            "row_panel": panels[0],
            "column_panel": panels[1],
            "tile_bytes": axes[0].extent * axes[1].extent * written // 8,
            "tiles0": tiles[0],
            "tiles1": tiles[1],
            "group": self.program.grid.group,
        }


def request_sectors(partition: Partition, tile: Tile, vector: Expr) -> Expr:
    """32-byte sectors that one warp instruction touches, for rows that begin at sector boundaries.

    Along the contiguous axis lanes stand at regular steps: steps shorter than a sector share sectors, longer ones do
    not, and steps that continue each other are one. Lanes along other axes touch rows of their own. Where rows do not
    begin at sector boundaries each row may touch one sector more, which is counted.
    """
    steps = [(vector, expr(1))]  # (how many, elements from one to the next)
    whole = vector
    rows = expr(1)
    lanes = expr(32)
    for mode in partition.threads:
        here = minimum(mode.extent, lanes)
        lanes = lanes // here
        if mode.axis is None:
            continue
        if mode.axis == tile.contiguous:
            count, step = steps[-1]
            if mode.stride.same(whole):
                steps[-1] = (count * here, step)
            else:
                steps.append((here, mode.stride))
            whole = mode.stride * mode.extent
        elif tile.axes[mode.axis] is not None:
            rows = rows * here
    bits = tile.dtype.bits
    sectors = rows
    for count, step in steps:
        sectors = sectors * where(step * bits >= 256, count, ceil_div(count * step * bits, 256))
    tensor = tile.tensor
    if tensor is None or tensor.rank == 1:
        return sectors
    return sectors + where((tensor.ld * bits // 8) % 32 == 0, 0, rows)


def idle_warps(partition: Partition) -> Expr:
    """Of how many warps one stores: warps that hold copies of what another holds leave storing to it."""
    copies = expr(1)
    lanes = expr(32)
    for mode in partition.threads:
        here = minimum(mode.extent, lanes)
        lanes = lanes // here
        if mode.axis is None:
            copies = copies * (mode.extent // here)
    return copies


def tensor_bytes(t: Tensor) -> Expr:
    out = expr(t.dtype.bits)
    for d in t.dims:
        out = out * symbol(d)
    return ceil_div(out, 8)


def sum_of(terms: Any) -> Expr:
    out = expr(0)
    for t in terms:
        out = out + t
    return out


def _values(tile: Tile) -> Expr:
    return tile.partition.value_count if tile.partition is not None else expr(0)


def _bytes(tile: Tile) -> Expr:
    out = expr(tile.dtype.bits)
    for s in tile.shape:
        out = out * s
    return ceil_div(out, 8)


def _copied_bytes(body: tuple[n.Statement, ...]) -> Expr:
    return sum_of(_bytes(s.source) for s in walk(body) if isinstance(s, (n.Copy, n.Load)) and s.source.memory is GMEM)


def _at_run_time(s: n.Statement) -> bool:
    return isinstance(s, n.Loop) and not s.unrolled
