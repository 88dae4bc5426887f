"""The general swizzle: address = x ^ S * high(x), for accesses that are given as bits rather than as lanes of a tile.

The tile solver XORs column bits by row bits. Here any address bit from bit 7 on may flip any bank bit, whatever the
bits mean: that reaches layouts in which several short rows share one line of the banks, or in which the order of a
tile's bits is itself part of the question. Nothing is lost by leaving bits 0 to 6 out of what is read: two units
conflict iff their XOR lies in the kernel of the bank map, and a flip of one bank bit by another never changes that.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.banks import BANK_BYTES, ROW_BYTES, count_wavefronts, matrix_wavefronts, phases
from tinygpu.layouts.f2 import images
from tinygpu.solver.phases import Linear, Phase, PhaseKind, total_wavefronts
from tinygpu.solver.solution import AccessResult, Proof, sentence_of
from tinygpu.solver.swizzle_search import RLIMIT, SwizzleQuestion, Verdict, Xor, find_swizzle
from tinygpu.solver.tile_access import KINDS, TileKind

if TYPE_CHECKING:
    from tinygpu.constraints.query import Notebook

BANK_BITS = ROW_BYTES.bit_length() - 1


@dataclass(frozen=True, slots=True)
class BitAccess:
    """One warp instruction in bits.

    columns      what each lane bit XORs to the byte offset x: five of them, or three for ldmatrix (the eight rows of
                 one 8x8 matrix); every column is a multiple of the width
    width_bytes  bytes per lane: 1, 2, 4, 8 or 16 (16 for ldmatrix)
    weight       how often the instruction runs, compared with the other accesses
    """

    name: str
    columns: tuple[int, ...]
    width_bytes: int
    kind: TileKind = "ldst"
    weight: int = 1

    def __post_init__(self) -> None:
        where = f"[access {self.name!r}]"
        if self.kind not in KINDS:
            raise ValueError(f"{where} the kind is one of {', '.join(KINDS)}, not {self.kind!r}")
        wanted = 3 if self.kind == "ldmatrix" else 5
        if len(self.columns) != wanted:
            raise ValueError(f"{where} {self.kind} has {wanted} lane bits, not {len(self.columns)}")
        if self.kind == "ldmatrix" and self.width_bytes != 16:
            raise ValueError(f"{where} ldmatrix moves rows of 16 bytes, not {self.width_bytes}")
        phases(self.width_bytes)
        if self.weight < 1:
            raise ValueError(f"{where} the weight must be a positive integer, not {self.weight}")
        for bit, column in enumerate(self.columns):
            if column < 0 or column % self.width_bytes:
                raise ValueError(
                    f"{where} lane bit {bit} moves the offset by {column}, which is not a multiple of the "
                    f"{self.width_bytes} bytes that a lane moves"
                )

    @property
    def phase_count(self) -> int:
        """Phases in which the instruction is served."""
        return 1 if self.kind == "ldmatrix" else phases(self.width_bytes)

    def offsets(self) -> NDArray[np.int64]:
        """Byte offset x of each lane, shape (32,), or (8,) for ldmatrix."""
        return images(self.columns)

    def wavefronts(self, layout: XorLayout) -> int:
        """Wavefronts under a layout, counted lane by lane."""
        addresses = layout.address(self.offsets())
        if self.kind == "ldmatrix":
            return int(matrix_wavefronts(addresses))
        return int(count_wavefronts(addresses, self.width_bytes))


@dataclass(frozen=True, slots=True)
class XorLayout:
    """address(x) = x ^ XOR of the masks of the set bits of x, for x below 2^bits; invertible for free.

    xor   (source bit, mask) pairs; a mask flips only bits below its source bit, so the highest bits stay as they are
          and the map is undone from the top

    >>> layout = XorLayout(10, ((7, 16), (8, 32), (9, 64)))
    >>> int(layout.address(np.array(0x384))), int(layout.offset(np.array(0x3f4)))
    (1012, 900)
    """

    bits: int
    xor: Xor = ()

    def __post_init__(self) -> None:
        for bit, mask in self.xor:
            if bit >= self.bits or not 0 < mask < 1 << max(bit, 0):
                raise ValueError(
                    f"[xor layout] the mask {mask} of bit {bit} must flip bits below bit {bit}, and offsets have "
                    f"{self.bits} bits"
                )
        if [bit for bit, _ in self.xor] != sorted({bit for bit, _ in self.xor}):
            raise ValueError("[xor layout] source bits are listed once each, in rising order")

    def address(self, offset: NDArray[np.int64]) -> NDArray[np.int64]:
        """Byte address of each offset, elementwise."""
        found = np.array(offset, dtype=np.int64)
        if found.size and (found.min() < 0 or found.max() >> self.bits):
            raise ValueError(f"[xor layout] offsets lie in 0 to {(1 << self.bits) - 1}")
        source = found.copy()
        for bit, mask in self.xor:
            found ^= (source >> bit & 1) * mask
        return found

    def offset(self, address: NDArray[np.int64]) -> NDArray[np.int64]:
        """The offset that lies at each address, elementwise: the inverse of `address`."""
        found = np.array(address, dtype=np.int64)
        for bit, mask in reversed(self.xor):
            found ^= (found >> bit & 1) * mask
        return found

    def __str__(self) -> str:
        flips = " ^ ".join(f"{mask} * (bit {bit})" for bit, mask in self.xor)
        return f"address = x ^ {flips}" if flips else "address = x"


@dataclass(frozen=True, slots=True)
class BitSolution:
    """The best layout of this form; the fields mean what they mean in `Solution`."""

    layout: XorLayout
    accesses: tuple[AccessResult, ...]
    verdict: Verdict
    proof: Proof
    sentence: str
    asked: int
    seconds: float = field(default=0.0, compare=False)

    @property
    def conflict_free(self) -> bool:
        return all(access.conflict_free for access in self.accesses)

    def __str__(self) -> str:
        return f"{self.layout}: {self.sentence}"


def solve_bits(
    bits: int, accesses: Sequence[BitAccess], *, notebook: Notebook | None = None, rlimit: int = RLIMIT
) -> BitSolution:
    """The layout x ^ S * high(x) of 2^bits bytes that serves all accesses with the fewest wavefronts.

    bits       offsets lie below 2^bits
    notebook   keeps answers and the record of queries; None keeps nothing
    rlimit     Z3's resource limit for one query

    Vectors of the widest access stay whole. Raises ValueError where an access leaves the 2^bits bytes.
    """
    start = time.perf_counter()
    if not accesses:
        raise ValueError("[xor solver] a layout is chosen for its accesses, but none was given")
    for access in accesses:
        if any(column >> bits for column in access.columns):
            raise ValueError(f"[access {access.name!r}] it leaves the {1 << bits} bytes of the layout")
    vector = max(BANK_BYTES, *(access.width_bytes for access in accesses))
    merged: Counter[PhaseKind] = Counter()
    for access in accesses:
        merged[_phase(access, vector)] += access.phase_count * access.weight
    served = tuple(Phase(rows, levels, times) for (rows, levels), times in sorted(merged.items()))
    sources = tuple((bit, ROW_BYTES - vector) for bit in range(BANK_BITS, bits))
    question = SwizzleQuestion(f"{1 << bits} bytes", sources, served, vector, rlimit)
    plain = total_wavefronts(served, {})
    finding = find_swizzle(question, question.floor, plain, notebook)
    layout = XorLayout(bits, finding.xor or ())
    results = tuple(AccessResult(access.name, access.wavefronts(layout), access.phase_count, 1) for access in accesses)
    proof: Proof
    if all(one.conflict_free for one in results):
        proof = "ideal"
    elif finding.verdict == "unknown":
        proof = "none"
    else:
        proof = "pigeonhole" if finding.total == question.floor else "refuted"
    family = f"every XOR of bits {vector.bit_length() - 1} to 6 by higher bits"
    sentence = sentence_of(results, proof, family, vector, finding.reason)
    verdict: Verdict = "unknown" if proof == "none" else "proved"
    return BitSolution(layout, results, verdict, proof, sentence, finding.asked, time.perf_counter() - start)


def _phase(access: BitAccess, vector_bytes: int) -> PhaseKind:
    """One phase of an access as (rows, levels); by linearity all its phases are alike."""
    unit = max(access.width_bytes, BANK_BYTES)
    in_phase = access.columns[: len(access.columns) - (access.phase_count.bit_length() - 1)]
    differences = {int(offset) // unit * unit for offset in images(in_phase)}
    pairs = tuple(
        sorted(Linear(offset, offset % ROW_BYTES) for offset in differences if offset and offset % vector_bytes == 0)
    )
    crowd = len(pairs) + 1
    floor = -(-crowd // (ROW_BYTES // vector_bytes))
    return (pairs,), tuple(2**power for power in range(crowd.bit_length()) if 2**power >= floor)
