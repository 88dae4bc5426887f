"""The first predictor of time: a Demand on a Device gives seconds, the busy time of each unit, and the bottleneck.

The model, in the order of the code (docs/predictor.md explains each step):

1. occupancy gives the CTAs that share an SM; the grid runs in waves of that many on every SM, the last one partly full;
2. a phase takes as long as its busiest unit for all resident CTAs, or as long as one CTA needs alone, latencies
   included: its own busiest unit, then what it waits for in series, and Little's law for the global bytes under way;
3. resident CTAs drift apart, so that in all waves but the last their phases overlap; in the last one they do not;
4. tensor work cannot average more than the part sustains (power), and no launch beats the time of its busiest unit;
5. launching costs what the device's data says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import SECTOR_BYTES, Chain, Demand, Work
from tinygpu.cost.occupancy import Occupancy, occupancy
from tinygpu.devices import Device

Times: TypeAlias = NDArray[np.float64]
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
    "power": "sustained tensor clock",
}
CAUSES: Mapping[str, str] = {
    **UNITS,
    "latency": "latency",
    "tail": "partly filled last wave",
    "launch": "launch overhead",
}


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Predicted times; every array has the shape of the candidates.

    seconds      predicted time of the launch; infinite where the launch is refused
    busy_s       unit -> seconds that it would need alone, its work spread evenly over the device
    latency_s    time in which no unit is the limit: CTAs wait, and too few others fill in
    tail_s       time lost because the last wave does not fill the device
    launch_s     launch overhead
    roofline_s   least time of the problem: useful tensor work at the datasheet's peak, or compulsory DRAM traffic
    waves        CTAs over the CTAs that run at a time
    occupancy    resident CTAs and what limits them
    device       name of the device
    """

    seconds: Times
    busy_s: Mapping[str, Times]
    latency_s: Times
    tail_s: Times
    launch_s: Times
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

    def bottleneck(self, index: int = 0) -> str:
        """The key in CAUSES of what takes most of the candidate's time (flat index)."""
        causes = self._causes(index)
        return max(causes, key=lambda key: causes[key])

    def sentence(self, index: int = 0) -> str:
        """The bottleneck of one candidate (flat index) in words: "tensor cores, 83 % busy; DRAM 41 %"."""
        if not np.isfinite(self.seconds.flat[index]):
            return f"the launch is refused: it exceeds the limits of a CTA on {self.device}"
        total = float(self.seconds.flat[index])
        first = self.bottleneck(index)
        units = {key: float(self.busy_s[key].flat[index]) / total for key in UNITS if key != "power"}
        ranked = sorted(units, key=lambda key: -units[key])
        others = [f"{CAUSES[key]} {units[key]:.0%}".replace("%", " %") for key in ranked if key != first][:2]
        share = self._causes(index)[first] / total
        word = "busy" if first in units else "of the time"
        return f"{CAUSES[first]}, {share:.0%} {word}; ".replace("%", " %") + ", ".join(others)

    def _causes(self, index: int) -> dict[str, float]:
        found = {key: float(self.busy_s[key].flat[index]) for key in UNITS}
        found["latency"] = float(self.latency_s.flat[index])
        found["tail"] = float(self.tail_s.flat[index])
        found["launch"] = float(self.launch_s.flat[index])
        return found


def predict(device: Device, demand: Demand, *, launch: Launch = "graph") -> Prediction:
    """Predicted time of one launch for every candidate of `demand`.

    launch  "graph": launches follow each other in a CUDA graph; "stream": queued one by one

    Raises ValueError where the device has no such tensor path.
    """
    shape = demand.shape
    resident = occupancy(
        device, _whole(demand.threads_per_cta), _whole(demand.registers_per_thread), _whole(demand.smem_bytes_per_cta)
    )
    rates = _Rates.of(device, demand)
    sms, per_sm = device.sm_count, np.maximum(resident.ctas_per_sm, 1)
    ctas = np.asarray(demand.ctas, dtype=np.float64)

    # 1. Waves: `full` of them have per_sm CTAs on every SM; the last has `rest` CTAs, `last` on the busiest SM.
    slots = per_sm * sms
    full = np.ceil(ctas / slots) - 1
    rest = ctas - full * slots
    last = np.ceil(rest / sms)

    # 2. Work of each phase: seconds of one SM (of the whole device for DRAM) per CTA, by unit.
    count = np.asarray(demand.iterations, dtype=np.float64)
    phases = (demand.prologue, demand.iteration, demand.epilogue)
    once = np.ones(())
    repeats = (once, count, once)
    unit_s = [
        {key: value * times for key, value in rates.unit_s(phase.work).items()}
        for phase, times in zip(phases, repeats, strict=True)
    ]
    dram_s = _dram_by_phase(demand, repeats, ctas, device.dram_bytes_per_s)
    warps = np.maximum(resident.warps_per_cta, 1)

    def busiest(units: Mapping[str, Times], together: Times) -> Times:
        """Seconds that the busiest unit of an SM needs for `together` resident CTAs."""
        # Fewer warps than schedulers leave schedulers, and their tensor cores and lanes, idle.
        idle = np.maximum(1.0, device.warp_schedulers_per_sm / (warps * together))
        split = [units[key] for key in _PER_SCHEDULER]
        whole = [units[key] for key in ("smem", "l2")]
        return np.asarray(together * np.maximum(_highest(split) * idle, _highest(whole)), dtype=np.float64)

    reads_s = count * rates.memory_s(demand)
    alone = [busiest(u, once) + rates.chain_s(p.chain) * n for u, p, n in zip(unit_s, phases, repeats, strict=True)]
    waits = np.asarray(demand.prefetch_iterations) == 0
    alone[1] = np.where(waits, alone[1] + reads_s, np.maximum(alone[1], reads_s))

    # 3. Waves before the last overlap the phases of CTAs that share an SM; the last one starts and ends in step.
    def in_step(together: Times, running: Times) -> Times:
        spans = [
            np.maximum(np.maximum(busiest(u, together), d * running), a)
            for u, d, a in zip(unit_s, dram_s, alone, strict=True)
        ]
        total: Times = spans[0] + spans[1] + spans[2]
        return total

    summed = {key: unit_s[0][key] + unit_s[1][key] + unit_s[2][key] for key in unit_s[0]}
    drifting = np.maximum(
        np.maximum(busiest(summed, per_sm), (dram_s[0] + dram_s[1] + dram_s[2]) * slots), alone[0] + alone[1] + alone[2]
    )
    wave = np.where(per_sm > 1, drifting, in_step(per_sm.astype(np.float64), slots.astype(np.float64)))
    final = in_step(last, rest)
    waves_s = full * wave + final

    # 4. Bounds of the whole launch.
    busy = {key: summed[key] * ctas / sms for key in summed}
    busy["dram"] = (dram_s[0] + dram_s[1] + dram_s[2]) * ctas
    busy["power"] = np.asarray(rates.power_s(ctas * np.asarray(demand.total.tensor_flops)), dtype=np.float64)
    most = _highest([busy[key] for key in UNITS])
    running = np.maximum(waves_s, most)

    # 5. Launch, and the share of each cause: running = most + tail + latency.
    launch_s = device.number(f"launch_overhead_{launch}_us") * 1e-6
    tail = np.clip(final - wave * rest / slots, 0, running - most)
    seconds = np.where(resident.launchable & (resident.ctas_per_sm > 0), launch_s + running, np.inf)
    spread = [np.broadcast_to(np.asarray(x, dtype=np.float64), shape) for x in (seconds, running - most - tail, tail)]
    return Prediction(
        seconds=spread[0],
        busy_s={key: np.broadcast_to(busy[key], shape) for key in UNITS},
        latency_s=spread[1],
        tail_s=spread[2],
        launch_s=np.broadcast_to(np.float64(launch_s), shape),
        roofline_s=np.broadcast_to(rates.roofline_s(demand, ctas), shape),
        waves=np.broadcast_to(ctas / slots, shape),
        occupancy=resident,
        device=device.name,
    )


# Units of which every scheduler of an SM has its own part.
_PER_SCHEDULER = ("tensor", "fma", "alu", "sfu", "issue")


@dataclass(frozen=True, slots=True)
class _Rates:
    """Rates and latencies of one device for one demand, in seconds."""

    device: Device
    clock_hz: Times
    tensor_flops_per_clk: float
    peak_flops_per_clk: float

    @staticmethod
    def of(device: Device, demand: Demand) -> _Rates:
        tensor = np.asarray(demand.total.tensor_flops)
        if not tensor.any():
            return _Rates(device, np.asarray(device.boost_clock_hz), 1.0, 1.0)
        path, peak = demand.tensor_path, device.tensor_flops_per_clk_sm(demand.operand, demand.accumulator)
        there = {"mma.sync": device.cc >= 75, "wgmma": device.cc == 90, "tcgen05": device.cc in (100, 103, 110)}
        if not peak or not there[path]:
            raise ValueError(
                f"{device.name} ({device.target}) has no {path} for {demand.operand} with {demand.accumulator} sums"
            )
        rate = peak * device.mma_sync_share() if path == "mma.sync" else peak
        clock_hz = np.where(tensor > 0, device.tensor_clock_hz, device.boost_clock_hz)
        return _Rates(device, clock_hz, rate, peak)

    def unit_s(self, work: Work) -> dict[str, Times]:
        """Seconds of one SM for the work of one CTA, by unit (without DRAM, which is shared by all)."""
        d = self.device
        wavefronts = np.add(work.smem_load_wavefronts, work.smem_store_wavefronts)
        cycles = {
            "tensor": np.asarray(work.tensor_flops) / self.tensor_flops_per_clk,
            "fma": np.asarray(work.fma_flops) / (2 * d.number("fp32_fma_per_clk_sm")),
            "alu": np.asarray(work.alu_ops) / d.number("int32_add_per_clk_sm"),
            "sfu": np.asarray(work.sfu_ops) / d.number("sfu_per_clk_sm"),
            "issue": np.asarray(work.warp_instructions) / d.warp_schedulers_per_sm,
            # A wavefront moves up to 32 words of 4 bytes.
            "smem": wavefronts * 128 / d.number("smem_bytes_per_clk_sm"),
        }
        found: dict[str, Times] = {key: value / self.clock_hz for key, value in cycles.items()}
        sectors = np.add(work.sectors_read, work.sectors_written)
        # No figure says what a single SM can draw, so it gets its share of what all of them were measured to draw.
        found["l2"] = sectors * (SECTOR_BYTES * d.sm_count / d.l2_bytes_per_s)
        return found

    def chain_s(self, chain: Chain) -> Times:
        """Seconds that a CTA waits in series."""
        d = self.device
        cycles = (
            np.multiply(chain.barriers, d.number("lat_barrier_cta"))
            + np.multiply(chain.smem_loads, d.number("lat_ldmatrix"))
            + np.multiply(chain.mmas, d.number("lat_mma_m16n8k16"))
            + np.multiply(chain.fmas, d.number("lat_fma_dependent"))
            + np.multiply(chain.sfus, d.number("lat_sfu"))
            + np.multiply(chain.global_loads, d.number("lat_dram"))
        )
        return np.asarray(cycles / self.clock_hz, dtype=np.float64)

    def memory_s(self, demand: Demand) -> Times:
        """Little's law for one CTA and iteration: bytes asked for / bytes under way x latency."""
        d = self.device
        asked = np.asarray(demand.iteration.work.sectors_read) * SECTOR_BYTES
        l2_cycles = (d.number("lat_l2_hit_near") + d.number("lat_l2_hit_far")) / 2
        cycles = np.where(np.asarray(demand.dram_bytes_read) > 0, d.number("lat_dram"), l2_cycles)
        rounds = asked / np.maximum(np.asarray(demand.bytes_in_flight_per_cta), 1)
        return np.asarray(rounds * cycles / self.clock_hz, dtype=np.float64)

    def power_s(self, tensor_flops: Times) -> Times:
        """Seconds that the tensor work of a launch takes at the rate which the part sustains."""
        peak = self.peak_flops_per_clk * self.device.sm_count * self.device.tensor_clock_hz
        return tensor_flops / (peak * self.device.sustained_tensor_share)

    def roofline_s(self, demand: Demand, ctas: Times) -> Times:
        d = self.device
        total = demand.total
        tensor = demand.useful_tensor_flops
        tensor_flops = ctas * total.tensor_flops if tensor is None else np.asarray(tensor)
        tensor_s = tensor_flops / (self.peak_flops_per_clk * d.sm_count * d.tensor_clock_hz)
        fma_s = ctas * total.fma_flops / (2 * d.number("fp32_fma_per_clk_sm") * d.sm_count * d.boost_clock_hz)
        traffic = demand.compulsory_dram_bytes
        if traffic is None:
            traffic = np.add(demand.dram_bytes_read, demand.dram_bytes_written)
        return np.asarray(_highest([tensor_s, fma_s, np.asarray(traffic) / d.dram_bytes_per_s]), dtype=np.float64)


def _dram_by_phase(
    demand: Demand, repeats: tuple[Times, Times, Times], ctas: Times, bytes_per_s: float
) -> tuple[Times, Times, Times]:
    """Seconds of DRAM per CTA in each phase: reads and writes are shared out by the sectors of the phases."""
    phases = (demand.prologue.work, demand.iteration.work, demand.epilogue.work)

    def share(sectors: list[Times], default: int) -> list[Times]:
        total = sectors[0] + sectors[1] + sectors[2]
        none = total == 0
        return [np.where(none, float(i == default), s / np.where(none, 1, total)) for i, s in enumerate(sectors)]

    reads = share([np.multiply(w.sectors_read, n) for w, n in zip(phases, repeats, strict=True)], 1)
    writes = share([np.multiply(w.sectors_written, n) for w, n in zip(phases, repeats, strict=True)], 2)
    read_s = np.asarray(demand.dram_bytes_read) / bytes_per_s / ctas
    write_s = np.asarray(demand.dram_bytes_written) / bytes_per_s / ctas
    a, b, c = (read_s * r + write_s * w for r, w in zip(reads, writes, strict=True))
    return a, b, c


def _highest(times: list[Times]) -> Times:
    out = times[0]
    for other in times[1:]:
        out = np.maximum(out, other)
    return out


def _whole(value: object) -> NDArray[np.int64]:
    array = np.asarray(value)
    whole: NDArray[np.int64] = np.ceil(array).astype(np.int64)
    return whole
