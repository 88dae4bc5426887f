"""Synchronisation as values: every line of a kernel that waits, arrives or orders is one value of its protocol."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from taking_over import Alone, Handed

import tinygpu.ptx.lowering
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.lower import Lowered, lowered
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

LINES = re.compile(
    r"mbarrier\.\w+|bar\.(?:sync|red|warp)|barrier\.cluster\.\w+|(?:cp\.async(?:\.bulk)?|wgmma)\.(?:commit|wait)_(?:group|all)"
    r"|(?:wgmma\.)?fence\b|cp\.async\.bulk\.tensor\.\dd\.shared|clusterlaunchcontrol\.\w+"
)
# What of the text each value is; a fence is one line whatever it says.
OF_VALUES: dict[type, tuple[str, ...]] = {
    sync.Init: ("mbarrier.init",),
    sync.Wait: ("mbarrier.try_wait",),
    sync.Expect: ("mbarrier.arrive",),
    sync.Arrive: ("mbarrier.arrive",),
    sync.Bring: ("cp.async.bulk.tensor",),
    sync.Ask: ("clusterlaunchcontrol.try_cancel",),
    sync.Hear: ("clusterlaunchcontrol.query_cancel",) * 2,
    sync.MeetWarp: ("bar.warp",),
    sync.MeetCluster: ("barrier.cluster.arrive", "barrier.cluster.wait"),
    sync.Fence: ("fence",),
}


@cache
def kernel(machine: type[Machine], on: str, sizes: tuple[int, ...], **of: Any) -> Lowered:
    problem = machine.problem(**dict(zip(machine.dim_names(), sizes, strict=True)))
    space = build_space(machine, problem, device(on))
    (point,) = space.space.restrict(of).sample(1, np.random.default_rng(1))
    program = space.program(point)
    return lowered(program, problem, point, solve_buffers(program, SolverCache()).swizzles)


KERNELS: list[tuple[type[Machine], str, tuple[int, ...], dict[str, Any]]] = [
    (MatmulSimt, "a100", (70, 90, 136), {}),
    (MatmulAmpere, "a100", (72, 96, 136), {"copy_a": "cp.async", "store": "staged"}),
    (MatmulSkinny, "h100", (8, 200, 1000), {"product": "mma.sync"}),
    (MatmulHopper, "h100", (304, 80, 320), {"schedule": "pingpong", "cluster_m": 2, "store": "staged"}),
    (MatmulHopper, "h100", (304, 80, 320), {"schedule": "cooperative", "stream_k": 1}),
    (Handed, "b200", (100, 200), {"control": 1, "down": 2}),
    (Alone, "b200", (100, 200), {"warps": 4}),
]


def steps(body: tuple[sync.Step, ...]) -> Iterator[sync.Step]:
    for step in body:
        yield step
        yield from steps(getattr(step, "body", ()))


def lines_of(step: sync.Step) -> tuple[str, ...]:
    match step:
        case sync.Commit(of):
            return (f"{of}.commit_group",)
        case sync.WaitGroup(of, pending):
            return (f"{of}.wait_{'all' if pending is None else 'group'}",)
        case sync.Meet(any=reduced):
            return ("bar.red" if reduced else "bar.sync",)
        case _:
            return OF_VALUES.get(type(step), ())


def of_text(line: str) -> str | None:
    """What a line of PTX does; barriers of the workspace's counters and plain memory fences are not among it."""
    if found := LINES.search(line.split("//")[0]):
        text = found[0]
        return "fence" if "fence" in text else "cp.async.bulk.tensor" if text.startswith("cp.async.bulk.t") else text
    return None


@pytest.mark.parametrize(("machine", "on", "sizes", "of"), KERNELS, ids=lambda v: getattr(v, "__name__", None))
def test_every_line_that_synchronises_is_a_value_of_the_protocol(
    machine: type[Machine], on: str, sizes: tuple[int, ...], of: dict[str, Any]
) -> None:
    made = kernel(machine, on, sizes, **of)
    printed = Counter(what for line in made.kernel.ptx.splitlines() if (what := of_text(line)))
    kept = Counter(what for step in steps(made.protocol.body) for what in lines_of(step))
    assert printed == kept
    assert printed


def test_lowering_writes_synchronisation_in_its_printer_only() -> None:
    """No other file of lowering has such a line in a text of its own."""
    folder = Path(tinygpu.ptx.lowering.__file__).parent
    words = r"mbarrier\.|bar\.sync|bar\.warp|bar\.red|barrier\.cluster|try_cancel|query_cancel|(?<!cta)_group|wait_all"
    text = re.compile(rf'f?"[^"\n]*(?:{words})[^"\n]*"')
    docstring = re.compile(r'"""[\s\S]*?"""')
    writers = {
        path.name for path in sorted(folder.glob("*.py")) if text.search(docstring.sub("", path.read_text("utf-8")))
    }
    assert writers == {"release.py", "sync_text.py"}  # release has the two spellings of an arrival abroad
