"""Memories of a machine's own: what may be declared, where tensors lie in them, and that kernels read what is there."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.cost.operations import Operations, Tally
from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.expressions import compile_scalars, expr
from tinygpu.language import (
    GMEM,
    HEURISTICS,
    RMEM,
    SMEM,
    DeclarationError,
    Dim,
    InOut,
    Input,
    Machine,
    Memory,
    Output,
    Route,
    Transfer,
    blocked,
)
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.program import nodes as n
from tinygpu.program.access import accesses
from tinygpu.program.program import Program
from tinygpu.program.saved import load_program, save_program
from tinygpu.ptx import isa
from tinygpu.ptx.emulator import EmulationFault, emulate
from tinygpu.ptx.emulator import LaunchError as EmulatorRefusal
from tinygpu.ptx.launching.kernel import Kernel, LaunchError
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.runtime.callable import CallableKernel, Signature
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.launch import Launch
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

sys.path.append(str(Path(__file__).parents[2] / "thirdparty"))

TABLE = Memory("TABLE", "grid", 4096, 4, banks=1, space="const", writer="host")


@dataclass(frozen=True, eq=False)
class Take(Transfer):
    reads, writes = TABLE, RMEM
    opcode = "ld.const"


@dataclass(frozen=True, eq=False)
class Give(Transfer):
    reads, writes = RMEM, TABLE
    opcode = "st.const"


def summed(kind: str = "f32", wide: int = 1, by_smem: bool = False, **declared: Any) -> type[Machine]:
    """A machine with two tensors in one memory of its own, which vectors of `wide` read."""
    in_table: dict[str, Any] = {"memory": TABLE, **declared}

    class Summed(Machine):
        """y = x + a[j] + b[i, j]"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m, n)
        a, b = Input(kind, n, **in_table), Input(kind, m, n, **in_table)
        ld, st, take, add = isa.LdGlobal(1), isa.StGlobal(1), Take(wide), isa.Add("f32")
        get, way = isa.LdShared(1), Route(Take(wide), isa.StShared(1))

        def program(self, p: Any) -> None:
            shape = (2, 16 * wide)
            who = blocked(shape, threads=32, vector=wide)
            with (
                p.grid((self.m, 2), (self.n, shape[1])) as (i, j),
                p.pipeline("ring", 1, b=p.smem(kind, shape)) as ring,
                p.role("all", warps=1),
            ):
                window = self.b.tile(i, j, shape=shape)
                with ring.produce() as slot:
                    if by_smem:
                        p.copy(self.way, window, slot.b, who)
                    else:
                        p.store(isa.StShared(1), slot.b, p.load(self.take, window, who))
                with ring.consume() as slot:
                    b = p.load(self.get, slot.b, who)
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                a = p.load(self.take, self.a.row(j, shape[1]), who.along(1))
                if kind == "f16":
                    a, b = p.apply(isa.Cvt("f16", "f32"), a), p.apply(isa.Cvt("f16", "f32"), b)
                p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.add, p.apply(self.add, x, a), b))

        @staticmethod
        def reference(x: Any, a: Any, b: Any) -> Any:
            return x + a + b

    return Summed


def kernel_of(made: type[Machine], m: int, n: int, ld: int) -> tuple[Kernel, Any]:
    problem = made.problem(m=m, n=n, lds={"b": ld})
    space = build_space(made, problem, device("a100"))
    (point,) = map(dict, space.space.sample(1, np.random.default_rng(1)))
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([("f32", 1), ("f32", 2), ("f32", 4), ("f16", 1), ("f16", 2), ("f16", 8)]),
    st.booleans(), st.integers(1, 7), st.integers(1, 9), st.integers(0, 3),
)  # fmt: skip
def test_kernels_read_what_the_host_has_put_into_a_memory(
    form: tuple[str, int], by_smem: bool, m: int, n: int, gap: int
) -> None:
    kind, wide = form
    made = summed(kind, wide, by_smem)
    kernel, problem = kernel_of(made, m, n * wide, (n + gap) * wide)
    assert "ld.const" in kernel.ptx
    assert verify(kernel, made, problem).passed
    bank = next(iter(kernel.banks))
    assert set(bank.places(problem)) == {"a", "b"}
    # a kernel that looks 16 bytes further reads, of the last elements of a, what is nobody's
    further = replace(kernel, ptx=kernel.ptx.replace(f"{bank.name};", f"{bank.name}+16;"))
    assert not verify(further, made, problem).passed


def test_a_program_with_a_memory_of_its_own_is_saved_and_read() -> None:
    made = summed()
    space = build_space(made, made.problem(m=4, n=32), device("a100"))
    (point,) = map(dict, space.space.sample(1, np.random.default_rng(1)))
    program = space.program(point)
    again = load_program(save_program(program))
    assert str(again) == str(program)
    assert again.tensors[2].memory == TABLE
    assert build(again, space.problem, point, SolverCache()).kernel == build(
        program, space.problem, point, SolverCache()
    ).kernel


def test_kernels_and_launches_with_banks_are_kept_in_files() -> None:
    kernel, problem = kernel_of(summed(), 3, 20, 24)
    assert Kernel.from_json(kernel.to_json()) == kernel
    launch = launch_of(kernel, problem)
    assert Launch.from_json(launch.to_json()) == launch
    assert launch.banks[0].places == (("a", 0), ("b", 256))
    with pytest.raises(ValueError, match=r"^summed has b at byte 3900 of TABLE_bank, which has 4,096$"):
        replace(launch, banks=(replace(launch.banks[0], places=(("b", 3900),)),))


# --- what fits ----------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_no_candidate_and_is_not_launched() -> None:
    made = summed()
    kernel, _ = kernel_of(made, 3, 20, 24)
    space = build_space(made, made.problem(m=4, n=208), device("a100")).space  # 1,024 + 3,328 bytes
    assert not space.size
    assert [str(v.sentence) for v in space.explain({})] == [
        "TABLE capacity (TABLE): the tensors in TABLE fit into its 4,096 bytes, each at a multiple of 256; "
        "ceil((208 x (4 - 1) x 4 + 208 x 4) / 256) x 256 + ceil(208 x 4 / 256) x 256 = 4,352 > 4,096"
    ]
    assert build_space(made, made.problem(m=4, n=192), device("a100")).space.size  # 768 + 3,072
    with pytest.raises(LaunchError) as refused:
        kernel.check(made.problem(m=4, n=208))
    assert str(refused.value) == (
        "a and b take 4,352 bytes of TABLE_bank, which has 4,096; make them smaller, or use a machine that has them in "
        "global memory"
    )


# --- what it costs ------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([("f64", 1), ("f32", 1), ("f32", 2), ("f32", 4), ("f16", 1), ("f16", 4)]),
    st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([0, 1, 2, 32]),
    st.booleans(),
)  # fmt: skip
def test_a_memory_is_asked_for_every_piece_that_the_lanes_of_a_warp_read(
    form: tuple[str, int], across: int, granule: int, banks: int, along: bool
) -> None:
    kind, vector = form
    memory = replace(TABLE, granule_bytes=granule, banks=banks)
    tensor = Tensor("w", dtype(kind), ("m", "n"), "in", memory=memory)
    shape = (32 // across, across * vector)
    who = blocked(shape, threads=32, vector=vector, across=across)
    who = who.along(1) if along else who
    tile = gmem_tile(tensor, (expr(0), expr(0)), tuple(int(s) for s in who.shape))
    take = type("Own", (Take,), {"reads": memory})(vector)
    registers = Tile("r", RMEM, dtype(kind), who.shape, (expr(0), expr(0)), partition=who)
    load = n.Load("l", take, tile, registers)
    tally = Tally()
    program = Program("M", (), (), (), n.Grid((), expr(1), expr(1)), (), (), ())
    Operations(program, HEURISTICS, expr(32)).add(load, tally, expr(1), False)
    ld = 64
    listed = 0
    for access in accesses(load):
        for lanes in access.lanes:
            first = (lanes[:, 0] * ld + lanes[:, 1]) * tensor.dtype.bytes
            pieces = len(np.unique((first[:, None] + np.arange(access.width_bytes)) // granule))
            listed += -(-pieces // max(banks, 1))
    assert int(compile_scalars(tally.work["l1_wavefronts"])({"w.ld": ld})[0]) == listed
    assert tally.work["sectors_read"].same(0)


# --- what may be declared -----------------------------------------------------------------------------------------

LIES = "a memory of one's own holds tensors in state space 'const', written by the 'host'"


@pytest.mark.parametrize(
    ("memory", "sentence"),
    [
        (replace(TABLE, space="shared"), f"TABLE lies in state space 'shared', written by 'host'; {LIES}"),
        (replace(TABLE, writer="threads"), f"TABLE lies in state space 'const', written by 'threads'; {LIES}"),
        (Memory("TABLE", "grid", 4096, 4), f"TABLE lies in state space '', written by 'threads'; {LIES}"),
        (
            replace(TABLE, scope="cta"),
            "TABLE is one of each cta, addressed by byte; state space const is one of the grid, by byte",
        ),
        (replace(TABLE, capacity=65537), "TABLE has a capacity of 65537; of state space const it is 1 to 65,536 bytes"),
        (
            replace(TABLE, capacity="l2_bytes"),
            "TABLE has a capacity of 'l2_bytes'; of state space const it is 1 to 65,536 bytes",
        ),
        (replace(TABLE, granule_bytes=3), "TABLE moves pieces of 3 bytes; they have 1, 2, 4, 8 or 16"),
        (replace(TABLE, banks=-1), "TABLE has -1 banks; it has 0 (not banked) or more"),
        (
            replace(TABLE, name="SMEM"),
            "SMEM is no name for a memory of one's own, which is an ASCII identifier that no other memory has",
        ),
        (SMEM, "SMEM holds no tensors; a tensor lies in GMEM, or in a memory of one's own"),
        ("const", "a tensor's memory is GMEM or a Memory of one's own, not 'const'"),
    ],
)
def test_a_memory_that_no_kernel_can_have_is_refused_where_a_tensor_names_it(memory: Any, sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        summed(memory=memory)
    assert str(refused.value) == f"Summed.a: {sentence}"


@pytest.mark.parametrize("declared", [Output, InOut])
def test_what_a_kernel_writes_lies_in_no_memory_that_the_host_writes(declared: Any) -> None:
    n = Dim()
    assert declared("f32", n, memory=TABLE).mistake == (
        "the host alone writes TABLE, and the kernel this tensor; declare it an Input, or in GMEM"
    )
    assert not declared("f32", n, memory=GMEM).mistake
    assert Give(1).unwritten() == "writes TABLE, a memory of one's own, which the host alone writes"


def test_memories_of_a_machine_share_constant_space() -> None:
    other = replace(TABLE, name="OTHER", capacity=62000)

    def both(second: Memory, name: str = "b") -> str:
        n = Dim()
        declared = {"n": n, "a": Input("f32", n, memory=TABLE), name: Input("f32", n, memory=second)}
        body = _body(declared | {"y": Output("f32", n)})
        with pytest.raises(DeclarationError) as refused:
            type(Machine)("Both", (Machine,), body)
        return str(refused.value)

    assert both(other) == (
        "Both: the memories TABLE (4,096) and OTHER (62,000) have 66,096 bytes of state space const, which has 65,536"
    )
    assert both(replace(TABLE, banks=0)) == "Both: two memories are called TABLE; give them names of their own"
    assert both(TABLE, "TABLE_bank") == (
        "Both.TABLE_bank: the bank of the memory TABLE has this name in a kernel; choose another one"
    )


def _body(declared: dict[str, Any]) -> Any:
    out = type(Machine).__prepare__("Both", (Machine,))
    for name, value in declared.items():
        out[name] = value
    out["program"] = lambda self, p: None
    out["reference"] = staticmethod(lambda a, b: a)
    return out


# --- launches -----------------------------------------------------------------------------------------------------


def test_a_kernel_with_a_bank_is_a_function_on_every_stream() -> None:
    """Each stream has a module of its own: what is put into the bank for one launch is not what another reads."""
    kernel, problem = kernel_of(summed(), 3, 20, 20)
    fake = FakeCuda(cc=(8, 0))
    context = open_context(Driver(fake))
    signature = Signature("Summed", ("x", "a", "b"), ("y",), ())
    call = CallableKernel(signature, lambda views: launch_of(kernel, problem), lambda: context, kernel.ptx.encode())
    rng = np.random.default_rng(3)
    for stream in (0, 7, 0):
        x, a, b = (rng.integers(0, 9, shape).astype(np.float32) for shape in ((3, 20), (20,), (3, 20)))
        y = np.zeros((3, 20), np.float32)
        call(x, a, b, out=y, stream=stream)
        np.testing.assert_array_equal(y, x + a + b)
    assert fake.count("cuModuleLoadData") == 2
    assert fake.count("cuMemcpyDtoDAsync") == 6
    order = [name for name, _ in fake.calls if name in ("cuMemcpyDtoDAsync", "cuLaunchKernelEx")]
    assert order == ["cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync", "cuLaunchKernelEx"] * 3


# --- the emulator -------------------------------------------------------------------------------------------------

READS = """
.version 7.0
.target sm_80
.address_size 64
.const .align 16 .b8 table[64] = {1, 2, 3};
.global .align 16 .b8 spare[16];
.visible .entry reads(.param .u64 y, .param .u32 at) {
  .reg .b64 %d<4>; .reg .b32 %r<4>;
  ld.param.u64 %d0, [y]; ld.param.u32 %r0, [at];
  mov.u64 %d1, table; cvt.u64.u32 %d2, %r0; add.u64 %d1, %d1, %d2;
  ld.const.u32 %r1, [%d1];
  st.global.u32 [%d0], %r1;
  ret;
}
"""


def test_variables_hold_what_the_host_wrote_or_what_they_begin_with() -> None:
    def read(at: int, **variables: Any) -> int:
        y = np.zeros(1, np.uint32)
        emulate(READS, grid=1, block=1, args=[y, np.uint32(at)], variables=variables)
        return int(y[0])

    assert read(0) == 0x030201
    table = np.arange(16, dtype=np.uint32) * 1000
    assert [read(4 * i, table=table) for i in (0, 1, 15)] == [0, 1000, 15000]
    assert read(0) == 0x030201
    with pytest.raises(EmulationFault, match="table has 64 bytes"):
        read(64, table=table)
    with pytest.raises(EmulatorRefusal, match=r"^table has 64 bytes, and 8 are written into it$"):
        read(0, table=table[:2])
    with pytest.raises(EmulatorRefusal) as refused:
        read(0, tabel=table)
    assert str(refused.value) == (
        "this module has no variable tabel in constant or global space; it has table, spare"
    )
