"""Whether products read operands in shared memory with the swizzle by which tensor copies wrote them."""

from __future__ import annotations

from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.residents import Residents
from tinygpu.ptx.emulator.state.swizzled_writes import SwizzledWrites
from tinygpu.ptx.emulator.units.matrix_descriptors import NO_SWIZZLE, said
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES, Swizzle


def advise_swizzle(residents: Residents, i: Instruction, index: int, swizzle: Swizzle, operand: str) -> None:
    """Say so where the last write of the first byte of what an instruction reads was a copy with another swizzle.

    index    of the byte, in the shared memory of all resident CTAs
    swizzle  that of the matrix descriptor
    """
    if not residents.emulation.checking:
        return
    shadow = residents.shadow
    tick = int(shadow.written[index // shadow.granule_bytes])
    found = SwizzledWrites.of(residents).otherwise(tick, swizzle.name)
    if found is not None:
        residents.emulation.advise(
            "operand swizzled otherwise", i,
            f"{operand} is read {_by(swizzle)}, but the tensor copy on line {found.line} wrote it "
            f"{_by(SWIZZLES[found.swizzle])}: tensor map and matrix descriptor must name the same",
        )  # fmt: skip


def _by(swizzle: Swizzle) -> str:
    return "without a swizzle" if swizzle == NO_SWIZZLE else f"with the swizzle {said(swizzle)}"
