"""The PTX instruction set as instructions of machines."""

from tinygpu.ptx.isa.alu import (
    Abs,
    Add,
    Cos,
    Cvt,
    Div,
    Ex2,
    Fma,
    Lg2,
    Max,
    Min,
    Mul,
    Neg,
    Rcp,
    Rsqrt,
    Sin,
    Sqrt,
    Sub,
    Tanh,
)
from tinygpu.ptx.isa.cp_async import CpAsync
from tinygpu.ptx.isa.ldmatrix import LdMatrix
from tinygpu.ptx.isa.memory import LdGlobal, LdGlobalReadOnly, LdShared, StGlobal, StShared
from tinygpu.ptx.isa.mma import MmaSync
from tinygpu.ptx.isa.warp import BarSync, ShflBfly

__all__ = [
    "Abs",
    "Add",
    "BarSync",
    "Cos",
    "CpAsync",
    "Cvt",
    "Div",
    "Ex2",
    "Fma",
    "LdGlobal",
    "LdGlobalReadOnly",
    "LdMatrix",
    "LdShared",
    "Lg2",
    "Max",
    "Min",
    "MmaSync",
    "Mul",
    "Neg",
    "Rcp",
    "Rsqrt",
    "ShflBfly",
    "Sin",
    "Sqrt",
    "StGlobal",
    "StShared",
    "Sub",
    "Tanh",
]
