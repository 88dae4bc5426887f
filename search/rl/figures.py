"""Figures: what a policy sees of candidates, of the machine behind them and of the device that they are for.

They are counts (`tinygpu.cost.demand`) over rates and limits of the device: how long each unit would be busy, how
full the device is, how much is under way. None of them is a predicted time: how units, waits and waves combine to one
is what the policy learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import SECTOR_BYTES, Demand
from tinygpu.cost.occupancy import occupancy
from tinygpu.cost.rates import Rates
from tinygpu.devices import Device
from tinygpu.spaces.build import MachineSpace

Array = NDArray[np.float32]

_UNITS = ("tensor", "fma", "alu", "sfu", "issue", "smem", "l2", "dram")
# One column each of `figures_of`; times are log2 of the time over the problem's roofline.
FIGURES: tuple[str, ...] = (
    *(f"{unit} time" for unit in _UNITS),
    "time of the busiest unit",
    "time of waits in series, all waves",
    "time of the busiest unit of one CTA alone, all waves",
    "time of loads by bytes under way, all waves",
    "log2 waves",
    "share of the waves that is filled",
    "share of whole rounds over the SMs that is filled",
    "CTAs on the busiest SM over the mean",
    "log2 CTAs per SM",
    "log2 warps per SM",
    "log2 bytes under way over latency x bandwidth",
    "log2 iterations",
    "log2 tiles fetched ahead",
    "log2 threads per CTA",
    "log2 registers per thread",
    "log2 share of the shared memory",
    "log2 schedulers per warp",
    "held",
    "persistent",
    "log2 turns",
    "refused",
)
# One column each of `context_of`.
CONTEXT: tuple[str, ...] = (
    "log2 roofline microseconds",
    "log2 launch overhead over roofline",
    "log2 DRAM time over tensor and FMA time",
    "tensor cores are used",
    "wgmma or tcgen05",
    "log2 operand bits",
    "log2 SMs",
    "log2 tensor FLOP per clock and SM",
    "log2 FMA per clock and SM",
    "log2 shared memory bytes per clock and SM",
    "log2 shared memory KiB per SM",
    "log2 L2 MiB",
    "log2 L2 bandwidth over DRAM bandwidth",
    "log2 FLOP per DRAM byte",
    "log2 DRAM latency cycles",
    "share of the tensor peak that is sustained",
    "clock holds",
    "log2 warps per SM",
)


def figures_of(demand: Demand, device: Device) -> Array:
    """(candidates, FIGURES) figures of the candidates of `demand`, each roughly between -4 and 4."""
    rates = Rates.of(device, demand)
    total, sms = demand.total, device.sm_count
    ctas = np.asarray(demand.ctas, dtype=np.float64)
    resident = occupancy(
        device, _whole(demand.threads_per_cta), _whole(demand.registers_per_thread), _whole(demand.smem_bytes_per_cta),
        _whole(demand.tmem_bytes_per_cta),
    )
    per_sm = np.maximum(resident.ctas_per_sm, 1).astype(np.float64)
    waves, rounds = ctas / (sms * per_sm), ctas / sms
    units = rates.unit_s(total)
    traffic = np.add(demand.dram_bytes_read, demand.dram_bytes_written)
    busy = {unit: seconds * rounds for unit, seconds in units.items()}
    busy["dram"] = np.asarray(traffic) / device.dram_bytes_per_s
    memory = rates.memory_cycles(demand)
    count = np.asarray(demand.iterations, dtype=np.float64)
    chain_s = (
        rates.chain_s(demand.prologue.chain, memory)
        + rates.chain_s(demand.iteration.chain, memory) * count
        + rates.chain_s(demand.epilogue.chain, memory)
    )
    asked = np.asarray(demand.iteration.work.sectors_read) * SECTOR_BYTES
    in_flight = np.maximum(np.asarray(demand.bytes_in_flight_per_cta, dtype=np.float64), 1)
    reads_s = asked * count / in_flight * memory / rates.clock_hz
    wanted = device.number("lat_dram") / rates.clock_hz * device.dram_bytes_per_s / sms
    warps = np.maximum(resident.warps_per_cta, 1)
    whole = np.ceil(waves)
    scale = float(np.min(rates.roofline_s(demand, ctas)))

    def over(seconds: Any) -> Any:
        return np.log2(np.maximum(np.asarray(seconds, dtype=np.float64) / scale, 2.0**-12))

    columns = [
        *(over(busy[unit]) / 4 for unit in _UNITS),
        over(np.max(np.broadcast_arrays(*busy.values()), axis=0)) / 2,
        over(chain_s * whole) / 4,
        over(np.max(np.broadcast_arrays(*units.values()), axis=0) * whole) / 4,
        over(reads_s * whole) / 4,
        np.log2(waves) / 4,
        4 * (waves / whole) - 2,
        4 * (rounds / np.ceil(rounds)) - 2,
        2 * (np.log2(np.ceil(rounds) / rounds)),
        np.log2(per_sm) - 1,
        np.log2(warps * per_sm) / 2 - 1,
        np.log2(in_flight * per_sm / wanted) / 2,
        np.log2(count) / 4,
        np.log2(1 + np.asarray(demand.prefetch_iterations)),
        np.log2(np.asarray(demand.threads_per_cta)) / 2 - 3.5,
        np.log2(np.maximum(demand.registers_per_thread, 16)) - 6,
        np.log2(np.maximum(np.asarray(demand.smem_bytes_per_cta) / device.max_smem_bytes_per_sm, 2.0**-8)) / 2,
        np.log2(np.maximum(device.warp_schedulers_per_sm / (warps * per_sm), 1)),
        demand.held,
        demand.persistent,
        np.log2(demand.turns),
        np.where(resident.launchable & (resident.ctas_per_sm > 0), 0.0, 4.0),
    ]
    shape = demand.shape or (1,)
    table = np.stack([np.broadcast_to(np.asarray(c, dtype=np.float64), shape) for c in columns], axis=-1)
    return np.clip(table, -6, 6).astype(np.float32)


def context_of(demand: Demand, device: Device) -> Array:
    """(CONTEXT,) what is the same for all candidates of `demand`: the problem's size and the device's rates."""
    rates = Rates.of(device, demand)
    ctas = np.asarray(demand.ctas, dtype=np.float64)
    roofline_s = float(np.min(rates.roofline_s(demand, ctas)))
    tensor = bool(np.any(np.asarray(demand.total.tensor_flops)))
    traffic = demand.compulsory_dram_bytes
    if traffic is None:
        traffic = np.add(demand.dram_bytes_read, demand.dram_bytes_written)
    dram_s = float(np.min(traffic)) / device.dram_bytes_per_s
    flops = np.asarray(demand.useful_tensor_flops) if tensor and demand.useful_tensor_flops is not None else None
    if flops is None:
        flops = ctas * demand.total.fma_flops
    fma = device.number("fp32_fma_per_clk_sm")
    tensor_rate = rates.tensor_flops_per_clk if tensor else 1.0
    rate = tensor_rate if tensor else 2 * fma
    compute_s = float(np.min(flops)) / (rate * device.sm_count * rates.clock_hz)
    bits = {"f32": 32, "tf32": 32, "f16": 16, "bf16": 16}.get(demand.operand, 8)
    row = [
        np.log2(roofline_s * 1e6) / 4 - 1,
        np.log2(device.number("launch_overhead_graph_us") * 1e-6 / roofline_s) / 4,
        np.clip(np.log2(max(dram_s, 1e-12) / max(compute_s, 1e-12)) / 4, -4, 4),
        tensor,
        demand.tensor_path != "mma.sync",
        np.log2(bits) - 4,
        np.log2(device.sm_count) / 2 - 3,
        np.log2(max(tensor_rate, 1)) / 4 - 2.5,
        np.log2(fma) - 6.5,
        np.log2(device.number("smem_bytes_per_clk_sm")) - 7,
        np.log2(device.max_smem_bytes_per_sm / 1024) - 7,
        np.log2(device.l2_bytes / 2**20) / 2 - 2.5,
        np.log2(device.l2_bytes_per_s / device.dram_bytes_per_s) - 1.5,
        np.log2(rate * device.sm_count * rates.clock_hz / device.dram_bytes_per_s) / 2 - 3.5,
        np.log2(device.number("lat_dram")) - 9,
        device.sustained_tensor_share,
        device.clock_holds,
        np.log2(device.max_warps_per_sm) - 5.5,
    ]
    return np.asarray(row, dtype=np.float32)


def demand_of(space: MachineSpace, index: int, chosen: Mapping[str, Any]) -> Demand:
    """The demand of candidates of one structure.

    chosen  parameter -> values, one per candidate
    """
    return space.counts(index).demand({**space.environment, **chosen}, space.device)


def _whole(value: object) -> NDArray[np.int64]:
    whole: NDArray[np.int64] = np.ceil(np.asarray(value)).astype(np.int64)
    return whole
