"""What each unit of a device takes for a demand's work, and who waits how long: rates and latencies, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import ACCESS_BYTES, SECTOR_BYTES, Cells, Chain, Demand, Work
from tinygpu.cost.turns import in_turns
from tinygpu.devices import Device

Times: TypeAlias = NDArray[np.float64]

# How the rate of tensor work that power limits goes with the part of the time in which tensor cores are busy: as this
# power of it. Dynamic power grows as f V^2: by 2/3 where V goes with f; less where V is near its floor, where a product
# takes the same energy at any clock. Of measured library products it is 0.83 and 0.85 on an A100, 0.16 and 0.23 on an
# H100, 0.08 on an H200, and 0.35 on a B200 (tests/benchmarks/power_slope.py).
FALLING, HELD = 2 / 3, 1 / 6


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates and latencies of one device for one demand, in seconds.

    sms  on which its CTAs find room, whose clusters have the SMs of one GPC
    """

    device: Device
    tensor_flops_per_clk: float
    peak_flops_per_clk: float
    sms: NDArray[np.int64]

    @staticmethod
    def of(device: Device, demand: Demand) -> Rates:
        sms = device.sms_of_clusters(np.asarray(demand.cluster, dtype=np.int64))
        tensor = np.asarray(demand.total.tensor_flops)
        if not tensor.any():
            return Rates(device, 1.0, 1.0, sms)
        path, peak = demand.tensor_path, device.tensor_flops_per_clk_sm(demand.operand, demand.accumulator)
        there = {"mma.sync": device.cc >= 75, "wgmma": device.cc == 90, "tcgen05": device.cc in (100, 103, 110)}
        if not peak or not there[path]:
            raise ValueError(
                f"{device.name} ({device.target}) has no {path} for {demand.operand} with {demand.accumulator} sums"
            )
        rate = peak * device.mma_sync_share() if path == "mma.sync" else peak
        return Rates(device, rate, peak, sms)

    @property
    def clock_hz(self) -> float:
        """The clock until power limits it; the datasheet's tensor clock only rates the peak."""
        return self.device.boost_clock_hz

    def unit_s(self, work: Work) -> dict[str, Times]:
        """Seconds of one SM for the work of one CTA, by unit (without DRAM, which is shared by all)."""
        d = self.device
        # L1 and shared memory are one array.
        wavefronts = np.add(work.smem_load_wavefronts, work.smem_store_wavefronts) + work.l1_wavefronts
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
        found["l2"] = self.l2_s(work.sectors_read, work.accesses_read) + self.l2_s(
            work.sectors_written, work.accesses_written, work.accesses_to_one
        )
        return found

    def l2_s(self, sectors: Cells, accesses: Cells, to_one: Cells = 0) -> Times:
        """Seconds of one SM for what it asks of L2; an access takes a slice's clock, however few bytes it moves.

        No figure says what a single SM can draw, so it gets its share of what all of them were measured to draw.

        to_one  accesses that the slice of one place serves alone, while all others may be idle
        """
        moved = np.maximum(np.multiply(sectors, SECTOR_BYTES), np.multiply(accesses, ACCESS_BYTES))
        alone_s = np.multiply(to_one, self.sms / self.clock_hz)
        return np.asarray(np.maximum(moved * (self.device.sm_count / self.device.l2_bytes_per_s), alone_s), np.float64)

    @property
    def l2_cycles(self) -> float:
        """Latency of L2, of whichever part of it."""
        return (self.device.number("lat_l2_hit_near") + self.device.number("lat_l2_hit_far")) / 2

    def memory_cycles(self, demand: Demand) -> Times:
        """Latency of global data: that of DRAM if any comes from there, since a tile waits for its slowest sector."""
        d = self.device
        return np.where(np.asarray(demand.dram_bytes_read) > 0, d.number("lat_dram"), self.l2_cycles)

    def handed_on_s(self, demand: Demand, resident: Times) -> Times:
        """Seconds of what CTAs tell one another: each the next in a row, and all rows.

        CTAs that read window after window of 32 tiles reach one that knows what stands before it the sooner, the more
        such tiles there are already: of r tiles of a row that are resident the last gets there after about sqrt(r) / 2
        trips. As long, again and again, all others wait for their launch.

        resident  CTAs at a time
        """
        resident = np.asarray(resident, dtype=np.float64)
        of_row = np.minimum(demand.chained, np.maximum(resident / np.asarray(demand.chains_beside), 1))
        whole = np.asarray(demand.ctas) / resident * np.sqrt(of_row) / 2
        trips = np.maximum(demand.handed_on, whole)
        return np.asarray(trips * self.l2_cycles / self.clock_hz, dtype=np.float64)

    def answer_s(self, demand: Demand) -> Times:
        """Seconds from the question for another cluster until the answer has come; 0 where nobody asks.

        Nobody has published how long it takes: an assumption, as long as a trip to DRAM and back.
        """
        return np.asarray(np.multiply(demand.asks, self.device.number("lat_dram") / self.clock_hz), dtype=np.float64)

    def chain_s(self, chain: Chain, memory_cycles: Times) -> Times:
        """Seconds that a CTA waits in series."""
        d = self.device
        cycles = (
            np.multiply(chain.barriers, d.number("lat_barrier_cta"))
            + np.multiply(chain.smem_loads, d.number("lat_ldmatrix"))
            + np.multiply(chain.mmas, d.number("lat_mma_m16n8k16"))
            + np.multiply(chain.fmas, d.number("lat_fma_dependent"))
            + np.multiply(chain.sfus, d.number("lat_sfu"))
            + np.multiply(chain.global_loads, memory_cycles)
            + np.multiply(chain.l2_trips, self.l2_cycles)
        )
        return np.asarray(cycles / self.clock_hz, dtype=np.float64)

    def reads_s(self, demand: Demand, memory_cycles: Times, shared_s: Times, used_s: Times) -> Times:
        """Least seconds of one CTA's loop for its global data to come, since only so much is under way at a time.

        Little's law: bytes asked for / bytes under way x the time from asking to the moment when the place may be asked
        for again. That is the latency, the transfer itself, and the use where the place is held until then.

        Where products still read a slot when the next ones begin, the others alone bring the data of these.

        shared_s  of the loop: transfers at the SM's share of L2 and DRAM
        used_s    of the loop: work and latencies of the CTA itself
        """
        asked = np.asarray(demand.iteration.work.sectors_read) * SECTOR_BYTES
        rounds = asked / np.maximum(np.asarray(demand.bytes_in_flight_per_cta), 1)
        latency_s = np.asarray(demand.iterations) * memory_cycles / self.clock_hz
        held_s = np.where(np.asarray(demand.held) > 0, used_s, 0)
        others = rounds / (1 - np.asarray(demand.late))
        return np.asarray(
            np.maximum(
                rounds * latency_s + np.minimum(rounds, 1) * (shared_s + held_s),
                np.where(np.asarray(demand.late) > 0, others * latency_s + np.minimum(others, 1) * shared_s, 0),
            ),
            dtype=np.float64,
        )

    def throttled_s(
        self, tensor_flops: Times, unthrottled_s: Times, lanes_s: Times | float = 0.0, groups: Times | float = 1.0
    ) -> Times:
        """Seconds of a launch whose tensor work gets no more than what the part sustains.

        tensor_flops  of the launch, without those of idle lanes
        lanes_s       that lanes are busy meanwhile, on every SM, while `groups` of warps take turns between both

        With the tensor cores always busy, that is the share `sustained_tensor_share` of the datasheet's peak. Where the
        clock falls, it may rise again with the part D of the time that they are busy, until D f^3 is the same (dynamic
        power is proportional to f V^2, and V to f): the mean rate D f grows as D^(2/3). Where it holds, a share of the
        peak bounds the rate while they multiply, and what they wait for costs little: D^(1/6).
        """
        d = self.device
        peak_s = np.asarray(tensor_flops / (self.peak_flops_per_clk * d.sm_count * d.tensor_clock_hz), dtype=np.float64)
        sustained_s = peak_s / d.sustained_tensor_share
        if d.clock_holds:
            turns = np.asarray(lanes_s, dtype=np.float64), np.asarray(groups, dtype=np.float64)
            peak_s, sustained_s = in_turns(peak_s, *turns), in_turns(sustained_s, *turns)
        busy = np.where(peak_s > 0, np.minimum(peak_s / np.where(peak_s > 0, unthrottled_s, 1), 1), 1.0)
        return np.asarray(sustained_s / busy ** (HELD if d.clock_holds else FALLING), dtype=np.float64)

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
        return np.asarray(highest([tensor_s, fma_s, np.asarray(traffic) / d.dram_bytes_per_s]), dtype=np.float64)


def highest(times: list[Times]) -> Times:
    out = times[0]
    for other in times[1:]:
        out = np.maximum(out, other)
    return out
