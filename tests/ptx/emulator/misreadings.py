"""Other readings of tcgen05, one for each that has a witness: what the emulator would do had it understood it so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from misreadings_of_order import (
    Misread,
    Patch,
    at_once,
    home_only,
    next_cluster,
    next_columns,
    no_wait,
    own_barrier,
    rows_turned,
    unordered,
)

from tinygpu.ptx.emulator.instructions import tcgen05_copies, tcgen05_moves
from tinygpu.ptx.emulator.instructions import tcgen05_mma as mma
from tinygpu.ptx.emulator.instructions import tcgen05_multiply as product
from tinygpu.ptx.emulator.units import operand_tiles, tcgen05_descriptors
from tinygpu.ptx.emulator.units.narrow_floats import NARROW_FLOATS
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES
from tinygpu.ptx.emulator.units.tcgen05_descriptors import KINDS
from tinygpu.ptx.emulator.units.tensor_memory_maps import COPY_SHAPES, Slab


def anew(patch: Patch) -> None:
    """Descriptors are read each time, not remembered."""
    patch.setattr(mma, "judge_descriptor", mma.judge_descriptor.__wrapped__)
    patch.setattr(mma, "_described", mma._described.__wrapped__)


def _matrix(**changes: Callable[[Any], Any]) -> Misread:
    """Matrix descriptors with other fields: functions of what was decoded."""

    def misread(patch: Patch) -> None:
        right = mma.decode_descriptor

        def decode(word: int, unit: Any) -> Any:
            found = right(word, unit)
            return replace(found, **{name: change(found) for name, change in changes.items()})

        for module in (mma, tcgen05_copies):
            patch.setattr(module, "decode_descriptor", decode)

    return misread


def _constant(patch: Patch) -> None:
    right = mma.decode_descriptor
    for module in (mma, tcgen05_copies):
        patch.setattr(module, "decode_descriptor", lambda word, unit: right(word ^ 3 << 46, unit))


_NEXT = {"none": "32B", "32B": "64B", "64B": "128B", "128B": "64B", "128B_ATOM_32B": "128B"}


def _offsets_swizzled(patch: Patch) -> None:
    def table(swizzle: Any, base: int, leading: int, stride: int, start: int, mn: bool, outer: int, inner: int) -> Any:
        row, byte = np.arange(outer)[:, None], np.arange(0, inner, 16)[None, :]
        found = start + swizzle.apply(operand_tiles._unswizzled(swizzle, leading, stride, mn, row, byte))
        return found, (int(found.min()), int(found.max()) + 16)

    patch.setattr(operand_tiles, "_table", table)


def _word(**changes: Callable[[Any], Any]) -> Misread:
    """Instruction descriptors with other fields."""

    def misread(patch: Patch) -> None:
        right = mma.judge_descriptor

        def judge(word: int, form: Any, has_k96: bool = False) -> Any:
            what, problems = right(word, form, has_k96)
            if what is not None:
                what = replace(what, **{name: change(what) for name, change in changes.items()})
            return what, problems

        patch.setattr(mma, "judge_descriptor", judge)

    return misread


def _exchanged(name: str) -> Misread:
    """The types of A and B, taken from each other's bits."""
    return _word(**{name: lambda w: w.b_type if name == "a_type" else w.a_type})


def _kind(name: str, **changes: Any) -> Misread:
    return lambda patch: patch.setitem(KINDS, name, replace(KINDS[name], **changes))


def _type(kind: str, element: str) -> Misread:
    """The next code means this type, and this type's code the next one, or nothing."""
    types = dict(KINDS[kind].types)
    (code,) = (c for c, t in types.items() if t == element)
    others = [c for c in types if c != code]
    if others:
        nearest = min(others, key=lambda c: abs(c - code))
        types[code], types[nearest] = types[nearest], types[code]
    else:
        types = {code ^ 3: element}
    return _kind(kind, types=types)


def _sums(kind: str, element: str) -> Misread:
    """The codes of the types of D in another order; where there is no code, another type."""
    if KINDS[kind].scaled:
        return _word(d_type=lambda w: "f16")
    codes = {0: "f32", 1: "f16", 2: "s32"} if element != "s32" else {0: "f16", 1: "s32", 2: "f32"}
    return lambda patch: patch.setattr(tcgen05_descriptors, "_ACCUMULATORS", codes)


def _layout(which: str, move: Callable[[Slab, int], Slab]) -> Misread:
    """The slabs of one data path layout lie elsewhere: `move` gives a slab's other place."""

    def misread(patch: Patch) -> None:
        right = product.accumulator_slabs

        def slabs(layout: Any, n: int, half: int = 0) -> tuple[Slab, ...]:
            found = right(layout, n, half)
            return tuple(move(s, n) for s in found) if layout == which else found

        patch.setattr(product, "accumulator_slabs", slabs)
        patch.setattr(product, "joined_slabs", slabs)

    return misread


def _turned(slab: Slab, n: int) -> Slab:
    return replace(slab, lane=(slab.lane + 32) % 128)


def _other_half(slab: Slab, n: int) -> Slab:
    return replace(slab, column=n // 2 - slab.column)


def _together(slab: Slab, n: int) -> Slab:
    return replace(slab, lane=slab.lane // 2)


def _high_halves(patch: Patch) -> None:
    right = product.accumulate

    def accumulate(values: Any, old: Any, d_type: str, *rest: Any) -> Any:
        found = right(values, old, d_type, *rest)
        return found << np.uint32(16) if d_type == "f16" else found

    patch.setattr(product, "accumulate", accumulate)


def _rows_of_a(change: Callable[[Slab], Slab], upside_down: bool = False) -> Misread:
    """A in tensor memory lies in other lanes."""

    def misread(patch: Patch) -> None:
        right = product._rows_of_a

        def rows(call: Any, memory: Any, slab: Slab, shared: Any) -> Any:
            a, bad, wrong = right(call, memory, change(slab), shared)
            return (a[::-1], bad[::-1], wrong) if upside_down else (a, bad, wrong)

        patch.setattr(product, "_rows_of_a", rows)

    return misread


def _cells_of_a(reorder: Callable[[Any], Any]) -> Misread:
    """Elements of A lie in another order in their cells."""

    def misread(patch: Patch) -> None:
        right = product.decode_rows

        def decode(data: Any, kind: str, element: str, in_tmem: bool = False) -> Any:
            return right(reorder(data) if in_tmem else data, kind, element, in_tmem)

        patch.setattr(product, "decode_rows", decode)

    return misread


def _swapped(width: int) -> Callable[[Any], Any]:
    """Units of `width` bytes in reverse order within each cell, or cells in reverse order."""

    def reorder(data: Any) -> Any:
        if width == 4:
            return np.ascontiguousarray(data.reshape(data.shape[0], -1, 4)[:, ::-1]).reshape(data.shape)
        units = data.reshape(data.shape[0], -1, 4 // width, width)
        return np.ascontiguousarray(units[:, :, ::-1]).reshape(data.shape)

    return reorder


def _stored_codes(change: Callable[[Any], Any], kinds: tuple[str, ...]) -> Misread:
    """Narrow elements in shared memory are packed otherwise."""

    def misread(patch: Patch) -> None:
        right = product.decode_rows

        def decode(data: Any, kind: str, element: str, in_tmem: bool = False) -> Any:
            narrow = element == "e2m1" and kind in kinds
            return right(change(data) if narrow else data, kind, element, in_tmem)

        patch.setattr(product, "decode_rows", decode)

    return misread


def _padding_first(data: Any) -> Any:
    return np.roll(data.reshape(*data.shape[:-1], -1, 16), 8, axis=-1).reshape(data.shape)


def _every_other_byte(data: Any) -> Any:
    """An element to a byte: a third code comes out of each second one."""
    return data & np.uint8(15)


def _scale_place(which: str) -> Misread:
    """Row r in lane r / 4 and column r % 4."""

    def misread(patch: Patch) -> None:
        right = product.scale_cells

        def cells(slab: Slab, operand: str, count: int, first: int) -> Any:
            found = right(slab, operand, count, first)
            if operand != which:
                return found
            row = found.lane % 32 + 32 * found.column
            width = int(found.column.max()) + 1
            return replace(found, lane=found.lane // 32 * 32 + row // width, column=row % width)

        patch.setattr(product, "scale_cells", cells)

    return misread


def _scale_address(patch: Patch) -> None:
    """The address of scale factors is a lane and a column, and nothing else: its lane must be 0."""
    right = mma._call

    def call(start: Any, form: Any, what: Any, scale: int, v: Any) -> Any:
        for address in (v.sfa, v.sfb):
            if form.scales_per_row and address >> 16:
                start.fault(f"the scale factors are addressed at lane {address >> 16} of tensor memory")
                return None
        return right(start, form, what, scale, v)

    patch.setattr(mma, "_call", call)


def _blocks(kind: str, spelled: str) -> Misread:
    blocks = dict(KINDS[kind].blocks)
    blocks[spelled] = 2 if blocks[spelled] != 2 else 4
    return _kind(kind, blocks=blocks)


def _scale_values(which: str, change: Callable[[Any], Any]) -> Misread:
    def misread(patch: Patch) -> None:
        right = product.scale_values

        def values(data: Any, kind: str) -> Any:
            return change(data) if kind == which else right(data, kind)

        patch.setattr(product, "scale_values", values)

    return misread


def _registers(verb: str, shape: str) -> Misread:
    """Every thread has the cells of its neighbour."""
    name, packed = shape.split(",")[0], "packed" in shape

    def misread(patch: Patch) -> None:
        right = tcgen05_moves._form

        def form(b: Any, i: Any, split: Any) -> Any:
            found = right(b, i, split)
            if not i.name.startswith(f"tcgen05.{verb}") or not i.has(name) or found.cells.packed != packed:
                return found
            cells = replace(
                found.cells, lane=np.roll(found.cells.lane, 1, axis=0), column=np.roll(found.cells.column, 1, axis=0)
            )
            return replace(found, cells=cells)

        patch.setattr(tcgen05_moves, "_form", form)

    return misread


def _halves_loaded(patch: Patch) -> None:
    right = tcgen05_moves._gather

    def gather(cells: Any, where: Any, lane: int, column: int) -> Any:
        found = right(cells, where, lane, column)
        return found << np.uint32(16) | found >> np.uint32(16) if where.packed else found

    patch.setattr(tcgen05_moves, "_gather", gather)


def _halves_stored(patch: Patch) -> None:
    right = tcgen05_moves._scatter

    def scatter(cells: Any, where: Any, lane: int, column: int, values: Any, above: int) -> None:
        if values is not None and where.packed:
            values = values << np.uint32(16) | values >> np.uint32(16)
        right(cells, where, lane, column, values, above)

    patch.setattr(tcgen05_moves, "_scatter", scatter)


def _lane_below(patch: Patch) -> None:
    patch.setattr(tcgen05_moves, "split_address", lambda address: (address & 0xFFFF, address >> 16 & 0xFFFF))


def _other_quarter(patch: Patch) -> None:
    right = tcgen05_moves._place

    def place(origin: Any, form: Any, address: int) -> tuple[int, int]:
        lane, column = right(origin, form, address)
        return lane ^ 32, column

    patch.setattr(tcgen05_moves, "_place", place)


def _copied(name: str) -> Misread:
    shape = COPY_SHAPES[name]
    lanes = shape.lanes[:1] if len(shape.lanes) > 1 else tuple(lanes[::-1] for lanes in shape.lanes)
    return lambda patch: patch.setitem(COPY_SHAPES, name, replace(shape, lanes=lanes))


def _call(**changes: Callable[[Any], Any]) -> Misread:
    """Operands of tcgen05.mma mean something else."""

    def misread(patch: Patch) -> None:
        right = mma._call

        def call(*given: Any) -> Any:
            found = right(*given)
            return replace(found, **{name: change(found) for name, change in changes.items()})

        patch.setattr(mma, "_call", call)

    return misread


def _parts(a: bool) -> Misread:
    """The two CTAs of a pair hold each other's part of A, or of B."""

    def misread(patch: Patch) -> None:
        right = mma.carry_out

        def carry_out(call: Any, memories: Any, a_parts: Any, b_parts: Any) -> Any:
            return right(call, memories, a_parts[::-1] if a else a_parts, b_parts if a else b_parts[::-1])

        patch.setattr(mma, "carry_out", carry_out)

    return misread


_OTHER = {"ue8m0": "ue4m3", "ue4m3": "ue8m0"}
_SCALED = ("mxf4", "mxf4nvf4")
MISREADINGS: dict[str, Misread] = {
    "matrix descriptor: start_bytes": _matrix(start_bytes=lambda d: d.start_bytes >> 5 << 4),
    "matrix descriptor: leading_bytes": _matrix(leading_bytes=lambda d: d.leading_bytes >> 5 << 4),
    "matrix descriptor: stride_bytes": _matrix(stride_bytes=lambda d: d.stride_bytes >> 5 << 4),
    "matrix descriptor: constant_missing": _constant,
    "matrix descriptor: swizzle": _matrix(swizzle=lambda d: SWIZZLES[_NEXT[d.swizzle.name]]),
    "swizzle: acts on addresses": _offsets_swizzled,
    **{
        f"swizzle: {name}, {major}": _matrix(
            swizzle=lambda d, name=name: SWIZZLES[_NEXT[name]] if d.swizzle.name == name else d.swizzle  # type: ignore[misc]
        )
        for name in _NEXT
        for major in ("k-major", "mn-major")
        if (name, major) != ("128B_ATOM_32B", "k-major")
    },
    "instruction descriptor: m": _word(m=lambda w: 192 - w.m),
    "instruction descriptor: n": _word(n=lambda w: w.n - 8 if w.n > 8 else 16),
    "instruction descriptor: a_type": _exchanged("a_type"),
    "instruction descriptor: b_type": _exchanged("b_type"),
    "instruction descriptor: d_type": _word(d_type=lambda w: {"f32": "f16", "f16": "f32", "s32": "f32"}[w.d_type]),
    "instruction descriptor: a_mn_major": _word(a_mn_major=lambda w: w.b_mn_major),
    "instruction descriptor: b_mn_major": _word(b_mn_major=lambda w: w.a_mn_major),
    "instruction descriptor: negate_a": _word(negate_a=lambda w: not w.negate_a),
    "instruction descriptor: negate_b": _word(negate_b=lambda w: not w.negate_b),
    "instruction descriptor: saturate": _word(saturate=lambda w: not w.saturate),
    "instruction descriptor: scale_type": _word(scale_type=lambda w: _OTHER[w.scale_type]),
    "instruction descriptor: sfa_id": _word(sfa_id=lambda w: 0),
    "instruction descriptor: sfb_id": _word(sfb_id=lambda w: 0),
    **{f"depth: {name}": _kind(name, k=kind.k // 2) for name, kind in KINDS.items()},
    **{f"type: {name} {t}": _type(name, t) for name, kind in KINDS.items() for t in kind.types.values()},
    **{f"sums: {name} {d}": _sums(name, d) for name, kind in KINDS.items() for d in kind.d_types},
    "layout: A": _layout("A", _turned),
    "layout: B": _layout("B", _other_half),
    "layout: D": _layout("D", _turned),
    "layout: F": _layout("F", _together),
    "layout: sums of f16": _high_halves,
    "operand in tensor memory: layout D": _rows_of_a(lambda s: s, upside_down=True),
    "operand in tensor memory: layout F": _rows_of_a(lambda s: replace(s, lane=s.lane // 2)),
    "operand in tensor memory: 16 bits": _cells_of_a(_swapped(2)),
    "operand in tensor memory: 8 bits": _cells_of_a(_swapped(1)),
    "operand in tensor memory: 32 bits": _cells_of_a(_swapped(4)),
    "operand in shared memory: 4 bits of mxf8f6f4": _stored_codes(_padding_first, ("mxf8f6f4",)),
    "operand in shared memory: 4 bits of mxf4 and mxf4nvf4": _stored_codes(_every_other_byte, _SCALED),
    "scales: of A": _scale_place("A"),
    "scales: of B": _scale_place("B"),
    "scales: address": _scale_address,
    **{
        f"scales: {name}{' ' * bool(spelled)}{spelled}": _blocks(name, spelled)
        for name, kind in KINDS.items()
        for spelled in kind.blocks
    },
    "scales: ue8m0": _scale_values("ue8m0", lambda data: np.exp2(data.astype(np.float64) - 128)),
    "scales: ue4m3": _scale_values("ue4m3", lambda data: NARROW_FLOATS["e5m2"].decode(data).astype(np.float64)),
    "address: lane and column": _lane_below,
    "address: quarter of a warp": _other_quarter,
    **{
        f"{verb}: {shape}{packed}": _registers(verb, f"{shape}{packed}")
        for verb in ("ld", "st")
        for shape in ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
        for packed in ("", ", packed")
    },
    "ld: pack::16b": _halves_loaded,
    "st: unpack::16b": _halves_stored,
    **{f"cp: {name}": _copied(name) for name in COPY_SHAPES},
    "operand: enable": _call(enable=lambda c: not c.enable),
    "operand: scale": _call(scale=lambda c: 0),
    "operand: mask": _call(frozen=lambda c: tuple(~f & (1 << 128) - 1 for f in c.frozen)),
    "pair: rows of A": _parts(True),
    "pair: columns of B": _parts(False),
    "order: mma then mma": unordered("mma", "mma"),
    "order: cp then mma": unordered("cp", "mma"),
    "completion: commit after mma": at_once,
    "completion: commit after cp": at_once,
    "completion: commit multicast": home_only,
    "completion: wait::ld": no_wait("ld"),
    "completion: wait::st": no_wait("st"),
    "allocation: address": next_columns,
    "TMA: tile::gather4": rows_turned,
    "TMA: cta_group::2": own_barrier,
    "launch control: ctaid": next_cluster,
}
"""Another reading for each key; those of unjudged readings change nothing that a witness would see."""
