"""docs/beside_triton.md: its rows are what the benchmark prints; what ours does more of is explained."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.ptx.assembling.ptxas import find_ptxas
from tinygpu.ptx.emulator import emulate

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
beside = importlib.import_module("tests.benchmarks.beside_triton")
makers = importlib.import_module("tests.benchmarks.beside.makers")
operations = importlib.import_module("tests.benchmarks.beside.operations")
published = importlib.import_module("tests.benchmarks.beside.published")
running = importlib.import_module("tests.benchmarks.beside.running")
counting = importlib.import_module("tests.benchmarks.beside.counts")
reasons = importlib.import_module("tests.benchmarks.beside.reasons")

PAGE = (ROOT / "docs" / "beside_triton.md").read_text(encoding="utf-8")
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason='Triton is not installed: pip install -e ".[beside]"'
)
needs_nvdisasm = pytest.mark.skipif(beside.find_nvdisasm() is None, reason="nvdisasm is not installed")
SMALL = operations.Operation("row_reduction", {"m": 64, "n": 512}, {"m": 6})


def between(options: str) -> list[str]:
    begins, ends = beside.marks(options)
    return [line for line in PAGE.partition(begins)[2].partition(ends)[0].splitlines() if line.startswith("| `")]


def nvcc() -> str:
    try:
        found = str(beside.find_nvcc())
    except SystemExit:
        pytest.skip("nvcc is not installed")
    try:
        importlib.metadata.version("nvidia-cuda-cccl")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip('CUB is not installed: pip install -e ".[beside]"')
    return found


def test_the_page_has_every_operation_on_every_device_and_a_reason_for_all_that_is_worse() -> None:
    rows, kinds = between(""), {}
    for row in rows:
        machine, gpu, compiler, *_ = [cell.strip() for cell in row.strip("|").split(" | ")]
        kinds.setdefault((machine, gpu), []).append(compiler)
    for operation in operations.OPERATIONS:
        name = beside.Compared(operation, "", 1, ()).name
        for gpu in beside.DEVICES:
            expected = ["tinyGPU", "Triton", *(["CUDA"] if operation.cuda else [])]
            assert [kind for kind in kinds[name, gpu] if kind in expected][:3] == expected
    assert "Where ours does more" in PAGE
    assert reasons.UNEXPLAINED not in PAGE


@needs_triton
@needs_nvdisasm
@pytest.mark.slow
@pytest.mark.parametrize("operation", operations.OPERATIONS, ids=lambda o: f"{o.machine}-{len(o.types)}")
def test_rows_of_the_page_are_what_the_benchmark_prints(operation: Any) -> None:
    nvcc()
    for gpu in beside.DEVICES:
        found = beside.compared(operation, gpu, beside.tools_here())
        for row in (*found.rows(), *found.worse()):
            assert row in PAGE


@pytest.mark.end_to_end
def test_published_rows_are_what_the_benchmark_prints() -> None:
    rows = between(" --published")
    assert len(rows) == len(published.PUBLISHED)
    for row, one in zip(rows, published.PUBLISHED, strict=True):
        assert f"({one.source}) | {one.us:,.1f} |" in row
        assert one.gpu[0] in row
    assert published.row(published.PUBLISHED[0]) == rows[0]


@needs_triton
@needs_nvdisasm
def test_a_kernel_of_triton_is_right_in_the_emulator_and_a_wrong_one_is_told() -> None:
    tools, gpu, problem = beside.tools_here(), device("a100"), makers.posed(SMALL, emulated=True)
    configured = operations.Configured("row_sum", {"R": 2, "C": 256}, 4, lambda d: (operations.up(d.m, d.R),))
    kernel = makers.triton_kernel(configured, problem, gpu, tools.ptxas)
    trial = running.trial_of(makers.machine_of(SMALL), problem)
    found = running.run(kernel, trial, gpu, tools, makers.compulsory_bytes(problem))
    assert found.sectors == 6 * 512 * 4 // 32 + 3
    assert found.spills == 0
    assert found.machine > 0
    wrong = replace(kernel, text=kernel.text.replace("add.f32", "max.f32"))
    with pytest.raises(running.WrongValues, match=r"^Triton, row_sum R=2 .* WRONG in 6 of 6 elements"):
        running.run(wrong, trial, gpu, tools, makers.compulsory_bytes(problem))


@needs_nvdisasm
def test_a_cuda_kernel_is_right_in_the_emulator() -> None:
    tools, gpu, problem = beside.tools_here(), device("h100"), makers.posed(SMALL, emulated=True)
    one = operations.Written("row_sum", 64, 1, lambda d: (d.m,), "x y n")
    kernel = makers.cuda_kernel(one, problem, gpu, nvcc())
    trial = running.trial_of(makers.machine_of(SMALL), problem)
    found = running.run(kernel, trial, gpu, tools, makers.compulsory_bytes(problem))
    assert (found.sectors, found.barriers) == (6 * 512 * 4 // 32 + 6, 12)


PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry turned(.param .u64 x)
{
  .reg .b64 %d<3>;
  .reg .b32 %r<8>;
  .reg .pred %p<2>;
  .shared .align 16 .b8 s[8192];
  ld.param.u64 %d1, [x];
  mov.u32 %r1, %tid.x;
  mov.u32 %r5, 0;
again:
  shl.b32 %r2, %r1, 7;
  mov.u32 %r3, s;
  add.u32 %r3, %r3, %r2;
  st.shared.u32 [%r3], %r5;
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p1, %r5, 8;
  @%p1 bra again;
  ld.shared.u32 %r4, [%r3];
  mad.wide.u32 %d2, %r1, 4, %d1;
  st.global.u32 [%d2], %r4;
  ret;
}
"""


@needs_nvdisasm
def test_conflicts_and_machine_instructions_are_counted_of_the_lines_that_cause_them() -> None:
    tools, gpu, y = beside.tools_here(), device("a100"), np.zeros(32, np.uint32)
    made = counting.assemble(PTX, "sm_80", find_ptxas(), tools.nvdisasm, gpu, 32, 0)
    report = emulate(PTX, grid=1, block=32, args=[y], caches=counting.slice_of(gpu, 1))
    assert (y == 7).all()
    found = counting.counts_of(report, made, 128)
    # nine accesses of 32 lanes to one bank; eight rounds of a loop that is not unrolled
    assert (found.wavefronts, found.conflicts) == (9 * 32, 9 * 31)
    (store,) = (n for n, text in enumerate(PTX.splitlines(), 1) if "st.shared" in text)
    assert report.lines[store].executed == 8
    assert made.by_line[store] >= 1
    assert 8 * 4 <= found.machine <= found.instructions
    assert found.machine == sum(n * report.lines[line].executed for line, n in made.by_line.items())


def test_the_best_kernel_has_few_sectors_and_fewest_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    work = {"spilling": (8, 1.0, 1.0), "wide": (0, 103.0, 10.0), "lean": (0, 101.0, 20.0), "least": (0, 100.0, 30.0)}
    monkeypatch.setattr(running, "work", lambda kernel, *_: work[kernel.how])
    kernels = [SimpleNamespace(how=how) for how in work]
    assert running.best(kernels, None, None, None).how == "lean"


def test_marks_that_are_not_there_are_told() -> None:
    with pytest.raises(ValueError) as refused:
        beside.written("no marks", "", iter(()))
    begins, ends = beside.marks("")
    assert str(refused.value) == f"the page has no {begins} with {ends} behind it"
