"""Other readings of what orders and completes tcgen05's work, of allocations, and of what brings its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinygpu.ptx.emulator.instructions import bulk_copies, tcgen05_allocation, tcgen05_commit, tensor_copies
from tinygpu.ptx.emulator.state import tensor_order
from tinygpu.ptx.emulator.state.emulation import Emulation

Patch = pytest.MonkeyPatch
Misread = Callable[[Patch], None]


def unordered(first: str, second: str) -> Misread:
    pairs = frozenset(tensor_order.IN_ORDER - {(first, second)})
    return lambda patch: patch.setattr(tensor_order, "IN_ORDER", pairs)


def at_once(patch: Patch) -> None:
    """A commit arrives without waiting for anything."""
    right = tcgen05_commit.CommitWork

    def work(origin: Any, queue: Any, *rest: Any) -> Any:
        found = right(origin, ("commit", *queue), *rest)
        found.complete()
        return found

    patch.setattr(tcgen05_commit, "CommitWork", work)
    patch.setattr(right, "complete", _once(right.complete))


def _once(complete: Callable[[Any], None]) -> Callable[[Any], None]:
    """An arrival does not come twice."""
    arrived: set[int] = set()
    kept: list[Any] = []

    def arrive(work: Any) -> None:
        if id(work) not in arrived:
            arrived.add(id(work))
            kept.append(work)
            complete(work)

    return arrive


def home_only(patch: Patch) -> None:
    right = tcgen05_commit._multicast
    patch.setattr(tcgen05_commit, "_multicast", lambda origin, mask, address: right(origin, mask, address)[:1])


def no_wait(kind: str) -> Misread:
    def misread(patch: Patch) -> None:
        right = tensor_order.TensorOrder.wait

        def wait(order: Any, row: int, waited: Any) -> None:
            if waited != kind:
                right(order, row, waited)

        patch.setattr(tensor_order.TensorOrder, "wait", wait)

    return misread


def next_columns(patch: Patch) -> None:
    right = tcgen05_allocation.join_address
    patch.setattr(tcgen05_allocation, "join_address", lambda lane, column: right(lane, column + 32))


def rows_turned(patch: Patch) -> None:
    right = tensor_copies.gather_box
    patch.setattr(
        tensor_copies, "gather_box", lambda m, column, rows, address: right(m, column, list(rows)[::-1], address)
    )


def own_barrier(patch: Patch) -> None:
    """The mbarrier of a load lies in the CTA of its destination, whatever .cta_group says."""
    right = bulk_copies.LoadTargets._same_cta

    def same(self: Any, origin: Any, residents: Any, cta: int, barrier: Any) -> bool:
        self._pair = False
        return right(self, origin, residents, cta, barrier)

    patch.setattr(bulk_copies.LoadTargets, "_same_cta", same)


def next_cluster(patch: Patch) -> None:
    right = Emulation.take_cluster

    def take(self: Any) -> Any:
        found = right(self)
        return None if found is None else (found[0] + 1, *found[1:])

    patch.setattr(Emulation, "take_cluster", take)
