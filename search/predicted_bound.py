"""Lower bounds of the predicted time of whole regions of a machine's candidates: what branch and bound prunes with.

A region with few candidates is listed and predicted, which is exact. A larger one is relaxed, in three steps; each of
them only lowers the bound.

1. The predictor never says less than launching plus one of these: what the busiest SM does, its share of the CTAs at
   the rate of one unit; one CTA alone with the latencies that it waits for in series; the traffic of DRAM; the tensor
   rate that the part sustains. How these add up, drift and wait for each other is left out.
2. Each of them is bounded by itself: each may take its least at another point of the region.
3. Each amount of work is bounded over the values that the region leaves open, whether constraints admit their
   combination or not: exactly, by evaluating every combination of the parameters that the amount depends on, or by
   interval arithmetic where there are too many combinations.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval
from tinygpu.cost.counts import Counts
from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.rates import Rates
from tinygpu.devices import Device
from tinygpu.expressions import Expr, ceil_div, compile_arrays, compile_with, where
from tinygpu.search.bounded import Region
from tinygpu.search.searchable import Columns, Value
from tinygpu.spaces.build import MachineSpace

# A region of up to so many candidates is listed and predicted; the regions inside it then cost next to nothing.
_LISTED = 4_096
_BLOCKS_KEPT = 64
# Combinations of values over which an amount is evaluated; beyond, intervals bound it.
_COMBINATIONS = 1 << 14


class PredictedBound:
    """From a region of a machine's candidates to seconds that no admitted candidate in it is predicted below.

    score  predicted seconds of candidates, by columns
    """

    def __init__(self, space: MachineSpace, score: Callable[[Columns], NDArray[np.float64]]) -> None:
        self._space = space
        self._score = score
        self._relaxed: dict[int, _Relaxation] = {}
        self._blocks: deque[_Block] = deque(maxlen=_BLOCKS_KEPT)

    def __call__(self, region: Region) -> float:
        """Seconds; infinity where no candidate in the region can be launched."""
        for block in self._blocks:
            if block.holds(region):
                return block.least(region)
        if self._space.space.count(region) <= _LISTED:
            self._blocks.appendleft(self._listed(region))
            return self._blocks[0].least(region)
        found = [
            self._relaxation(index).seconds(region)
            for index, structure in enumerate(self._space.structures)
            if all(label in region[name] for name, label in structure)
        ]
        return min(found, default=math.inf)

    def _listed(self, region: Region) -> _Block:
        region = dict(region)
        parts = [columns for _, columns in self._space.space.restrict(region).columns_by_part()]
        parts = [columns for columns in parts if len(next(iter(columns.values())))]
        if not parts:
            return _Block(region, {name: np.zeros(0) for name in region}, np.zeros(0))
        columns = {name: np.concatenate([columns[name] for columns in parts]) for name in region}
        return _Block(region, columns, np.concatenate([self._score(columns) for columns in parts]))

    def _relaxation(self, index: int) -> _Relaxation:
        if index not in self._relaxed:
            axes = frozenset(self._space.traces[index].axes)
            self._relaxed[index] = _Relaxation(
                self._space.counts(index), axes, self._space.environment, self._space.device
            )
        return self._relaxed[index]


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """The candidates of a small region, predicted."""

    region: Region
    columns: Columns
    seconds: NDArray[np.float64]

    def holds(self, region: Region) -> bool:
        """Whether a region lies inside this one."""
        return all(set(region[name]) <= set(values) for name, values in self.region.items())

    def least(self, region: Region) -> float:
        inside = np.ones(len(self.seconds), dtype=np.bool_)
        for name, values in region.items():
            if len(values) < len(self.region[name]):
                inside &= np.isin(self.columns[name], list(values))
        return float(np.min(self.seconds[inside], initial=math.inf))


class _Relaxation:
    """The work of one structure as expressions, and how fast the device gets it done."""

    def __init__(self, counts: Counts, axes: frozenset[str], environment: Mapping[str, int], device: Device) -> None:
        self._device = device
        named = dict(zip(counts.names, counts.expressions, strict=True))

        def amount(expression: Expr) -> _Amount:
            return _Amount(expression, axes, environment)

        def per_cta(kind: str) -> Expr:
            return (
                named[f"prologue.{kind}"] + named["iterations"] * named[f"iteration.{kind}"] + named[f"epilogue.{kind}"]
            )

        def on_busiest_sm(kind: str) -> Expr:
            whole = ceil_div(named["ctas"], device.sm_count) * per_cta(kind)
            return where(named["even"] == 1, named["ctas"] * per_cta(kind) // device.sm_count, whole)

        def waited(kind: str) -> Expr:
            """Products that go on while the next are asked for hide what rounds wait for."""
            hidden = counts.path != "mma.sync"
            return named[f"prologue.{kind}"] + named[f"epilogue.{kind}"] if hidden else per_cta(kind)

        works = [f.name for f in fields(Work)]
        # CTAs that share tiles evenly may do less than one each
        self._alone = {kind: amount(where(named["even"] == 1, 0, per_cta(kind))) for kind in works}
        self._busiest = {kind: amount(on_busiest_sm(kind)) for kind in works}
        self._flops = amount(named["ctas"] * (per_cta("tensor_flops") - per_cta("idle_flops")))
        # CTAs that take tile after tile hide the latencies of one tile behind the work of the next
        persistent = counts.program.grid.scheduler.persistent
        self._chain = {} if persistent else {f.name: amount(waited(f.name)) for f in fields(Chain)}
        # what panels read again is left out: the predictor says how much of it L2 forgets
        traffic = named["read_once"] + named["written"] if "locality" in counts.heuristics else named["compulsory"]
        self._traffic_bytes = amount(traffic)
        demand = Demand(
            ctas=1,
            threads_per_cta=32,
            registers_per_thread=0,
            smem_bytes_per_cta=0,
            iteration=Phase(Work(tensor_flops=int(bool(counts.operand)))),
            operand=counts.operand or "f16",
            accumulator=counts.accumulator or "f32",
            tensor_path=counts.path,
        )
        self._rates = Rates.of(device, demand)
        self._l2_cycles = self._rates.memory_cycles(demand)

    def seconds(self, region: Region) -> float:
        def units_s(amounts: Mapping[str, _Amount]) -> float:
            work = Work(**{name: amount.least(region) for name, amount in amounts.items()})
            return max(float(seconds) for seconds in self._rates.unit_s(work).values())

        chain = Chain(**{name: amount.least(region) for name, amount in self._chain.items()})
        flops = np.asarray(self._flops.least(region))
        running = (
            units_s(self._busiest),
            units_s(self._alone) + float(self._rates.chain_s(chain, self._l2_cycles)),
            self._traffic_bytes.least(region) / self._device.dram_bytes_per_s,
            # the clock falls least where the tensor cores are always busy: for the shortest of all times
            float(self._rates.throttled_s(flops, np.asarray(np.finfo(np.float64).tiny))),
        )
        return self._device.number("launch_overhead_graph_us") * 1e-6 + max(running)


class _Amount:
    """The least value of an expression over a region; remembered, because most parameters stay as they are."""

    def __init__(self, expression: Expr, axes: frozenset[str], environment: Mapping[str, int]) -> None:
        self._symbols = sorted(expression.symbols & axes)
        self._environment = environment
        self._arrays = compile_arrays(expression)
        self._intervals = compile_with(INTERVAL_NAMES, expression)
        self._known: dict[tuple[tuple[Value, ...], ...], float] = {}

    def least(self, region: Region) -> float:
        key = tuple(tuple(region[name]) for name in self._symbols)
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def _find(self, values: tuple[tuple[Value, ...], ...]) -> float:
        offered = [np.array([int(value) for value in one], dtype=np.int64) for one in values]
        if math.prod(map(len, offered)) <= _COMBINATIONS:
            mesh = np.meshgrid(*offered, indexing="ij") if offered else []
            cells = {name: grid.ravel() for name, grid in zip(self._symbols, mesh, strict=True)}
            # combinations that no constraint admits may divide by zero; they can only lower the least value
            with np.errstate(all="ignore"):
                found = float(np.min(self._arrays({**self._environment, **cells})[0]))
        else:
            ranges = {n: Interval(int(v.min()), int(v.max())) for n, v in zip(self._symbols, offered, strict=True)}
            bounds = self._intervals({**self._environment, **ranges})[0]
            found = float(bounds.lo if isinstance(bounds, Interval) else bounds)
        return max(found, 0.0)
