"""What is expected of a launch, beside what the emulator counts of it on drawn inputs."""

from __future__ import annotations

from collections.abc import Mapping

from tinygpu.cost.counting import count
from tinygpu.cost.demand import Demand
from tinygpu.devices import device
from tinygpu.language import HEURISTICS, Machine
from tinygpu.ptx.emulator import Caches, Counters, Report, emulate
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import make_inputs
from tinygpu.ptx.verification.memory import arguments, workspaces
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

Point = Mapping[str, int | str]


def counted(
    machine: type[Machine], sizes: Mapping[str, int], point: Point, emulated: bool = True
) -> tuple[Demand, Counters]:
    """(what is expected of one launch before L1 spares any of it, what the emulator counts on drawn inputs)."""
    given = [t.name for t in machine.tensor_declarations()]
    problem = machine.problem(**sizes, aligns=dict.fromkeys(given, 256))  # counts are of tensors that begin at sectors
    space = build_space(machine, problem, device("a100"))
    assert dict(point) in space.space, point
    index = space.structure_index(point)
    values = {**space.environment, **{a: int(point[a]) for a in space.traces[index].axes}}
    charged = tuple(name for name in HEURISTICS if name != "L1")
    demand = count(space.traces[index].program, charged).demand(values, space.device)
    if not emulated:
        return demand, Counters()
    return demand, launched(space, point).counters


def launched(space: MachineSpace, point: Point, seed: int = 1, caches: Caches | None = None) -> Report:
    """What the emulator counts of a candidate on random inputs."""
    problem = space.problem
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    operands, scalars = make_inputs(space.machine, problem, "random", seed)
    grid = kernel.grid(problem)
    return emulate(
        kernel.ptx,
        grid=grid,
        block=(kernel.threads, 1, 1),
        args=arguments(kernel, problem, operands, scalars, workspaces(kernel, problem, grid[0])),
        dynamic_smem=kernel.smem_bytes,
        check=False,
        caches=caches,
    )


def whole(demand: Demand, what: str) -> float:
    return float(demand.ctas * getattr(demand.iteration.work, what) * demand.iterations)
