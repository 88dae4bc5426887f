"""Plans on a GPU whose kernels run in the emulator: compiled, called, bundled, verified there and timed as one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import FakeCuda
from plans_of_kernels import ColumnSums, SoftmaxInPasses, SplitMatmul
from two_passes import RowSums

import tinygpu
from tinygpu.api.bundle import bundle
from tinygpu.api.machines import Family
from tinygpu.api.measured import tune_by_results
from tinygpu.api.problems import Asked
from tinygpu.devices import device
from tinygpu.ptx.launching.kernel import LaunchError
from tinygpu.ptx.measuring.bundle import read_bundle
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import Context, open_context
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.search.measured import load_results
from tinygpu.search.recipe import Recipe

FAKE = Path(__file__).parents[2] / "ptx" / "fake"


@pytest.fixture(scope="module")
def context() -> Context:
    return open_context(Driver(FakeCuda(memory_bytes=1 << 28)))


@pytest.mark.end_to_end
def test_a_plan_is_a_function_on_arrays(context: Context) -> None:
    """Every step in its order on one stream; other arrays have workspaces of their size."""
    x = np.random.default_rng(0).integers(-8, 9, (3, 1500)).astype(np.float32)
    kernel = tinygpu.compile(RowSums, x, point={"chunk": 512}, context=lambda: context)
    begun = len(context.driver.module.launches)
    assert (kernel(x) == x.sum(axis=1)).all()
    assert len(context.driver.module.launches) == begun + 2
    longer = np.random.default_rng(1).integers(-8, 9, (7, 9000)).astype(np.float32)
    out = np.empty(7, np.float32)
    assert kernel(longer, out=out) is out
    assert (out == longer.sum(axis=1)).all()
    assert kernel.ptx.startswith("// 1-parts.ptx: step parts\n")
    assert kernel.point["chunk"] == 512
    with pytest.raises(WrongArray) as refused:
        kernel(x.astype(np.float16))
    assert str(refused.value) == (
        "RowSums: x is f16, and this kernel was compiled for f32; convert it, or compile with this array"
    )


@pytest.mark.end_to_end
def test_numbers_reach_the_steps_that_take_them(context: Context) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((17, 65), (65, 33)))
    kernel = tinygpu.compile(
        SplitMatmul, a, b, options={"activation": "relu"}, point={"chunk": 32}, context=lambda: context
    )
    for scale in (2.0, -1.0):
        assert (kernel(a, b, scale=scale) == np.maximum(scale * (a @ b), 0)).all()


@pytest.mark.end_to_end
def test_sizes_that_the_candidate_is_not_for_are_refused(context: Context) -> None:
    """What a machine says of legal sizes holds for arrays that come later, too: of steps, of the plan, of machines."""
    x = np.random.default_rng(0).normal(size=(2, 100)).astype(np.float32)
    point = {"width": 32, "rows.step": 1}
    kernel = tinygpu.compile(SoftmaxInPasses, x, point=point, context=lambda: context)
    longest = np.zeros((2, 1024), np.float32)
    np.testing.assert_allclose(kernel(longest), 1 / 1024, rtol=1e-5)
    with pytest.raises(LaunchError) as refused:
        kernel(np.zeros((2, 1028), np.float32))
    assert str(refused.value) == (
        "SoftmaxInPasses: this candidate is not for these arrays: step rows: whole (CombinedSoftmax): the parts of a "
        "row fit into one tile; parts = 33 > 32 = 1 x 32; compile with them"
    )
    column = tinygpu.compile(ColumnSums, np.ones((40, 8), np.float32), point={"height": 16}, context=lambda: context)
    with pytest.raises(LaunchError) as whole:
        column(np.zeros((16 * 256 + 1, 8), np.float32))
    assert "enough (ColumnSums): the second pass sums all parts at once" in str(whole.value)


@pytest.mark.end_to_end
def test_a_recipe_of_a_plan_is_taken(context: Context) -> None:
    x = np.ones((2, 3000), np.float32)
    point = dict(tinygpu.compile(RowSums, x, point={"chunk": 2048}, context=lambda: context).point)

    class Book:
        def best(self, machine: str, problem: object, device: str) -> Recipe | None:
            return Recipe(machine, point, 1e-6, "kept") if machine == "RowSums" else None

    found = tinygpu.compile(RowSums, x, recipes=Book(), context=lambda: context)  # type: ignore[arg-type]
    assert found.point == point
    assert found.origin == "kept"


@pytest.mark.end_to_end
def test_plans_are_bundled_timed_as_one_and_come_back(tmp_path: Path) -> None:
    """Four candidates of two kernels each; the worker verifies and times them, and the best is built again."""
    path = tmp_path / "plans.bundle"
    family, asked, gpu = Family("RowSums", (RowSums,)), Asked({"m": 3, "n": 1500}), device("h200")
    made = bundle(family, asked, gpu, path, count=4, choose="mixed", seconds=5.0)
    assert len(made.bundle.entries) == 4
    opened = read_bundle(path)
    for entry in opened.entries:
        (second,) = entry.launch.then
        assert [len(texts) for texts in opened.texts(entry)] == [2, 2]
        assert [w.name for w in entry.launch.workspaces] == [w.name for w in second.workspaces] == ["partial"]
        assert second.tensors == entry.launch.tensors
    out = tmp_path / "plans.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "tinygpu.ptx.measuring", "--driver", "fake_cuda", "--samples", "8", path, "-o", out],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*[p for p in sys.path if p], str(FAKE)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "4 of 4 kernels measured" in done.stdout, done.stdout
    tuned = tune_by_results(family, asked, gpu, load_results(out))
    assert tuned.verification.passed
    assert not tuned.changed
    assert {m.machine for m in tuned.measured} == {"RowSums"}


@pytest.mark.end_to_end
def test_a_wrong_step_is_found_by_the_worker(tmp_path: Path) -> None:
    path, bad = tmp_path / "good.bundle", tmp_path / "bad.bundle"
    family, asked = Family("ColumnSums", (ColumnSums,)), Asked({"m": 100, "n": 40})
    bundle(family, asked, device("h200"), path, count=1, choose="best", seconds=5.0, cubins=False)
    from tinygpu.ptx.measuring.bundle import write_bundle

    opened = read_bundle(path)
    (entry,) = opened.entries
    (first, _), (second, _) = opened.texts(entry)
    texts = [(first, None), (second.replace(b"add.rn.f32", b"sub.rn.f32"), None)]
    assert texts[1][0] != second
    write_bundle(
        bad, title="t", device="H200-SXM", made="by hand", questions=opened.questions, kernels=[(entry, texts)]
    )
    out = tmp_path / "bad.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "tinygpu.ptx.measuring", "--driver", "fake_cuda", "--samples", "8", bad, "-o", out],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*[p for p in sys.path if p], str(FAKE)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "wrong" in done.stdout, done.stdout + done.stderr
