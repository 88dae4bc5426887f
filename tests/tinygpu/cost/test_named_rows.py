"""Rows that values name are counted once where tiles name the same ones: against sets, and the emulator's DRAM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.cost.named_rows import depends_on
from tinygpu.devices import device
from tinygpu.machines.attention_paged_prefill import AttentionPagedPrefill
from tinygpu.machines.embedding import Embedding
from tinygpu.machines.grouped_matmul import GroupedMatmul
from tinygpu.machines.grouped_matmul_hopper import GroupedMatmulHopper
from tinygpu.machines.rotary import Rotary
from tinygpu.program.tree import walk
from tinygpu.ptx.emulator import Caches, emulate
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.memory import arguments, host_tensors
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

A100 = device("a100")


def demand_of(space: MachineSpace, point: Any) -> Any:
    index = space.structure_index(point)
    chosen = {a: int(point[a]) for a in space.traces[index].axes}
    return space.counts(index).demand({**space.environment, **chosen}, space.device)


@pytest.mark.parametrize(
    ("machine", "dims", "tensor", "same"),
    [
        (AttentionPagedPrefill, {"b": 2, "h": 2, "g": 2, "s": 64, "longest": 64, "listed": 4, "pages": 9, "page": 16,
                                 "d": 64}, "k", {"tile2", "tile3"}),
        (Embedding, {"m": 64, "n": 512, "v": 100}, "table", set()),
        (Rotary, {"m": 64, "h": 16, "t": 32, "half": 64}, "cos", {"tile1"}),
    ],
)  # fmt: skip
def test_windows_depend_on_the_tiles_that_say_where_their_values_come_from(
    machine: Any, dims: dict[str, int], tensor: str, same: set[str]
) -> None:
    """Heads and queries of a sequence look up the same pages; heads of a token turn by the same angles."""
    space = build_space(machine, machine.problem(**dims), A100)
    program = space.counts(0).program
    picked = [
        tile
        for s in walk(program.body)
        for tile in s.reads
        if tile.pick is not None and tile.tensor is not None and (tile.tensor.name == tensor or tensor == "table")
    ]
    assert picked
    for tile in picked:
        named = depends_on(program, tile)
        assert {axis.index for axis in program.grid.axes} - named == same


@pytest.mark.parametrize(("b", "g", "s", "listed"), [(4, 1, 256, 16), (2, 2, 128, 32)])
def test_keys_in_pages_are_read_once_as_the_emulators_dram_does(b: int, g: int, s: int, listed: int) -> None:
    """Sequences as long as is typical, in pages of their own, in whole tiles that are not brought ahead.

    What a tile has behind the end of a sequence is counted, and nothing there is read.
    """
    page, d, h = 16, 64, 2
    dims = {"b": b, "h": h, "g": g, "s": s, "longest": s, "listed": listed, "page": page, "d": d}
    dims["pages"] = 4 * b * listed
    problem = AttentionPagedPrefill.problem(**dims)
    space = build_space(AttentionPagedPrefill, problem, A100)
    (point,) = space.space.restrict({"waits": "for both", "bn": 32}).sample(1, np.random.default_rng(3))
    demand = demand_of(space, point)
    keys = listed * page // 2
    assert demand.compulsory_dram_bytes < sum(int(np.prod(o.shape)) * o.dtype.bits // 8 for o in problem.operands) / 2
    rng = np.random.default_rng(0)
    kinds = {o.name: (o.shape, np.int32 if o.dtype.name == "s32" else np.float16) for o in problem.operands}
    arrays = {name: rng.standard_normal(shape).astype(kind) for name, (shape, kind) in kinds.items() if name != "o"}
    arrays["first_q"] = (np.arange(b + 1) * (s // b)).astype(np.int32)
    arrays["lengths"] = np.full(b, keys, np.int32)
    arrays["table"] = rng.permutation(4 * b * listed)[: b * listed].reshape(b, listed).astype(np.int32)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    report = emulate(
        kernel.ptx,
        grid=kernel.grid(problem),
        block=(kernel.threads, 1, 1),
        args=arguments(kernel, problem, host_tensors(problem, arrays), {"scale": 0.1}),
        dynamic_smem=kernel.smem_bytes,
        check=False,
        caches=Caches(0, 1 << 30, 4, 2),
    )
    assert report.traffic is not None
    assert report.traffic.dram_read_bytes == pytest.approx(demand.dram_bytes_read, rel=0.05)


@pytest.mark.parametrize(("machine", "gpu"), [(GroupedMatmul, "a100"), (GroupedMatmulHopper, "h100")])
def test_rows_of_groups_are_read_once_however_far_tiles_reach_beyond_them(machine: Any, gpu: str) -> None:
    """Two rows of a group, in tiles of 16 to 256: the others are those of the next groups."""
    problem = machine.problem(m=256, n=256, k=128, experts=128)
    space = build_space(machine, problem, device(gpu))
    for point in space.sample(4, 1):
        demand = demand_of(space, point)
        assert demand.dram_bytes_read + demand.dram_bytes_written <= 1.02 * demand.compulsory_dram_bytes, point
