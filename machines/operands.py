"""The operands of a matmul, declared once: which types go with each other, and how factors come to the tensor cores.

A machine names what it multiplies in one line, `a, b, bias, scales, c, residual = operands(m, n, k, *KINDS)`; where it
has tensors of its own, it takes the tables of types.
"""

from __future__ import annotations

from typing import Any

from tinygpu.dtypes import DType
from tinygpu.language import Choice, Dim, Expr, Input, Output, Route, Tracer
from tinygpu.ptx import isa

# What tensor cores multiply.
KINDS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8")

# What products in tensor memory multiply besides: elements of 6 and of 4 bits, by each other and by those of 8.
NARROW = ("e2m3", "e3m2", "e2m1")
MORE_KINDS = (*KINDS, *NARROW)

# Types that follow the type of a: of b, of the result, of the bias.
FACTORS: dict[str, tuple[str, ...]] = {t: (t,) for t in ("f32", "f16", "bf16", "tf32", "s8")}
FACTORS |= {"e4m3": ("e4m3", "e5m2"), "e5m2": ("e5m2", "e4m3")}
_FLOATS = ("e4m3", "e5m2", *NARROW)
MORE_FACTORS = FACTORS | {t: (t, *(other for other in _FLOATS if other != t)) for t in _FLOATS}
RESULTS: dict[str, tuple[str, ...]] = {
    "f32": ("f32",),
    "f16": ("f16", "f32"),
    "bf16": ("bf16", "f32"),
    "tf32": ("f32",),
    "e4m3": ("bf16", "f16", "f32"),
    "e5m2": ("bf16", "f16", "f32"),
    **dict.fromkeys(NARROW, ("bf16", "f16", "f32")),
    "s8": ("s32", "f32", "f16", "bf16"),
}
BIASES: dict[str, tuple[str, ...]] = {t: ("s32", "f32") if t == "s8" else ("f32",) for t in RESULTS}
# Of the residual, which follows the result.
RESIDUALS: dict[str, tuple[str, ...]] = {t: (t,) for t in ("f16", "bf16", "f32", "s32")}

NO_REGISTERS = "cp.async moves the same sectors without passing through registers (PTX ISA, cp.async)"
FOUR_MATRICES = "one ldmatrix.x4 brings what sixteen or more 32-bit and narrower loads bring (PTX ISA, ldmatrix)"


def of(table: dict[str, tuple[str, ...]], *kinds: str) -> dict[str, tuple[str, ...]]:
    """The rows of a table for these types."""
    return {kind: table[kind] for kind in kinds}


def factors(
    m: Dim, n: Dim, k: Dim, *kinds: str, batch: tuple[Dim, ...] = (), table: dict[str, tuple[str, ...]] = FACTORS
) -> tuple[Input, Input]:
    """(a, b) of a @ b, each in either order; `batch` are the dims along which there are many of them.

    table  types of b that follow the type of a
    """
    columns_a, columns_b = ((*batch, k, m), (*batch, n, k)) if batch else ("col", "col")
    a = Input(kinds, *batch, m, k, majors=("row", columns_a))
    return a, Input(of(table, *kinds), *batch, k, n, majors=("row", columns_b), follows=a)


def product(a: Input, *dims: Dim) -> Output:
    """What a product with `a` may be stored as."""
    return Output(of(RESULTS, *(t.name for t in a.dtypes)), *dims, follows=a)


def operands(
    m: Dim, n: Dim, k: Dim, *kinds: str, table: dict[str, tuple[str, ...]] = FACTORS
) -> tuple[Input, Input, Input, Input, Output, Input]:
    """(a, b, bias, scales, c, residual): what a matmul takes whose result passes through an `Epilogue`.

    table  types of b that follow the type of a
    """
    a, b = factors(m, n, k, *kinds, table=table)
    c = product(a, m, n)
    stored = {t.name for t in c.dtypes}
    bias, scales = Input(of(BIASES, *kinds), n, follows=a), Input(dict.fromkeys(kinds, ("f32",)), n, follows=a)
    return a, b, bias, scales, c, Input(of(RESIDUALS, *(t for t in RESIDUALS if t in stored)), m, n, follows=c)


def stage(
    p: Tracer, mma: Any, types: tuple[DType, DType], side: int, shape: tuple[Any, Any], contiguous: int, swizzle: Any
) -> Any:
    """A buffer in which TMA leaves tiles of a factor as `mma` reads them in shared memory.

    types       of a and b of the product
    side        0: it is a, (m, k); 1: it is b, (k, n)
    contiguous  axis of the tile whose neighbours are neighbours in memory
    """
    atom = mma.atom(types[side], contiguous == side)
    return p.smem(
        types[side], shape, contiguous=contiguous, swizzle=swizzle, atom=atom, padded=mma.padded(*types)
    )


def copied(vector: Expr) -> Choice:
    """How threads bring a tile to shared memory: vectors of cp.async, or through their registers."""
    return Choice(isa.CpAsync(vector), Route(isa.LdGlobal(vector), isa.StShared(vector)), ordered=NO_REGISTERS)


def fragments() -> Choice:
    """How a tile of shared memory becomes fragments of mma.sync."""
    return Choice(isa.LdMatrix(), isa.LdShared(1), ordered=FOUR_MATRICES)
