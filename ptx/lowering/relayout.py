"""Relayouts: the plan of who gives which word to whom, written as selects, byte permutations and shuffles.

Which lane reads which, and what a lane selects, is computed from the number of the lane, once for the whole kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tinygpu.language.instruction import LaneRead
from tinygpu.layouts import f2
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.relayout import Pick, RelayoutPlan, Shuffle, relayout
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.compute import partition_of
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.registers import RegisterTile, kind_of, packing
from tinygpu.ptx.lowering.texts import written

LANES = 32
FIRST, SECOND = 0x3210, 0x7654


def plan_of(s: n.Relayout) -> RelayoutPlan:
    """The plan of a statement of a filled-in program."""
    before, after = partition_of(s.source), partition_of(s.result)
    try:
        plan = relayout(before.layout, after.layout, tuple(int(e) for e in before.shape), s.source.dtype.bits)
    except LayoutError as error:
        raise LoweringError(f"%{s.source.name} cannot be given to other holders: {error}") from None
    if plan.kind == "shared":
        raise LoweringError(f"%{s.source.name} goes to other warps, and {s.name} stays within a warp")
    if plan.shuffles and s.shuffle is None:
        raise LoweringError(f"%{s.source.name} goes to other threads, and nothing is said that brings it there")
    return plan


def write(context: Context, s: n.Relayout) -> None:
    """Writes a relayout; what keeps its register is no instruction."""
    emit = context.emit
    plan = plan_of(s)
    emit.comment(f"{s.headline(frozenset())}, {plan}")
    source = context.registers_of(s.source)
    words = _words(context, source)
    own = len(words)
    for step in plan.steps:
        if isinstance(step, Shuffle):
            if s.shuffle is None:
                raise LoweringError(f"%{s.source.name} goes to other threads, and nothing is said that brings it there")
            words.append(_shuffled(context, s.shuffle, step, words[step.word]))
        else:
            words.append(_picked(context, step, words))
    kept = _keeps_registers(context, s)
    taken: set[int] = set()
    outputs = []
    for word in plan.outputs:
        if word in taken or (word < own and not kept):
            copy = emit.new("r")
            emit.line(f"mov.b32 {copy}, {words[word]};")
            outputs.append(copy)
        else:
            outputs.append(words[word])
        taken.add(word)
    context.tiles[s.result.name] = _tile(context, s, outputs)


def _keeps_registers(context: Context, s: n.Relayout) -> bool:
    """Whether the result may stay in the registers of the source: nobody writes either of them afterwards."""
    behind = False
    for other in walk(context.program.body):
        if other is s:
            behind = True
        elif behind and any(tile.name in (s.source.name, s.result.name) for tile in other.writes):
            return False
    return True


# -- registers as words ------------------------------------------------------------------------------------------------


def _words(context: Context, tile: RegisterTile) -> list[Reg]:
    """The registers of a tile as 32-bit words, two for one of 64 bits."""
    emit = context.emit
    out: list[Reg] = []
    for register in tile.registers:
        if register.kind == "d":
            low, high = emit.new("r"), emit.new("r")
            emit.line(f"mov.b64 {{{low}, {high}}}, {register};")
            out += [low, high]
        elif register.kind == "h":
            wide = emit.new("r")
            emit.line(f"cvt.u32.u16 {wide}, {register};")
            out.append(wide)
        else:
            out.append(register)
    return out


def _tile(context: Context, s: n.Relayout, words: list[Reg]) -> RegisterTile:
    """The tile whose registers hold these words; single elements of 8 and 16 bits stand in registers of their own."""
    emit, dtype = context.emit, s.result.dtype
    count = partition_of(s.result).values.size
    packed = packing(dtype, count)
    kind = kind_of(dtype, packed)
    registers = list(words)
    if kind == "d":
        registers = []
        for low, high in zip(words[::2], words[1::2], strict=True):
            register = emit.new("d")
            emit.line(f"mov.b64 {register}, {{{low}, {high}}};")
            registers.append(register)
    elif kind == "h" or (packed == 1 and dtype.bits == 8):
        sign = "s" if dtype.kind == "signed" else "u"
        text = "cvt.u16.u32 {}, {};" if kind == "h" else f"bfe.{sign}32 {{}}, {{}}, 0, 8;"
        registers = []
        for word in words:
            register = emit.new(kind)
            emit.line(text.format(register, word))
            registers.append(register)
    return RegisterTile(dtype, count, packed, registers)


# -- steps -------------------------------------------------------------------------------------------------------------


def _picked(context: Context, step: Pick, words: list[Reg]) -> Reg:
    """selp where lanes take whole words, else prmt, whose selector may depend on the lane."""
    emit = context.emit
    out, first, second = emit.new("r"), words[step.first], words[step.second]
    if step.selects:
        chosen = _where(context, lambda lane: step.bytes_of[lane] == SECOND)
        if isinstance(chosen, Reg):
            emit.line(f"selp.b32 {out}, {second}, {first}, {chosen};")
        else:
            emit.line(f"mov.b32 {out}, {second if chosen else first};")
        return out
    emit.line(f"prmt.b32 {out}, {first}, {second}, {_selector(context, step.bytes_of)};")
    return out


def _selector(context: Context, bytes_of: tuple[int, ...]) -> Number:
    """The selector of every lane: the most frequent one, and where lanes differ selects of the others."""
    (most, _), *others = Counter(bytes_of).most_common()
    out: Number = most
    for value, _ in others:
        chosen = _where(context, lambda lane, value=value: bytes_of[lane] == value)  # type: ignore[misc]
        out = context.emit.computed("r", "selp.b32 {d}, {0}, {1}, {2};", value, out, chosen)
    return out


def _where(context: Context, holds: Callable[[int], bool]) -> Number:
    """Predicate of the lanes for which something holds; True or False where it does for all or for none."""
    emit = context.emit
    mask = sum(1 << lane for lane in range(LANES) if holds(lane))
    if mask in (0, 2**LANES - 1):
        return bool(mask)
    lane = context.lane()
    for bit in range(5):
        having = sum(1 << other for other in range(LANES) if other >> bit & 1)
        if mask in (having, having ^ 2**LANES - 1):
            part = emit.computed("r", "and.b32 {d}, {0}, {1};", lane, 1 << bit)
            return emit.computed("p", f"setp.{'ne' if mask == having else 'eq'}.u32 {{d}}, {{0}}, 0;", part)
    return emit.computed("p", "setp.ne.u32 {d}, {0}, 0;", _bit_of(context, mask))


def _bit_of(context: Context, mask: int) -> Number:
    """Bit `lane` of a constant."""
    shifted = context.emit.computed("r", f"shr.u32 {{d}}, {mask:#x}, {{0}};", context.lane())
    return context.emit.computed("r", "and.b32 {d}, {0}, 1;", shifted)


def _shuffled(context: Context, shuffle: LaneRead, step: Shuffle, word: Reg) -> Reg:
    emit = context.emit
    out = emit.new("r")
    away = {lane ^ source for lane, source in enumerate(step.sources)}
    if len(away) == 1:
        emit.line(written(shuffle.statement, str(out), str(word), away.pop()))
    else:
        emit.line(shuffle.read(str(out), str(word), str(_source(context, step.sources))))
    return out


def _source(context: Context, sources: tuple[int, ...]) -> Number:
    """The lane that each lane reads: sums of bits of the lane where it is linear, else bit by bit out of constants."""
    emit, lane = context.emit, context.lane()
    columns = [sources[1 << bit] ^ sources[0] for bit in range(5)]
    total: Number = 0
    if all(source == sources[0] ^ f2.image(columns, at) for at, source in enumerate(sources)):
        for bit, column in enumerate(columns):
            if column and not column & (column - 1):
                total = emit.xor(total, emit.bits(lane, bit, 1, column.bit_length() - 1))
            else:
                total = emit.xor(total, emit.mul(emit.bits(lane, bit, 1, 0), column))
        return emit.xor(total, sources[0])
    for bit in range(5):
        mask = sum(1 << at for at, source in enumerate(sources) if source >> bit & 1)
        total = emit.xor(total, emit.mul(_bit_of(context, mask), 1 << bit) if mask else 0)
    return total
