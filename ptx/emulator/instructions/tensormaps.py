"""Tensor maps in a kernel: reading them for a copy, tensormap.replace, tensormap.cp_fenceproxy, their proxy fences."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import global_access, shared_access
from tinygpu.ptx.emulator.access.async_global import begin_global_read
from tinygpu.ptx.emulator.access.async_shared import Agent
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run, generic_base
from tinygpu.ptx.emulator.instructions.bulk_copies import lanes_of, require_defined
from tinygpu.ptx.emulator.instructions.bulk_parts import threads
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.loads_stores import split_generic
from tinygpu.ptx.emulator.source.syntax import AddressOperand, Instruction, IntegerOperand, Operand, SymbolOperand
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.cohort import Cohort, Incomplete
from tinygpu.ptx.emulator.state.memory import (
    CONST_WINDOW,
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_WINDOW,
    WINDOW_BYTES,
    Window,
)
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.units.tensor_maps import MAP_ALIGNMENT_BYTES, MAP_BYTES, TensorMapFields, decode

_WORD_BYTES = 16
_WORDS = MAP_BYTES // _WORD_BYTES
_BLANK = TensorMapFields("tile", "u8", 1, 0, (0,) * 5, (0,) * 4, (0,) * 5, (0,) * 5)


def map_addresses(b: Binder, i: Instruction, operand: Operand) -> Getter:
    """Getter of (n, 32) generic addresses of a tensor map."""
    get, _, space = b.address(operand)
    if space is None:
        return get
    if not isinstance(operand, AddressOperand) or not isinstance(operand.base, SymbolOperand):
        raise b.fail(f"`{i.name}` needs the address of a tensor map")
    base = np.uint64(generic_base(space))
    return lambda c: np.asarray(get(c)).astype(np.uint64) + base


def read_map(origin: Origin, site: Site, address: int) -> TensorMapFields | None:
    """The legal tensor map at a generic address; a fault, and None, where there is none."""
    emulation = origin.residents.emulation
    space = {
        SHARED_WINDOW // WINDOW_BYTES: "shared", LOCAL_WINDOW // WINDOW_BYTES: "local",
        CONST_WINDOW // WINDOW_BYTES: "const", PARAM_WINDOW // WINDOW_BYTES: "param",
    }.get(address // WINDOW_BYTES, "global")  # fmt: skip
    if space in ("shared", "local"):
        origin.fault(
            "tensor map",
            f"the tensor map at generic address {address:#x} lies in {space} memory, but it must be a kernel parameter "
            "(__grid_constant__) or lie in constant or global memory",
            space, address,
        )  # fmt: skip
        return None
    if address % MAP_ALIGNMENT_BYTES:
        origin.fault(
            "misaligned",
            f"the tensor map at address {address:#x} is misaligned: it must be a multiple of {MAP_ALIGNMENT_BYTES}, "
            f"but the remainder is {address % MAP_ALIGNMENT_BYTES}",
            space, address,
        )  # fmt: skip
        return None
    window = emulation.memory.window_of(address, address + MAP_BYTES)
    if window is None:
        kind, sentence = emulation.memory.describe_missing(address, MAP_BYTES, f"tensor map of {MAP_BYTES} bytes")
        origin.fault(kind, sentence, space, address)
        return None
    start = address - window.origin
    if space == "global" and emulation.checking:
        _check_changes(origin, site, window, address)
    fields = decode(window.data[start : start + MAP_BYTES].tobytes())
    if fields is None:
        origin.fault(
            "tensor map",
            f"the 128 bytes at address {address:#x} ({window.allocation.name}) are no tensor map: pass a TensorMap as "
            "the argument, or copy one there",
            space, address,
        )  # fmt: skip
        return None
    broken = fields.violation()
    if broken is not None:
        origin.fault("tensor map", f"the tensor map at address {address:#x} is illegal: {broken}", space, address)
        return None
    return fields


def _check_changes(origin: Origin, site: Site, window: Window, address: int) -> None:
    """Faults where a map was changed in this launch, and that is not ordered, or not fenced, before its use now."""
    residents = origin.residents
    fences = residents.emulation.tensormap_fences
    if fences.found_in_order(origin, window, address, MAP_BYTES):
        return
    clock = residents.clocks.snapshot(origin.row, residents.emulation.tick)
    words = address - window.origin + np.arange(_WORDS, dtype=np.int64) * _WORD_BYTES
    begin_global_read(Agent(origin, site, 0, clock, proxy=False), window, words, _WORD_BYTES)
    missing = fences.missing(origin, window, address, MAP_BYTES)
    if missing is not None:
        origin.fault(
            "race",
            f"uses the tensor map at global address {address:#x} ({window.allocation.name}), which was changed in "
            f"this launch, without a proxy fence between: {missing}",
            "global", address,
        )  # fmt: skip


# ---- changing a tensor map ------------------------------------------------------------------------------------------


def _load_bytes(c: Cohort, site: Site, space: str, addresses: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """The 128 bytes at the active lanes' addresses, (lanes, 128)."""
    access: Any = shared_access if space == "shared" else global_access
    words = []
    for word in range(_WORDS):
        values, _ = access.load(c, site, addresses + np.uint64(word * _WORD_BYTES), 8, 2)
        words.append(np.ascontiguousarray(values.reshape(-1, 2)).view(np.uint8))
    return np.concatenate(words, axis=1)


def _store_bytes(
    c: Cohort, site: Site, space: str, addresses: NDArray[np.uint64], data: NDArray[np.uint8]
) -> None:
    access: Any = shared_access if space == "shared" else global_access
    shape = c.pick(addresses).shape
    for word in range(_WORDS):
        values = np.ascontiguousarray(data[:, word * _WORD_BYTES : (word + 1) * _WORD_BYTES]).view(np.uint64)
        access.store(c, site, addresses + np.uint64(word * _WORD_BYTES), values.reshape(*shape, 2), 8, 2)


def _replace(b: Binder, i: Instruction) -> Run:
    """tensormap.replace: one field of the map changes."""
    field = i.modifiers[2] if len(i.modifiers) > 2 and i.modifiers[1] == "tile" else ""
    wide = field in ("global_address", "global_stride")
    ranked = field in ("box_dim", "global_dim", "global_stride", "element_stride")
    operands = b.operands(i, 3 if ranked else 2)
    ordinal = b.integer(operands[1], "the ordinal of the dimension") if ranked else 0
    immediate = operands[-1].value if isinstance(operands[-1], IntegerOperand) else 0
    try:
        _BLANK.replaced(field, ordinal, immediate)
    except ValueError as error:
        raise b.fail(str(error)) from error
    if not i.types or i.types[-1] != ("b64" if wide else "b32"):
        raise b.fail(f"tensormap.replace.{field} takes .b1024.{'b64' if wide else 'b32'}")
    get, _, symbol_space = b.address(operands[0])
    space = "shared" if i.has("shared::cta") or i.has("shared") else "global" if i.has("global") else symbol_space
    value = b.source(operands[-1], "u64" if wide else "u32")
    defined = require_defined(b, i, operands[1:], "is the new value of a tensor map's field")
    b.note_shared_width(8)
    b.note_global_width(8)
    site = b.site(i)

    def run(c: Cohort) -> None:
        defined(c)
        c.emulation.next_tick()
        addresses = c.spread(get(c)).astype(np.uint64)
        if space is not None:
            _change(c, space, addresses)
            return
        outer = c.mask
        for chosen, mask, base in split_generic(c, addresses):
            if mask is not None:
                c.narrow(mask)
            if chosen == "shared":
                _change(c, "shared", addresses - base)
            else:
                _change(c, "global", addresses)
        c.narrow(outer)

    def _change(c: Cohort, where: str, addresses: NDArray[np.uint64]) -> None:
        data = _load_bytes(c, site, where, addresses)
        values = c.pick(lanes_of(c, value)).reshape(-1)
        changed = np.empty_like(data)
        for lane in range(data.shape[0]):
            changed[lane] = np.frombuffer(_changed(c, lane, data[lane], int(values[lane])), np.uint8)
        _store_bytes(c, site, where, addresses, changed)

    def _changed(c: Cohort, lane: int, data: NDArray[np.uint8], new: int) -> bytes:
        raw = data.tobytes()
        # Kernels may begin with zeros and replace every field.
        fields = decode(raw) if data.any() else _BLANK
        if fields is None:
            row, at = c.locate(lane)
            Origin(c.residents, i, row, at).fault(
                "tensor map", "tensormap.replace on 128 bytes that are no tensor map: copy one there first, or zeros"
            )
            return raw
        return fields.replaced(field, ordinal, new & ((1 << 64) - 1)).encode()

    return run


def _cp_fenceproxy(b: Binder, i: Instruction) -> Run:
    """tensormap.cp_fenceproxy: a warp copies a map from shared to global memory and releases it."""
    destination, source, size = b.operands(i, 3)
    if b.integer(size, "the size of a tensor map") != MAP_BYTES:
        raise b.fail(f"`{i.name}` copies {MAP_BYTES} bytes")
    to, _, _ = b.address(destination)
    fro, _, _ = b.address(source)
    b.note_shared_width(8)
    b.note_global_width(8)
    site = b.site(i)

    def run(c: Cohort) -> None:
        tick = c.emulation.next_tick()
        outer = c.mask
        lanes = np.ones((c.n, 32), np.bool_) if outer is None else outer
        alive = c.residents.alive[c.set.rows]
        partial = (lanes != alive).any(axis=1) & lanes.any(axis=1)
        if partial.any():
            if c.patient:
                raise Incomplete(partial[:, None] & lanes)
            at = int(np.argmax(partial))
            Origin(c.residents, i, int(c.set.index[at]), int(np.argmax(lanes[at]))).fault(
                "collective",
                f"`{i.name}` is executed by {int(lanes[at].sum())} of the warp's {int(alive[at].sum())} live lanes, "
                "but all must execute it together (.aligned)",
            )
        first = np.zeros((c.n, 32), np.bool_)
        rows = np.flatnonzero(lanes.any(axis=1))
        first[rows, lanes[rows].argmax(axis=1)] = True
        c.narrow(first)
        targets = c.spread(to(c)).astype(np.uint64)
        sources = c.spread(fro(c)).astype(np.uint64)
        _store_bytes(c, site, "global", targets, _load_bytes(c, site, "shared", sources))
        c.narrow(outer)
        if c.emulation.checking:
            c.emulation.tensormap_fences.released_ticks.add(tick)

    return run


def tensormap_fence(b: Binder, i: Instruction) -> Run:
    """fence.proxy.tensormap::generic.release, and .acquire of the 128 bytes at an address."""
    acquires = i.has("acquire")
    if not acquires and not i.has("release"):
        raise b.fail(f"`{i.name}` needs .acquire or .release")
    operands = b.operands(i, 2 if acquires else 0)
    get = map_addresses(b, i, operands[0]) if acquires else None
    if acquires and b.integer(operands[1], "the size of a tensor map") != MAP_BYTES:
        raise b.fail(f"`{i.name}` takes {MAP_BYTES} bytes")
    site = b.site(i)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        if not c.emulation.checking:
            return
        fences = c.emulation.tensormap_fences
        addresses = None if get is None else lanes_of(c, get)
        for origin, at, lane in threads(c, site):
            c.residents.fence(origin.row)
            if addresses is None:
                fences.release(origin)
            else:
                fences.acquire(origin, int(addresses[at, lane]))

    return run


def _tensormap(b: Binder, i: Instruction) -> Run:
    if i.has("replace"):
        return _replace(b, i)
    if i.has("cp_fenceproxy"):
        return _cp_fenceproxy(b, i)
    raise b.unsupported()


TENSORMAPS: dict[str, Compile] = {"tensormap": _tensormap}
