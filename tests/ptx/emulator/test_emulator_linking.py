"""Several PTX modules in one call: which names meet, which conflict, and whose line a fault names."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.ptx.emulator import EmulationFault, LaunchError, PtxSyntaxError, UnsupportedInstruction, emulate

HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"
KERNEL = HEAD + """
.extern .func (.param .b32 o) f(.param .b32 i);
.extern .global .align 4 .u32 factor;
.func (.param .b32 o) helper(.param .b32 i)
{ .reg .b32 %r<3>; ld.param.u32 %r1, [i]; add.u32 %r1, %r1, 1; st.param.b32 [o], %r1; ret; }
.visible .entry k(.param .u64 y)
{ .reg .b32 %r<9>; .reg .b64 %rd<4>; mov.u32 %r1, %tid.x;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), f, (a); ld.param.b32 %r2, [b]; }
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), helper, (a); ld.param.b32 %r3, [b]; }
ld.global.u32 %r4, [factor]; mul.lo.u32 %r3, %r3, %r4;
ld.param.u64 %rd1, [y]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r3; ret; }
"""
LIBRARY = HEAD + """
.visible .global .align 4 .u32 factor = 3;
.global .align 4 .u32 step = 10;
.func (.param .b32 o) helper(.param .b32 i)
{ .reg .b32 %r<3>; ld.param.u32 %r1, [i]; ld.global.u32 %r2, [step]; mul.lo.u32 %r1, %r1, %r2;
st.param.b32 [o], %r1; ret; }
.visible .func (.param .b32 o) f(.param .b32 i)
{ .reg .b32 %r<3>; ld.param.u32 %r1, [i];
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), helper, (a); ld.param.b32 %r2, [b]; }
st.param.b32 [o], %r2; ret; }
"""


def test_names_with_linkage_meet_and_private_names_stay_apart() -> None:
    """Both modules have a function `helper` of their own."""
    for texts in ([KERNEL, LIBRARY], (LIBRARY, KERNEL)):
        y = np.zeros(32, np.uint32)
        emulate(texts, grid=1, block=32, args=[y])
        assert (y == (np.arange(32) * 10 + 1) * 3).all()


def test_a_weak_definition_gives_way_and_the_largest_common_one_stays() -> None:
    kernel = HEAD + (
        ".weak .global .u32 a = 1;\n.weak .global .u32 b = 2;\n.common .global .align 4 .b8 c[4];\n"
        ".weak .func (.reg .b32 %o) f() { mov.u32 %o, 1; ret; }\n"
        ".visible .entry k(.param .u64 y) { .reg .b32 %r<9>; .reg .b64 %d; ld.param.u64 %d, [y];\n"
        "ld.global.u32 %r1, [a]; ld.global.u32 %r2, [b]; ld.global.u32 %r3, [c+4]; call (%r4), f;\n"
        "st.global.v4.u32 [%d], {%r1, %r2, %r3, %r4}; ret; }"
    )
    other = HEAD + (
        ".visible .global .u32 a = 7;\n.weak .global .u32 b = 8;\n.common .global .align 4 .b8 c[8];\n"
        ".visible .func (.reg .b32 %o) f() { mov.u32 %o, 5; ret; }\n"
    )
    y = np.zeros(4, np.uint32)
    emulate([kernel, other], grid=1, block=1, args=[y])
    assert y.tolist() == [7, 2, 0, 5]


def test_tables_of_functions_may_lie_in_another_module() -> None:
    kernel = HEAD + """
.extern .global .align 8 .u64 table[2];
.visible .entry k(.param .u64 y) { .reg .b32 %r<4>; .reg .b64 %d<3>; ld.param.u64 %d1, [y];
ld.global.u64 %d2, [table+8]; P: .callprototype (.param .b32 _) _ (); { .param .b32 b; call (b), %d2, P;
ld.param.b32 %r1, [b]; } st.global.u32 [%d1], %r1; ret; }
"""
    other = HEAD + """
.func (.param .b32 o) one() { st.param.b32 [o], 1; ret; }
.func (.param .b32 o) two() { st.param.b32 [o], 2; ret; }
.visible .global .align 8 .u64 table[2] = {one, two};
"""
    y = np.zeros(1, np.uint32)
    emulate([kernel, other], grid=1, block=1, args=[y])
    assert y[0] == 2


CONFLICTS = [
    (".visible .global .u32 a;", ".visible .global .u32 a;",
     "a is defined twice: line 4 of module 1 and line 4 of module 2"),
    (".visible .global .u32 a;", ".extern .global .u64 a;",
     "a is declared with 4 and with 8 bytes: line 4 of module 1 and line 4 of module 2"),
    (".visible .global .u32 a;", ".extern .const .u32 a;",
     "a is declared in .global and in .const: line 4 of module 1 and line 4 of module 2"),
    (".visible .func f() { ret; }", ".visible .func f() { ret; }",
     "f is defined twice: line 4 of module 1 and line 4 of module 2"),
    (".visible .func f() { ret; }", ".extern .func f(.param .b32 a);",
     "f is declared with different parameters or results: line 4 of module 1 and line 4 of module 2"),
    (".entry k() { ret; }", ".entry k() { ret; }", "k is defined twice: line 4 of module 1 and line 4 of module 2"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "sentence"), CONFLICTS)
def test_conflicting_definitions_are_refused(first: str, second: str, sentence: str) -> None:
    with pytest.raises(LaunchError) as caught:
        emulate([HEAD + first, HEAD + second, HEAD + ".entry main() { ret; }"], grid=1, block=1, args=[], entry="main")
    assert str(caught.value) == sentence


def test_what_no_module_defines_is_named() -> None:
    functions = LIBRARY.replace(".visible .global", ".global")
    with pytest.raises(LaunchError, match=r"^factor is declared \.extern \.global, but no module defines it$"):
        emulate([KERNEL, functions], grid=1, block=32, args=[np.zeros(32, np.uint32)])
    with pytest.raises(LaunchError, match=r"^there is no PTX: pass the text of at least one module$"):
        emulate([], grid=1, block=32, args=[])


def test_errors_and_faults_say_which_module_and_which_line_of_it() -> None:
    broken = LIBRARY + "\n.func g() { mov.u32 %r1, 1; }"
    with pytest.raises(PtxSyntaxError) as syntax:
        emulate([KERNEL, broken], grid=1, block=32, args=[np.zeros(32, np.uint32)])
    assert str(syntax.value) == "PTX line 15, column 21 of module 2: register %r1 is not declared"
    wrong = LIBRARY.replace("mul.lo.u32 %r1", "nonsense.u32 %r1")
    with pytest.raises(UnsupportedInstruction) as unknown:
        emulate([KERNEL, wrong], grid=1, block=32, args=[np.zeros(32, np.uint32)])
    assert str(unknown.value) == "PTX line 8 of module 2: the emulator has no semantics for `nonsense.u32`"
    beyond = LIBRARY.replace("[step]", "[step+4]")
    with pytest.raises(EmulationFault) as fault:
        emulate([KERNEL, beyond], grid=1, block=32, args=[np.zeros(32, np.uint32)])
    assert (fault.value.module, fault.value.line) == (2, 8)
    assert str(fault.value).startswith("k, PTX line 8 of module 2 `{ .reg .b32 %r<3>; ld.param.u32 %r1, [i]; ld.global")
    own = LIBRARY + KERNEL.replace(HEAD, "").replace(".extern", "// ")
    with pytest.raises(PtxSyntaxError, match=r"^PTX line 17, column 1: helper is defined twice, first on line 7$"):
        emulate(own, grid=1, block=32, args=[np.zeros(32, np.uint32)])
