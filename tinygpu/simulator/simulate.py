"""Simulates one candidate: its script and demand on a device give a time, what was busy, and who waited for what.

The busiest SM is simulated, event by event. The predictor (`tinygpu.cost.predictor`) gives the time of the same demand
in closed form, for thousands of candidates at once; docs/dojo.md says how far the two may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinygpu.cost.demand import Chain, Demand, Work
from tinygpu.cost.occupancy import Occupancy
from tinygpu.cost.operations import CHAIN, WORK
from tinygpu.cost.predictor import CAUSES, Launch, Prediction, contended, predict
from tinygpu.cost.rates import Rates
from tinygpu.devices import Device
from tinygpu.program.groups import groups
from tinygpu.program.statement import Body, Statement
from tinygpu.simulator import engine
from tinygpu.simulator.plan import PER_SCHEDULER, SERVERS, Plan, RolePlan, Run, Span, Stretch
from tinygpu.simulator.script import Asked, Part, Script
from tinygpu.simulator.stop import Stops

# Steps that are simulated at most; of longer launches a few waves are, and the ones between are taken to be alike.
MOST_EVENTS = 150_000


@dataclass(frozen=True, slots=True)
class Simulation:
    """Predicted by simulation, never measured. Times in seconds.

    seconds      the launch, with overhead and power
    sm_s         of the busiest SM alone, without both
    power_s      lost because the part does not sustain its full tensor rate
    launch_s     launch overhead
    busy_s       unit of the SM -> how long it was in use (L2 and DRAM: the SM's share of them)
    roles_s      role -> what it did or waited for -> seconds, over all CTAs that were simulated
    spans        the beginning of the timeline
    drawn_s      until when its spans are all there
    prediction   the predictor's answer for the same demand
    waves        waves of CTAs (tiles of a CTA, where CTAs are persistent) that the SM runs
    simulated    how many of them were simulated; the others are taken to be like the last of these
    device       name of the device
    """

    seconds: float
    sm_s: float
    power_s: float
    launch_s: float
    busy_s: Mapping[str, float]
    roles_s: Mapping[str, Mapping[str, float]]
    spans: tuple[Span, ...]
    drawn_s: float
    prediction: Prediction
    waves: int
    simulated: int
    device: str

    @property
    def occupancy(self) -> Occupancy:
        return self.prediction.occupancy

    @property
    def share_of_roofline(self) -> float:
        """Roofline time over simulated time."""
        return float(self.prediction.roofline_s) / self.seconds if math.isfinite(self.seconds) else 0.0

    @property
    def busiest(self) -> str:
        """The unit that was in use longest."""
        return max(SERVERS, key=lambda unit: self.busy_s.get(unit, 0.0))

    def sentence(self) -> str:
        """The bottleneck in words."""
        if not math.isfinite(self.seconds):
            return f"the launch is refused: it exceeds the limits of a CTA on {self.device}"
        order = sorted(SERVERS, key=lambda unit: -self.busy_s[unit])
        shares = {unit: self.busy_s[unit] / self.sm_s for unit in order}
        lost = {"power": self.power_s, "launch": self.launch_s}
        first = max(lost, key=lambda cause: lost[cause])
        if lost[first] > self.sm_s:
            return f"{CAUSES[first]}, {lost[first] / self.seconds:.0%} of the time".replace("%", " %")
        busy = ", ".join(f"{CAUSES[unit]} {100 * shares[unit]:.0f} %" for unit in order[1:3] if shares[unit] > 0)
        head = f"{CAUSES[order[0]]}, {100 * shares[order[0]]:.0f} % busy"
        if shares[order[0]] < LATENCY_BOUND:
            head = f"latency; the busiest unit is {CAUSES[order[0]]} with {100 * shares[order[0]]:.0f} % of the time"
        return "; ".join(part for part in (head, busy, self._longest_wait()) if part)

    def _longest_wait(self) -> str:
        waits = [
            (seconds, role, label)
            for role, parts in self.roles_s.items()
            for label, seconds in parts.items()
            if label.startswith("waits for")
        ]
        total = {role: sum(parts.values()) for role, parts in self.roles_s.items()}
        if not waits:
            return ""
        seconds, role, label = max(waits)
        return f"{role} {label} {100 * seconds / total[role]:.0f} % of its time"


# Below this share of the time no unit is called the bottleneck.
LATENCY_BOUND = 0.5


def simulate(
    device: Device,
    script: Script,
    demand: Demand,
    values: Mapping[str, Any],
    *,
    extra_wavefronts: float = 0.0,
    launch: Launch = "graph",
    keep: int = 0,
) -> Simulation:
    """Simulates the launch of one candidate.

    demand            of the same candidate: its grid, what it needs of an SM, its DRAM traffic
    values            parameters, dims and tensor facts, as numbers
    extra_wavefronts  per round of the main loop, from bank conflicts; contained in `demand`
    keep              spans of the timeline to keep

    Raises ValueError where the device has no such tensor path, or the demand is one of several candidates.
    """
    if demand.shape != ():
        raise ValueError(f"[simulator] one candidate is simulated at a time, not {math.prod(demand.shape)}")
    prediction = predict(device, demand, launch=launch)
    launch_s = float(prediction.launch_s)
    if not np.isfinite(float(prediction.seconds)):
        nothing = dict.fromkeys(SERVERS, 0.0)
        return Simulation(math.inf, 0.0, 0.0, launch_s, nothing, {}, (), 0.0, prediction, 0, 0, device.name)
    persistent = script.program.grid.scheduler.persistent
    share = _share(device, demand, persistent, int(prediction.occupancy.ctas_per_sm))
    times = _Times(
        device, script, demand, tuple(float(v) for v in script.compute(values)), extra_wavefronts, share.part
    )
    body, roles = script.program.body, tuple(times.role(part) for part in script.parts)
    turns = frozenset(p.name for p in script.program.pipelines if not p.buffers)
    waits = groups(body, frozenset(name for name, stages in times.stages.items() if stages == 1))
    events = sum(_events(body, role.stops, times) + len(role.last) for role in roles)

    def run(full: int, spans: int) -> Run:
        plan = Plan(
            roles,
            body,
            waits,
            times.trips,
            times.stages,
            turns,
            share.slots,
            share.tiles(full),
            times.latency_s,
            persistent,
            full,
            share.last_dram,
            float(Rates.of(device, demand).answer_s(demand)),
        )
        return engine.run(plan, spans)

    most = max(2, MOST_EVENTS // max(1, events * share.slots))
    full = min(share.full, most)
    done = run(full, keep)
    seconds, busy = done.seconds, dict(done.busy_s)
    more = share.full - full + share.fraction
    if more:
        short, long = (run(full - 1, 0), done) if full else (done, run(1, 0))
        seconds += more * (long.seconds - short.seconds)
        busy = {unit: busy[unit] + more * (long.busy_s[unit] - short.busy_s[unit]) for unit in busy}
    rates = Rates.of(device, demand)
    resident = int(rates.sms) * max(1, int(prediction.occupancy.ctas_per_sm))
    seconds = max(seconds, float(rates.handed_on_s(demand, np.asarray(resident))))
    switching = np.asarray(demand.ctas) * np.subtract(demand.total.tensor_flops, demand.total.idle_flops)
    sustained = max(seconds, float(rates.throttled_s(np.asarray(switching, np.float64), np.asarray(seconds))))
    return Simulation(
        seconds=launch_s + sustained,
        sm_s=seconds,
        power_s=sustained - seconds,
        launch_s=launch_s,
        busy_s=busy,
        roles_s=done.roles_s,
        spans=tuple(done.spans),
        drawn_s=done.drawn_s,
        prediction=prediction,
        waves=share.full + 1,
        simulated=full + 1,
        device=device.name,
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """What the busiest SM gets: `full` waves of `slots` CTAs, then `last` more; persistent CTAs take tiles instead.

    fraction  of a wave that comes on top: CTAs that share rounds evenly do no whole number of tiles
    part      of a tile's rounds that each of them does, where there are fewer tiles than CTAs; each finishes a tile
    """

    slots: int
    full: int
    last: int
    last_dram: float
    persistent: bool
    fraction: float = 0.0
    part: float = 1.0

    def tiles(self, full: int) -> tuple[int, ...]:
        """Tiles of each CTA that the SM runs, with so many full waves before the last one."""
        if not self.persistent:
            return (1,) * (full * self.slots + self.last)
        return tuple(t for t in (full + int(i < self.last) for i in range(self.slots)) if t)


def _share(device: Device, demand: Demand, persistent: bool, per_sm: int) -> _Share:
    ctas = int(np.ceil(np.asarray(demand.ctas)))
    sms = _sms(device, demand)
    slots = per_sm * sms
    if int(np.asarray(demand.even)):
        waves = max(ctas / slots, 1 / float(np.asarray(demand.iterations)))
        full = max(int(waves), 1) - 1
        return _Share(per_sm, full, per_sm, 1.0, persistent, max(waves - full - 1, 0), min(waves, 1))
    full = -(-ctas // slots) - 1
    rest = ctas - full * slots
    last = -(-rest // sms)
    return _Share(per_sm, full, last, rest / last / sms, persistent)


def _sms(device: Device, demand: Demand) -> int:
    """SMs on which its clusters find room."""
    return int(device.sms_of_clusters(np.asarray(demand.cluster, dtype=np.int64)))


class _Times:
    """The times of a script for one candidate: of its stretches, and the rounds of its loops."""

    def __init__(
        self,
        device: Device,
        script: Script,
        demand: Demand,
        numbers: Sequence[float],
        extra_wavefronts: float,
        part: float,
    ) -> None:
        self.script = script
        self.numbers = numbers
        self.rates = Rates.of(device, demand)
        self.demand = demand
        self.schedulers = device.warp_schedulers_per_sm
        self.divided = frozenset(PER_SCHEDULER) - ({"tensor"} if demand.tensor_path == "tcgen05" else set())
        self.latency_s = float(self.rates.memory_cycles(demand)) / self.rates.clock_hz
        self.extra = extra_wavefronts
        # Of the main loop, each CTA does its part of the rounds.
        rounds = int(np.asarray(demand.iterations))
        trips = {s: int(numbers[i]) for s, i in script.trips.items()}
        self.trips = {s: math.ceil(n * part) if n == rounds else n for s, n in trips.items()}
        self.stages = {name: int(numbers[i]) for name, i in script.stages.items()}
        ctas = float(np.asarray(demand.ctas))
        total = demand.total
        # Seconds of the SM's share of DRAM per sector that is asked of L2.
        share = int(self.rates.sms) / device.dram_bytes_per_s / ctas
        reads, writes = float(np.asarray(total.sectors_read)), float(np.asarray(total.sectors_written))
        self.read_dram_s = float(np.asarray(demand.dram_bytes_read)) * share / reads if reads else 0.0
        self.write_dram_s = float(np.asarray(demand.dram_bytes_written)) * share / writes if writes else 0.0

    def role(self, part: Part) -> RolePlan:
        # Fewer warps than schedulers leave schedulers, and their tensor cores and lanes, idle; products into tensor
        # memory have all tensor cores of the SM, whoever asks for them.
        idle = max(1.0, self.schedulers / max(1.0, self.numbers[part.warps]))
        stops = {s: stop.map(lambda asked: self.stretch(asked, idle)) for s, stop in part.stops.items()}
        last = tuple(self.stretch(asked, idle) for asked in part.last)
        strides = self._strides(stops) if part.share[1] > 1 else {}
        return RolePlan(part.role, part.share, stops, last, strides)

    def _strides(self, stops: Stops[Stretch]) -> dict[str, int]:
        """Slots of one tile, of the pipelines that the role consumes and others produce."""
        body = self.script.program.body
        produced = _slots(body, stops, self.trips, lambda inner: inner.produces)
        consumed = _slots(body, stops, self.trips, lambda inner: inner.consumes)
        own = {stop.into for stop in stops.values() if stop.is_ring}
        return {name: count for name, count in consumed.items() if name not in produced and name not in own}

    def stretch(self, asked: Asked, idle: float) -> Stretch:
        """The times of one stretch of work, by a role that leaves the schedulers idle by a factor."""
        numbers = self.numbers[asked.amounts :]
        work, chain = Work(*numbers[: len(WORK)]), Chain(*numbers[len(WORK) : len(WORK) + len(CHAIN)])
        if self.extra and asked.amounts == self.script.conflicts:
            work = work + Work(smem_load_wavefronts=self.extra)
        units = {unit: float(s) for unit, s in self.rates.unit_s(work).items() if unit != "l2" and s > 0}
        read, written = float(np.asarray(work.sectors_read)), float(np.asarray(work.sectors_written))
        read_l2_s = float(self.rates.l2_s(work.sectors_read, work.accesses_read))
        written_l2_s = float(self.rates.l2_s(work.sectors_written, work.accesses_written, work.accesses_to_one))
        near_s = 0.0
        if read:  # the first round trip is simulated
            loads, trips = (float(np.asarray(waits)) for waits in (chain.global_loads, chain.l2_trips))
            first = 0 if loads else min(trips, 1)  # is one to L2
            near_s = first * max(self.latency_s - self.rates.l2_cycles / self.rates.clock_hz, 0.0)
            chain = replace(
                chain, global_loads=0 if asked.together else max(loads - 1, 0), l2_trips=max(trips - first, 0)
            )
        slowed = [s * idle if unit in self.divided else s for unit, s in units.items()]
        return Stretch(
            asked.label,
            units,
            (read_l2_s, read * self.read_dram_s),
            (written_l2_s, written * self.write_dram_s),
            float(contended([np.asarray(s) for s in slowed], self.demand.tensor_path)) if slowed else 0.0,
            float(self.rates.chain_s(chain, self.rates.memory_cycles(self.demand))),
            near_s,
        )


def _slots(
    body: tuple[Statement, ...], stops: Stops[Any], trips: Mapping[Statement, int], side: Callable[[Body], str]
) -> dict[str, int]:
    """Pipeline -> how many of its slots a body takes; `side` names the pipeline of which one inside takes a slot."""
    out: dict[str, int] = {}
    for s in body:
        for inner in stops[s].bodies if s in stops else ():
            found = _slots(inner.statements, stops, trips, side)
            if name := side(inner):
                found[name] = found.get(name, 0) + 1
            for pipeline, count in found.items():
                out[pipeline] = out.get(pipeline, 0) + trips.get(s, 1) * count
    return out


def _events(body: tuple[Statement, ...], stops: Stops[Any], times: _Times) -> int:
    """How many steps a body is simulated in."""
    count = 0
    for s in body:
        if (stop := stops.get(s)) is None:
            continue
        inside = sum(_events(inner.statements, stops, times) for inner in stop.bodies)
        inside += sum(map(len, (*stop.ends, stop.begun)))
        if stop.is_ring:
            count += len(stop.before) + times.trips[s] * (1 + inside) + times.stages[stop.into] - 1
        else:
            hands = sum(2 for inner in stop.bodies if inner.produces or inner.consumes)
            count += len(stop.before) + len(stop.copies) + times.trips.get(s, 1) * (inside + hands)
    return count


__all__ = ["Simulation", "simulate"]
