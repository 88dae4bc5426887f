"""Instructions on matrices that the lanes of a warp, or of a warpgroup, hold together."""

from __future__ import annotations

from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.ldmatrix import LDMATRIX
from tinygpu.ptx.emulator.instructions.mma import MMA
from tinygpu.ptx.emulator.instructions.wgmma import WGMMA
from tinygpu.ptx.emulator.instructions.wmma import WMMA

MATRICES: dict[str, Compile] = {**LDMATRIX, **MMA, **WGMMA, **WMMA}
