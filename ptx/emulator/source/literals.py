"""Names and constants that PTX itself defines: special registers, and the bits of floating constants."""

from __future__ import annotations

import struct

# Special registers: PTX ISA, "Special Registers".
_SPECIAL = frozenset(
    ["%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "%clock", "%clock_hi", "%clock64",
     "%globaltimer", "%globaltimer_lo", "%globaltimer_hi", "%dynamic_smem_size", "%total_smem_size",
     "%aggr_smem_size", "%is_explicit_cluster", "%cluster_ctarank", "%cluster_nctarank",
     "%current_graph_exec"]
    + [f"%reserved_smem_offset_{which}" for which in ("0", "1", "begin", "end", "cap")]
    + [f"%lanemask_{kind}" for kind in ("eq", "le", "lt", "ge", "gt")]
    + [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid",
                                      "cluster_nctaid") for axis in "xyzw"]
    + [f"%envreg{index}" for index in range(32)]
    + [f"%pm{index}{width}" for index in range(8) for width in ("", "_64")]
)  # fmt: skip


def is_special(name: str) -> bool:
    """Whether `name` is a special register of PTX."""
    return name in _SPECIAL


def float_pattern(bits: tuple[int, int], target_bits: int, negative: bool = False) -> int:
    """The bits of a floating constant in a type of `target_bits` bits.

    Constants are 64-bit unless written as 0f; a 64-bit one is rounded to the narrower type.
    """
    width, pattern = bits
    if width == 32 and target_bits == 32:
        result = pattern
    else:
        source = "<f" if width == 32 else "<d"
        (value,) = struct.unpack(source, pattern.to_bytes(width // 8, "little"))
        if target_bits == 32:
            try:
                result = int.from_bytes(struct.pack("<f", value), "little")
            except OverflowError:
                result = 0xFF800000 if value < 0 else 0x7F800000
        elif target_bits == 16:
            try:
                result = int.from_bytes(struct.pack("<e", value), "little")
            except OverflowError:
                result = 0xFC00 if value < 0 else 0x7C00
        else:
            result = int.from_bytes(struct.pack("<d", value), "little")
    return result ^ (1 << (target_bits - 1)) if negative else result
