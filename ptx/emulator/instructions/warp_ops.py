"""What the lanes of a warp do together: shfl, vote, match, redux, activemask, elect, bar.warp.sync."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile, emit, last_type
from tinygpu.ptx.emulator.source.syntax import Instruction, PairOperand, SinkOperand
from tinygpu.ptx.emulator.source.types import Array, numpy_type
from tinygpu.ptx.emulator.state.cohort import Cohort, Incomplete

_LANE = np.arange(32, dtype=np.int64)[None, :]
_BIT = np.uint32(1) << np.arange(32, dtype=np.uint32)[None, :]


def active_bits(c: Cohort) -> NDArray[np.uint32]:
    """(n, 1) bit mask of each warp's active lanes."""
    if c.mask is None:
        return np.full((c.n, 1), 0xFFFFFFFF, np.uint32)
    return ballot(c.mask)


def ballot(values: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """(n, 1) bit mask of the true lanes of (n, 32)."""
    return np.packbits(values, axis=1, bitorder="little").view(np.uint32)


def check_members(c: Cohort, i: Instruction, members: Array) -> None:
    """Every lane that executes must be named, and every named lane that has not exited must execute.

    members  (n, 32) member mask of each lane, or a scalar
    """
    active = active_bits(c)
    masks = c.spread(np.asarray(members, np.uint32))
    rows = c.set.rows
    # PTX ISA, shfl.sync, vote.sync, ...: a lane waits for all NON-EXITED threads of its member mask.
    expected = ballot(c.residents.alive[rows] & ~c.residents.at_exit[rows])
    missing = masks & expected & ~active
    left_out = (masks & _BIT) == 0
    bad = (missing != 0) | left_out
    if c.mask is not None:
        bad &= c.mask
    c.residents.clocks.sync_warps(c.set.index, c.emulation.tick)
    if not bad.any():
        return
    if c.patient and not left_out[bad].any():
        raise Incomplete(bad)
    flat = int(np.argmax(bad.reshape(-1)))
    at, lane = divmod(flat, 32)
    row = int(c.set.index[at])
    mask = int(masks[at, lane])
    if left_out[at, lane]:
        sentence = f"lane {lane} executes `{i.name}`, but its member mask {mask:#010x} does not name that lane"
    else:
        others = [k for k in range(32) if int(missing[at, lane]) >> k & 1]
        sentence = (
            f"the member mask {mask:#010x} of `{i.name}` names lane {others[0]}, which does not execute it: name only "
            f"lanes that get here together (executing: {int(active[at, 0]):#010x})"
        )
    c.emulation.fault("collective", i, c.residents, row, lane, sentence, count=int(np.count_nonzero(bad)))


def _member_source(b: Binder, i: Instruction, position: int) -> Getter | None:
    if not i.has("sync"):
        return None
    return b.source(i.operands[position], "u32")


def _shfl(b: Binder, i: Instruction) -> Run:
    mode = next((m for m in ("up", "down", "bfly", "idx") if i.has(m)), None)
    if mode is None:
        raise b.fail(f"`{i.name}` needs .up, .down, .bfly or .idx")
    count = 5 if i.has("sync") else 4
    operands = b.operands(i, count)
    target = operands[0]
    predicate = target.second if isinstance(target, PairOperand) else None
    value = target.first if isinstance(target, PairOperand) else target
    source = b.source(operands[1], "u32")
    source_slots = sorted(b.reads)
    by, clamp = b.source(operands[2], "u32"), b.source(operands[3], "u32")
    members = _member_source(b, i, 4)
    get = b.destination(value, "u32")
    value_slots = sorted(b.writes)
    get_pred = None
    if predicate is not None and not isinstance(predicate, SinkOperand):
        get_pred = b.destination(predicate, "pred")

    def lanes(c: Cohort) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        # PTX ISA, shfl: pseudo code.
        amount = np.asarray(by(c)).astype(np.int64) & 31
        control = np.asarray(clamp(c)).astype(np.int64)
        limit, segment = control & 31, (control >> 8) & 31
        top = (_LANE & segment) | (limit & ~segment & 31)
        if mode == "up":
            other = _LANE - amount
            inside = other >= top
        elif mode == "down":
            other = _LANE + amount
            inside = other <= top
        elif mode == "bfly":
            other = _LANE ^ amount
            inside = other <= top
        else:
            other = (_LANE & segment) | (amount & ~segment & 31)
            inside = other <= top
        shape = (c.n, 32)
        return np.broadcast_to(np.where(inside, other, _LANE), shape), np.broadcast_to(inside, shape)

    def run(c: Cohort) -> None:
        if members is not None:
            check_members(c, i, members(c))
        other, inside = lanes(c)
        values = c.spread(source(c))
        moved = np.take_along_axis(values, other, axis=1)
        if c.mask is not None and c.emulation.checking:
            idle = ~np.take_along_axis(c.mask, other, axis=1) & c.mask
            if idle.any():
                c.residents.taint_lanes(c, value_slots, idle)
        np.copyto(get(c), moved, where=c.where)
        if get_pred is not None:
            np.copyto(get_pred(c), inside, where=c.where)

    def taint(c: Cohort) -> None:
        other, _ = lanes(c)
        for source_slot in source_slots[:1]:
            whole = c.residents.registers.taint.get(source_slot)
            for slot in value_slots:
                bits = 0 if whole is None else np.take_along_axis(whole[c.set.rows], other, axis=1)
                c.residents.set_taint(c, slot, bits)

    b.taint_before = taint
    return run


def _vote(b: Binder, i: Instruction) -> Run:
    mode = next((m for m in ("all", "any", "uni", "ballot") if i.has(m)), None)
    if mode is None:
        raise b.fail(f"`{i.name}` needs .all, .any, .uni or .ballot")
    operands = b.operands(i, 3 if i.has("sync") else 2)
    predicate = b.source(operands[1], "pred")
    members = _member_source(b, i, 2)
    get = b.destination(operands[0], "u32" if mode == "ballot" else "pred")

    def run(c: Cohort) -> None:
        masks: Any = active_bits(c)
        if members is not None:
            chosen = members(c)
            check_members(c, i, chosen)
            masks = masks & np.asarray(chosen, np.uint32)
        held = np.array(c.spread(predicate(c)))
        if c.mask is not None:
            held &= c.mask
        bits = ballot(held) & masks
        if mode == "ballot":
            result: Any = bits
        elif mode == "all":
            result = bits == masks
        elif mode == "any":
            result = bits != 0
        else:
            result = (bits == 0) | (bits == masks)
        np.copyto(get(c), result, where=c.where)

    return run


def _match(b: Binder, i: Instruction) -> Run:
    name = last_type(b, i)
    target, x, mask = b.operands(i, 3)
    every = i.has("all")
    predicate = target.second if isinstance(target, PairOperand) else None
    source = b.source(x, name)
    members = b.source(mask, "u32")
    get = b.destination(target.first if isinstance(target, PairOperand) else target, "u32")
    get_pred = None
    if predicate is not None and not isinstance(predicate, SinkOperand):
        get_pred = b.destination(predicate, "pred")

    def run(c: Cohort) -> None:
        chosen = members(c)
        check_members(c, i, chosen)
        masks = active_bits(c) & c.spread(np.asarray(chosen, np.uint32))
        values = c.spread(source(c))
        same = values[:, :, None] == values[:, None, :]
        bits = np.packbits(same, axis=2, bitorder="little").view(np.uint32)[..., 0] & masks
        if every:
            together = bits == masks
            np.copyto(get(c), np.where(together, masks, np.uint32(0)), where=c.where)
            if get_pred is not None:
                np.copyto(get_pred(c), together, where=c.where)
        else:
            np.copyto(get(c), bits, where=c.where)

    return run


def _redux(b: Binder, i: Instruction) -> Run:
    name = last_type(b, i)
    operation = next((m for m in ("add", "min", "max", "and", "or", "xor") if i.has(m)), None)
    if operation is None:
        raise b.fail(f"`{i.name}` names no operation")
    if name == "f32":
        return _redux_float(b, i, operation)
    d, x, mask = b.operands(i, 3)
    seen = "u32" if name == "b32" else name
    source, members = b.source(x, seen), b.source(mask, "u32")
    get = b.destination(d, seen)
    dtype = numpy_type(seen)
    info = np.iinfo(dtype)
    ufunc: Any
    ufunc, neutral = {
        "add": (np.add, 0), "min": (np.minimum, info.max), "max": (np.maximum, info.min),
        "and": (np.bitwise_and, 0xFFFFFFFF if dtype == np.uint32 else -1), "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
    }[operation]  # fmt: skip

    def run(c: Cohort) -> None:
        chosen = members(c)
        check_members(c, i, chosen)
        masks = active_bits(c) & c.spread(np.asarray(chosen, np.uint32))
        values = c.spread(source(c))
        inside = (masks[:, :, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1) != 0
        spread = np.where(inside, values[:, None, :], dtype.type(neutral))
        np.copyto(get(c), ufunc.reduce(spread, axis=2, dtype=dtype), where=c.where)

    return run


def _redux_float(b: Binder, i: Instruction, operation: str) -> Run:
    if operation not in ("min", "max"):
        raise b.fail("redux.sync of .f32 has .min and .max only")
    d, x, mask = b.operands(i, 3)
    source, members = b.source(x, "f32"), b.source(mask, "u32")
    get = b.destination(d, "f32")
    absolute, propagate = i.has("abs"), i.has("NaN")
    neutral = np.float32(np.inf if operation == "min" else -np.inf)

    def run(c: Cohort) -> None:
        chosen = members(c)
        check_members(c, i, chosen)
        masks = active_bits(c) & c.spread(np.asarray(chosen, np.uint32))
        values = c.spread(source(c))
        values = np.abs(values) if absolute else values
        inside = (masks[:, :, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1) != 0
        nan = np.isnan(values)[:, None, :] & inside
        spread = np.where(inside & ~nan, values[:, None, :], neutral)
        result = spread.min(axis=2) if operation == "min" else spread.max(axis=2)
        spoiled = nan.any(axis=2) if propagate else (nan == inside).all(axis=2)
        canonical = np.uint32(0x7FFFFFFF).view(np.float32)
        np.copyto(get(c), np.where(spoiled, canonical, result), where=c.where)

    return run


def _activemask(b: Binder, i: Instruction) -> Run:
    (d,) = b.operands(i, 1)
    get = b.destination(d, "u32")

    def run(c: Cohort) -> None:
        np.copyto(get(c), active_bits(c), where=c.where)

    return run


def _elect(b: Binder, i: Instruction) -> Run:
    target, mask = b.operands(i, 2)
    if not isinstance(target, PairOperand):
        raise b.fail("elect.sync writes d|p")
    members = b.source(mask, "u32")
    get = b.destination(target.first, "u32")
    get_pred = b.destination(target.second, "pred")

    def run(c: Cohort) -> None:
        chosen = members(c)
        check_members(c, i, chosen)
        masks = active_bits(c) & c.spread(np.asarray(chosen, np.uint32))
        # Which lane is elected is up to the implementation (PTX ISA, elect.sync); here the lowest.
        lowest = masks & (~masks + np.uint32(1))
        leader = np.where(masks != 0, np.bitwise_count(lowest - np.uint32(1)), 0).astype(np.uint32)
        np.copyto(get(c), leader, where=c.where)
        np.copyto(get_pred(c), leader == _LANE.astype(np.uint32), where=c.where)

    return run


def warp_barrier(b: Binder, i: Instruction) -> Run:
    """bar.warp.sync: lanes of a warp run in order here, so only the member mask is left to check."""
    (mask,) = b.operands(i, 1)
    members = b.source(mask, "u32")

    def run(c: Cohort) -> None:
        check_members(c, i, members(c))

    return run


WARP_OPS: dict[str, Compile] = {
    "shfl": _shfl,
    "vote": _vote,
    "match": _match,
    "redux": _redux,
    "activemask": _activemask,
    "elect": _elect,
}

__all__ = ["WARP_OPS", "active_bits", "ballot", "check_members", "emit", "warp_barrier"]
