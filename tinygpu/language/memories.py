"""The memories that a machine may name: capacity, granularity, banks, and how a place in them is addressed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """One kind of memory.

    name           GMEM, L2, L1, SMEM, TMEM or RMEM
    scope          whose it is: "grid", "cluster", "cta", "warp" or "thread"
    capacity       device figure that limits it ("" = the problem decides)
    granule_bytes  smallest piece that moves: a sector of GMEM/L2/L1, a bank word of SMEM, a register
    banks          number of banks that serve at once (0 = not banked)
    axes           how a place is addressed: bytes, or TMEM's lane x column
    """

    name: str
    scope: str
    capacity: str
    granule_bytes: int
    banks: int = 0
    axes: tuple[str, ...] = ("byte",)

    def __str__(self) -> str:
        return self.name


GMEM = Memory("GMEM", "grid", "", 32)
L2 = Memory("L2", "grid", "l2_bytes", 32)
L1 = Memory("L1", "cta", "l1_bytes", 32)
# 32 banks of 4 bytes since Fermi (CUDA C++ Programming Guide, shared memory).
SMEM = Memory("SMEM", "cta", "max_smem_per_block_optin", 4, banks=32)
# 128 lanes x 512 columns of 32 bits (PTX ISA, tensor memory).
TMEM_LANES = 128
TMEM = Memory("TMEM", "cta", "tmem_bytes_per_sm", 4, axes=("lane", "column"))
RMEM = Memory("RMEM", "thread", "max_registers_per_thread", 4)

MEMORIES: tuple[Memory, ...] = (GMEM, L2, L1, SMEM, TMEM, RMEM)


def memory(name: str) -> Memory:
    for candidate in MEMORIES:
        if candidate.name == name:
            return candidate
    raise ValueError(f"unknown memory {name!r}; known: {', '.join(m.name for m in MEMORIES)}")
