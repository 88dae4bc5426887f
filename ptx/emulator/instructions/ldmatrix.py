"""ldmatrix, stmatrix, movmatrix: matrices between shared memory and the lanes of a warp (PTX ISA, same names)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import shared_order, shared_places
from tinygpu.ptx.emulator.access.shared_order import ANY_LANE, WARP_BITS
from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.warp_collectives import require_whole_warp
from tinygpu.ptx.emulator.source.syntax import Instruction, RegisterOperand
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.memory import SHARED_WINDOW
from tinygpu.ptx.emulator.state.meter import Site, phase_wavefronts
from tinygpu.ptx.emulator.units.fragments import Fragment, byte_matrix_fragment

# PTX ISA, "ldmatrix": bits of source elements of which sixteen lie at the start of each 16-byte row.
_COMPRESSED: dict[str, int] = {"b4x16_p64": 4, "b6x16_p32": 6}


Move = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]


def _mover(positions: NDArray[np.int64]) -> Move:
    """Takes the bytes at `positions` of the last axis, in units as wide as stay together."""
    if np.array_equal(positions, np.arange(positions.size)):
        return lambda data: data
    for width in (4, 2, 1):
        groups = positions.reshape(-1, width)
        if bool((groups[:, :1] % width == 0).all() and (groups == groups[:, :1] + np.arange(width)).all()):
            break
    units, dtype = groups[:, 0] // width, np.dtype(f"u{width}")

    def move(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.take(data.view(dtype), units, axis=-1).view(np.uint8)

    return move


def _matrix_form(count: int, rows: int, registers: int, fragment: Fragment, element_bits: int) -> MatrixForm:
    to_lanes, to_memory = _mover(fragment.scatter), _mover(fragment.gather)
    return MatrixForm(count, rows, registers, fragment, element_bits, to_lanes, to_memory)


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """One form of ldmatrix or stmatrix.

    count         matrices
    rows          16-byte rows of one matrix in memory
    registers     registers per lane and matrix
    fragment      which byte of a matrix each byte of a lane is
    element_bits  4 or 6 where memory holds sixteen such elements per row, else 8
    to_lanes      moves the bytes of matrices (..., 16 * rows) to lanes; to_memory moves them back
    """

    count: int
    rows: int
    registers: int
    fragment: Fragment
    element_bits: int
    to_lanes: Move
    to_memory: Move


def _form(b: Binder, i: Instruction) -> MatrixForm:
    """What the modifiers say. Raises UnsupportedInstruction for a form that does not exist."""
    count = next((int(m[1]) for m in ("x1", "x2", "x4") if i.has(m)), 0)
    if not count:
        raise b.fail(f"`{i.name}` needs .x1, .x2 or .x4")
    if i.has("shared::cluster"):
        raise b.unsupported("shared memory of other CTAs")
    transposed = i.has("trans")
    load = i.opcode == "ldmatrix"
    if i.has("m8n8") and i.has("b16"):
        return _matrix_form(count, 8, 1, _halves_fragment(transposed), 8)
    source = next((m for m in i.modifiers if m in _COMPRESSED), None)
    bits = _COMPRESSED[source] if source is not None and i.has("b8x16") else 8
    if load and i.has("m16n16") and transposed and count < 4 and (i.has("b8") or bits < 8):
        return _matrix_form(count, 16, 2, byte_matrix_fragment(16, True), bits)
    if load and i.has("m8n16") and not transposed and bits < 8:
        return _matrix_form(count, 8, 1, byte_matrix_fragment(8, False), bits)
    if not load and i.has("m16n8") and transposed and i.has("b8"):
        return _matrix_form(count, 8, 1, byte_matrix_fragment(8, True), 8)
    raise b.unsupported("this shape, type and transposition do not exist together")


def _halves_fragment(transposed: bool) -> Fragment:
    """The bytes of an 8x8 matrix of 16-bit elements; transposed, the elements change places, not their bytes."""
    plain = byte_matrix_fragment(8, False)
    if not transposed:
        return plain
    place = np.arange(128).reshape(8, 8, 2).transpose(1, 0, 2).reshape(-1)
    scatter = place[plain.scatter]
    gather = np.empty(128, np.int64)
    gather[scatter] = np.arange(128)
    return Fragment(8, 16, 32, 4, gather, scatter)


def _address(b: Binder, i: Instruction) -> Callable[[Cohort], Array]:
    """Getter of the lanes' shared addresses; without a state space they are generic."""
    position = 1 if i.opcode == "ldmatrix" else 0
    get, _, space = b.address(b.operands(i, 2)[position])
    if space not in (None, "shared"):
        raise b.fail(f"`{i.name}` needs shared memory, not .{space}")
    if space is None and not any(m.startswith("shared") for m in i.modifiers):
        return lambda c: _without_window(get(c))
    return get


def _without_window(addresses: Array) -> Array:
    """Shared addresses of generic ones; others stay as they are, outside of shared memory."""
    wide = addresses.astype(np.uint64)
    return np.where(wide >= np.uint64(SHARED_WINDOW), wide - np.uint64(SHARED_WINDOW), wide | np.uint64(1 << 40))


def _rows(c: Cohort, site: Site, addresses: Array, form: MatrixForm, verb: str) -> NDArray[np.int64] | None:
    """Byte index (n, rows) of all 16-byte rows; counts one phase per eight rows. None where one is a fault."""
    total = form.count * form.rows
    lanes = np.ascontiguousarray(c.spread(addresses)[:, :total])
    words = (lanes.astype(np.int64) >> 2).reshape(-1, 8)
    wavefronts = phase_wavefronts((words[:, :, None] + np.arange(4)).reshape(words.shape[0], -1))
    moved = c.n * total * 16
    site.requests += c.n
    site.wavefronts += wavefronts
    site.bytes += moved
    site.in_shared.count(c.n, wavefronts, moved)
    counters = c.emulation.counters
    if verb == "ldmatrix":
        counters.shared_load_requests += c.n
        counters.shared_load_wavefronts += wavefronts
        counters.shared_load_bytes += moved
    else:
        counters.shared_store_requests += c.n
        counters.shared_store_wavefronts += wavefronts
        counters.shared_store_bytes += moved
    index, good = shared_places.locate_rows(c, site, lanes, 16, verb)
    return index if good else None


# What a row's elements take of its 16 bytes, as aligned accesses (offset, bytes): the padding is not read.
_PIECES: dict[int, tuple[tuple[int, int], ...]] = {8: ((0, 16),), 6: ((0, 8), (8, 4)), 4: ((0, 8),)}


def _check_rows(c: Cohort, site: Site, index: NDArray[np.int64], bits: int) -> NDArray[np.bool_] | None:
    """Report races; which rows hold uninitialised elements."""
    who = c.set.member + (ANY_LANE << WARP_BITS)
    found: NDArray[np.bool_] | None = None
    for offset, size in _PIECES[bits]:
        invalid = shared_order.check_read(c, site, index + offset, size, c.set.column, who)
        if invalid is not None:
            found = invalid if found is None else found | invalid
    return found


def expand_rows(rows: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Sixteen 4- or 6-bit elements at the start of each row (..., 16) as bytes, in their low bits."""
    if bits == 4:
        packed = rows[..., :8]
        return np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1).reshape(rows.shape)
    each = np.unpackbits(rows[..., :12], axis=-1, bitorder="little").reshape(*rows.shape[:-1], 16, 6)
    return np.packbits(each, axis=-1, bitorder="little").reshape(rows.shape)


def _ldmatrix(b: Binder, i: Instruction) -> Run:
    form = _form(b, i)
    get = _address(b, i)
    elements = b.vector(b.operands(i, 2)[0], form.count * form.registers, "ldmatrix")
    writers = [b.destination(element, "u32") for element in elements]
    slots = [b.slot(element) if isinstance(element, RegisterOperand) else None for element in elements]
    b.note_shared_width(4)
    b.owns_taint = True
    site = b.site(i)
    # Which rows the bytes of each register of a lane come from.
    row_of = (form.fragment.scatter // 16).reshape(32, form.registers, 4)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        if not require_whole_warp(c, i):
            return
        index = _rows(c, site, get(c), form, "ldmatrix")
        if index is None:
            return
        data = np.take(c.residents.shared.view(4, 4), index >> 4, axis=0, mode="clip").view(np.uint8)
        invalid = _check_rows(c, site, index, form.element_bits) if c.emulation.checking else None
        if form.element_bits < 8:
            data = expand_rows(data, form.element_bits)
        lanes = form.to_lanes(data.reshape(c.n, form.count, -1))
        words = lanes.view(np.uint32).reshape(c.n, form.count, 32, form.registers)
        for position, writer in enumerate(writers):
            matrix, register = divmod(position, form.registers)
            np.copyto(writer(c), words[:, matrix, :, register], where=c.where)
        if invalid is not None or c.residents.tainted:
            for position, slot in enumerate(slots):
                if slot is None:
                    continue
                matrix, register = divmod(position, form.registers)
                bits = np.zeros((c.n, 32), np.uint32)
                if invalid is not None:
                    rows = invalid.reshape(c.n, form.count, form.rows)[:, matrix]
                    bits[rows[:, row_of[:, register]].any(axis=2)] = 0xFFFFFFFF
                c.residents.set_taint(c, slot, bits)

    return run


def _stmatrix(b: Binder, i: Instruction) -> Run:
    form = _form(b, i)
    get = _address(b, i)
    elements = b.vector(b.operands(i, 2)[1], form.count * form.registers, "stmatrix")
    sources = [b.source(element, "u32") for element in elements]
    b.note_shared_width(4)
    site = b.site(i)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        if not require_whole_warp(c, i):
            return
        index = _rows(c, site, get(c), form, "stmatrix")
        if index is None:
            return
        words = np.empty((c.n, form.count, 32), np.uint32)
        for position, source in enumerate(sources):
            words[:, position] = source(c)
        data = form.to_memory(words.view(np.uint8).reshape(c.n, form.count, 128))
        shaped = data.view(np.uint32).reshape(c.n, form.count * form.rows, 4)
        view = c.residents.shared.view(4, 4)
        if c.emulation.checking:
            changed = (np.take(view, index >> 4, axis=0, mode="clip") != shaped).any(axis=-1)
            shared_order.check_write(c, site, index, 16, c.set.column, changed)
        view[index >> 4] = shaped
        if c.emulation.checking:
            who = c.set.member + (ANY_LANE << WARP_BITS)
            shared_order.mark_written(c, site, index, 16, who, c.emulation.tick)

    return run


def _movmatrix(b: Binder, i: Instruction) -> Run:
    if not (i.has("m8n8") and i.has("trans") and i.has("b16")):
        raise b.unsupported("only .m8n8.trans.b16")
    d, x = b.operands(i, 2)
    source = b.source(x, "u32")
    get = b.destination(d, "u32")

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        halves = np.ascontiguousarray(c.spread(source(c))).view(np.uint16).reshape(c.n, 8, 8)
        moved = np.ascontiguousarray(halves.transpose(0, 2, 1)).reshape(c.n, 64).view(np.uint32)
        np.copyto(get(c), moved, where=c.where)

    return run


LDMATRIX: dict[str, Compile] = {"ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "movmatrix": _movmatrix}
