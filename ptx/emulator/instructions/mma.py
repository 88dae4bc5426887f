"""mma.sync in all its forms: dense, sparse, block-scaled (PTX ISA, "mma", "mma.sp")."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.mma_forms import MmaForm, read_form
from tinygpu.ptx.emulator.instructions.warp_products import (
    Adjust,
    Floats,
    Multiply,
    WarpProduct,
    compile_product,
    hold,
)
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.units import sparsity
from tinygpu.ptx.emulator.units.fragments import (
    Fragment,
    accumulator_fragment,
    left_fragment,
    quad_pair_accumulator,
    quad_pair_operand,
    right_fragment,
)


def _mma(b: Binder, i: Instruction) -> Run:
    form = read_form(b, i)
    operands = list(b.operands(i, 4 + 2 * form.sparse + 4 * (form.scale is not None)))
    left, right, out_c, out_d = _fragments(form)
    held_a = b.vector(operands[1], left.elements // form.a.per_register, "A of this mma")
    held_b = b.vector(operands[2], right.elements // form.b.per_register, "B of this mma")
    a, held_right = hold(b, held_a, left, form.a), hold(b, held_b, right, form.b)
    matrices = frozenset(b.reads)
    adjust_a: list[Adjust] = []
    adjust_b: list[Adjust] = []
    rest = operands[4:]
    if form.sparse:
        adjust_a.append(_expansion(b, i, form, rest[0], rest[1]))
        rest = rest[2:]
    if form.scale is not None:
        adjust_a.append(_scaling(b, i, form, rest[0], rest[1], "a"))
        adjust_b.append(_scaling(b, i, form, rest[2], rest[3], "b"))
    product = WarpProduct(
        a, held_right, out_c, out_d, form.c_type, form.d_type, _multiply(form), form.saturating, form.name,
        form.operations, form.quad_pairs, adjust_a, adjust_b, frozenset(b.reads - matrices),
    )  # fmt: skip
    held_c = b.vector(operands[3], out_c.elements // (1 + (form.c_type == "f16")), "C of this mma")
    held_d = b.vector(operands[0], out_d.elements // (1 + (form.d_type == "f16")), "D of this mma")
    return compile_product(b, i, product, held_c, held_d)


def _fragments(form: MmaForm) -> tuple[Fragment, Fragment, Fragment, Fragment]:
    """A, B, C, D."""
    if form.quad_pairs:
        return (
            quad_pair_operand(form.a_rows), quad_pair_operand(not form.b_rows),
            quad_pair_accumulator(form.c_type == "f32"), quad_pair_accumulator(form.d_type == "f32"),
        )  # fmt: skip
    accumulator = accumulator_fragment(form.m, 8)
    return (
        left_fragment(form.m, form.stored_k, form.a.per_register), right_fragment(form.k, form.b.per_register),
        accumulator, accumulator,
    )  # fmt: skip


def _multiply(form: MmaForm) -> Multiply:
    """A * B in binary64; B is (n, k, 8), of quad pairs (n, 32, 4) with columns stacked."""
    if form.quad_pairs:

        def pairs(a: Floats, b: Floats) -> Floats:
            left, right = a.reshape(-1, 4, 8, 4), b.reshape(-1, 4, 8, 4)
            product: Floats = np.matmul(left, right.transpose(0, 1, 3, 2))
            return product.reshape(a.shape[0], 32, 8)

        return pairs
    return differing_bits if form.bit_operation == "xor" else np.matmul


def differing_bits(a: Floats, b: Floats) -> Floats:
    """How many bits of each row of A and column of B differ: those set on one side, less those set on both, twice."""
    product: Floats = a.sum(axis=2)[:, :, None] + b.sum(axis=1)[:, None, :] - 2 * np.matmul(a, b)
    return product


# ---- sparse A -----------------------------------------------------------------------------------------------------


def _expansion(b: Binder, i: Instruction, form: MmaForm, metadata: Operand, selector: Operand) -> Adjust:
    """Stored elements of A to the columns that the metadata names."""
    layout = sparsity.sparsity_layout(form.k, form.a.bits)
    words = b.source(metadata, "u32")
    chosen = b.integer(selector, "the sparsity selector")
    if not 0 <= chosen < layout.selectors:
        allowed = " or ".join(str(k) for k in range(layout.selectors))
        raise b.fail(f"`{i.name}`: the sparsity selector must be {allowed}, not {chosen}")

    def expand(c: Cohort, stored: Floats) -> Floats:
        indices = sparsity.chunk_indices(layout, c.spread(words(c)), chosen)
        bad = sparsity.illegal_chunks(layout, indices, form.ordered)
        if bad.any():
            _report_metadata(c, i, form, indices, bad)
        return sparsity.expand(layout, stored, indices)

    return expand


def _report_metadata(
    c: Cohort, i: Instruction, form: MmaForm, indices: NDArray[np.int64], bad: NDArray[np.bool_]
) -> None:
    warp, row, chunk = (int(x) for x in np.argwhere(bad)[0])
    if form.a.bits == 32:
        right = "0b0100 or 0b1110"
    else:
        right = "0b0100, 0b1000, 0b1001, 0b1100, 0b1101 or 0b1110" if form.ordered else "two different indices"
    c.emulation.fault(
        "descriptor", i, c.residents, int(c.set.index[warp]), None,
        f"the sparsity metadata of row {row} of A, chunk {chunk}, is {int(indices[warp, row, chunk]):#06b}: it must be "
        f"{right}",
        count=int(np.count_nonzero(bad)),
    )  # fmt: skip


# ---- block scaling ------------------------------------------------------------------------------------------------


def _scaling(
    b: Binder, i: Instruction, form: MmaForm, data: Operand, selector: Operand, operand: str
) -> Adjust:
    """Multiply A or B by scale factors, of which each covers k / scale_count neighbours along K.

    Of each quad the lanes 2 t and 2 t + 1 give the scale factors of rows g and g + 8 of A, and lane t that of column g
    of B, where t is the thread selector (PTX ISA, "Block Scaling for mma.sync").
    """
    # Compilers write the register of the scale factors with braces or without.
    words = b.source(b.vector(data, 1, f"scale-{operand}")[0], "u32")
    byte_id, thread_id = (b.source(e, "u16") for e in b.vector(selector, 2, f"the selector of scale-{operand}"))
    count, scale = form.scale_count, form.scale
    if scale is None:
        raise ValueError("this form has no scale factors")
    quad = np.arange(8)
    lanes = np.concatenate([4 * quad, 4 * quad + 1]) if operand == "a" else 4 * quad
    per_thread = 2 if operand == "a" else 1
    threads = 4 // per_thread

    def adjust(c: Cohort, numbers: Floats) -> Floats:
        byte, thread = (c.spread(get(c))[:, 0].astype(np.int64) for get in (byte_id, thread_id))
        _check_selector(c, i, operand, byte, thread, count, threads)
        held = c.spread(words(c))
        cells = np.take_along_axis(held, lanes[None, :] + per_thread * (thread[:, None] % threads), axis=1)
        part = np.arange(count)[None, None, :] + (byte % (5 - count))[:, None, None]
        codes = (cells[:, :, None] >> (8 * part).astype(np.uint32)) & np.uint32(0xFF)
        factors = np.repeat(scale.decode(codes).astype(np.float64), form.k // count, axis=2)
        return numbers * (factors if operand == "a" else factors.transpose(0, 2, 1))

    return adjust


def _check_selector(
    c: Cohort, i: Instruction, operand: str, byte: NDArray[np.int64], thread: NDArray[np.int64], count: int,
    threads: int,
) -> None:  # fmt: skip
    """Bytes 0 to 3 for one scale factor, 0 or 2 for two, 0 for four; threads 0 to 1 for A, 0 to 3 for B."""
    for name, value, allowed in (
        ("byte-id", byte, range(0, 4, count)), ("thread-id", thread, range(threads))
    ):  # fmt: skip
        bad = ~np.isin(value, list(allowed))
        if bad.any():
            at = int(np.argmax(bad))
            right = " or ".join(str(k) for k in allowed)
            c.emulation.fault(
                "descriptor", i, c.residents, int(c.set.index[at]), None,
                f"{name}-{operand} of the scale factors is {int(value[at])}: it must be {right}",
                count=int(np.count_nonzero(bad)),
            )  # fmt: skip


MMA: dict[str, Compile] = {"mma": _mma}
