"""Functions that stay functions: recursion, calls through registers, too many copies; and what the system supplies."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import ptx_of, run
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator import EmulationFault, PtxSyntaxError, UnsupportedInstruction, emulate

HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"
T = np.arange(32)


def ackermann(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1 if n == 0 else ackermann(m, n - 1))


def test_recursive_functions_of_a_compiler() -> None:
    """Each thread has a depth and an end of its own, and passes pointers to its locals down."""
    out = np.zeros((64, 4), np.int32)
    keys = np.arange(20, dtype=np.int32) ** 2
    run("functions", "recursion", 2, 32, out, keys, 20)
    for t in range(64):
        low, high = t % 3, 20 - t % 5
        # A binary tree with high - low leaves has one node less inside.
        want = (ackermann(2, t % 4), int(keys[low:high].sum()), 2 * (high - low) - 1, int(t % 9 % 2 == 0))
        assert tuple(out[t]) == want


def test_tables_of_function_pointers_of_a_compiler() -> None:
    x = np.random.default_rng(1).standard_normal(32).astype(np.float32)
    which = (T % 3).astype(np.int32)
    out = np.zeros(32, np.float32)
    run("functions", "pointers", 1, 32, out, x, which)
    y = x[T ^ 1]
    assert (out == np.choose(which, [x + y, x * y, np.maximum(x, y)])).all()


def test_virtual_functions_of_objects_on_the_device_heap() -> None:
    x = np.random.default_rng(2).standard_normal(32).astype(np.float32)
    out = np.zeros(32, np.float32)
    run("functions", "virtuals", 1, 32, out, x)
    assert np.allclose(out, np.where(T % 3 == 0, 3 * x * x + 2, T * x * x), rtol=1e-6)


def test_structs_by_value() -> None:
    x = (T * 7).astype(np.int32)
    out = np.zeros(32)
    run("functions", "structs", 1, 32, out, x)
    # combine(combine(a, b), a) of pairs (t, x, t / 2) and (3, t, 1).
    assert (out == (2 * T + 3).astype(np.int8) + x.astype(np.int64) * T * x + (T * 0.5 - 1 - T * 0.5)).all()


def test_printf_is_passed_over_and_a_failed_assertion_is_a_fault() -> None:
    out = np.zeros(32, np.int32)
    run("functions", "said", 1, 32, out, 32)
    assert (out == T).all()
    with pytest.raises(EmulationFault) as caught:
        emulate(ptx_of("functions"), entry="said", grid=1, block=32, args=[out, 20])
    assert (caught.value.kind, caught.value.thread) == ("trap", (20, 0, 0))
    assert caught.value.sentence == "an assertion of the kernel failed"


def test_the_device_heap() -> None:
    out = np.zeros(32, np.int32)
    run("functions", "heap", 1, 32, out, 5)
    assert (out == T * 10).all()


def test_the_device_heap_has_bounds_and_frees_once() -> None:
    body = """
.extern .func (.param .b64 p) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.visible .entry k(.param .u32 at, .param .u32 times)
{
.reg .b64 %rd<9>; .reg .b32 %r<4>; .reg .pred %p1;
mov.u64 %rd1, 8;
{ .param .b64 a; .param .b64 b; st.param.b64 [a], %rd1; call.uni (b), malloc, (a); ld.param.b64 %rd2, [b]; }
ld.param.u32 %r1, [at]; cvt.u64.u32 %rd3, %r1; add.u64 %rd3, %rd2, %rd3;
st.u8 [%rd3], 1;
ld.param.u32 %r2, [times];
AGAIN:
{ .param .b64 a; st.param.b64 [a], %rd2; call.uni free, (a); }
sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra AGAIN;
ret;
}
"""
    emulate(HEAD + body, grid=1, block=32, args=[7, 1])
    with pytest.raises(EmulationFault) as caught:
        emulate(HEAD + body, grid=1, block=1, args=[8, 1])
    assert caught.value.sentence == (
        "store of 1 bytes at global address 0x500000000008 is out of bounds: the device heap has 8 bytes, and this is "
        "byte 8 to 8 of it"
    )
    with pytest.raises(EmulationFault) as caught:
        emulate(HEAD + body, grid=1, block=1, args=[0, 2])
    assert caught.value.sentence == (
        "free of address 0x500000000000, which malloc did not give, or which was freed before"
    )


def fibonacci(base: str = "setp.lt.u32 %p1, %r1, 2;") -> str:
    return HEAD + f"""
.func (.param .b32 out) fib(.param .b32 n)
{{
.reg .b32 %r<9>; .reg .pred %p<3>;
ld.param.u32 %r1, [n];
{base}
setp.gt.u32 %p2, %r1, 3;
@%p1 bra BASE;
sub.u32 %r2, %r1, 1;
{{ .param .b32 a; st.param.b32 [a], %r2; .param .b32 b; call.uni (b), fib, (a); ld.param.b32 %r3, [b]; }}
sub.u32 %r4, %r1, 2;
{{ .param .b32 a; st.param.b32 [a], %r4; .param .b32 b; call.uni (b), fib, (a); ld.param.b32 %r5, [b]; }}
add.u32 %r6, %r3, %r5;
@%p2 add.u32 %r6, %r6, 1;
st.param.b32 [out], %r6;
ret;
BASE: st.param.b32 [out], %r1; ret;
}}
.visible .entry k(.param .u64 x, .param .u64 y)
{{
.reg .b32 %r<9>; .reg .b64 %rd<9>;
mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
ld.param.u64 %rd3, [x]; add.u64 %rd3, %rd3, %rd2; ld.global.u32 %r2, [%rd3];
{{ .param .b32 a; st.param.b32 [a], %r2; .param .b32 b; call.uni (b), fib, (a); ld.param.b32 %r3, [b]; }}
ld.param.u64 %rd1, [y]; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r3; ret;
}}
"""


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=32, max_size=32))
def test_each_activation_has_registers_and_predicates_of_its_own(depths: list[int]) -> None:
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2) + (n > 3)

    y = np.zeros(32, np.uint32)
    emulate(fibonacci(), grid=1, block=32, args=[np.array(depths, np.uint32), y])
    assert y.tolist() == [fib(n) for n in depths]


def test_endless_recursion_overflows_the_call_stack() -> None:
    with pytest.raises(EmulationFault) as caught:
        emulate(fibonacci("setp.ne.u32 %p1, %r1, %r1;"), grid=1, block=32, args=[np.ones(32, np.uint32)] * 2)
    assert caught.value.kind == "out of bounds"
    assert "is out of bounds: the call stack has 32768 bytes, and this is byte 32768 to" in caught.value.sentence


TABLE = HEAD + """
.func (.param .b32 out) f0(.param .b32 n) { .reg .b32 %r<9>; ld.param.u32 %r1, [n]; add.u32 %r1, %r1, 100;
    st.param.b32 [out], %r1; ret; }
.func (.param .b32 out) f1(.param .b32 n) { .reg .b32 %r<9>; ld.param.u32 %r1, [n]; mul.lo.u32 %r1, %r1, 3;
    st.param.b32 [out], %r1; ret; }
.func (.reg .b32 %out) f2(.reg .b32 %n) { sub.u32 %out, 50, %n; ret; }
.func other(.param .b64 n) { ret; }
.global .align 8 .u64 table[4] = {f0, f1, f2, other};
.visible .entry k(.param .u64 y, .param .u64 x)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p1;
mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
ld.param.u64 %rd1, [x]; add.u64 %rd1, %rd1, %rd2; ld.global.u32 %r2, [%rd1];
mul.wide.u32 %rd3, %r2, 8; mov.u64 %rd4, table; add.u64 %rd4, %rd4, %rd3;
setp.lt.u32 %p1, %r2, 4; mov.u64 %rd5, 12345;
@%p1 ld.global.u64 %rd5, [%rd4];
mov.u32 %r3, 7;
{ .param .b32 a; st.param.b32 [a], %r1; .param .b32 b;
WHAT
ld.param.b32 %r3, [b]; }
ld.param.u64 %rd1, [y]; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r3; ret;
}
"""
CALLS = {
    "prototype": "P: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (b), %rd5, (a), P;",
    "targets": "L: .calltargets f0, f1, f2;\ncall (b), %rd5, (a), L;",
}


@pytest.mark.parametrize("how", CALLS)
@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=32, max_size=32))
def test_a_call_through_a_register_goes_where_each_thread_says(how: str, which: list[int]) -> None:
    y = np.zeros(32, np.uint32)
    emulate(TABLE.replace("WHAT", CALLS[how]), grid=1, block=32, args=[y, np.array(which, np.uint32)])
    assert (y.view(np.int32) == np.choose(which, [T + 100, T * 3, 50 - T])).all()


@pytest.mark.parametrize("how", CALLS)
@pytest.mark.parametrize("which", [3, 4])
def test_a_call_through_a_wrong_address_is_a_fault(how: str, which: int) -> None:
    """Element 3 is a function of another prototype, 4 stands for no function at all."""
    x = np.zeros(32, np.uint32)
    x[5] = which
    with pytest.raises(EmulationFault) as caught:
        emulate(TABLE.replace("WHAT", CALLS[how]), grid=1, block=32, args=[np.zeros(32, np.uint32), x])
    assert (caught.value.kind, caught.value.thread) == ("trap", (5, 0, 0))
    assert caught.value.sentence == (
        "`call` through %rd5, which does not hold the address of a function with this prototype"
    )


def test_a_guarded_call_is_made_by_its_lanes_only() -> None:
    y = np.zeros(32, np.uint32)
    text = TABLE.replace("WHAT", CALLS["targets"].replace("call", "@%p2 call").replace("L: .@%p2 call", "L: .call"))
    text = text.replace(".reg .pred %p1;", ".reg .pred %p<3>;").replace(
        "{ .param .b32 a;", "setp.lt.u32 %p2, %r1, 10;\n{ .param .b32 a;"
    ).replace("ld.param.b32 %r3, [b]; }", "@%p2 ld.param.b32 %r3, [b]; }")
    emulate(text, grid=1, block=32, args=[y, np.zeros(32, np.uint32)])
    assert (y == np.where(T < 10, T + 100, 7)).all()


@pytest.mark.end_to_end
@pytest.mark.parametrize("depth", [17, pytest.param(30, marks=pytest.mark.slow)])
def test_too_many_copies_become_a_function(depth: int) -> None:
    """Functions that call the next one twice: 2^30 copies, or thirty frames."""
    call = "{{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), f{}, (a); ld.param.b32 %r2, [b]; }}\n"
    text = HEAD
    for k in reversed(range(depth)):
        inner = call.format(k + 1) + "setp.eq.u32 %p, %r2, 0; @!%p bra DONE;\n" + call.format(k + 1) + "DONE:"
        text += (
            f".func (.param .b32 o) f{k}(.param .b32 i) {{ .reg .b32 %r<4>; .reg .pred %p; ld.param.u32 %r1, [i];\n"
            f"{inner if k < depth - 1 else 'mov.u32 %r2, 1;'} add.u32 %r2, %r2, 1; st.param.b32 [o], %r2; ret; }}\n"
        )
    text += """.visible .entry k(.param .u64 y) { .reg .b32 %r<4>; .reg .b64 %rd<3>; mov.u32 %r1, %tid.x;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), f0, (a); ld.param.b32 %r2, [b]; }
ld.param.u64 %rd1, [y]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r2; ret; }
"""
    y = np.zeros(32, np.uint32)
    emulate(text, grid=1, block=32, args=[y])
    assert (y == depth + 1).all()


def test_memory_of_the_stack_is_given_back_at_the_end_of_its_function() -> None:
    text = HEAD + """
.func (.param .b64 o) f(.param .b32 n)
{ .reg .b64 %rd<4>; .reg .b32 %r<4>; ld.param.u32 %r1, [n]; cvt.u64.u32 %rd1, %r1;
alloca.u64 %rd2, %rd1, 64; st.local.u32 [%rd2], 5; ld.local.u32 %r2, [%rd2]; st.param.b64 [o], %rd2; ret; }
.visible .entry k(.param .u64 y)
{ .reg .b64 %rd<9>; .reg .b32 %r<4>; ld.param.u64 %rd1, [y];
stacksave.u64 %rd2;
alloca.u64 %rd7, 8;
{ .param .b32 a; .param .b64 b; st.param.b32 [a], 24; call (b), f, (a); ld.param.b64 %rd3, [b]; }
{ .param .b32 a; .param .b64 b; st.param.b32 [a], 40; call (b), f, (a); ld.param.b64 %rd4, [b]; }
stackrestore.u64 %rd2;
alloca.u64 %rd8, 8;
st.global.v2.u64 [%rd1], {%rd3, %rd4}; st.global.v2.u64 [%rd1+16], {%rd7, %rd8}; ret; }
"""
    y = np.zeros(4, np.uint64)
    emulate(text, grid=1, block=1, args=[y])
    assert y[0] == y[1]
    assert y[0] % 64 == 0
    assert y[2] == y[3] < y[0]


REFUSED = [
    ("call nothing;", "the function nothing is not declared"),
    ("call k;", "k is an entry, which cannot be called"),
    ("call f, (%r1, %r1);", "f takes 1 arguments and gives 0 results, not 2 and 0"),
    ("call %rd1, (%r1);", "`call` through a register names no .callprototype or .calltargets"),
    ("L: .calltargets g; call %rd1, (%r1), L;", ".calltargets lists g, which is no function with a body"),
    ("call [%rd1];", "`call` names no function"),
    ("call f, (%r1), L, 5;", "`call` takes results, a function and arguments only"),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED)
def test_wrong_calls_are_refused(text: str, sentence: str) -> None:
    module = HEAD + (
        ".func f(.reg .b32 %a) { ret; }\n.extern .func g(.param .b32 a);\n"
        f".visible .entry k() {{ .reg .b32 %r<3>; .reg .b64 %rd<3>;\n{text}\nret; }}"
    )
    with pytest.raises(PtxSyntaxError) as caught:
        emulate(module, grid=1, block=32, args=[])
    assert (caught.value.line, caught.value.sentence) == (7, sentence)


def test_a_function_without_a_body_is_named() -> None:
    module = HEAD + (
        ".extern .func g(.param .b32 a);\n.func f(.reg .b32 %a) { call g, (%a); ret; }\n"
        ".visible .entry k() { .reg .b32 %r<3>; call f, (%r1); ret; }"
    )
    with pytest.raises(UnsupportedInstruction) as caught:
        emulate(module, grid=1, block=32, args=[])
    assert str(caught.value) == (
        "PTX line 5: the emulator has no semantics for `call`: g has no body: pass the module that defines it too"
    )
