"""cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and their prefetch, in all modes (PTX ISA, "Tensor copy")."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.async_shared import Index
from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.bulk_copies import (
    LoadTargets,
    lanes_of,
    require_defined,
    shared_range,
    short_name,
)
from tinygpu.ptx.emulator.instructions.bulk_loads import start_load
from tinygpu.ptx.emulator.instructions.bulk_parts import Bytes, Part, threads
from tinygpu.ptx.emulator.instructions.bulk_stores import Store, StoresOfLanes, start_store
from tinygpu.ptx.emulator.instructions.mbarriers import shared_addresses
from tinygpu.ptx.emulator.instructions.tensormaps import map_addresses, read_map
from tinygpu.ptx.emulator.source.syntax import AddressOperand, Instruction, Operand, VectorOperand
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.units.reductions import OPERATIONS, element_bytes, reduction
from tinygpu.ptx.emulator.units.swizzles import LONGEST_PERIOD_BYTES
from tinygpu.ptx.emulator.units.tensor_boxes import (
    NAN_PATTERN,
    Box,
    gather_box,
    illegal_use,
    im2col_box,
    im2col_wide_box,
    packed_sixes,
    tile_box,
    unaligned_start,
)
from tinygpu.ptx.emulator.units.tensor_maps import TensorMapFields

# Reference of the alignment: PTX ISA, "Tensor copy"; the programming guide names 128 bytes for the shared side.
_SHARED_ALIGNMENT = 128
_SIXES = "16u6_align16b"
# Types that a tensor reduction takes (PTX ISA, cp.reduce.async.bulk.tensor) by the map's element type.
_REDUCED_AS = {
    "u32": "u32", "s32": "s32", "u64": "u64", "s64": "s64", "f16": "f16", "bf16": "bf16", "f32": "f32",
    "f32_ftz": "f32", "tf32": "f32", "tf32_ftz": "f32",
}  # fmt: skip


class TensorOperand:
    """[map, {coordinates}] with the im2col operand behind it: which box of which tensor an instruction means."""

    def __init__(self, b: Binder, i: Instruction, where: Operand, info: Operand | None) -> None:
        dimensions = next((m for m in i.modifiers if m in ("1d", "2d", "3d", "4d", "5d")), None)
        if dimensions is None:
            raise b.fail(f"`{i.name}` needs .1d to .5d")
        self.dimensions = int(dimensions[0])
        self.mode = _mode(i)
        if not isinstance(where, AddressOperand) or len(where.coordinates) != 1:
            raise b.fail(f"`{i.name}` needs [tensor map, {{coordinates}}]")
        (vector,) = where.coordinates
        elements = vector.elements if isinstance(vector, VectorOperand) else (vector,)
        count = 5 if self.mode == "gather4" else self.dimensions
        if len(elements) != count:
            raise b.fail(f"`{i.name}` takes {count} coordinates, not {len(elements)}")
        self._maps = map_addresses(b, i, where)
        self._coordinates = [b.source(element, "s32") for element in elements]
        extra = info.elements if isinstance(info, VectorOperand) else () if info is None else (info,)
        wanted = {"im2col": self.dimensions - 2, "im2col_w": 2, "im2col_w128": 2}.get(self.mode, 0)
        self._store = "shared::cta" in i.modifiers and i.modifiers.index("global") < i.modifiers.index("shared::cta")
        if self._store:
            wanted = 0
        if len(extra) != wanted:
            raise b.fail(f"`{i.name}` takes {wanted} im2col operands, not {len(extra)}")
        self._offsets = [b.source(element, "u16") for element in extra]
        self._defined = require_defined(b, i, (*elements, *extra), "is a coordinate of a tensor copy")

    def lanes(self, c: Cohort) -> NDArray[np.int64]:
        """(warps, 32, operands) everything that distinguishes what one thread asks for from what another does."""
        operands = (self._maps, *self._coordinates, *self._offsets)
        return np.stack([lanes_of(c, get).astype(np.int64) for get in operands], axis=-1)

    def bind(self, c: Cohort, site: Site, reduce: bool = False) -> Callable[[Origin, int, int], _Request | None]:
        """f(origin, row position, lane): what one thread asks for; None, and a fault, where it is illegal."""
        self._defined(c)
        maps = lanes_of(c, self._maps)
        coordinates = np.stack([lanes_of(c, get) for get in self._coordinates], axis=-1)
        offsets = [lanes_of(c, get) for get in self._offsets]

        def request(origin: Origin, at: int, lane: int) -> _Request | None:
            fields = read_map(origin, site, int(maps[at, lane]))
            if fields is None:
                return None
            place = tuple(coordinates[at, lane].tolist())
            extra = tuple(int(values[at, lane]) for values in offsets)
            if self._store and self.mode == "im2col":
                extra = (0,) * (self.dimensions - 2)
            sentence = illegal_use(
                fields, self.mode, place, dimensions=self.dimensions, store=self._store, reduce=reduce, offsets=extra
            )
            if sentence is not None:
                origin.fault("tensor map", f"illegal tensor copy: {sentence}", "global", int(maps[at, lane]))
                return None
            unaligned = unaligned_start(fields, place)
            if unaligned is not None:
                origin.advise("tensor box at an unaligned start", unaligned)
            return _Request(fields, self.mode, place, extra)

        return request


class _Request:
    """A box of a tensor, as one thread asks for it."""

    __slots__ = ("_extra", "_mode", "_place", "fields")

    def __init__(self, fields: TensorMapFields, mode: str, place: tuple[int, ...], extra: tuple[int, ...]) -> None:
        self.fields = fields
        self._mode = mode
        self._place = place
        self._extra = extra

    def box(self, shared_address: int) -> Box:
        """Its chunks, for a tile at this shared address."""
        if self._mode == "gather4":
            return gather_box(self.fields, self._place[0], self._place[1:], shared_address)
        if self._mode == "im2col":
            return im2col_box(self.fields, self._place, self._extra, shared_address)
        if self._mode in ("im2col_w", "im2col_w128"):
            halo, offset = self._extra
            return im2col_wide_box(self.fields, self._place, halo, offset, shared_address)
        return tile_box(self.fields, self._place, shared_address)


def _mode(i: Instruction) -> str:
    for modifier, mode in (
        ("tile::gather4", "gather4"), ("tile::scatter4", "gather4"), ("im2col::w::128", "im2col_w128"),
        ("im2col::w", "im2col_w"), ("im2col_no_offs", "im2col"), ("im2col", "im2col"),
    ):  # fmt: skip
        if i.has(modifier):
            return mode
    return "tile"


def tensor_copy(b: Binder, i: Instruction) -> Run:
    """All instructions cp...bulk...tensor."""
    if i.has("prefetch"):
        return _prefetch(b, i)
    spaces = [m for m in i.modifiers if m in ("global", "shared::cta", "shared::cluster")]
    if spaces in (["shared::cluster", "global"], ["shared::cta", "global"]) and not i.has("reduce"):
        return _load(b, i)
    if spaces == ["global", "shared::cta"]:
        return _store(b, i)
    raise b.fail(f"`{i.name}` copies between no two state spaces that tensor copies know")


def _takes_info(i: Instruction) -> bool:
    return any(m in ("im2col", "im2col::w", "im2col::w::128") for m in i.modifiers)


def _load(b: Binder, i: Instruction) -> Run:
    multicast, info = i.has("multicast::cluster"), _takes_info(i)
    operands = list(b.operands(i, 3 + info + multicast + i.has("L2::cache_hint")))
    destination, where, barrier = operands[:3]
    tensor = TensorOperand(b, i, where, operands[3] if info else None)
    mask = operands[3 + info] if multicast else None
    targets_of = LoadTargets(b, i, destination, barrier, mask)
    defined = require_defined(b, i, () if mask is None else (mask,), "says where a tensor copy goes")
    b.note_shared_width(4)
    b.note_global_width(4)
    site, name = b.site(i), short_name(i)

    def run(c: Cohort) -> None:
        defined(c)
        c.emulation.next_tick()
        ask, find = tensor.bind(c, site), targets_of.bind(c, site, _SHARED_ALIGNMENT)
        for origin, at, lane in threads(c, site):
            request = ask(origin, at, lane)
            if request is None:
                continue
            box, fields = request.box(0), request.fields
            targets = find(origin, at, lane, box.shared_bytes)
            if not targets:
                continue
            if targets[0].address % LONGEST_PERIOD_BYTES:
                box = request.box(targets[0].address)
            fill = NAN_PATTERN if fields.fill == "nan" else 0
            start_load(
                origin, site, targets, _load_parts(box, fields), box.transaction_bytes, name, fill,
                fields.element in ("tf32", "tf32_ftz"), "" if fields.swizzle is None else fields.swizzle.name,
            )  # fmt: skip

    return run


def _store(b: Binder, i: Instruction) -> Run:
    operation = next((m for m in i.modifiers if m in OPERATIONS), None)
    if i.has("reduce") and operation is None:
        raise b.fail(f"`{i.name}` needs an operation")
    operation = operation if i.has("reduce") else None
    operands = b.operands(i, 2 + i.has("L2::cache_hint"))
    where, source = operands[:2]
    tensor = TensorOperand(b, i, where, None)
    sources = shared_addresses(b, i, source)
    b.note_shared_width(4)
    b.note_global_width(4)
    site, name = b.site(i), short_name(i)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        ask, froms = tensor.bind(c, site, operation is not None), lanes_of(c, sources)
        stores = StoresOfLanes(c)

        def store(origin: Origin, at: int, lane: int) -> Store | None:
            request = ask(origin, at, lane)
            own = c.residents.reach.shared_place(origin, int(froms[at, lane]), False)
            if request is None or own is None:
                return None
            box, fields = request.box(own[1]), request.fields
            if not shared_range(origin, site, own[1], box.shared_bytes, _SHARED_ALIGNMENT, name):
                return None
            reduce, width = None, 1
            if operation is not None:
                type_name = _REDUCED_AS.get(fields.element, "")
                reduce = reduction(operation, type_name) if type_name else None
                if reduce is None:
                    origin.fault(
                        "tensor map", f"{name}.{operation} has no form for elements of type {fields.element}", "global"
                    )
                    return None
                width = element_bytes(type_name)
            if fields.element == _SIXES:
                return _store_sixes(origin, lane, site, own[1], box, name)
            return start_store(origin, lane, site, own[1], _stored_parts(box, fields), name, reduce, width)

        asked = tensor.lanes(c)
        for origin, at, lane in threads(c, site):
            what = (int(froms[at, lane]), *asked[at, lane].tolist())
            stores.start(origin, lane, what, partial(store, origin, at, lane))

    return run


def _store_sixes(origin: Origin, lane: int, site: Site, address: int, box: Box, name: str) -> Store:
    """Each 16 bytes in shared memory, 6 bits each, become 12 bytes in global memory."""
    whole = np.ones(box.addresses.size, np.bool_) if box.valid is None else box.valid == box.chunk_bytes
    offsets, addresses = box.offsets[whole], box.addresses[whole]
    words = np.arange(0, box.chunk_bytes, 4, dtype=np.int64)
    read = [Part(16, offsets, None)]
    written = [Part(4, offsets, (addresses[:, None] + words).reshape(-1))]

    def repack(data: list[Bytes]) -> list[Bytes]:
        return [packed_sixes(chunks.reshape(-1, 16)).reshape(-1, 4) for chunks in data]

    return start_store(origin, lane, site, address, written, name, read_parts=read, repack=repack)


def _prefetch(b: Binder, i: Instruction) -> Run:
    """A hint; its tensor map and coordinates have rules all the same."""
    info = _takes_info(i)
    operands = b.operands(i, 1 + info + i.has("L2::cache_hint"))
    tensor = TensorOperand(b, i, operands[0], operands[1] if info else None)
    site = b.site(i)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        ask = tensor.bind(c, site)
        for origin, at, lane in threads(c, site):
            ask(origin, at, lane)

    return run


# ---- parts ----------------------------------------------------------------------------------------------------------


def _sized(box: Box) -> Box:
    """The same box with chunks of a power of two: those of 12 bytes become three of 4."""
    if box.chunk_bytes != 12:
        return box
    words = np.arange(0, 12, 4, dtype=np.int64)

    def spread(values: Index) -> Index:
        return (values[:, None] + words).reshape(-1)

    valid = None if box.valid is None else np.clip(box.valid[:, None] - words, 0, 4).reshape(-1)
    return Box(
        spread(box.addresses), spread(box.offsets), valid, 4, box.pitch_bytes, box.shared_bytes, box.transaction_bytes
    )


def _edge_parts(box: Box, width: int, filled: bool) -> list[Part]:
    """Chunks that lie partly inside the tensor, element by element; with `filled` their other elements too."""
    if box.valid is None:
        return []
    edge = np.flatnonzero((box.valid > 0) & (box.valid < box.chunk_bytes))
    if not edge.size:
        return []
    steps = np.arange(0, box.chunk_bytes, width, dtype=np.int64)
    inside = steps[None, :] < box.valid[edge][:, None]
    offsets, addresses = box.offsets[edge][:, None] + steps, box.addresses[edge][:, None] + steps
    parts = [Part(width, offsets[inside], addresses[inside])]
    if filled:
        parts.append(Part(width, offsets[~inside], None))
    return parts


def _element_bytes(fields: TensorMapFields) -> int:
    return max(1, fields.element_type.bits // 8)


def _whole_part(box: Box) -> list[Part]:
    if box.valid is None:
        return [Part(box.chunk_bytes, box.offsets, box.addresses, box.runs)]
    whole = box.valid == box.chunk_bytes
    return [Part(box.chunk_bytes, box.offsets[whole], box.addresses[whole])] if whole.any() else []


def _load_parts(box: Box, fields: TensorMapFields) -> list[Part]:
    """What a load reads, and what it fills."""
    box = _sized(box)
    parts = _whole_part(box) + _edge_parts(box, _element_bytes(fields), True)
    if box.valid is not None and not box.valid.all():
        parts.append(Part(box.chunk_bytes, box.offsets[box.valid == 0], None))
    return parts


def _stored_parts(box: Box, fields: TensorMapFields) -> list[Part]:
    """What a store writes: only what lies inside the tensor."""
    return _whole_part(box) + _edge_parts(box, _element_bytes(fields), False)


