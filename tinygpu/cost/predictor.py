"""The first predictor of time: a Demand on a Device gives seconds, the busy time of each unit, and the bottleneck.

The model, in the order of the code (docs/predictor.md explains each step):

1. occupancy gives the CTAs that share an SM; the grid runs in waves of that many on every SM, the last one partly full;
2. a phase takes as long as its busiest unit for all resident CTAs, or as long as one CTA needs alone, latencies
   included: its own busiest unit, then what it waits for in series, and Little's law for the global bytes under way.
   Groups of warps take turns between tensor cores and lanes, where a loop has work for both (`turns.py`); where slots
   of sums go around between these, a round takes no less than one of them takes to go around;
3. in all waves but the last the resident CTAs drift apart: one computes while another waits, as customers of a queue
   with one server; in the last one they run in step;
4. tensor work gets no more than what the part sustains: its power lowers the clock, or holds the tensor cores back;
5. launching costs what the device's data says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import Chain, Demand, TensorPath, Work
from tinygpu.cost.occupancy import Occupancy, occupancy
from tinygpu.cost.rates import Rates, Times, highest
from tinygpu.cost.turns import in_turns
from tinygpu.devices import Device

Launch = Literal["graph", "stream"]

# What may bound a kernel, in the words of its sentence.
UNITS: Mapping[str, str] = {
    "tensor": "tensor cores",
    "fma": "FMA lanes",
    "alu": "integer lanes",
    "sfu": "special function units",
    "issue": "instruction issue",
    "smem": "shared memory",
    "l2": "L2",
    "dram": "DRAM",
}
CAUSES: Mapping[str, str] = {
    **UNITS,
    "latency": "latency",
    "tail": "partly filled last wave",
    "power": "power limit",
    "launch": "launch overhead",
}


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predicted times; every array has the shape of the candidates.

    seconds      predicted time of the launch; infinite where the launch is refused. It is the sum of the busy time of
                 the busiest unit and of the next four
    latency_s    time in which no unit is the limit: CTAs wait, and too few others fill in
    tail_s       time lost because the last wave does not fill the device
    power_s      time lost because the part does not sustain its full tensor rate
    launch_s     launch overhead
    busy_s       unit -> seconds that it would need alone, its work spread evenly over the device
    reads_s      least time in which the loops' data comes with so much of it under way at a time (Little's law); part
                 of the latency where it is longer than the work, hidden where it is shorter
    handovers_s  what the rounds of loops wait for in series, whether products hide it or not
    roofline_s   least time of the problem: useful tensor work at the datasheet's peak, or compulsory DRAM traffic
    waves        CTAs over the CTAs that run at a time
    occupancy    resident CTAs and what limits them
    device       name of the device
    """

    seconds: Times
    latency_s: Times
    tail_s: Times
    power_s: Times
    launch_s: Times
    busy_s: Mapping[str, Times]
    reads_s: Times
    handovers_s: Times
    roofline_s: Times
    waves: Times
    occupancy: Occupancy
    device: str

    @property
    def share_of_roofline(self) -> Times:
        """Roofline time over predicted time, 0 to 1; 0 where the launch is refused."""
        return np.asarray(self.roofline_s / self.seconds, dtype=np.float64)

    @property
    def best(self) -> int:
        """Index (into the flattened candidates) of the shortest time; the first of equals."""
        return int(np.argmin(self.seconds))

    def breakdown(self, index: int = 0) -> dict[str, float]:
        """Seconds of each of CAUSES for one candidate (flat index): busy times of the units, and what is lost."""
        found = {key: float(self.busy_s[key].flat[index]) for key in UNITS}
        lost = {"latency": self.latency_s, "tail": self.tail_s, "power": self.power_s, "launch": self.launch_s}
        return found | {key: float(times.flat[index]) for key, times in lost.items()}

    def bottleneck(self, index: int = 0) -> str:
        """The key in CAUSES of what takes most of one candidate's time (flat index); "refused" if it cannot launch."""
        if not np.isfinite(self.seconds.flat[index]):
            return "refused"
        causes = self.breakdown(index)
        return max(causes, key=lambda key: causes[key])

    def sentence(self, index: int = 0) -> str:
        """The bottleneck of one candidate (flat index) in words: "tensor cores, 83 % busy; DRAM 41 %, L2 38 %"."""
        first = self.bottleneck(index)
        if first == "refused":
            return f"the launch is refused: it exceeds the limits of a CTA on {self.device}"
        total = float(self.seconds.flat[index])
        causes = self.breakdown(index)
        units = sorted((key for key in UNITS if key != first and causes[key] > 0), key=lambda key: -causes[key])
        others = ", ".join(f"{CAUSES[key]} {100 * causes[key] / total:.0f} %" for key in units[:2])
        head = f"{CAUSES[first]}, {100 * causes[first] / total:.0f} % {'busy' if first in UNITS else 'of the time'}"
        return f"{head}; {others}" if others else head


def predict(device: Device, demand: Demand, *, launch: Launch = "graph") -> Prediction:
    """Predicted time of one launch for every candidate of `demand`.

    launch  "graph": launches follow each other in a CUDA graph; "stream": queued one by one

    Raises ValueError where the device has no such tensor path.
    """
    shape = demand.shape
    resident = occupancy(
        device, _whole(demand.threads_per_cta), _whole(demand.registers_per_thread), _whole(demand.smem_bytes_per_cta),
        _whole(demand.tmem_bytes_per_cta),
    )
    rates = Rates.of(device, demand)
    sms, per_sm = rates.sms, np.maximum(resident.ctas_per_sm, 1)
    ctas = np.asarray(demand.ctas, dtype=np.float64)

    # 1. Waves: `full` of them have per_sm CTAs on every SM; the last has `rest` CTAs, `last` on the busiest SM.
    slots = per_sm * sms
    # Where CTAs share tiles so that all do the same, the last wave is full, and the others are as many as it takes.
    even = np.asarray(demand.even) > 0
    waves = np.where(even, np.maximum(ctas / slots, 1 / np.maximum(demand.iterations, 1)), np.ceil(ctas / slots))
    full = np.maximum(waves - 1, 0)
    part = np.minimum(waves, 1)  # of a tile's rounds, that each CTA of the last wave does
    rest = np.where(even, slots, ctas - full * slots)
    last = np.ceil(rest / sms)

    # 2. Work of each phase: seconds of one SM (of the whole device for DRAM) per CTA, by unit.
    count = np.asarray(demand.iterations, dtype=np.float64)
    works = _works(demand)
    unit_s = [rates.unit_s(work) for work in works]
    brought_s, stored_s = _dram_by_phase(demand, works, ctas, device.dram_bytes_per_s)
    dram_s = brought_s[0] + stored_s[0], brought_s[1] + stored_s[1], brought_s[2] + stored_s[2]
    warps = np.maximum(resident.warps_per_cta, 1)

    circulating = np.asarray(demand.circulating) > 0

    def busy_with(units: Mapping[str, Times], together: Times) -> _Busy:
        """What so many resident CTAs keep the units of an SM busy with."""
        # Fewer warps than schedulers leave schedulers, and their tensor cores and lanes, idle.
        idle = np.maximum(1.0, device.warp_schedulers_per_sm / (warps * together))
        split = [units[key] * idle for key in _PER_SCHEDULER]
        fed_s = np.asarray(together * contended([*split, units["smem"]], demand.tensor_path), dtype=np.float64)
        return _Busy(units, fed_s, np.asarray(np.maximum(fed_s, together * units["l2"]), dtype=np.float64))

    def turns_s(together: Times) -> Times:
        """Seconds of the loop's products, with those in which groups of warps of such CTAs wait for each other."""
        tensor_s, groups = unit_s[1]["tensor"], groups_of(device, demand, warps, together)
        return np.where(circulating, tensor_s, in_turns(tensor_s, lanes_of(unit_s[1]), groups))

    def turned(units: Mapping[str, Times], taken_s: Times) -> Mapping[str, Times]:
        """The same units, the tensor cores busy also while groups of warps wait for each other in the loop."""
        return {**units, "tensor": units["tensor"] + taken_s - unit_s[1]["tensor"]}

    once = np.ones(())
    summed = {key: unit_s[0][key] + unit_s[1][key] + unit_s[2][key] for key in unit_s[0]}
    once_s = turns_s(once)
    first, loop, ending = (busy_with(units, once) for units in unit_s)
    loop_in_turns = busy_with(turned(unit_s[1], once_s), once)
    memory = rates.memory_cycles(demand)
    chains_s = (
        rates.chain_s(demand.prologue.chain, memory),
        rates.chain_s(demand.iteration.chain, memory) * count,
        rates.chain_s(demand.epilogue.chain, memory),
    )
    # Where groups take turns within a tile, one waits while the others work: only what is left of that shows.
    apart_s = (unit_s[1]["tensor"] + lanes_of(unit_s[1])) / groups_of(device, demand, warps, once) + chains_s[1]
    shown_s = np.maximum(apart_s - loop_in_turns.busiest_s, 0)
    chains_s = chains_s[0], np.where(np.asarray(demand.in_turn) > 0, shown_s, chains_s[1]), chains_s[2]
    # A slot goes around: its products, what warps do with it step by step, latencies. Slots beside it hide that.
    # Where the next sums are made before what warps make of these is multiplied, warps go on while products do.
    its_own_s = np.where(np.asarray(demand.scored_ahead) > 0, 0.0, unit_s[1]["tensor"])
    around_s = its_own_s / np.maximum(demand.circulating, 1) + count * row_s(rates, demand, memory)
    shown_s = np.maximum(around_s - loop.busiest_s, 0)
    chains_s = chains_s[0], np.where(circulating, shown_s, chains_s[1]), chains_s[2]
    # Where the next round's products are asked for while these go on, what that waits for shows beyond these alone.
    waited_s = chains_s[1]
    shown_s = np.maximum(waited_s - loop_in_turns.busiest_s, 0)
    chains_s = chains_s[0], np.where(np.asarray(demand.ahead) > 0, shown_s, waited_s), chains_s[2]
    # Loads of a round queue up behind what the one before has stored; data that come ahead were asked for before it.
    asked_s = rates.l2_s(works[1].sectors_read, works[1].accesses_read)
    comes_ahead = np.asarray(demand.prefetch_iterations) > 0
    by_l2_s = np.where(comes_ahead, asked_s, unit_s[1]["l2"])
    by_dram_s = np.where(comes_ahead, brought_s[1], dram_s[1])
    shared_s = np.maximum(by_l2_s, by_dram_s * np.minimum(ctas, sms))
    # What holds its place until it was used has its use in the time until it comes (`Rates.reads_s`).
    waits = (np.asarray(demand.prefetch_iterations) == 0) & (np.asarray(demand.held) == 0)
    persistent = np.asarray(demand.persistent) > 0
    # Which tile it has, every role of a persistent CTA looks up for each, before its rounds.
    before, trips = demand.prologue.chain, np.asarray(demand.prologue.chain.global_loads) - 1
    looked_up = Chain(global_loads=np.maximum(trips, 0), smem_loads=before.smem_loads)
    looks_s = np.where(persistent & comes_ahead & (trips > 0), rates.chain_s(looked_up, memory), 0)
    turns = np.asarray(demand.turns)
    dram_whole_s = dram_s[0] + dram_s[1] + dram_s[2]

    def by_itself(loop: _Busy, whole: _Busy) -> _Alone:
        """A CTA that has the SM to itself, with these times of its loop's units, and of those of all phases."""
        alone = [busy.busiest_s + chain for busy, chain in zip((first, loop, ending), chains_s, strict=True)]
        used_s = loop.fed_s + chains_s[1]
        # Products alone hold what was brought where their sums go around: what warps do with these holds none of it.
        held_s = np.where(circulating, loop.units["tensor"], loop.fed_s + waited_s)
        reads_s = rates.reads_s(demand, memory, shared_s, held_s)
        alone[1] = np.where(waits, np.maximum(used_s + reads_s, alone[1]), np.maximum(alone[1], reads_s))
        # A persistent CTA asks for a tile's data while it finishes the tile before; turns overlap that with the next.
        moved_s = np.maximum(reads_s, whole.busiest_s)
        # Which tile is next it asks where it begins one: a tile takes as long as the answer at least.
        moved_s = np.maximum(moved_s, rates.answer_s(demand))
        rounds_s = looks_s + used_s
        tile_s = np.maximum(np.maximum(rounds_s, (rounds_s + alone[2]) / turns), moved_s)
        tile_s = np.maximum(tile_s, np.asarray(demand.one_stores) * alone[2])
        # The last tile is stored behind its loop, whose data have come by then: ahead of time only as far as tiles
        # before it took longer than their data.
        ahead_s = full * np.maximum(tile_s - reads_s, 0)
        last_tile_s = np.maximum(np.maximum(rounds_s, alone[1] - ahead_s) + alone[2], whole.busiest_s)
        last_tile_s = np.maximum(last_tile_s, rates.answer_s(demand))
        lone_s = np.where(persistent, tile_s, alone[0] + alone[1] + alone[2])
        return _Alone((alone[0], alone[1], alone[2]), reads_s, tile_s, last_tile_s, lone_s)

    own = by_itself(loop_in_turns, busy_with(turned(summed, once_s), once))
    alone, reads_s = own.phases_s, own.reads_s

    # 3. Waves before the last overlap the phases of CTAs that share an SM; the last one starts and ends in step.
    def in_step(together: Times, taken_s: Times, running: Times, tile_s: Times) -> Times:
        def one_by_one() -> Times:
            units = (unit_s[0], turned(unit_s[1], taken_s), unit_s[2])
            spans = [
                np.maximum(np.maximum(busy_with(u, together).busiest_s, d * running), a)
                for u, d, a in zip(units, dram_s, alone, strict=True)
            ]
            return np.asarray(spans[0] + spans[1] + spans[2], dtype=np.float64)

        def tile_by_tile() -> Times:
            whole_s = busy_with(turned(summed, taken_s), together).busiest_s
            return np.asarray(np.maximum(np.maximum(whole_s, dram_whole_s * running), tile_s), dtype=np.float64)

        return _either(persistent, tile_by_tile, one_by_one)

    all_ctas = per_sm.astype(np.float64)
    all_s = turns_s(all_ctas)

    def drifting() -> Times:
        served = busy_with(turned(summed, all_s), all_ctas).busiest_s / per_sm
        # What the groups of one CTA wait for each other is no time away: those of the others are served meanwhile.
        lone_s = by_itself(loop, busy_with(summed, once)).lone_s
        away = np.maximum(lone_s - busy_with(summed, all_ctas).busiest_s / per_sm, 0)
        return np.asarray(np.maximum(_shared(per_sm, served, away), dram_whole_s * slots), dtype=np.float64)

    wave = _either(per_sm > 1, drifting, lambda: in_step(all_ctas, all_s, slots.astype(np.float64), own.tile_s))
    # However few of its rounds a CTA does, it finishes a tile.
    final = part * in_step(last, turns_s(last), rest, own.last_tile_s) + (1 - part) * alone[2]
    ends_s = np.where(persistent, alone[0], 0)
    waves_s = np.maximum(full * wave + final + ends_s, rates.handed_on_s(demand, np.asarray(slots, dtype=np.float64)))

    # 4. Power. Spread evenly, the busiest unit bounds the launch from below.
    busy = {key: summed[key] * ctas / sms for key in summed}
    busy["dram"] = (dram_s[0] + dram_s[1] + dram_s[2]) * ctas
    most = highest([busy[key] for key in UNITS])
    unthrottled = np.maximum(waves_s, most)
    lanes_s = np.where(circulating, 0, lanes_of(unit_s[1]) * ctas / sms)
    groups = groups_of(device, demand, warps, np.minimum(per_sm, np.ceil(ctas / sms)))
    switching = ctas * np.maximum(np.subtract(demand.total.tensor_flops, demand.total.idle_flops), 0)
    running = np.maximum(unthrottled, rates.throttled_s(switching, unthrottled, lanes_s, groups))

    # 5. Launch, and the share of each cause: running = most + tail + latency + power.
    launch_s = np.asarray(device.number(f"launch_overhead_{launch}_us") * 1e-6)
    tail = np.clip(final - wave * rest / slots, 0, unthrottled - most)
    fits = resident.launchable & (resident.ctas_per_sm > 0)

    def spread(times: Times) -> Times:
        return np.broadcast_to(np.asarray(times, dtype=np.float64), shape)

    return Prediction(
        seconds=spread(np.where(fits, launch_s + running, np.inf)),
        latency_s=spread(unthrottled - most - tail),
        tail_s=spread(tail),
        power_s=spread(running - unthrottled),
        launch_s=spread(launch_s),
        busy_s={key: spread(busy[key]) for key in UNITS},
        reads_s=spread(reads_s * ctas / slots),
        handovers_s=spread(waited_s * ctas / slots),
        roofline_s=spread(rates.roofline_s(demand, ctas)),
        waves=spread(ctas / slots),
        occupancy=resident,
        device=device.name,
    )


@dataclass(frozen=True, slots=True)
class _Busy:
    """What CTAs that share an SM keep its units busy with.

    units      unit -> seconds, of one CTA
    fed_s      seconds that the units of the SM itself need for all of them
    busiest_s  the same of all units, L2 among them
    """

    units: Mapping[str, Times]
    fed_s: Times
    busiest_s: Times


def _either(condition: NDArray[np.bool_], then: Callable[[], Times], otherwise: Callable[[], Times]) -> Times:
    """Either of two times for each candidate; one that no candidate asks for is not worked out."""
    if condition.all():
        return then()
    return np.where(condition, then(), otherwise()) if condition.any() else otherwise()


@dataclass(frozen=True, slots=True)
class _Alone:
    """Seconds of a CTA that has the SM to itself.

    phases_s            before, in and after its loop, latencies included
    reads_s             until the loop's data has come
    tile_s, last_tile_s  of a persistent CTA's tiles, and of its last one
    lone_s              of all
    """

    phases_s: tuple[Times, Times, Times]
    reads_s: Times
    tile_s: Times
    last_tile_s: Times
    lone_s: Times


# Units of which every scheduler of an SM has its own part.
_LANES = ("fma", "alu", "sfu")
_PER_SCHEDULER = ("tensor", *_LANES, "issue")


def lanes_of(units: Mapping[str, Times]) -> Times:
    """Seconds of a group's work on lanes: what it does there has its parts in a row."""
    return np.asarray(units["fma"] + units["alu"] + units["sfu"], dtype=np.float64)


def groups_of(device: Device, demand: Demand, warps: Times, together: Times) -> Times:
    """Groups of warps, one warp on each scheduler, of `together` resident CTAs; of those that multiply."""
    each = np.where(np.asarray(demand.multiplying_warps) > 0, demand.multiplying_warps, warps)
    return np.asarray(np.maximum(each * together / device.warp_schedulers_per_sm, 1), dtype=np.float64)


def row_s(rates: Rates, demand: Demand, memory_cycles: Times) -> Times:
    """Seconds of one round of the role whose steps take longest, one after the other: each its busiest unit's, and
    what it waits for in series.
    """
    longest = np.zeros(())
    for row in demand.rows:
        whole = np.zeros(())
        for step in row:
            units = rates.unit_s(step.work)
            whole = whole + highest([units[key] for key in (*_LANES, "issue", "smem")])
            whole = whole + rates.chain_s(step.chain, memory_cycles)
        longest = np.maximum(longest, whole)
    return np.asarray(longest, dtype=np.float64)


# How far units that the same warps feed get into each other's way (`contended`). With 10, two units that are equally
# busy take 7 % longer than one. On measured times: best library products on A100, and ranks of 17,956 candidates of one
# product on RTX 2080 Ti (docs/predictor.md).
CONTENTION = 10


def contended(units: list[Times], path: TensorPath) -> Times:
    """Seconds in which several units get their work done side by side; at least those of the busiest.

    Where a warp itself loads, computes and stores, units that are nearly as busy as the busiest one delay it now and
    then: the 10-norm of their times. wgmma and tcgen05 read shared memory without the warps, and lose nothing.
    """
    most = highest(units)
    if path != "mma.sync":
        return most
    scale = np.where(most > 0, most, 1.0)
    # idle units add nothing, and powers cost
    summed = sum((unit / scale) ** CONTENTION for unit in units if unit.any())
    return np.asarray(most * np.maximum(summed, 1.0) ** (1 / CONTENTION), dtype=np.float64)


def _works(demand: Demand) -> tuple[Work, Work, Work]:
    """Work of a CTA before, in and after its loop. A pipeline fetches its first tile before the loop can begin."""
    iteration, fetched = demand.iteration.work, np.minimum(demand.prefetch_iterations, 1)
    left = np.subtract(demand.iterations, fetched)
    first = Work(
        sectors_read=np.multiply(iteration.sectors_read, fetched),
        accesses_read=np.multiply(iteration.accesses_read, fetched),
    )
    loop = replace(
        demand.iterations * iteration,
        sectors_read=np.multiply(iteration.sectors_read, left),
        accesses_read=np.multiply(iteration.accesses_read, left),
    )
    return demand.prologue.work + first, loop, demand.epilogue.work


def _dram_by_phase(
    demand: Demand, works: tuple[Work, Work, Work], ctas: Times, bytes_per_s: float
) -> tuple[list[Times], list[Times]]:
    """Seconds of DRAM per CTA in each phase, for what is read and what is written: shared out by the sectors of the
    phases.
    """

    def share(sectors: list[Times], default: int) -> list[Times]:
        total = sectors[0] + sectors[1] + sectors[2]
        none = total == 0
        return [np.where(none, float(i == default), s / np.where(none, 1, total)) for i, s in enumerate(sectors)]

    reads = share([np.asarray(work.sectors_read, dtype=np.float64) for work in works], 1)
    writes = share([np.asarray(work.sectors_written, dtype=np.float64) for work in works], 2)
    read_s = np.asarray(demand.dram_bytes_read) / bytes_per_s / ctas
    write_s = np.asarray(demand.dram_bytes_written) / bytes_per_s / ctas
    return [read_s * share for share in reads], [write_s * share for share in writes]


def _shared(customers: NDArray[np.int64], served: Times, away: Times) -> Times:
    """Seconds in which each of the CTAs that share an SM gets done once.

    Each CTA needs the SM's busiest unit for `served` seconds, and is away from it for `away` seconds, in no particular
    order: a closed queue with one server. Source: mean value analysis, Reiser and Lavenberg, J. ACM 27 (1980).
    """
    queue: Times = np.zeros(np.broadcast_shapes(customers.shape, served.shape, away.shape))
    cycle: Times = served + away
    number = 0
    while (here := number < customers).any():
        number += 1
        response = served * (1 + queue)
        total = np.where(here, response + away, 0)
        cycle = np.where(here, total, cycle)
        queue = np.where(here, number * response / np.where(total > 0, total, 1), queue)
    return np.asarray(cycle, dtype=np.float64)


def _whole(value: object) -> NDArray[np.int64]:
    array = np.asarray(value)
    whole: NDArray[np.int64] = np.ceil(array).astype(np.int64)
    return whole
