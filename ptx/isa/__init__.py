"""The PTX instruction set as instructions of machines, and the choice between those that exchange results."""

from tinygpu.ptx.isa.alu import (
    Abs,
    Add,
    And,
    Div,
    Fma,
    Max,
    MaxNumber,
    Min,
    MinNumber,
    Mov,
    Mul,
    Neg,
    Not,
    Or,
    Shl,
    Shr,
    Sub,
    Where,
    Xor,
)
from tinygpu.ptx.isa.arithmetic import arithmetic
from tinygpu.ptx.isa.atomics import RedGlobal, RedShared
from tinygpu.ptx.isa.cp_async import CpAsync
from tinygpu.ptx.isa.cvt import Ceil, Cvt, Floor, Round, Trunc
from tinygpu.ptx.isa.ex2_fma import Ex2Fma
from tinygpu.ptx.isa.exchange import Exchange
from tinygpu.ptx.isa.ldmatrix import LdMatrix
from tinygpu.ptx.isa.memory import LdGlobal, LdGlobalReadOnly, LdShared, StGlobal, StShared
from tinygpu.ptx.isa.mma import MmaSync
from tinygpu.ptx.isa.mma_scaled import MmaScaled
from tinygpu.ptx.isa.predicates import Compare, Select
from tinygpu.ptx.isa.special import Cos, DivFull, Ex2, Lg2, Rcp, RcpApprox, Rsqrt, Sin, Sqrt, SqrtApprox, Tanh
from tinygpu.ptx.isa.stmatrix import StMatrix
from tinygpu.ptx.isa.tcgen05_cp import Tcgen05Cp, Tcgen05CpPair, Tcgen05CpRows, Tcgen05CpRowsPair
from tinygpu.ptx.isa.tcgen05_ld import Tcgen05Ld
from tinygpu.ptx.isa.tcgen05_mma import Tcgen05Mma, Tcgen05MmaPair
from tinygpu.ptx.isa.tcgen05_mma_64 import Tcgen05Mma64, Tcgen05MmaPair64
from tinygpu.ptx.isa.tcgen05_mma_cells import Tcgen05MmaCells, Tcgen05MmaCellsPair
from tinygpu.ptx.isa.tcgen05_mma_scaled import Tcgen05MmaScaled, Tcgen05MmaScaledPair
from tinygpu.ptx.isa.tcgen05_mma_ws import Tcgen05MmaWs
from tinygpu.ptx.isa.tcgen05_shift import Tcgen05Shift, Tcgen05ShiftPair
from tinygpu.ptx.isa.tcgen05_st import Tcgen05St
from tinygpu.ptx.isa.tma import TmaLoad, TmaStore
from tinygpu.ptx.isa.unpack import Pack, Unpack
from tinygpu.ptx.isa.warp import BarSync, Redux, ShflBfly, ShflIdx, ShflUp
from tinygpu.ptx.isa.wgmma import Wgmma
from tinygpu.ptx.isa.wgmma_registers import WgmmaRegisters

__all__ = [
    "Abs",
    "Add",
    "And",
    "BarSync",
    "Ceil",
    "Compare",
    "Cos",
    "CpAsync",
    "Cvt",
    "Div",
    "DivFull",
    "Ex2",
    "Ex2Fma",
    "Exchange",
    "Floor",
    "Fma",
    "LdGlobal",
    "LdGlobalReadOnly",
    "LdMatrix",
    "LdShared",
    "Lg2",
    "Max",
    "MaxNumber",
    "Min",
    "MinNumber",
    "MmaScaled",
    "MmaSync",
    "Mov",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "Pack",
    "Rcp",
    "RcpApprox",
    "RedGlobal",
    "RedShared",
    "Redux",
    "Round",
    "Rsqrt",
    "Select",
    "ShflBfly",
    "ShflIdx",
    "ShflUp",
    "Shl",
    "Shr",
    "Sin",
    "Sqrt",
    "SqrtApprox",
    "StGlobal",
    "StMatrix",
    "StShared",
    "Sub",
    "Tanh",
    "Tcgen05Cp",
    "Tcgen05CpPair",
    "Tcgen05CpRows",
    "Tcgen05CpRowsPair",
    "Tcgen05Ld",
    "Tcgen05Mma",
    "Tcgen05Mma64",
    "Tcgen05MmaCells",
    "Tcgen05MmaCellsPair",
    "Tcgen05MmaPair",
    "Tcgen05MmaPair64",
    "Tcgen05MmaScaled",
    "Tcgen05MmaScaledPair",
    "Tcgen05MmaWs",
    "Tcgen05Shift",
    "Tcgen05ShiftPair",
    "Tcgen05St",
    "TmaLoad",
    "TmaStore",
    "Trunc",
    "Unpack",
    "Wgmma",
    "WgmmaRegisters",
    "Where",
    "Xor",
    "arithmetic",
]
