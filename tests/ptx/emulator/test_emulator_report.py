"""The report as a value: how it prints, how it compares, and its way through JSON."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instruction_bench import module

from tinygpu.ptx.emulator import Advisory, Counters, Fault, LineCounters, Report, emulate
from tinygpu.ptx.emulator.faults import FaultKind
from tinygpu.ptx.emulator.report import REMEDIES
from tinygpu.ptx.emulator.state.caches import Caches, LineTraffic, Traffic

BODY = """
.reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;
ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
setp.lt.u32 %p, %r1, 8;
@%p ld.global.u32 	%r2, [%rd1];
@%p st.global.u32 [%rd1+64],%r2;
ret;
"""


def run(elements: int = 64) -> Report:
    text = module(BODY, [".param .u64 a"])
    return emulate(text, grid=1, block=32, args=[np.zeros(elements, np.uint32)], check="collect")


def test_a_report_prints_totals_and_the_lines_that_access_memory() -> None:
    assert str(run()) == "\n".join(
        [
            "k: 0 faults, 0 advisories",
            "  CTAs 1   warp instructions 8   thread instructions 208 (26.0 of 32 lanes)",
            "  branches 0 (0 divergent)   barriers 0 (warps)",
            "  by class: memory 3, integer 2, compare 1, control 1, move 1",
            "  memory             requests            bytes          counted  per request",
            "  global loads              1               32              1 sectors      1.00",
            "  global stores             1               32              1 sectors      1.00",
            "  line   executed  lanes   requests    sectors  wavefronts        bytes  PTX",
            "    11          1    8.0          1          1           0           32  @%p ld.global.u32 %r2, [%rd1];",
            "    12          1    8.0          1          1           0           32  @%p st.global.u32 [%rd1+64],%r2;",
        ]
    )


def test_a_report_prints_every_fault_with_line_thread_address_and_what_helps() -> None:
    text = str(run(20)).splitlines()
    assert text[0] == "k: 1 fault, 0 advisories"
    address = run(20).faults[0].address
    assert address is not None
    assert text[-2:] == [
        "  FAULT (out of bounds, 4 threads) k, PTX line 12 `@%p st.global.u32 [%rd1+64],%r2;`, CTA (0, 0, 0), thread "
        f"(4, 0, 0): store of 4 bytes at global address {address:#x} is out of bounds: a has 80 bytes, and this is "
        "byte 80 to 83 of it",
        f"    fix: {REMEDIES['out of bounds']}",
    ]


def test_every_kind_of_fault_has_something_that_helps() -> None:
    assert set(REMEDIES) == set(get_args(FaultKind))


def test_every_kind_of_access_has_a_row() -> None:
    names = [
        "global_load", "global_store", "global_atomic", "local_load", "local_store", "bulk_load", "bulk_store",
        "bulk_reduce", "shared_load", "shared_store", "shared_atomic",
    ]  # fmt: skip
    counters = Counters()
    for k, name in enumerate(names):
        setattr(counters, f"{name}_requests", 1 + k)
    report = Report("k", (), (), counters, {})
    assert [row.requests for row in report.memory_rows()] == list(range(1, 12))
    assert {f.removesuffix("_requests") for f in Counters.__slots__ if f.endswith("_requests")} == {
        *names, "atomic", "local",
    }  # fmt: skip


def test_matrix_units_and_traffic_are_printed() -> None:
    counters = Counters()
    counters.count_matrix("wgmma", "m64n128k16.f32.f16.f16", 3, 3 * 2 * 64 * 128 * 16)
    counters.count_matrix("wgmma", "m64n128k16.f32.f16.f16", 1, 2 * 64 * 128 * 16)
    assert counters.tensor_operations == counters.wgmma_operations == 4 * 262_144
    moved = Traffic(Caches(1024, 2048, 1), 10, 5, 5, 1, 4, 2, 192, 96, 64)
    text = str(Report("k", (), (), counters, {}, {}, moved))
    assert "  wgmma: m64n128k16.f32.f16.f16 4   1,048,576 operations\n" in text
    assert text.endswith(
        "  L1: 10 sectors asked for, 50.0 % there\n"
        "  L2: 5 sectors asked for, 20.0 % there; 4 stored, 2 updated\n"
        "  DRAM: 192 bytes read, 96 written (64 of them at the end)"
    )


def test_two_runs_give_equal_reports_with_equal_hashes() -> None:
    one, other = run(), run()
    assert one == other
    assert hash(one) == hash(other)
    assert one != run(20)
    assert one != replace(one, counters=replace(one.counters, ctas=2))
    with pytest.raises(FrozenInstanceError):
        one.kernel = "other"  # type: ignore[misc]


numbers = st.integers(0, 2**50)
places = st.tuples(*[st.integers(0, 2**31)] * 3)
faults = st.builds(
    Fault, st.sampled_from(["race", "trap", "out of bounds"]), st.text(), numbers, st.text(), places,
    st.none() | places, st.sampled_from(["global", ""]), st.none() | st.integers(0, 2**64 - 1), st.text(), numbers,
)  # fmt: skip
line_counters = st.builds(LineCounters, numbers, numbers, numbers, numbers, numbers, numbers)
traffics = st.builds(
    Traffic, st.builds(Caches, st.just(128), st.just(64), st.integers(1, 9)), *[numbers] * 9,
    st.dictionaries(numbers, st.builds(LineTraffic, *[numbers] * 5), max_size=2),
)  # fmt: skip


@given(
    st.lists(faults, max_size=2), st.lists(st.builds(Advisory, st.text(), st.text(), numbers, st.text(), st.text())),
    st.dictionaries(numbers, st.tuples(line_counters, st.text()), max_size=3), st.none() | traffics, numbers,
)  # fmt: skip
def test_a_report_survives_json(
    found: list[Fault], advisories: list[Advisory], lines: dict[int, tuple[LineCounters, str]],
    traffic: Traffic | None, count: int,
) -> None:  # fmt: skip
    counters = Counters(instructions=count, by_class={"integer": count}, mma={"m16n8k16": count})
    report = Report(
        "k", tuple(found), tuple(advisories), counters, {n: c for n, (c, _) in lines.items()},
        {n: text for n, (_, text) in lines.items()}, traffic,
    )  # fmt: skip
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    str(report)
