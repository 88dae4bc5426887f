"""Loads, stores and copies, thread by thread."""

from __future__ import annotations

from collections.abc import Callable

from tinygpu.dtypes import DType
from tinygpu.expressions import expr
from tinygpu.language.instruction import Transfer
from tinygpu.language.memories import RMEM
from tinygpu.language.partition import Partition
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import KINDS, Number, Reg
from tinygpu.ptx.lowering.gmem import GmemAccess, gmem_access
from tinygpu.ptx.lowering.picked import behind
from tinygpu.ptx.lowering.registers import RegisterTile, allocate, constant_bits
from tinygpu.ptx.lowering.smem import SmemAccess, smem_access
from tinygpu.ptx.lowering.texts import written

Place = GmemAccess | SmemAccess
Address = tuple[Number, int]


def access(context: Context, tile: Tile, who: Partition, vector: int) -> Place:
    if tile.tensor is not None:
        rely_on_alignment(context, tile, vector)
        return gmem_access(context, tile, who)
    return smem_access(context, tile, who)


def rely_on_alignment(context: Context, tile: Tile, vector: int) -> None:
    """The kernel is specialised for vectors that are aligned in every row."""
    if tile.tensor is None:
        raise LoweringError(f"{tile.name} is no window of a tensor")
    name = tile.tensor.name
    begins = tile.memory.own or context.facts.divides(vector * tile.tensor.dtype.bits // 8, f"{name}.align")
    if not (begins and all(context.facts.divides(vector, pitch) for _, pitch in tile.tensor.pitches)):
        raise LoweringError(f"{name} is not aligned to {vector} elements")


def at(address: tuple[Number, int]) -> str:
    """An address operand."""
    register, offset = address
    return f"[{register}+{offset}]" if offset else f"[{register}]"


def vector_of(instruction: Transfer, who: Partition) -> int:
    vector = int(expr(instruction.vector))
    if who.values.size % vector:
        raise LoweringError(f"{instruction.label} moves {vector} elements, and a thread holds {who.values.size}")
    return vector


def load(context: Context, s: n.Load) -> None:
    """ld: memory to a new register tile."""
    if not isinstance(s.instruction, Transfer) or s.result.partition is None:
        raise LoweringError(f"{s.name} does not load thread by thread")
    context.emit.comment(f"{s.name}: {s.result} = {s.instruction.label} {s.source.name}")
    context.tiles[s.result.name] = read(context, s.instruction, s.source, s.result.partition, s.fill)


def read(
    context: Context, instruction: Transfer, source: Tile, partition: Partition, fill: float = 0.0
) -> RegisterTile:
    """Loads a window into fresh registers."""
    who = partition.coalesced
    vector = vector_of(instruction, who)
    with behind(context, source):
        place = access(context, source, who, vector)
        tile = allocate(context.emit, source.dtype, who.values.size)
        mine = _takes_part(context, who)
        for first in range(0, who.values.size, vector):
            _read_vector(context, instruction, place, tile, first, vector, fill, mine)
    return tile


def read_into(context: Context, s: n.Load, tile: RegisterTile, mine: Number) -> None:
    """Loads from shared memory into registers that are there, which keep what they have where `mine` does not hold."""
    if not isinstance(s.instruction, Transfer) or s.result.partition is None or s.source.pick is not None:
        raise LoweringError(f"{s.name} does not load whole tiles thread by thread")
    who = s.result.partition.coalesced
    vector = vector_of(s.instruction, who)
    place = access(context, s.source, who, vector)
    context.emit.comment(f"{s.name}: {s.result} = {s.instruction.label} {s.source.name}")
    mine = context.emit.both(mine, _takes_part(context, who))
    for first in range(0, who.values.size, vector):
        _load_piece(context, s.instruction, place.address(first), tile, first, vector, mine)


def _read_vector(
    context: Context, instruction: Transfer, place: Place, tile: RegisterTile, first: int, vector: int, fill: float,
    mine: Number,
) -> None:
    emit = context.emit
    exists = emit.both(place.exists(first, vector), mine)
    if exists is not True:
        _fill(context, tile, first, vector, fill)
    straddles = isinstance(place, GmemAccess) and place.straddles(vector)
    done = ""
    if straddles:
        done = emit.label("whole")
    _load_piece(context, instruction, place.address(first), tile, first, vector, exists)
    if straddles and isinstance(place, GmemAccess):
        if not never(exists):
            emit.line(f"@{exists} bra {done};")
        for value in range(first, first + vector):
            one = emit.both(place.exists(value), mine)
            _load_piece(context, instruction, place.address(value), tile, value, 1, one)
        emit.place_label(done)


def never(p: Number) -> bool:
    """Whether a predicate is known not to hold before the launch."""
    return not isinstance(p, Reg) and not p


def guarded(p: Number) -> str:
    if isinstance(p, Reg):
        return f"@{p} "
    if p:
        return ""
    raise LoweringError("an access that never exists is not written")


def _fill(context: Context, tile: RegisterTile, first: int, vector: int, fill: float) -> None:
    emit = context.emit
    if first % tile.packed:
        return  # the register was filled with its first element
    seen = set()
    for value in range(first, first + vector):
        r = tile.register(value)
        if r not in seen:
            seen.add(r)
            emit.line(f"mov.{KINDS[r.kind]} {r}, {constant_bits(tile.dtype, fill, tile.packed)};")


def _load_piece(
    context: Context, instruction: Transfer, address: Address, tile: RegisterTile, first: int, count: int,
    exists: Number,
) -> None:
    """One load of `count` elements into the registers that hold them; nothing where these lie behind a tensor."""
    if never(exists):
        return
    emit = context.emit
    kind, bits = tile.dtype, tile.dtype.bits
    guard = guarded(exists)
    if count >= tile.packed and not _part_of_word(tile):
        registers = _registers(tile, first, count)
        piece_type = "b32" if tile.packed > 1 else f"{_sign(kind)}8" if bits == 8 else f"b{bits}"
        emit.line(guard + written(instruction.statement, kind, piece_type, registers, at(address)))
        return
    whole = tile.register(first)
    shift = first % tile.packed * bits
    piece = emit.new("r")
    if bits * count == 16:
        half = emit.new("h")
        emit.line(f"mov.b16 {half}, 0;") if guard else None
        emit.line(guard + written(instruction.statement, kind, "b16", [str(half)], at(address)))
        emit.line(f"cvt.u32.u16 {piece}, {half};")
    else:
        emit.line(f"mov.b32 {piece}, 0;") if guard else None
        emit.line(guard + written(instruction.statement, kind, "u8", [str(piece)], at(address)))
    if shift == 0 and not guard:
        emit.line(f"mov.b32 {whole}, {piece};")
    elif guard:
        inserted = emit.new("r")
        emit.line(f"bfi.b32 {inserted}, {piece}, {whole}, {shift}, {bits * count};")
        emit.line(f"{guard}mov.b32 {whole}, {inserted};")
    else:
        emit.line(f"bfi.b32 {whole}, {piece}, {whole}, {shift}, {bits * count};")


def _part_of_word(tile: RegisterTile) -> bool:
    """Whether registers hold several elements, and fewer than fill them."""
    return tile.packed > 1 and tile.packed * tile.dtype.bits < 32


def _sign(dtype: DType) -> str:
    return "s" if dtype.kind == "signed" else "u"


def _registers(tile: RegisterTile, first: int, count: int) -> list[str]:
    """Those that hold `count` values."""
    return [str(r) for r in dict.fromkeys(tile.register(v) for v in range(first, first + count))]


def store(context: Context, s: n.Store) -> None:
    """st: a register tile to memory."""
    context.emit.comment(f"{s.name}: {s.target.name} = {s.instruction.label} {s.value}")
    if s.value.partition is None or not isinstance(s.instruction, Transfer):
        raise LoweringError(f"{s.name} does not store registers thread by thread")
    write(context, s.instruction, context.registers_of(s.value), s.target, s.value.partition)


def write(
    context: Context, instruction: Transfer, tile: RegisterTile, target: Tile, partition: Partition
) -> None:
    """Stores registers into a window; values that several threads hold are stored by one of them."""
    who = partition.coalesced
    vector = vector_of(instruction, who)
    with behind(context, target):
        place = access(context, target, who, vector)
        mine = one_holder(context, who)
        for first in range(0, who.values.size, vector):
            _write_vector(context, instruction, place, tile, first, vector, mine)


def _write_vector(
    context: Context, instruction: Transfer, place: Place, tile: RegisterTile, first: int, vector: int, mine: Number
) -> None:
    exists = context.emit.both(place.exists(first, vector), mine)
    straddles = isinstance(place, GmemAccess) and place.straddles(vector)
    _store_piece(context, instruction, place.address(first), tile, first, vector, exists)
    if straddles and isinstance(place, GmemAccess):
        done = context.emit.label("whole")
        if not never(exists):
            context.emit.line(f"@{exists} bra {done};")
        for value in range(first, first + vector):
            one = context.emit.both(place.exists(value), mine)
            _store_piece(context, instruction, place.address(value), tile, value, 1, one)
        context.emit.place_label(done)


def one_holder(context: Context, who: Partition) -> Number:
    """Predicate of the thread that stores, where several hold the same values."""
    emit, thread = context.emit, context.role_thread()
    out: Number = True
    for size, below in who.copies():
        digit = emit.rem(emit.div(thread, below), size)
        out = emit.both(out, emit.less(digit, 1))
    return emit.both(out, _takes_part(context, who))


def _takes_part(context: Context, who: Partition) -> Number:
    """Predicate of the threads among which the tile is divided; the role may have more."""
    return context.emit.less(context.role_thread(), who.threads.size) if who.threads.size < context.threads else True


def _store_piece(
    context: Context, instruction: Transfer, address: Address, tile: RegisterTile, first: int, count: int,
    exists: Number,
) -> None:
    if never(exists):
        return
    emit = context.emit
    kind, bits = tile.dtype, tile.dtype.bits
    guard = guarded(exists)
    if count >= tile.packed and not _part_of_word(tile):
        piece_type = "b32" if tile.packed > 1 else "u8" if bits == 8 else f"b{bits}"
        emit.line(guard + written(instruction.statement, kind, piece_type, _registers(tile, first, count), at(address)))
        return
    whole = tile.register(first)
    shift = first % tile.packed * bits
    piece: Reg = whole
    if shift:
        piece = emit.new("r")
        emit.line(f"shr.u32 {piece}, {whole}, {shift};")
    if bits * count == 16:
        half = emit.new("h")
        emit.line(f"cvt.u16.u32 {half}, {piece};")
        emit.line(guard + written(instruction.statement, kind, "b16", [str(half)], at(address)))
    else:
        emit.line(guard + written(instruction.statement, kind, "u8", [str(piece)], at(address)))


def copy(context: Context, s: n.Copy) -> None:
    """A whole copy at once."""
    for finish in start_copy(context, s):
        finish()


def start_copy(context: Context, s: n.Copy) -> list[Callable[[], None]]:
    """Issues a copy. A copy through registers returns what stores them, so that other work can come between."""
    emit = context.emit
    if s.partition is None:
        raise LoweringError(f"{s.name} ({s.instruction}) cannot be written for this target yet")
    if isinstance(s.instruction, Route):
        route, partition = s.instruction, s.partition
        emit.comment(f"{s.name}: {s.target.name} = {route.load.label} {s.source.name}, through registers")
        tile = read(context, route.load, s.source, partition)

        def finish() -> None:
            emit.comment(f"{s.name}: {s.target.name} = {route.store.label}")
            write(context, route.store, tile, s.target, partition)

        return [finish]
    if isinstance(s.instruction, Transfer) and RMEM not in (s.instruction.reads, s.instruction.writes):
        copy_vectors(context, s.instruction, s)
        return []
    raise LoweringError(f"{s.name}: {s.instruction} is not an instruction that lowering can write")


def copy_vectors(context: Context, instruction: Transfer, s: n.Copy) -> None:
    """Copies every vector of the thread to shared memory; what lies outside the tensor is filled with zeros."""
    emit = context.emit
    if s.partition is None:
        raise LoweringError(f"{s.name} needs a partition")
    who = s.partition.coalesced
    vector = vector_of(instruction, who)
    rely_on_alignment(context, s.source, vector)
    width = s.source.dtype.bytes_of(vector)
    emit.comment(f"{s.name}: {s.target.name} = {instruction.label} {s.source.name}, {width} bytes per thread")
    with behind(context, s.source):
        source = gmem_access(context, s.source, who)
        target = smem_access(context, s.target, who)
        guard = guarded(_takes_part(context, who))
        for first in range(0, who.values.size, vector):
            size = source.bytes_left(first, vector)
            from_ = at(source.address(first))
            to, existing = at(target.address(first)), "" if size == width else str(size)
            emit.line(guard + written(instruction.copy, width, to, from_, existing))
