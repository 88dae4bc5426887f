"""What has no semantics is refused where a thread executes it, and no sooner."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import EmulationFault, UnsupportedInstruction, emulate
from tinygpu.ptx.emulator.coverage import refused_forms
from tinygpu.ptx.emulator.forms import expand
from tinygpu.ptx.emulator.instructions.refused import REFUSED

HEAD = """
.reg .pred %p, %q; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<8>;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, 7;
setp.ge.u32 %p, %r1, 64; setp.lt.u32 %q, %r1, 64;
"""
END = "mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r2;\nret;"
REACHED = {
    "under a guard": "@%p {one}",
    "behind a branch": "@%q bra OVER;\n{one}\nOVER:",
    "after the end": "bra OVER;\n{one}\nOVER:",
}
# Of each reason for a refusal one instruction.
REFUSALS = (
    "multimem.red.relaxed.sys.global.add.u32 [%rd1], %r2;",
    "tex.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r1,%r2}];",
    "suld.b.1d.b32.trap {%r3}, [%rd1, {%r1}];",
    "fma.rn.oob.f16x2 %r3, %r1, %r1, %r1;",
    "cp.async.bulk.mystery [%r1], [%rd1], 16;",
)


def run(body: str, target: str = "sm_90a") -> np.ndarray:
    y = np.zeros(64, np.uint32)
    emulate(module(HEAD + body + "\n" + END, [".param .u64 y"], target=target), grid=1, block=64, args=[y])
    return y


@pytest.mark.parametrize("way", REACHED)
@pytest.mark.parametrize("one", [*REFUSALS, "brkpt;", "trap;"])
def test_what_is_never_executed_is_not_refused(one: str, way: str) -> None:
    assert (run(REACHED[way].replace("{one}", one)) == 7).all()


@pytest.mark.parametrize("one", REFUSALS)
def test_what_is_executed_is_refused_by_name(one: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=rf"no semantics for `{one.split()[0]}`"):
        run(one)
    with pytest.raises(UnsupportedInstruction):
        run(one.join(("@%q ", "")))


def test_a_breakpoint_is_a_trap() -> None:
    with pytest.raises(EmulationFault) as caught:
        run("@%q brkpt;")
    assert (caught.value.kind, caught.value.sentence) == (
        "trap", "the kernel came to a breakpoint (brkpt), and no debugger is attached"
    )  # fmt: skip


def test_an_opcode_that_ptx_does_not_have_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnsupportedInstruction, match=r"^PTX line 12: the emulator has no semantics for `frob\.u32`$"):
        run("bra OVER;\nfrob.u32 %r1, %r2;\nOVER:")


def test_a_table_of_branches_under_a_guard() -> None:
    table = "TABLE: .branchtargets A, B;\nsetp.ge.u32 %p, %r1, 32; and.b32 %r3, %r1, 1;\n@%p brx.idx %r3, TABLE;\n"
    y = run(table + "mov.u32 %r2, 1;\nbra OVER;\nA: mov.u32 %r2, 2;\nbra OVER;\nB: mov.u32 %r2, 3;\nOVER:")
    assert (y == np.r_[np.ones(32), np.tile([2, 3], 16)]).all()


def test_every_refused_form_is_listed_with_its_reason() -> None:
    listed = {short.split()[0].split(".")[0] for form, _ in refused_forms() for short in expand(form.name)}
    assert set(REFUSED) - {"tex", "tld4", "txq", "istypep", "suld", "sust", "sured", "suq", "suld2", "sust2"} <= listed
    assert all(why for _, why in refused_forms())
