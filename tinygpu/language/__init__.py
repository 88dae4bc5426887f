"""The language in which machines are written: everything that a class body and a program need."""

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr, all_of, any_of, ceil_div, implies, maximum, minimum, symbol, where
from tinygpu.language.blocked import blocked, register_blocked
from tinygpu.language.heuristic import HEURISTICS, Heuristic
from tinygpu.language.instruction import (
    BulkTransfer,
    Elementwise,
    Fragment,
    Instruction,
    LaneRead,
    MatrixLoad,
    MatrixMultiply,
    MatrixStore,
    Shuffle,
    Transfer,
)
from tinygpu.language.machine import Machine
from tinygpu.language.memories import GMEM, L1, L2, RMEM, SMEM, TMEM, Memory
from tinygpu.language.parameters import AccessPattern, Choice, DeclarationError, Dim, Option, Param, UnknownLayout
from tinygpu.language.partition import Partition
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.language.require import Require
from tinygpu.language.route import Route
from tinygpu.language.tensors import InOut, Input, Output, Scalar
from tinygpu.language.values import Values, ascending, between, integers, normal, one_of, positive, shifted, uniform
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import E

__all__ = [
    "GMEM",
    "HEURISTICS",
    "L1",
    "L2",
    "RMEM",
    "SMEM",
    "TMEM",
    "AccessPattern",
    "BulkTransfer",
    "Choice",
    "DType",
    "DeclarationError",
    "Dim",
    "E",
    "Elementwise",
    "Expr",
    "Fragment",
    "Heuristic",
    "InOut",
    "Input",
    "Instruction",
    "LaneRead",
    "Layout",
    "Machine",
    "MatrixLoad",
    "MatrixMultiply",
    "MatrixStore",
    "Memory",
    "Option",
    "Output",
    "Param",
    "Partition",
    "Problem",
    "ProblemError",
    "Require",
    "Route",
    "Scalar",
    "Shuffle",
    "Transfer",
    "UnknownLayout",
    "Values",
    "all_of",
    "any_of",
    "ascending",
    "between",
    "blocked",
    "ceil_div",
    "dtype",
    "implies",
    "integers",
    "maximum",
    "minimum",
    "normal",
    "one_of",
    "positive",
    "register_blocked",
    "shifted",
    "symbol",
    "uniform",
    "where",
]
