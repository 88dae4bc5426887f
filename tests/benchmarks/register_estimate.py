"""Error of the register estimate against the assembler: python -m tests.benchmarks.register_estimate [COUNT]

Draws COUNT candidates of each shipped matmul machine uniformly, assembles them, and prints reported - estimated
registers of those that do not spill, and how many spill.
"""

from __future__ import annotations

import sys

import numpy as np

from tinygpu.devices import device
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def main(count: int) -> None:
    gpu, cache, rng = device("a100"), SolverCache(), np.random.default_rng(0)
    for machine in (MatmulAmpere, MatmulSimt):
        problem = machine.problem(m=4096, n=4096, k=4096)
        space = build_space(machine, problem, gpu)
        errors, spilled = [], 0
        for point in space.space.sample(count, rng):
            assembly = assemble(build(space.program(point), problem, point, cache).kernel.ptx, gpu.portable_target)
            index = space.structure_index(point)
            values = space.environment | {a: int(point[a]) for a in space.traces[index].axes}
            if assembly.spill_store_bytes:
                spilled += 1
            else:
                errors.append(assembly.registers - int(space.counts(index).value("registers", values)))
        low, middle, high = np.percentile(errors, (5, 50, 95))
        print(
            f"{machine.__name__}: {count} candidates, {spilled} spill; reported - estimated registers of the others: "
            f"median {middle:+.0f}, 5 % {low:+.0f}, 95 % {high:+.0f}, mean absolute {np.abs(errors).mean():.0f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
