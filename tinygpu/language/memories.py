"""The memories that a machine may name: capacity, granularity, banks, and how a place in them is addressed."""

from __future__ import annotations

from dataclasses import dataclass

# PTX ISA, "Constant State Space": 64 KiB of variables of a size that is known when a module is made.
CONST_BYTES = 65536
# Where the host puts a tensor in such a variable: at multiples of what memory that was allocated begins at.
BANK_ALIGN_BYTES = 256
# PTX ISA, tensor memory: a column has so many bits in each lane.
CELL_BITS = 32


@dataclass(frozen=True, slots=True)
class Memory:
    """One kind of memory.

    name           GMEM, L2, L1, SMEM, TMEM, RMEM, or that of a memory of one's own
    scope          whose it is: "grid", "cluster", "cta", "warp" or "thread"
    capacity       device figure that limits it ("" = the problem decides), or bytes
    granule_bytes  smallest piece that moves: a sector of GMEM/L2/L1, a bank word of SMEM, a register
    banks          number of banks that serve at once (0 = not banked)
    axes           how a place is addressed: bytes, or TMEM's lane x column
    space          PTX state space
    writer         who writes it: "threads", or the "host" alone, before a launch

    A memory of one's own holds tensors, `Input("f32", n, memory=CONST)`, which the host writes: of state space "const".
    """

    name: str
    scope: str
    capacity: str | int
    granule_bytes: int
    banks: int = 0
    axes: tuple[str, ...] = ("byte",)
    space: str = ""
    writer: str = "threads"

    def __str__(self) -> str:
        return self.name

    @property
    def own(self) -> bool:
        """Whether it is none of the memories that the language knows by name."""
        return self not in MEMORIES

    @property
    def bank(self) -> str:
        """The variable of a kernel in which tensors lie that the host writes."""
        return f"{self.name}_bank"

    @property
    def capacity_bytes(self) -> int:
        """Of a memory of one's own."""
        return int(self.capacity)

    def unwritten(self) -> str:
        """Why no kernel can be written with tensors in it, as what follows its name; "" where one can."""
        if self is GMEM:
            return ""
        if not self.own:
            return "holds no tensors; a tensor lies in GMEM, or in a memory of one's own"
        if self.name in {m.name for m in MEMORIES} or not (self.name.isascii() and self.name.isidentifier()):
            return "is no name for a memory of one's own, which is an ASCII identifier that no other memory has"
        if self.space != "const" or self.writer != "host":
            lies = f"lies in state space {self.space!r}, written by {self.writer!r}"
            return f"{lies}; a memory of one's own holds tensors in state space 'const', written by the 'host'"
        if self.scope != "grid" or self.axes != ("byte",):
            axes = ", ".join(self.axes)
            return f"is one of each {self.scope}, addressed by {axes}; state space const is one of the grid, by byte"
        whole = isinstance(self.capacity, int) and not isinstance(self.capacity, bool)
        if not whole or not 0 < self.capacity_bytes <= CONST_BYTES:
            return f"has a capacity of {self.capacity!r}; of state space const it is 1 to {CONST_BYTES:,} bytes"
        if self.granule_bytes not in (1, 2, 4, 8, 16):
            return f"moves pieces of {self.granule_bytes} bytes; they have 1, 2, 4, 8 or 16"
        if isinstance(self.banks, bool) or not isinstance(self.banks, int) or self.banks < 0:
            return f"has {self.banks!r} banks; it has 0 (not banked) or more"
        return ""


GMEM = Memory("GMEM", "grid", "", 32, space="global")
L2 = Memory("L2", "grid", "l2_bytes", 32)
L1 = Memory("L1", "cta", "l1_bytes", 32)
# 32 banks of 4 bytes since Fermi (CUDA C++ Programming Guide, shared memory).
SMEM = Memory("SMEM", "cta", "max_smem_per_block_optin", 4, banks=32, space="shared")
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
