"""Instructions: what one PTX-backed operation needs, brings and costs. The shipped ones are in `tinygpu.ptx.isa`.

An instruction belongs to one of eleven families, which say how its operands are partitioned:

    Transfer         moves vectors between two memories, thread by thread (ld, st, cp.async)
    BulkTransfer     moves a whole tile, issued by one thread (TMA)
    MatrixLoad       moves matrices from SMEM to fragments in registers (ldmatrix)
    MatrixStore      moves fragments from registers to SMEM (stmatrix)
    MatrixMultiply   multiplies fragments, or tiles in SMEM (mma.sync, wgmma, tcgen05.mma)
    CellCopy         moves tiles of SMEM to columns of TMEM, issued by one thread (tcgen05.cp): a ChunkCopy scales, a
                     RowCopy rows, a RowShift new rows behind those that are there
    CellLoad         moves columns of TMEM to the registers of a warpgroup (tcgen05.ld)
    CellStore        moves registers of a warpgroup to columns of TMEM (tcgen05.st)
    Elementwise      computes value by value (fma, add, ex2, cvt)
    Shuffle          exchanges values between lanes (shfl.sync); a LaneRead reads any lane, a LaneShift one below too
    LaneCombine      combines what all lanes of a warp have (redux.sync)

Each says in `meaning` what it does to whole tiles, in NumPy, whoever holds which element: what `Program.run` carries
out, and what `tinygpu check` compares with the text. An instruction that does something else says so in its own.

A user's own instruction subclasses one of them, in the user's own file; it is then bound, searched, costed and lowered
like a shipped one: lowering knows the families alone, and what it needs of an instruction its family asks for. Rates
and latencies belong to the Device, so that calibration never edits an instruction.
"""

from tinygpu.language.instruction.base import (
    OLDEST_TARGET,
    WRITTEN_FOR,
    Completion,
    Instruction,
    Scope,
    Unit,
    since,
)
from tinygpu.language.instruction.bulk import BulkTransfer
from tinygpu.language.instruction.cell_copy import CellCopy
from tinygpu.language.instruction.cell_move import CellMove
from tinygpu.language.instruction.cell_store import CellStore
from tinygpu.language.instruction.cells import CellLoad
from tinygpu.language.instruction.chunk_copy import CHUNK_BYTES, ChunkCopy
from tinygpu.language.instruction.elementwise import OPERANDS, Elementwise
from tinygpu.language.instruction.group import Group
from tinygpu.language.instruction.matrices import MatrixLoad, MatrixMove, MatrixStore
from tinygpu.language.instruction.multiply import WORD_OF_SCALES, Fragment, MatrixMultiply, Scales
from tinygpu.language.instruction.row_copy import RowCopy
from tinygpu.language.instruction.row_shift import RowShift
from tinygpu.language.instruction.shuffle import LaneCombine, LaneRead, LaneShift, Shuffle, pairwise
from tinygpu.language.instruction.tiling import Tiled, held_digits, tiled
from tinygpu.language.instruction.transfer import Transfer

__all__ = [
    "CHUNK_BYTES",
    "OLDEST_TARGET",
    "OPERANDS",
    "WORD_OF_SCALES",
    "WRITTEN_FOR",
    "BulkTransfer",
    "CellCopy",
    "CellLoad",
    "CellMove",
    "CellStore",
    "ChunkCopy",
    "Completion",
    "Elementwise",
    "Fragment",
    "Group",
    "Instruction",
    "LaneCombine",
    "LaneRead",
    "LaneShift",
    "MatrixLoad",
    "MatrixMove",
    "MatrixMultiply",
    "MatrixStore",
    "RowCopy",
    "RowShift",
    "Scales",
    "Scope",
    "Shuffle",
    "Tiled",
    "Transfer",
    "Unit",
    "held_digits",
    "pairwise",
    "since",
    "tiled",
]
