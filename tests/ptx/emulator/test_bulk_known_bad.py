"""One kernel per mistake with bulk and tensor copies: each is caught, in every order, and its fixed twin is not."""

from __future__ import annotations

from typing import Any

import pytest
from bulk_bugs import BUGS, EXITED, FOUND, ORDERS, Bug, linear

from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, Report, emulate
from tinygpu.ptx.emulator.state.emulation import Order


def launch(text: str, args: list[Any], bug: Bug, order: Order) -> Report:
    options = dict(bug.options)
    hidden = [a for a in args[2:] if isinstance(a, DeviceBuffer)]
    shown = [a for a in args if not any(a is h for h in hidden)]
    grid, block = options.pop("grid", 1), options.pop("block", 64)
    return emulate(text, grid=grid, block=block, args=shown, order=order, buffers=hidden, **options)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_each_mistake_is_caught_in_every_order(bug: Bug) -> None:
    for order in bug.orders:
        with pytest.raises(EmulationFault) as caught:
            launch(bug.broken(), (bug.bad_args or bug.args)(), bug, order)
        assert (caught.value.kind, caught.value.sentence) in FOUND[bug.name]


def test_an_exit_while_a_bulk_store_reads_is_advised() -> None:
    """The manual wants the wait; hardware keeps the memory until it has been read, and published kernels rely on it."""
    wait = "    cp.async.bulk.wait_group.read 0;\n"
    assert wait in EXITED
    for order in ORDERS:
        arguments = linear()
        bug = Bug("exit", EXITED, (), linear)
        report = launch(EXITED.replace(wait, ""), arguments, bug, order)
        assert report.faults == ()
        assert [(a.rule, a.sentence) for a in report.advisories] == [(
            "exit while a bulk store reads",
            "this CTA exits, but the copy of line 31 may still read its shared memory: the issuing thread should "
            "execute cp.async.bulk.wait_group.read 0 (after commit_group) before it exits",
        )]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_each_fixed_twin_is_clean(bug: Bug) -> None:
    for order in ORDERS:
        report = launch(bug.text, bug.args(), bug, order)
        assert report.faults == ()
        assert report.advisories == ()


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_each_mistake_can_be_collected(bug: Bug) -> None:
    """A run that goes on after the first fault ends, and finds it too."""
    order: Order = bug.orders[0]
    collected = Bug(**{**{n: getattr(bug, n) for n in ("name", "text", "edits", "args", "bad_args", "orders")},
                       "options": {**bug.options, "check": "collect"}})  # fmt: skip
    report = launch(bug.broken(), (bug.bad_args or bug.args)(), collected, order)
    assert any((fault.kind, fault.sentence) in FOUND[bug.name] for fault in report.faults)
