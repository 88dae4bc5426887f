"""Runs of one instruction are carried out together: with the results, the counts and the faults of one by one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinygpu.ptx.emulator import EmulationFault, emulate, prepare
from tinygpu.ptx.emulator.run import batches

REGISTERS = 10
KINDS = {
    "f32": (
        "add.rn.f32 {d}, {x}, {y};", "fma.rn.f32 {d}, {x}, {y}, {z};", "max.f32 {d}, {x}, {y};",
        "mul.rn.ftz.f32 {d}, {x}, {y};", "ex2.approx.ftz.f32 {d}, {x};", "fma.rz.f32 {d}, {x}, {y}, {z};",
    ),
    "f16x2": ("add.rn.f16x2 {d}, {x}, {y};", "fma.rn.f16x2 {d}, {x}, {y}, {z};"),
    "bf16x2": ("sub.rn.bf16x2 {d}, {x}, {y};", "fma.rn.relu.bf16x2 {d}, {x}, {y}, {z};"),
}  # fmt: skip
CONSTANTS = {"f32": ("0f3F800000", "0f80000001", "0f7F800000"), "f16x2": ("%same",), "bf16x2": ("%same",)}
LANES: dict[str, Any] = {"f32": np.float32, "f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}


def kernel(kind: str, lines: list[str], reads: int) -> str:
    """Every thread loads registers, computes, and stores them all."""
    names = [f"%r{k}" for k in range(REGISTERS)]
    loads = "\n".join(f"    ld.global.b32 {n}, [%at + {4 * k}];" for k, n in enumerate(names[:reads]))
    stores = "\n".join(f"    st.global.b32 [%at + {4 * k}], {n};" for k, n in enumerate(names))
    return f"""
.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data)
{{
    .reg .{"f32" if kind == "f32" else "b32"} %r<{REGISTERS}>, %same;
    .reg .b64 %at, %offset;
    .reg .b32 %thread;
    .reg .pred %p;
    ld.param.u64 %at, [data];
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %thread, {4 * REGISTERS};
    add.s64 %at, %at, %offset;
    mov.b32 %same, 0x3F803F80;
{loads}
    setp.lt.u32 %p, %thread, 40;
    @%p bra THERE;
    {" ".join(lines)}
THERE:
{chr(10).join("    " + line for line in lines)}
{stores}
    ret;
}}
"""


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Runs of like instructions over few registers, so that many wait for one another."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    register = st.sampled_from([f"%r{k}" for k in range(REGISTERS)])
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        form = draw(st.sampled_from(KINDS[kind]))
        shared = draw(register)
        source = st.one_of(register, st.just(shared), st.sampled_from(CONSTANTS[kind]))
        for _ in range(draw(st.integers(1, 9))):
            lines.append(form.format(d=draw(register), x=draw(source), y=draw(source), z=draw(source)))
    return kind, lines


def ran(text: str, data: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """What the kernel leaves of some data, and its instructions."""
    held = data.copy()
    report = emulate(prepare(text), grid=1, block=(64, 1, 1), args=[held])
    return held, report.counters.thread_instructions


def comparable(held: NDArray[Any], kind: str) -> tuple[bytes, bytes]:
    """Its bits, where every NaN is the same one: which of two NaNs goes on is the host's choice."""
    lanes = held.view(LANES[kind])
    nan = np.isnan(lanes.astype(np.float32))
    return np.where(nan, LANES[kind](0), lanes).tobytes(), nan.tobytes()


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 2**32 - 1))
def test_a_batch_is_its_instructions_one_after_another(program: tuple[str, list[str]], seed: int) -> None:
    kind, lines = program
    text = kernel(kind, lines, REGISTERS)
    data = np.random.default_rng(seed).integers(0, 2**32, 64 * REGISTERS, np.uint64).astype(np.uint32)
    together, counted = ran(text, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_LEAST", 1 << 30)
        alone, counted_alone = ran(text, data)
    assert counted == counted_alone
    assert comparable(together, kind) == comparable(alone, kind)


@pytest.mark.parametrize("elements", [1, 64 * 2, 64 * 3])
def test_a_long_run_is_computed_in_pieces(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_MOST_ELEMENTS", elements)
    lines = [f"mul.rn.f32 %r{k}, %r{k}, 0f40000000;" for k in range(REGISTERS)]
    data = np.arange(64 * REGISTERS, dtype=np.float32)
    held, _ = ran(kernel("f32", lines, REGISTERS), data)
    times = np.repeat(np.where(np.arange(64) < 40, 2, 4), REGISTERS)
    assert np.array_equal(held, data * times)


@pytest.mark.parametrize("decides", range(4))
def test_uninitialised_bits_pass_through_a_batch_register_by_register(decides: int) -> None:
    lines = [f"mul.rn.f32 %r{k}, %r{k}, 0f40000000;" for k in range(4)]
    text = kernel("f32", lines, 2)
    branch = f"    setp.gt.f32 %p, %r{decides}, 0f00000000;\n    @%p bra DONE;\nDONE:\n    ret;\n}}\n"
    text = text[: text.index("    st.global")] + branch
    data = np.ones(64 * REGISTERS, np.float32)
    if decides < 2:
        ran(text, data)
        return
    with pytest.raises(EmulationFault) as fault:
        ran(text, data)
    assert fault.value.kind == "uninitialised"


def test_a_multiply_add_of_constants_fills_every_lane() -> None:
    text = kernel("f32", ["fma.rn.f32 %r0, 0f3F800000, 0f80000001, 0f80000001;"], REGISTERS)
    held, _ = ran(text, np.ones(64 * REGISTERS, np.float32))
    assert (held.view(np.uint32)[::REGISTERS] == 0x80000002).all()
