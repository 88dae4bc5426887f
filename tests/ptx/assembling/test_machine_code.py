"""Machine code: how it is read, and that the loop of a Hopper matmul in clusters holds no fence of all memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.disassembly import counted, disassemble, find_nvdisasm, parse
from tinygpu.devices import device
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.assembling.assembler import AssemblerUnavailable
from tinygpu.ptx.assembling.ptxas import find_ptxas
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

TEXT = """
.text.k:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   UIADD3 UR4, UR4, 0x1, URZ ;
.L_x_2:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P3, [UR24+0x24000], R8 ;
        /*0030*/               @P3 HGMMA.64x256x16.F32 R24, gdesc[UR4], R24, gsb0 ;
        /*0040*/              @!P3 MEMBAR.ALL.GPU ;
        /*0050*/                   IADD3 R1, R1, 0x1, RZ ;
        /*0060*/               @P3 BRA `(.L_x_2) ;
        /*0070*/                   STG.E [R2], R3 ;
        /*0080*/               @P1 BRA `(.L_x_1) ;
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   BRA `(.L_x_2);
"""


def test_loops_are_found_by_their_jumps_back_and_instructions_by_what_they_do() -> None:
    code = parse(TEXT)
    loop = code.product_loop()
    assert code.loops() == [(2, 6), (1, 8)]  # the jump behind the exit is a wait that tries again
    assert loop == (2, 6)
    assert counted(code.within(loop)) == {"waits": 1, "tensor": 1, "fences": 1, "integer": 1, "branches": 1}
    assert sum(line.products for line in code.within(loop)) == 64 * 256 * 16
    assert [line.opcode for line in code.after(loop)] == ["STG.E", "BRA"]
    assert [line.guarded for line in code.lines[:5]] == [False, False, False, True, True]


def test_a_text_without_instructions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^there is no instruction in this text$"):
        parse(".headerflags @\"EF_CUDA_SM90\"")


def tools() -> Path:
    found = find_nvdisasm()
    try:
        find_ptxas()
    except AssemblerUnavailable:
        found = None
    if found is None:
        pytest.skip("needs ptxas and nvdisasm: the wheels nvidia-cuda-nvcc and nvidia-cuda-nvdisasm")
    return found


def clustered() -> Kernel:
    problem = MatmulHopper.problem(m=4096, n=4096, k=4096)
    space = build_space(MatmulHopper, problem, device("h100"))
    point = space.space.restrict(
        {"schedule": "cooperative", "store": "stmatrix", "bm": 128, "bn": 256, "bk": 64, "stages": 3, "cluster_m": 2,
         "cluster_n": 1, "split_k": 1, "stream_k": 0, "swizzle": 128}
    ).at(0)  # fmt: skip
    return build(space.program(point), problem, point, SolverCache()).kernel


@pytest.mark.end_to_end
def test_the_loop_in_clusters_holds_the_products_of_a_step_and_no_fence() -> None:
    nvdisasm, kernel = tools(), clustered()
    code = disassemble(find_ptxas().assemble(kernel.ptx, "sm_90a").cubin, nvdisasm)
    loop = code.within(code.product_loop())
    assert counted(loop)["fences"] == 0
    assert sum(line.products for line in loop) % (64 * 256 * 64) == 0  # of each of two warpgroups

    scoped = kernel.ptx.replace("arrive.shared::cluster", "arrive.release.cluster.shared::cluster")
    code = disassemble(find_ptxas().assemble(replace(kernel, ptx=scoped).ptx, "sm_90a").cubin, nvdisasm)
    fences = {line.opcode for line in code.within(code.product_loop()) if line.kind == "fences"}
    assert {"MEMBAR.ALL.GPU", "ERRBAR"} <= fences
