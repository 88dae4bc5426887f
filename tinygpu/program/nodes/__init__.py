"""What a program is made of: its statements and its grid, as immutable values.

Each class of statements says what it contains, reads and writes (`tinygpu.program.statement`).

Every extent and offset in them is an expression over parameters, dims and tensor facts, until a candidate's numbers
are filled in.
"""

from tinygpu.program.nodes.blocks import (
    FIX_UP_VECTORS_AT_ONCE,
    Consume,
    FixUp,
    InRole,
    Loop,
    Pipelined,
    Produce,
    Scope,
    When,
)
from tinygpu.program.nodes.combining import Combining, Merge, Preceding, PrecedingInCluster, Reduce, Scan
from tinygpu.program.nodes.computing import Apply, Constant, Index, Multiply, ScalarArgument, Uniform
from tinygpu.program.nodes.grid import FIRST_ROUND, ONE, PART, Axis, Grid
from tinygpu.program.nodes.moves import Copy, Load, Relayout, Store
from tinygpu.program.statement import ZERO, Block, Body, InSlot, Repeated, Statement

__all__ = [
    "FIRST_ROUND",
    "FIX_UP_VECTORS_AT_ONCE",
    "ONE",
    "PART",
    "ZERO",
    "Apply",
    "Axis",
    "Block",
    "Body",
    "Combining",
    "Constant",
    "Consume",
    "Copy",
    "FixUp",
    "Grid",
    "InRole",
    "InSlot",
    "Index",
    "Load",
    "Loop",
    "Merge",
    "Multiply",
    "Pipelined",
    "Preceding",
    "PrecedingInCluster",
    "Produce",
    "Reduce",
    "Relayout",
    "Repeated",
    "ScalarArgument",
    "Scan",
    "Scope",
    "Statement",
    "Store",
    "Uniform",
    "When",
]
