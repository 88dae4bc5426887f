"""The counts of one structure, compiled: from parameters, dims and tensor facts to Demands, for thousands at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinygpu.cost.demand import Chain, Demand, Phase, TensorPath, Work
from tinygpu.cost.locality import dram_read_bytes
from tinygpu.cost.main_loops import in_turn, sums_of
from tinygpu.cost.operations import CHAIN, WORK
from tinygpu.devices import Device
from tinygpu.expressions import Expr
from tinygpu.language.heuristic import Heuristic
from tinygpu.program.program import Program


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """The compiled counts of one structure.

    names        what is counted
    compute      from parameters, dims and tensor facts to the counts, in the order of the names
    expressions  the same counts as expressions, for whoever asks what they can be at least
    useful       tensor operations that the problem asks for, of the same values: in floats, which hold them
    asks_ahead   whether rounds multiply asynchronously, and nobody uses their sums before the last of them
    """

    program: Program
    names: tuple[str, ...]
    compute: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    operand: str
    accumulator: str
    heuristics: tuple[str | Heuristic, ...]
    path: TensorPath = "mma.sync"
    expressions: tuple[Expr, ...] = ()
    useful: Callable[[Mapping[str, Any]], Any] = field(default=lambda values: 0.0)
    asks_ahead: bool = False

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        """One of the counts by name: "iterations", "registers", "smem", ..."""
        return self.counted(values)[name]

    def counted(self, values: Mapping[str, Any]) -> Counted:
        """All counts for parameters (numbers or arrays), dims and tensor facts in `values`."""
        return Counted(self, values, dict(zip(self.names, self.compute(values), strict=True)))

    def demand(self, values: Mapping[str, Any], device: Device, extra_wavefronts: Any = 0) -> Demand:
        """The demand for them; see `Counted.demand`."""
        return self.counted(values).demand(device, extra_wavefronts)

    @property
    def program_has_panels(self) -> bool:
        return "row_panel" in self.names


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """What the counts of a structure are for some candidates: worked out once, for whoever asks for several of them.

    values   parameters (numbers or arrays), dims and tensor facts of the candidates
    by_name  what was counted: "iterations", "registers", "smem", ...
    """

    counts: Counts
    values: Mapping[str, Any]
    by_name: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name]

    def demand(self, device: Device, extra_wavefronts: Any = 0) -> Demand:
        """The demand of these candidates.

        extra_wavefronts  wavefronts per main-loop round beyond those without bank conflicts
        """
        v, counts = self.by_name, self.counts

        def phase(prefix: str) -> Phase:
            work = {k: v[f"{prefix}.{k}"] for k in WORK}
            return Phase(Work(**work), Chain(**{k: v[f"{prefix}.{k}"] for k in CHAIN}))

        iteration = phase("iteration")
        if "bank conflicts" in counts.heuristics:
            iteration = Phase(iteration.work + Work(smem_load_wavefronts=extra_wavefronts), iteration.chain)
        crowding = int("occupancy" in counts.heuristics)
        ctas = v["ctas"]
        return Demand(
            ctas=ctas,
            cluster=v["cluster"] if crowding else 1,
            threads_per_cta=v["threads"],
            registers_per_thread=crowding * np.minimum(v["registers"], device.max_registers_per_thread),
            smem_bytes_per_cta=crowding * v["smem"],
            tmem_bytes_per_cta=crowding * v["tmem"],
            iterations=v["iterations"],
            iteration=iteration,
            prologue=phase("prologue"),
            epilogue=phase("epilogue"),
            prefetch_iterations=v["prefetch"],
            bytes_in_flight_per_cta=np.maximum(v["in_flight"], 1),
            held=int(len(counts.program.roles) > 1),
            late=v["held"] / np.maximum(v["slots"], 1),
            ahead=self._ahead(),
            persistent=int(counts.program.grid.scheduler.persistent),
            asks=v["asks"],
            even=v["even"],
            turns=v["turns"],
            one_stores=int(bool(sums_of(counts.program))),
            in_turn=int(bool(in_turn(counts.program))),
            handed_on=v["handed_on"],
            chained=v["chained"],
            chains_beside=v["chains_beside"],
            multiplying_warps=v["multiplying_warps"],
            circulating=v["circulating"],
            scored_ahead=v["scored_ahead"],
            rows=self._rows(),
            dram_bytes_read=self._dram_read(device, device.l2_near_bytes),
            dram_bytes_written=v["written"],
            compulsory_dram_bytes=v["compulsory"],
            useful_tensor_flops=counts.useful(self.values) if counts.operand else None,
            operand=counts.operand or "f16",
            accumulator=counts.accumulator or "f32",
            tensor_path=counts.path,
        )

    def _ahead(self) -> Any:
        """Whether products go on while the next round's are asked for: a thread of its own asks for those into tensor
        memory as soon as their slot has come, a warpgroup while the group before is under way.
        """
        before = "prefetch" if self.counts.path == "tcgen05" else "held"
        return self.counts.asks_ahead * np.greater(self[before], 0).astype(np.int64)

    def _rows(self) -> tuple[tuple[Phase, ...], ...]:
        """The rows among the counts."""
        v = self.by_name
        found: dict[str, list[dict[str, Any]]] = {}
        for name in (name for name in v if name.startswith("row.")):
            _, role, step, unit = name.split(".")
            steps = found.setdefault(role, [])
            steps.extend({} for _ in range(int(step) + 1 - len(steps)))
            steps[int(step)][unit] = v[name]

        def phase(step: Mapping[str, Any]) -> Phase:
            work, chain = ({k: step[k] for k in step if k in kinds} for kinds in (WORK, CHAIN))
            return Phase(Work(**work), Chain(**chain))

        return tuple(tuple(map(phase, steps)) for steps in found.values())

    def refetched_bytes(self, device: Device) -> Any:
        """Bytes that would be read from DRAM if L2 kept nothing from one wave of CTAs to the next."""
        return self._dram_read(device, 0)

    def crowded_bytes(self, device: Device) -> Any:
        """Bytes that are passed over again and come from L2, each pass times how full of them L2 is in between."""
        kept = device.l2_near_bytes
        return sum(np.where(moved > kept, 0, again * (moved / kept)) for moved, again in self._passed_again(device))

    def _passed_again(self, device: Device) -> Iterator[tuple[Any, Any]]:
        """Of each further pass: the bytes that pass through L2 between two passes, and those that are read again."""
        v = self.by_name
        passes = sum(name.endswith(".distance") for name in v) if "locality" in self.counts.heuristics else 0
        ctas = np.minimum(self._at_a_time(device), v["ctas"]) if passes else 0
        for number in range(passes):
            yield ctas * v[f"again{number}.distance"], v[f"again{number}.bytes"]

    def _at_a_time(self, device: Device) -> Any:
        """CTAs that run at a time, by threads, registers and shared memory: what bounds how far apart reuse is."""
        v = self.by_name
        smem = np.maximum(v["smem"] + device.reserved_smem_bytes_per_block, device.smem_alloc_granularity_bytes)
        per_sm = np.minimum(device.max_threads_per_sm // v["threads"], device.max_smem_bytes_per_sm // smem)
        per_sm = np.minimum(per_sm, device.registers_per_sm // (v["registers"] * v["threads"]))
        return device.sms_of_clusters(v["cluster"]) * np.maximum(per_sm, 1)

    def _dram_read(self, device: Device, kept_bytes: int) -> Any:
        """Panels of a grid with two axes, and what a CTA passes over again, are read again when L2 forgot them;
        everything else is read once.

        kept_bytes  of L2, for data that all SMs read
        """
        v, counts = self.by_name, self.counts
        if "locality" not in counts.heuristics:
            return v["compulsory"] - v["written"]
        once = v["read_once"]
        for moved, again in self._passed_again(device):
            once = once + np.where(moved > kept_bytes, again, 0)
        if not counts.program_has_panels:
            return once
        panels = dram_read_bytes(
            kept_bytes,
            v["row_panel"],
            v["column_panel"],
            v["tile_bytes"],
            v["tiles0"],
            v["tiles1"],
            v["group"],
            self._at_a_time(device),
        )
        return panels * v["groups"] + once
