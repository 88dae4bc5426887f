"""Look-back: what the tiles before this one have together, as the CTAs that work on these have published it.

A CTA leaves what it has in shared memory, and each of its warps takes one tuple of that. The warp publishes it in
global memory, and reads what the 32 tiles before have published, in lanes: back to the nearest that knows what all up
to it have together, else window by window. Then it publishes that of its own tile (Merrill and Garland, "Single-pass
Parallel Prefix Scan with Decoupled Look-back", NVIDIA Technical Report NVR-2016-002). A flag is released behind what
it speaks of, and acquired before that is read.

A CTA waits for CTAs with lower numbers alone, so that of those that have not ended the first waits for nobody. That it
was launched before the others no manual promises; all devices launch CTAs in the order of their numbers, and CUB's
DeviceScan goes by that too.

Flags are zeros again at the end of a launch: every CTA counts itself in when it has looked back, and the last one
clears them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tinygpu.language.instruction import LaneShift
from tinygpu.language.meeting import LANES, WORD_BYTES
from tinygpu.program import nodes as n
from tinygpu.program.exchanged import LookedBack, looked_back
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.launching.kernel import Workspace
from tinygpu.ptx.lowering import across_warps
from tinygpu.ptx.lowering.compute import number_operand
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.digits import guarded, in_bytes
from tinygpu.ptx.lowering.emitter import KINDS, Number, Reg
from tinygpu.ptx.lowering.grid import tile_counts
from tinygpu.ptx.lowering.merging import Value, chosen, keep, merged, unworded, values_of, words
from tinygpu.ptx.lowering.registers import kind_of
from tinygpu.ptx.lowering.sync import Meet, MeetWarp
from tinygpu.ptx.lowering.sync_text import issue
from tinygpu.ptx.lowering.texts import written

FLAGS, PREFIXES = "look_back_flags", "look_back_prefixes"
# What a flag says: nothing is there yet; what the tile has; what all tiles up to it have together.
OWN, WHOLE = 1, 2
EVERY_LANE = "0xffffffff"


def axes(program: Program) -> tuple[int, ...]:
    """The axes of the grid along which CTAs wait for those before them."""
    return tuple(sorted({s.grid for s in _all(program)}))


def workspaces(program: Program) -> tuple[Workspace, ...]:
    """Flags, behind a counter for each statement that looks back; and for every flag what it speaks of, both ways."""
    found = [looked_back(s) for s in _all(program)]
    if not found:
        return ()
    flags = WORD_BYTES * sum(1 + by.tuples for by in found)
    prefixes = WORD_BYTES * sum(2 * by.words * by.tuples for by in found)
    return Workspace(FLAGS, flags, True), Workspace(PREFIXES, prefixes, False)


def _all(program: Program) -> list[n.Preceding]:
    return [s for s in walk(program.body) if isinstance(s, n.Preceding)]


def write(context: Context, s: n.Preceding) -> None:
    """Writes a look-back; the warps of the role meet before it and behind it."""
    emit, by = context.emit, looked_back(s)
    emit.comment(s.headline(frozenset()))
    start, turn = across_warps.next_place(context)
    place, mine = emit.new("r", len(emit.blocks)), emit.new("r")
    emit.line(f"add.u32 {place}, {turn}, {start};")
    emit.line(f"add.u32 {mine}, {turn}, {emit.add(start, in_bytes(context, by.left))};")
    guard = guarded(context, by.first, by.threads)
    for number, value in enumerate(values_of(context, s.sources)):
        for word, register in enumerate(words(context, s.merge, value)):
            emit.line(f"{guard}st.shared.b32 [{mine}+{by.offset(number, word)}], {register};")
    issue(context, Meet(context.barrier_id, context.threads))
    published = _published(context, s, by)
    with _each_tuple(context, by) as own:
        _Looking(context, s, by, published, place, own).write()
    issue(context, Meet(context.barrier_id, context.threads))
    taken = []
    for number in range(by.results):
        got = [str(emit.new("r")) for _ in range(by.words)]
        for word, register in enumerate(got):
            emit.line(f"ld.shared.b32 {register}, [{mine}+{by.offset(number, word)}];")
        taken.append(unworded(context, s.merge, got))
    keep(context, s.results, taken)
    _count_in(context, by, published)


# ---- global memory --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Published:
    """Where the CTAs of one statement publish.

    counter   address of what counts CTAs that have looked back
    flags     address of the first flag
    prefixes  address of the first word of what the first flag speaks of
    tiles     of the grid
    row       number of the first tile of the CTA's row, which are those along the axis, of all that follow each other
    tile      number of the CTA's tile in the row
    """

    counter: Number
    flags: Number
    prefixes: Number
    tiles: Number
    row: Number
    tile: Number


def _published(context: Context, s: n.Preceding, by: LookedBack) -> _Published:
    emit, before = context.emit, []
    for other in _all(context.program):
        if other is s:
            break
        before.append(looked_back(other))
    counters = len(_all(context.program))
    tiles: Number = 1
    row: Number = 0
    for place, (axis, count) in enumerate(zip(context.program.grid.axes, tile_counts(context), strict=True)):
        tiles = emit.mul(tiles, count)
        if place != s.grid:
            row = emit.add(emit.mul(row, count), context.indices[axis.index])
    row = emit.mul(row, tile_counts(context)[s.grid])
    counter = _pointer(context, FLAGS)
    skipped = emit.mul(tiles, counters + sum(other.tuples for other in before))
    behind = emit.mul(tiles, sum(2 * other.words * other.tuples for other in before))
    return _Published(
        emit.add64(counter, WORD_BYTES * len(before)),
        emit.add64(counter, emit.wide(skipped, WORD_BYTES)),
        emit.add64(_pointer(context, PREFIXES), emit.wide(behind, WORD_BYTES)),
        tiles,
        row,
        context.indices[context.program.grid.axes[s.grid].index],
    )


def _pointer(context: Context, name: str) -> Reg:
    """The address of a workspace: a parameter of the kernel."""
    if name not in context.workspace:
        context.workspace[name] = context.emit.parameter("d")
    return context.workspace[name]


def _count_in(context: Context, by: LookedBack, at: _Published) -> None:
    """The first warp counts the CTA in, behind a barrier; of the last CTA it clears the flags.

    What is read of flags stands before the barrier, and the count releases and acquires it, so that nobody reads one
    that is cleared. The count wraps around with the last CTA.
    """
    emit, done = context.emit, context.emit.label("cleared")
    emit.line(f"@!{emit.less(context.role_thread(), LANES)} bra {done};")
    most, count = emit.sub(at.tiles, 1), emit.new("r")
    last = emit.new("p")
    emit.line(f"mov.u32 {count}, 0;")
    emit.line(f"@{emit.less(context.lane(), 1)} atom.acq_rel.gpu.global.inc.u32 {count}, [{at.counter}], {most};")
    emit.line(f"shfl.sync.idx.b32 {count}, {count}, 0, {LANES - 1}, {EVERY_LANE};")
    issue(context, MeetWarp())
    emit.line(f"setp.ne.u32 {last}, {count}, {most};")
    emit.line(f"@{last} bra {done};")
    flags, flag = emit.mul(at.tiles, by.tuples), emit.new("r", len(emit.blocks))
    begin, more = emit.label("clear"), emit.new("p")
    emit.line(f"mov.u32 {flag}, {context.lane()};")
    emit.place_label(begin)
    with emit.inner():
        emit.line(f"setp.lt.u32 {more}, {flag}, {flags};")
        emit.line(f"@{more} st.global.b32 [{emit.add64(at.flags, emit.wide(flag, WORD_BYTES))}], 0;")
        emit.line(f"add.u32 {flag}, {flag}, {LANES};")
        emit.line(f"@{more} bra {begin};")
    emit.place_label(done)


# ---- one tuple ------------------------------------------------------------------------------------------------------


@contextmanager
def _each_tuple(context: Context, by: LookedBack) -> Iterator[Reg]:
    """What a warp does for the tuples number w, w + warps, ... of the CTA, with the number in a register."""
    emit, warps = context.emit, context.threads // LANES
    begin, done = emit.label("tuple"), emit.label("looked")
    number = emit.new("r", len(emit.blocks))
    emit.line(f"mov.u32 {number}, {emit.div(context.role_thread(), LANES)};")
    if by.tuples < warps:
        emit.line(f"@!{emit.less(emit.div(context.role_thread(), LANES), by.tuples)} bra {done};")
    elif by.tuples % warps:
        beyond = emit.new("p")
        emit.line(f"setp.ge.u32 {beyond}, {number}, {by.tuples};")
        emit.line(f"@{beyond} bra {done};")
    emit.place_label(begin)
    with emit.inner():
        yield number
        if by.tuples > warps:
            again = emit.new("p")
            emit.line(f"add.u32 {number}, {number}, {warps};")
            emit.line(f"setp.lt.u32 {again}, {number}, {by.tuples};")
            emit.line(f"@{again} bra {begin};")
    emit.place_label(done)


@dataclass(frozen=True, slots=True, eq=False)
class _Looking:
    """One warp looks back for one tuple. Its last lane has what the others have found, and speaks for the warp.

    place   where the tuples are left in shared memory
    number  of the tuple
    """

    context: Context
    s: n.Preceding
    by: LookedBack
    at: _Published
    place: Reg
    number: Reg

    def write(self) -> None:
        emit, at = self.context.emit, self.at
        told, look = emit.label("told"), emit.label("look")
        lane = self.context.lane()
        speaks, first = emit.holds("eq", lane, LANES - 1), emit.new("p")
        tile, status = emit.new("r"), emit.new("r")
        emit.line(f"mov.u32 {tile}, {at.tile};")
        own = self._words(lambda word, register: f"ld.shared.b32 {register}, [{self._shared(word)}];")
        emit.line(f"setp.eq.u32 {first}, {tile}, 0;")
        emit.line(f"selp.b32 {status}, {WHOLE}, {OWN}, {first};")
        index = self._index(tile)
        self._publish(index, own, status, speaks)
        before = self._identity()
        emit.line(f"@{first} bra {told};")
        back, seen = emit.new("r"), emit.new("r")
        emit.line(f"sub.u32 {back}, {tile}, 1;")
        emit.line(f"mov.u32 {seen}, 0;")
        emit.place_label(look)
        emit.line('.pragma "nounroll";')
        unknown = self._window(back, before, seen)
        emit.line(f"sub.u32 {back}, {back}, {LANES};")
        emit.line(f"mov.u32 {seen}, 1;")
        emit.line(f"@{unknown} bra {look};")
        mine = unworded(self.context, self.s.merge, own)
        whole = words(self.context, self.s.merge, merged(self.context, self.s.merge, before, mine))
        emit.line(f"mov.u32 {status}, {WHOLE};")
        self._publish(index, whole, status, speaks)
        emit.place_label(told)
        for word, register in enumerate(words(self.context, self.s.merge, before)):
            emit.line(f"@{speaks} st.shared.b32 [{self._shared(word)}], {register};")

    def _window(self, back: Reg, before: Value, seen: Reg) -> Reg:
        """Puts what 32 tiles up to `back` have in front of `before`; whether none of them knows what all have."""
        emit, s = self.context.emit, self.s
        lane, poll = self.context.lane(), emit.label("poll")
        tile, status, who, nearest = (emit.new("r") for _ in range(4))
        there, absent, whole, unknown = (emit.new("p") for _ in range(4))
        from_last = emit.sub(LANES - 1, lane)
        emit.line(f"sub.s32 {tile}, {back}, {from_last};")
        emit.line(f"setp.ge.s32 {there}, {tile}, 0;")  # before the first tile there are none
        emit.line(f"max.s32 {tile}, {tile}, 0;")
        index = self._index(tile)
        address = self._address(self.at.flags, index)
        emit.place_label(poll)
        emit.line(f"mov.u32 {status}, {OWN};")
        emit.line(f"@{there} ld.acquire.gpu.global.u32 {status}, [{address}];")
        emit.line(f"setp.eq.u32 {absent}, {status}, 0;")
        emit.line(f"vote.sync.any.pred {absent}, {absent}, {EVERY_LANE};")
        emit.line(f"@{absent} bra {poll};")
        emit.line(f"setp.eq.u32 {whole}, {status}, {WHOLE};")
        emit.line(f"vote.sync.ballot.b32 {who}, {whole}, {EVERY_LANE};")
        emit.line(f"bfind.u32 {nearest}, {who};")
        emit.line(f"setp.eq.u32 {unknown}, {who}, 0;")
        emit.line(f"max.s32 {nearest}, {nearest}, 0;")
        prefixes = self._of(index, status)
        theirs = self._words(
            lambda word, register: f"@{there} ld.global.b32 {register}, [{self._word(prefixes, word)}];", "0"
        )
        found = unworded(self.context, s.merge, theirs)
        distance = 1
        while distance < LANES:
            got = [str(emit.new("r")) for _ in range(self.by.words)]
            for out, register in zip(got, words(self.context, s.merge, found), strict=True):
                emit.line(written(self._shift.up, out, register, distance))
            least, takes = emit.new("r"), emit.new("p")
            emit.line(f"add.u32 {least}, {nearest}, {distance};")
            emit.line(f"setp.ge.u32 {takes}, {lane}, {least};")
            together = merged(self.context, s.merge, unworded(self.context, s.merge, got), found)
            found = chosen(self.context, s.merge, together, found, takes)
            distance *= 2
        joins = emit.new("p")
        emit.line(f"setp.ne.u32 {joins}, {seen}, 0;")
        self._replace(before, chosen(self.context, s.merge, merged(self.context, s.merge, found, before), found, joins))
        return unknown

    # -- what is where ---------------------------------------------------------------------------------------------
    @property
    def _shift(self) -> LaneShift:
        if self.s.by is None or not isinstance(self.s.by.shuffle, LaneShift):
            raise LoweringError(f"nothing is said that shifts %{self.s.sources[0].name} between lanes")
        return self.s.by.shuffle

    def _shared(self, word: int) -> str:
        emit = self.context.emit
        mine = emit.add(self.place, emit.mul(self.number, WORD_BYTES))
        return f"{mine}+{word * self.by.tuples * WORD_BYTES}"

    def _index(self, tile: Reg) -> Reg:
        """The number of the tuple among those of all tiles."""
        emit, index = self.context.emit, self.context.emit.new("r")
        emit.line(f"add.u32 {index}, {tile}, {self.at.row};")
        emit.line(f"mad.lo.u32 {index}, {index}, {self.by.tuples}, {self.number};")
        return index

    def _address(self, first: Number, index: Reg) -> Reg:
        emit, address = self.context.emit, self.context.emit.new("d")
        emit.line(f"mul.wide.u32 {address}, {index}, {WORD_BYTES};")
        emit.line(f"add.u64 {address}, {address}, {first};")
        return address

    def _of(self, index: Reg, status: Reg) -> Reg:
        """The address of the first word of what a flag speaks of."""
        emit, address, shift = self.context.emit, self._address(self.at.prefixes, index), self.context.emit.new("d")
        stride = emit.wide(emit.mul(self.at.tiles, self.by.tuples * self.by.words), WORD_BYTES)
        whole = emit.new("p")
        emit.line(f"setp.eq.u32 {whole}, {status}, {WHOLE};")
        emit.line(f"selp.b64 {shift}, {stride}, 0, {whole};")
        emit.line(f"add.u64 {address}, {address}, {shift};")
        return address

    def _word(self, address: Reg, word: int) -> Reg:
        """The address of another word: those of all tiles lie side by side."""
        if not word:
            return address
        emit, there = self.context.emit, self.context.emit.new("d")
        stride = emit.wide(emit.mul(self.at.tiles, self.by.tuples * word), WORD_BYTES)
        emit.line(f"add.u64 {there}, {address}, {stride};")
        return there

    def _words(self, load: Callable[[int, str], str], nothing: str = "") -> list[str]:
        """The words of a tuple, each by a load; `nothing` where there is none."""
        emit, out = self.context.emit, []
        for word in range(self.by.words):
            register = str(emit.new("r"))
            text = load(word, register)
            if nothing:
                emit.line(f"mov.b32 {register}, {nothing};")
            emit.line(text)
            out.append(register)
        return out

    def _publish(self, index: Reg, registers: list[str], status: Reg, speaks: Number) -> None:
        emit, prefixes = self.context.emit, self._of(index, status)
        for word, register in enumerate(registers):
            emit.line(f"@{speaks} st.global.b32 [{self._word(prefixes, word)}], {register};")
        emit.line(f"@{speaks} st.release.gpu.global.u32 [{self._address(self.at.flags, index)}], {status};")

    def _identity(self) -> Value:
        """What the first tile has before it, in registers of its own."""
        out = []
        for number, tile in zip(self.s.merge.identity, self.s.sources, strict=True):
            register = self.context.emit.new(kind_of(tile.dtype, 1))
            text = number_operand(self.context, number, tile.dtype.name)
            self.context.emit.line(f"mov.{KINDS[register.kind]} {register}, {text};")
            out.append(str(register))
        return out

    def _replace(self, old: Value, new: Value) -> None:
        for target, register, tile in zip(old, new, self.s.sources, strict=True):
            self.context.emit.line(f"mov.{KINDS[kind_of(tile.dtype, 1)]} {target}, {register};")
