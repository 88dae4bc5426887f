"""What a microbenchmark is planned for: the few limits of a GPU on which its grid and its buffers depend."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.devices import Device
from tinygpu.devices.targets import target


@dataclass(frozen=True, slots=True)
class Chip:
    """One GPU, or a tiny one for the emulator.

    cc             compute capability as major * 10 + minor
    sms            streaming multiprocessors
    l2_bytes       capacity of L2
    l2_near_bytes  capacity for data that every SM reads; half of it where L2 has two partitions
    page_bytes     reach of one entry of the TLB that a chase through DRAM should stay within
    """

    cc: int
    sms: int
    l2_bytes: int
    l2_near_bytes: int
    page_bytes: int = 2 << 20

    def __post_init__(self) -> None:
        for name in ("cc", "sms", "l2_bytes", "l2_near_bytes", "page_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"a chip's {name} is at least 1, not {getattr(self, name)}")

    def runs(self, ptx_target: str) -> bool:
        """Whether PTX of this target runs here."""
        return target(ptx_target).runs_on(self.cc)

    @property
    def mma_sync_is_fastest(self) -> bool:
        """Whether no faster matrix instruction than mma.sync exists: wgmma on 9.0, tcgen05 on 10.x and 11.0."""
        return self.cc // 10 not in (9, 10, 11)


def chip_of(device: Device, *, sms: int = 0, l2_bytes: int = 0) -> Chip:
    """The chip of a device; what the driver says of it (SMs, bytes of L2), where that is known, goes first."""
    l2 = l2_bytes or device.l2_bytes
    return Chip(device.cc, sms or device.sm_count, l2, int(l2 / device.number("l2_partitions")))


def tiny_chip(ptx_target: str) -> Chip:
    """A chip with three SMs and little L2, on which the emulator runs PTX of this target in no time.

    Half of its L2 is ten chunks of 32 KiB, of which six are read in each trip, so that streams wrap within it.
    """
    return Chip(max(target(ptx_target).cc, 75), 3, 640 << 10, 640 << 10, page_bytes=1 << 14)
