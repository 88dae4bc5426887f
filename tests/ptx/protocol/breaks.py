"""Edits of a kernel's synchronisation, as values, each of which breaks a hand-over as a wrong lowering would."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.emitter import Reg

# A register of no kernel, for slots beside the one that is meant.
BESIDE = Reg("%beside", "r", 0)


@dataclass(frozen=True, slots=True)
class Break:
    """kind  of mistake; what  was there"""

    kind: str
    what: str
    protocol: sync.Protocol


def breaks(protocol: sync.Protocol) -> Iterator[Break]:
    """One value at a time, wherever it stands."""
    for number, (step, within) in enumerate(_steps(protocol.body, ())):
        for kind, new in _wrong(step, within):
            counter = iter(range(1_000_000))
            yield Break(kind, str(step)[:120], replace(protocol, body=_edited(protocol.body, number, new, counter)))


def _steps(
    body: tuple[sync.Step, ...], within: tuple[sync.Step, ...]
) -> Iterator[tuple[sync.Step, tuple[sync.Step, ...]]]:
    for step in body:
        yield step, within
        if hasattr(step, "body"):
            yield from _steps(step.body, (*within, step))


def _edited(
    body: tuple[sync.Step, ...], number: int, new: tuple[sync.Step, ...], counter: Iterator[int]
) -> tuple[sync.Step, ...]:
    out: list[sync.Step] = []
    for step in body:
        mine = next(counter) == number
        if hasattr(step, "body"):
            inner = _edited(step.body, number, new, counter)
            out += new if mine else [replace(step, body=inner)]
        else:
            out += new if mine else [step]
    return tuple(out)


def _beside(slot: object, stages: int) -> tuple[sync.Step, ...]:
    if not isinstance(slot, (Reg, int)):
        raise TypeError(slot)
    return sync.Set(BESIDE, slot), sync.Advance(BESIDE, stages)


def _wrong(step: sync.Step, within: tuple[sync.Step, ...]) -> Iterator[tuple[str, tuple[sync.Step, ...]]]:
    """(kind of mistake, what stands there instead)."""
    inside = any(isinstance(block, sync.Tiles) for block in within)
    match step:
        case sync.Init(barrier, arrivals):
            if arrivals > 1:
                yield "an arrival too few", (sync.Init(barrier, arrivals - 1),)
            yield "an arrival too many", (sync.Init(barrier, arrivals + 1),)
        case sync.Start(pipe, parity):
            yield "an inverted first parity", (sync.Start(pipe, 1 - parity),)
        case sync.Tiles(body):
            for start in within[-1].body if isinstance(within[-1], sync.RoleBody) else ():
                if isinstance(start, sync.Start) and _flips(body, start):
                    yield "a place in the ring kept for one tile only", (replace(step, body=(start, *body)),)
        case sync.Wait(barrier):
            yield "a missing wait", ()
            if barrier.side != "turn":
                beside = _beside(barrier.slot, _stages(within))
                yield "a wait for the neighbour's slot", (
                    *beside, replace(step, barrier=replace(barrier, slot=BESIDE)),
                )  # fmt: skip
        case sync.Expect(barrier, count):
            yield "a missing arrival", ()
            for other in (count - 16, count + 16, 2 * count):
                yield "wrong expected bytes", (replace(step, bytes=other),)
        case sync.Bring() | sync.Ask():
            yield "a missing copy", ()
        case sync.Arrive(barrier, ctas):
            yield "a missing release", ()
            if barrier.side != "turn":
                beside = _beside(barrier.slot, _stages(within))
                if not step.held:
                    yield "a release of the neighbour's slot", (
                        *beside, replace(step, barrier=replace(barrier, slot=BESIDE)),
                    )  # fmt: skip
            if ctas > 1:
                yield "a release of the own CTA only", (replace(step, ctas=1, axes=()),)
        case sync.WaitGroup("cp.async", None):
            yield "a missing wait for copies", ()
        case sync.WaitGroup("cp.async.bulk", pending, slots=slots) if inside:
            yield "a missing wait for copies", ()
            if slots and pending is not None:
                yield "a group too few waited for", (replace(step, pending=pending + 1),)
        case sync.Touch(_, int(slot), "write") if within and any(isinstance(s, sync.Turn) for s in within[-1].body):
            yield "a neighbour's slot is written", (replace(step, slot=slot + 1),)
        case sync.Meet() if not _of_fix_up(step, within):
            yield "a missing barrier", ()
        case sync.MeetCluster() if not within and step.aligned:
            yield "a missing barrier", ()
        case sync.Commit():
            yield "a missing group", ()
        case sync.Set(register, int(value)) if value != sync.NOBODY:
            yield "a slot that begins elsewhere", (sync.Set(register, value + 1),)
        case sync.WaitGroup("wgmma" | "cp.async", pending):
            yield "a group too few waited for", (replace(step, pending=(pending or 0) + 1),)
        case sync.Advance(_, stages, parity):
            for other in (stages - 1, stages + 1):
                if other:
                    yield "slots that end elsewhere", (replace(step, stages=other),)
            if parity is not None:
                yield "a parity that does not flip", (replace(step, parity=None),)
            yield "a slot that stands still", ()
        case sync.Skip() if inside:
            yield "slots that are not passed over", ()
        case sync.Flip():
            yield "a parity that does not flip", ()


def _of_fix_up(step: sync.Meet, within: tuple[sync.Step, ...]) -> bool:
    """Whether a barrier orders what CTAs leave for each other in global memory, and no slots."""
    siblings = getattr(within[-1], "body", ()) if within else ()
    following = next((b for a, b in itertools.pairwise(siblings) if a is step), None)
    return step.any is not None or (isinstance(following, sync.Meet) and following.any is not None)


def _flips(body: tuple[sync.Step, ...], start: sync.Start) -> bool:
    pipe = start.pipe
    steps = [step for step, _ in _steps(body, ())]
    slots = [step.slot for step in steps if isinstance(step, sync.Advance)]
    return pipe.slot in slots or any(isinstance(step, sync.Flip) and step.parity == pipe.parity for step in steps)


def _stages(within: tuple[sync.Step, ...]) -> int:
    return next(s.stages for block in reversed(within) for s, _ in _steps((block,), ()) if isinstance(s, sync.Advance))


def early_releases(protocol: sync.Protocol) -> Iterator[Break]:
    """A slot is given back as soon as it was waited for."""
    for number, (step, within) in enumerate(_steps(protocol.body, ())):
        if isinstance(step, sync.Wait) and step.barrier.side == "full" and within:
            block = within[-1]
            for other in getattr(block, "body", ()):
                mine = isinstance(other, sync.Arrive) and other.barrier.pipeline == step.barrier.pipeline
                if isinstance(other, sync.Arrive) and mine and not other.held:
                    counter = iter(range(1_000_000))
                    moved = replace(other, barrier=replace(other.barrier, slot=step.barrier.slot))
                    without = _edited(protocol.body, number, (step, moved), counter)
                    yield Break("an early release", str(other)[:120], replace(protocol, body=_once(without, other)))


def _once(body: tuple[sync.Step, ...], last: sync.Step) -> tuple[sync.Step, ...]:
    """Without the later of two equal releases."""
    out: list[sync.Step] = []
    seen = 0
    for step in body:
        if step == last:
            seen += 1
            if seen == 2:
                continue
        out.append(replace(step, body=_once(step.body, last)) if hasattr(step, "body") else step)
    return tuple(out)
