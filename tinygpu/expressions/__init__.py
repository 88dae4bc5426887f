"""Integer expressions over parameters, dims and device figures."""

from tinygpu.expressions.evaluation import compile_arrays, compile_scalars, compile_with, evaluate
from tinygpu.expressions.functions import FloorDiv, Remainder, integer_sides, rounded_up
from tinygpu.expressions.multiples import multiples
from tinygpu.expressions.printing import written
from tinygpu.expressions.tables import Table, Tabulated
from tinygpu.expressions.terms import (
    Expr,
    Operand,
    all_of,
    any_of,
    beside,
    ceil_div,
    expr,
    implies,
    joined,
    maximum,
    minimum,
    symbol,
    tabulated,
    where,
)

__all__ = [
    "Expr",
    "FloorDiv",
    "Operand",
    "Remainder",
    "Table",
    "Tabulated",
    "all_of",
    "any_of",
    "beside",
    "ceil_div",
    "compile_arrays",
    "compile_scalars",
    "compile_with",
    "evaluate",
    "expr",
    "implies",
    "integer_sides",
    "joined",
    "maximum",
    "minimum",
    "multiples",
    "rounded_up",
    "symbol",
    "tabulated",
    "where",
    "written",
]
