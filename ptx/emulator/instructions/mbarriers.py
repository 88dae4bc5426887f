"""mbarrier.*: init, inval, arrive in every form, expect_tx, complete_tx, test_wait, try_wait, pending_count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand, PairOperand, SinkOperand
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.clocks import Clock
from tinygpu.ptx.emulator.state.cohort import Cohort, MustWait
from tinygpu.ptx.emulator.state.mbarriers import Mbarrier
from tinygpu.ptx.emulator.state.memory import SHARED_WINDOW, WINDOW_BYTES

_WIDE_SCOPES = ("cluster", "gpu", "sys")
Place = tuple[int, int]
"""(resident CTA, byte address in its shared memory)."""


def shared_addresses(b: Binder, i: Instruction, operand: Operand) -> Getter:
    """Getter of (n, 32) shared addresses of an operand of an instruction that may give them as generic ones."""
    get, _, space = b.address(operand)
    if space not in (None, "shared"):
        raise b.fail(f"`{i.name}` needs an address in shared memory")
    if space == "shared" or any(m.startswith("shared") for m in i.modifiers):
        return get
    window, base = np.uint64(SHARED_WINDOW // WINDOW_BYTES), np.uint64(SHARED_WINDOW)

    def shared(c: Cohort) -> NDArray[np.uint64]:
        generic = c.spread(get(c)).astype(np.uint64)
        if i.opcode == "tcgen05":
            generic = _from_offsets(c, i, generic)
        outside = (generic // np.uint64(WINDOW_BYTES) != window) & (c.mask if c.mask is not None else True)
        if outside.any():
            at, lane = divmod(int(np.argmax(outside.reshape(-1))), 32)
            Origin(c.residents, i, int(c.set.index[at]), lane).fault(
                "address space",
                f"`{i.name}` needs a generic address of shared memory, not {int(generic[at, lane]):#x}",
            )
            return np.where(outside, np.uint64(0), generic - base)
        return np.asarray(generic - base)

    return shared


_OFFSETS = 1 << 28  # a rank in the cluster, and 24 bits of address


def _from_offsets(c: Cohort, i: Instruction, generic: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """tcgen05.commit uses the low bits only: an offset in shared memory serves as a generic address."""
    offsets = (generic < np.uint64(_OFFSETS)) & (c.mask if c.mask is not None else True)
    if not offsets.any():
        return generic
    c.emulation.advise(
        "shared offset as a generic address", i,
        f"`{i.name}` needs a generic address of shared memory, but {int(generic[offsets][0]):#x} is an offset in it: "
        "say .shared::cluster",
    )  # fmt: skip
    return np.where(offsets, generic + np.uint64(SHARED_WINDOW), generic)


_ALL_LANES = np.arange(32)


def places(
    c: Cohort, i: Instruction, addresses: Any, remote: bool = False
) -> Iterator[tuple[Origin, int, Place, NDArray[np.int64]]]:
    """Per warp and address: its first thread, the warp's position in the cohort, the place, the lanes."""
    residents = c.residents
    live = residents.mbarriers.live
    for at, row, address, chosen in _addressed(c, addresses):
        origin = Origin(residents, i, row, int(chosen[0]))
        if address % 8:
            origin.fault(
                "misaligned",
                f"the mbarrier at shared address {address:#x} is misaligned: it must be a multiple of 8, but the "
                f"remainder is {address % 8}",
                "shared", address,
            )  # fmt: skip
            continue
        place = residents.reach.shared_place(origin, address, remote)
        if place is None:
            continue
        # Where an mbarrier lives, there is room for one.
        if place not in live and not c.emulation.program.shared.holds(place[1], place[1] + 8):
            origin.fault(
                "out of bounds",
                f"the mbarrier at shared address {address:#x} is out of bounds: "
                f"{c.emulation.program.shared.describe(place[1], 8)}",
                "shared", address,
            )  # fmt: skip
            continue
        yield origin, at, place, chosen


def _addressed(c: Cohort, addresses: Any) -> Iterator[tuple[int, int, int, NDArray[np.int64]]]:
    """(position, row, address, lanes that give it) of the active lanes of each warp."""
    values = c.spread(addresses).astype(np.int64)
    firsts: NDArray[np.int64] = np.zeros(c.n, np.int64) if c.mask is None else c.mask.argmax(axis=1)
    given = values[np.arange(c.n), firsts]
    same = values == given[:, None]
    one: NDArray[np.bool_] = np.asarray((same if c.mask is None else same | ~c.mask).all(axis=1))
    active: NDArray[np.bool_] = np.ones(c.n, np.bool_) if c.mask is None else np.asarray(c.mask.any(axis=1))
    for at, (row, address) in enumerate(zip(c.set.index.tolist(), given.tolist(), strict=True)):
        if not active[at]:
            continue
        lanes = _ALL_LANES if c.mask is None else np.flatnonzero(c.mask[at])
        if one[at]:
            yield at, row, address, lanes
            continue
        mine = values[at, lanes]
        for other in np.unique(mine).tolist():
            yield at, row, other, lanes[mine == other]


def released_clock(c: Cohort, row: int, relaxed: bool, abroad: bool = False) -> Clock | None:
    """What an arrival of this row releases: all it knows; with .relaxed only what a fence before it released.

    abroad  other CTAs are told: the fence must be of cluster scope (or wider)
    """
    if not c.emulation.checking:
        return None
    residents = c.residents
    lanes = residents.active_bits(c, row)
    return _executed(c, row, residents.fenced(row, lanes, abroad)) if relaxed else residents.snapshot(row, lanes)


def released_abroad(c: Cohort, row: int, relaxed: bool, wide: bool) -> tuple[Clock | None, Clock | None]:
    """What an arrival of this row in another CTA releases, to a wait of cluster scope and to one of CTA scope.

    wide  the arrival is of cluster scope (or wider)

    Where either is of CTA scope, it is no release: what is left is Clock.from_abroad.
    """
    if not c.emulation.checking:
        return None, None
    residents, clocks = c.residents, c.residents.clocks
    lanes = residents.active_bits(c, row)
    if relaxed:
        return _executed(c, row, residents.fenced(row, lanes, abroad=True)), _executed(c, row, None)
    known = clocks.snapshot(row, c.emulation.tick)
    near = known.from_abroad(None, clocks.members)
    if wide:
        return residents.snapshot(row, lanes), near
    return known.from_abroad(residents.fenced(row, lanes, abroad=True), clocks.members), near


def _executed(c: Cohort, row: int, fenced: Clock | None) -> Clock | None:
    """What a fence released, and what was executed before now."""
    clocks = c.residents.clocks
    if clocks.executed is None:
        return fenced
    return replace(fenced or clocks.nothing(), executed=clocks.snapshot(row, c.emulation.tick).executed)


def _lanes_of(c: Cohort, get: Getter) -> NDArray[np.int64]:
    return c.spread(get(c)).astype(np.int64)


def _init(b: Binder, i: Instruction) -> Run:
    where, count = b.operands(i, 2)
    get, counts = shared_addresses(b, i, where), b.source(count, "u32")

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        values = _lanes_of(c, counts)
        for origin, at, place, lanes in places(c, i, get(c)):
            c.residents.mbarriers.init(origin, *place, int(values[at, lanes[0]]))

    return run


def _inval(b: Binder, i: Instruction) -> Run:
    get = shared_addresses(b, i, b.operands(i, 1)[0])

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        for origin, _, place, _ in places(c, i, get(c)):
            c.residents.mbarriers.invalidate(origin, *place)

    return run


def _transactions(b: Binder, i: Instruction) -> Run:
    """mbarrier.expect_tx and mbarrier.complete_tx: the tx-count, without an arrival."""
    where, count = b.operands(i, 2)
    get, counts = shared_addresses(b, i, where), b.source(count, "u32")
    expects, remote = i.has("expect_tx"), i.has("shared::cluster")

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        c.note_lanes()
        values = _lanes_of(c, counts)
        for origin, at, place, lanes in places(c, i, get(c), remote):
            barriers = c.residents.mbarriers
            barrier = barriers.find(origin, *place)
            size = int(values[at, lanes].sum())
            if barrier is not None and expects:
                barriers.expect_tx(origin, barrier, size)
            elif barrier is not None:
                barriers.complete_tx(origin, barrier, size)

    return run


def _arrive(b: Binder, i: Instruction) -> Run:
    """mbarrier.arrive and .arrive_drop, with .expect_tx, .noComplete, counts, and on barriers of other CTAs."""
    operands = list(i.operands)
    remote = i.has("shared::cluster")
    state: Operand | None = None
    if operands and not _is_address(operands[0]):
        state = operands.pop(0)
    elif not remote:
        raise b.fail(f"`{i.name}` takes a destination first, a register or _")
    if not 1 <= len(operands) <= 2:
        raise b.fail(f"`{i.name}` takes an address and at most one count, not {len(operands)} operands")
    get = shared_addresses(b, i, operands[0])
    expect = i.has("expect_tx")
    given = b.source(operands[1], "u32") if len(operands) > 1 else None
    if (expect or i.has("noComplete")) and given is None:
        raise b.fail(f"`{i.name}` needs {'the number of bytes' if expect else 'a count'}")
    write = None if state is None or isinstance(state, SinkOperand) else b.destination(state, "u64")
    if write is not None and remote:
        raise b.fail(f"`{i.name}` gives no state: its destination must be _")
    drop, relaxed = i.opcode == "mbarrier" and i.has("arrive_drop"), i.has("relaxed")
    wide = any(i.has(scope) for scope in _WIDE_SCOPES)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        c.note_lanes()
        amounts = None if given is None else _lanes_of(c, given)
        tokens = np.zeros((c.n, 32), np.uint64)
        clocks: dict[tuple[int, bool], tuple[Clock | None, Clock | None]] = {}
        for origin, at, place, lanes in places(c, i, get(c), remote):
            barriers = c.residents.mbarriers
            barrier = barriers.find(origin, *place)
            if barrier is None:
                continue
            row, abroad = origin.row, place[0] != origin.cta
            if (row, abroad) not in clocks:
                if abroad:
                    clocks[row, abroad] = released_abroad(c, row, relaxed, wide)
                else:
                    clocks[row, abroad] = (released_clock(c, row, relaxed),) * 2
            mine = np.ones(lanes.size, np.int64) if amounts is None or expect else amounts[at, lanes]
            if expect and amounts is not None:
                barriers.expect_tx(origin, barrier, int(amounts[at, lanes].sum()))
            tokens[at, lanes] = barriers.arrive(
                origin, barrier, int(mine.sum()), *clocks[row, abroad], drop=drop, by_thread=True
            )
        if write is not None:
            np.copyto(write(c), tokens, where=c.where)

    return run


def _is_address(operand: Operand) -> bool:
    from tinygpu.ptx.emulator.source.syntax import AddressOperand

    return isinstance(operand, AddressOperand)


Completed = Callable[[Mbarrier, int], bool]


def _by_parity(barrier: Mbarrier, parity: int) -> bool:
    return barrier.phase & 1 != parity & 1


def _by_state(barrier: Mbarrier, token: int) -> bool:
    return barrier.phase != token >> 32


def _wait(b: Binder, i: Instruction) -> Run:
    """mbarrier.test_wait (looks) and mbarrier.try_wait (the warp is set aside until the phase completes).

    Either may also give false at first, as long as nothing orders the completion before it (Setbacks); then a warp that
    was set aside comes back some time after the phase has completed.
    """
    tries = i.has("try_wait")
    target, where, phase = b.operands(i, 3, 4 if tries else 3)[:3]
    if len(i.operands) == 4:
        b.source(i.operands[3], "u32")
    if isinstance(target, PairOperand):
        raise b.fail(f"`{i.name}` gives one predicate")
    get, write = shared_addresses(b, i, where), b.destination(target, "pred")
    parity = i.has("parity")
    phases = b.source(phase, "u32" if parity else "u64")
    completed: Completed = _by_parity if parity else _by_state
    relaxed = i.has("relaxed")
    wide = any(i.has(scope) for scope in _WIDE_SCOPES)

    def run(c: Cohort) -> None:
        residents = c.residents
        c.emulation.next_tick()
        c.note_lanes()
        wanted = _lanes_of(c, phases)
        result = np.ones((c.n, 32), np.bool_)
        found: dict[Mbarrier, list[int]] = {}
        failed: list[tuple[int, Mbarrier]] = []
        setbacks = residents.setbacks
        late: dict[int, list[tuple[Mbarrier, int]]] = {}
        one_value = (wanted == wanted[:, :1]).all(axis=1).tolist()
        for origin, at, place, lanes in places(c, i, get(c)):
            barrier = residents.mbarriers.find(origin, *place)
            if barrier is None:
                continue
            row = origin.row
            values = [(int(wanted[at, 0]), lanes)] if one_value[at] else _by_value(wanted[at, lanes], lanes)
            for value, chosen in values:
                # Who is slow to look again finds the phase that it waited for only if no other has completed since.
                woken = residents.woken[row] == i.line and (setbacks is None or completed(barrier, value))
                over = woken or completed(barrier, value)
                if over and (setbacks is None or woken or residents.mbarriers.certain(row, barrier)):
                    found.setdefault(barrier, []).append(row)
                    continue
                phase = barrier.phase - 1 if over else barrier.phase
                if setbacks is not None and (over or tries) and setbacks.fails((row, barrier), phase):
                    failed.append((row, barrier))
                    result[at, chosen] = False
                elif over:
                    found.setdefault(barrier, []).append(row)
                else:
                    result[at, chosen] = False
                    late.setdefault(row, []).append((barrier, value))
                    if barrier.sought.get(row, (-1, 0))[0] != barrier.phase:
                        barrier.sought[row] = (barrier.phase, c.emulation.tick)
        if tries and late:
            waits = {row: [(barrier, barrier.phase) for barrier, _ in items] for row, items in late.items()}
            limited = [row for row in late if residents.timed_out[row] == i.line]
            if len(limited) < len(late):
                ready = np.array([row not in late or row in limited for row in c.set.index.tolist()], np.bool_)
                raise MustWait(
                    ready, lambda row: any(barrier.phase == phase for barrier, phase in waits[row]),
                    lambda row: _reason(i, late[row]), limit=True,
                    since=lambda row: late[row][0][0].sought_since(row),
                    fresh=lambda row: all(barrier.phase == 0 and barrier.untouched for barrier, _ in late[row]),
                )  # fmt: skip
        rows = c.set.index if c.mask is None else c.set.index[c.mask.any(axis=1)]
        residents.timed_out[rows] = 0
        residents.woken[rows] = 0
        for row, barrier in failed:
            if setbacks is not None:
                setbacks.count((row, barrier))
        for barrier, finders in found.items():
            residents.mbarriers.learn(finders, barrier, relaxed, wide)
        np.copyto(write(c), result, where=c.where)

    return run


def _by_value(values: NDArray[np.int64], lanes: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """(value, the lanes that give it), in order of the values."""
    if (values == values[0]).all():
        return [(int(values[0]), lanes)]
    return [(value, lanes[values == value]) for value in np.unique(values).tolist()]


def _reason(i: Instruction, items: list[tuple[Mbarrier, int]]) -> str:
    barrier, value = items[0]
    what = f"parity {value & 1}" if i.has("parity") else f"phase {value >> 32}"
    return f"on line {i.line} for {what} of an mbarrier: {barrier.describe()}"


def _pending_count(b: Binder, i: Instruction) -> Run:
    target, state = b.operands(i, 2)
    get, write = b.source(state, "u64"), b.destination(target, "u32")

    def run(c: Cohort) -> None:
        np.copyto(write(c), (np.asarray(get(c)) & np.uint64(0xFFFFFFFF)).astype(np.uint32), where=c.where)

    return run


def _mbarrier(b: Binder, i: Instruction) -> Run:
    forms: tuple[tuple[str, Compile], ...] = (
        ("init", _init), ("inval", _inval), ("arrive", _arrive), ("arrive_drop", _arrive), ("test_wait", _wait),
        ("try_wait", _wait), ("pending_count", _pending_count), ("expect_tx", _transactions),
        ("complete_tx", _transactions),
    )  # fmt: skip
    for name, make in forms:
        if i.has(name):
            return make(b, i)
    raise b.unsupported()


MBARRIERS: dict[str, Compile] = {"mbarrier": _mbarrier}
