"""Occupancy: how many CTAs of a kernel are resident on one SM, and which resource says so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.devices import Device

Counts: TypeAlias = int | NDArray[np.int64]

LIMITS: tuple[str, ...] = ("warps", "registers", "smem", "CTA slots", "tmem", "not launchable")


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Resident CTAs of one kernel (or of an array of candidates) on one SM; every field has the candidates' shape.

    ctas_per_sm    what the tightest resource admits; 0 where the launch is refused
    by_warps, by_registers, by_smem, by_slots, by_tmem   what each resource would admit alone
    warps_per_cta  threads rounded up to whole warps
    warps_per_sm   resident warps
    warp_share     resident warps over what the SM can hold
    launchable     the launch is legal: threads, registers and shared memory within the limits of one CTA
    limit          index into LIMITS of the tightest resource (the first of equals)
    """

    ctas_per_sm: NDArray[np.int64]
    by_warps: NDArray[np.int64]
    by_registers: NDArray[np.int64]
    by_smem: NDArray[np.int64]
    by_slots: NDArray[np.int64]
    by_tmem: NDArray[np.int64]
    warps_per_cta: NDArray[np.int64]
    warps_per_sm: NDArray[np.int64]
    warp_share: NDArray[np.float64]
    launchable: NDArray[np.bool_]
    limit: NDArray[np.int64]

    def limited_by(self, index: int | None = None) -> str:
        """Name of the tightest resource of a candidate; no index is needed for a single one."""
        return LIMITS[int(self.limit if index is None else self.limit[index])]


def occupancy(
    device: Device, threads_per_cta: Counts, registers_per_thread: Counts, smem_bytes_per_cta: Counts,
    tmem_bytes_per_cta: Counts = 0,
) -> Occupancy:
    """CTAs per SM, exactly as the driver's calculator gives them.

    threads_per_cta       1 or more
    registers_per_thread  as the assembler reports them; 0 means that registers do not limit
    smem_bytes_per_cta    static + dynamic shared memory, without what the system reserves
    tmem_bytes_per_cta    tensor memory that it allocates; CTAs that find none wait for others to free theirs

    Scalars or arrays that broadcast. Source: cuda_occupancy.h of CUDA 13.0 (granularities, block limits, launch check).

    >>> from tinygpu.devices import device
    >>> int(occupancy(device("a100"), 256, 128, 49152).ctas_per_sm)
    2
    """
    threads, registers, smem, tmem = np.broadcast_arrays(
        _counts(threads_per_cta, "threads_per_cta", 1),
        _counts(registers_per_thread, "registers_per_thread", 0),
        _counts(smem_bytes_per_cta, "smem_bytes_per_cta", 0),
        _counts(tmem_bytes_per_cta, "tmem_bytes_per_cta", 0),
    )
    schedulers = device.warp_schedulers_per_sm
    warps = _ceil(threads, 32)
    # One unit at least: as many warps as there are units have room in any case, so that 0 does not limit.
    registers_per_warp = _round_up(np.maximum(registers * 32, device.register_alloc_unit), device.register_alloc_unit)

    # A warp lives in one of the SM's partitions, and takes its registers from that partition alone.
    per_partition = device.registers_per_sm // schedulers
    by_warps = device.max_warps_per_sm // warps
    by_registers = schedulers * (per_partition // registers_per_warp) // warps
    asked = np.maximum(smem + device.reserved_smem_bytes_per_block, device.smem_alloc_granularity_bytes)
    by_smem = device.max_smem_bytes_per_sm // _round_up(asked, device.smem_alloc_granularity_bytes)
    by_slots = np.full_like(warps, device.max_blocks_per_sm)
    by_tmem = np.where(tmem > 0, device.tmem_bytes_per_sm // np.maximum(tmem, 1), by_slots)

    launchable = (
        (threads <= device.max_threads_per_block)
        & (registers <= device.max_registers_per_thread)
        & (smem <= device.max_smem_bytes_per_block)
        & (tmem <= device.tmem_bytes_per_sm)
        & (registers_per_warp * _round_up(warps, schedulers) <= device.registers_per_sm)
    )
    limits = np.stack([by_warps, by_registers, by_smem, by_slots, by_tmem])
    ctas = np.where(launchable, limits.min(axis=0), 0)
    return Occupancy(
        ctas_per_sm=ctas,
        by_warps=by_warps,
        by_registers=by_registers,
        by_smem=by_smem,
        by_slots=by_slots,
        by_tmem=by_tmem,
        warps_per_cta=warps,
        warps_per_sm=ctas * warps,
        warp_share=ctas * warps / device.max_warps_per_sm,
        launchable=launchable,
        limit=np.where(launchable, limits.argmin(axis=0), len(LIMITS) - 1),
    )


def registers_at_most(device: Device, threads_per_cta: int) -> int:
    """Registers of each thread, so that a CTA of so many threads can be launched.

    >>> from tinygpu.devices import device
    >>> registers_at_most(device("h100"), 128), registers_at_most(device("h100"), 288)
    (255, 168)
    """
    unit, schedulers = device.register_alloc_unit, device.warp_schedulers_per_sm
    warps = math.ceil(math.ceil(threads_per_cta / 32) / schedulers) * schedulers
    per_warp = device.registers_per_sm // warps // unit * unit
    return min(per_warp // 32, device.max_registers_per_thread)


def _counts(value: Counts, name: str, least: int) -> NDArray[np.int64]:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers, not {array.dtype}")
    if array.size and array.min() < least:
        raise ValueError(f"{name} must be at least {least}, not {array.min()}")
    return array.astype(np.int64)


def _ceil(value: NDArray[np.int64], unit: int) -> NDArray[np.int64]:
    return -(-value // unit)


def _round_up(value: NDArray[np.int64], unit: int) -> NDArray[np.int64]:
    return _ceil(value, unit) * unit
