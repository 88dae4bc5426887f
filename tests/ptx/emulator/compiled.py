"""Runs the kernels that nvcc compiled (kernels/), and demands that no check complains about them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tinygpu.ptx.emulator import Report, emulate

KERNELS = Path(__file__).parent / "kernels"
ORDERS = ("late", "early", "random")


@cache
def ptx_of(file: str) -> str:
    """The text of one fixture: "algorithms", or "sm_90a/copies" for a target of its own."""
    return (KERNELS / f"{file}.ptx").read_text()


def run(
    file: str, entry: str, grid: Any, block: Any, *args: Any, known: tuple[str, ...] = (), **options: Any
) -> Report:
    """Run one kernel with every check; it must have no fault, and no advisory but those in `known`."""
    report = emulate(ptx_of(file), entry=entry, grid=grid, block=block, args=args, check="collect", **options)
    assert report.faults == (), "\n".join(str(fault) for fault in report.faults)
    beyond = [str(advisory) for advisory in report.advisories if advisory.rule not in known]
    assert beyond == [], "\n".join(beyond)
    return report
