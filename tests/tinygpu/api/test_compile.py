"""tinygpu.compile: from a machine and arrays, or dims, to results; over a driver whose kernels run in the emulator."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cuda import FakeCuda

import tinygpu
from tinygpu.api.choosing import NotAdmitted
from tinygpu.api.compile import CompiledKernel, library_device
from tinygpu.api.problems import Asked
from tinygpu.language.posing import problem
from tinygpu.language.problem import ProblemError
from tinygpu.machines.elementwise import Axpby
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.ptx.launching.kernel import LaunchError
from tinygpu.ptx.runtime.arrays import DeviceArray
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import Context, open_context
from tinygpu.ptx.runtime.driver import available
from tinygpu.ptx.runtime.errors import GpuUnavailable, WrongArchitecture, WrongArray
from tinygpu.search.recipe import Recipe

POINT = {"bm": 64, "bn": 32, "bk": 32}


@pytest.fixture(scope="module")
def context() -> Context:
    return open_context(Driver(FakeCuda(memory_bytes=1 << 28)))


@pytest.fixture(scope="module")
def matmul(context: Context) -> CompiledKernel:
    a, b = operands(64, 64, 32)
    return tinygpu.compile("matmul_ampere", a, b, point=POINT, context=lambda: context)


def operands(m: int, n: int, k: int, dtype: Any = np.float16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n)))
    return a, b


@pytest.mark.end_to_end
def test_the_first_call_is_the_one_of_the_readme(context: Context) -> None:
    rng = np.random.default_rng(0)
    x, z = rng.random(100, dtype=np.float32), rng.random(100, dtype=np.float32)
    kernel = tinygpu.compile("axpby", x, z, context=lambda: context)
    np.testing.assert_allclose(kernel(x, z, a=2, b=3), 2 * x + 3 * z, rtol=1e-6)
    assert kernel.origin == "predicted"
    assert repr(kernel).startswith("<Axpby for n=100 x:f32 z:f32 y:f32 on H200-SXM (predicted): ")


@pytest.mark.end_to_end
def test_one_kernel_serves_every_problem_that_keeps_what_it_relies_on(matmul: CompiledKernel) -> None:
    for m, n, k in ((64, 64, 32), (128, 64, 96), (64, 128, 64)):
        a, b = operands(m, n, k, seed=m + n)
        np.testing.assert_array_equal(matmul(a, b).astype(np.float32), a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.end_to_end
def test_arrays_on_the_gpu_and_with_gaps_are_taken(matmul: CompiledKernel, context: Context) -> None:
    a, b = operands(64, 64, 32)
    wide = np.zeros((64, 48), np.float16)
    wide[:, :32] = a
    expected = a.astype(np.float32) @ b.astype(np.float32)
    out = np.zeros((64, 64), np.float16)
    assert matmul(wide[:, :32], b, out=out) is out
    np.testing.assert_array_equal(out.astype(np.float32), expected)
    device = []
    for array in (a, b):
        device.append(DeviceArray(context, array.shape, "f16"))
        device[-1].memory.write(array)
    np.testing.assert_array_equal(matmul(*device).numpy().astype(np.float32), expected)


def refusal(kind: type[Exception], kernel: Any, *arrays: Any, **given: Any) -> str:
    with pytest.raises(kind) as error:
        kernel(*arrays, **given)
    return str(error.value)


@pytest.mark.end_to_end
def test_arrays_that_do_not_fit_are_refused_with_a_sentence(matmul: CompiledKernel, context: Context) -> None:
    a, b = operands(64, 64, 32)
    launches = len(context.driver.module.launches)
    assert refusal(WrongArray, matmul, a.astype(np.float32), b) == (
        "MatmulAmpere: a is f32, and this kernel was compiled for f16; convert it, or compile with this array"
    )
    assert refusal(WrongArray, matmul, a, operands(64, 64, 64)[1]) == (
        "MatmulAmpere: the dim k is 32 in a and 64 in b"
    )
    assert refusal(WrongArray, matmul, a[None], b) == (
        "MatmulAmpere: a has 2 dims (m, k), and the array has shape [1, 64, 32]"
    )
    assert refusal(WrongArray, matmul, np.asfortranarray(a), b) == (
        "MatmulAmpere: a is col-major (strides [1, 64]), and this kernel was compiled for row-major; "
        "compile with this array, or copy it"
    )
    every_other = np.zeros((64, 64), np.float16)[:, ::2]
    assert refusal(WrongArray, matmul, every_other, b) == (
        "MatmulAmpere: a must be row-major or col-major, with neighbours along one axis 1 element apart and no "
        "overlap, and the array of shape [64, 32] has strides [64, 2] (elements); make it contiguous"
    )
    whole = DeviceArray(context, (64 * 32 + 8,), "f16")
    beside = type("View", (), {
        "__cuda_array_interface__": {
            "shape": (64, 32), "typestr": "<f2", "data": (whole.address + 2, False), "strides": None, "version": 3,
        }
    })()  # fmt: skip
    assert refusal(WrongArray, matmul, beside, b, out=np.zeros((64, 64), np.float16)) == (
        "MatmulAmpere: the address of a is a multiple of 2 B, and this kernel was compiled for multiples of 16; "
        "compile with this array, or copy it"
    )
    odd, _ = operands(64, 64, 33)
    relied = next(str(f) for f in matmul.finalist.built.kernel.facts if f.name == "a.ld")
    assert refusal(LaunchError, matmul, odd, operands(64, 64, 33)[1]) == (
        f"matmulampere was made for {relied}, and here a.ld is 33; "
        "tune for this problem, or use a kernel without that fact"
    )
    assert len(context.driver.module.launches) == launches


@pytest.mark.end_to_end
def test_bf16_arrays_of_ml_dtypes_go_in_and_come_out(context: Context) -> None:
    a, b = operands(64, 64, 32, ml_dtypes.bfloat16)
    kernel = tinygpu.compile("matmul_ampere", a, b, point=POINT, context=lambda: context)
    c = kernel(a, b)
    assert c.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(ml_dtypes.bfloat16))


@pytest.mark.end_to_end
def test_options_decide_which_arrays_there_are(context: Context) -> None:
    a, b = operands(64, 64, 32)
    bias = np.arange(64, dtype=np.float32)
    options = {"with_bias": True, "activation": "relu"}
    kernel = tinygpu.compile(MatmulAmpere, a, b, bias, options=options, point=POINT, context=lambda: context)
    expected = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + bias, 0)
    np.testing.assert_array_equal(kernel(a, b, bias).astype(np.float32), expected)
    with pytest.raises(WrongArray) as error:
        tinygpu.compile(MatmulAmpere, a, options=options, context=lambda: context)
    assert str(error.value) == (
        "MatmulAmpere takes 3 arrays (a, b, bias), and its results behind them; 1 were given"
    )


@pytest.mark.end_to_end
def test_the_layout_of_a_result_is_taken_from_its_array(context: Context) -> None:
    a, b = operands(64, 60, 32)
    out = np.zeros((64, 63), np.float16)[:, :60]
    kernel = tinygpu.compile("matmul_ampere", a, b, out, point=POINT, context=lambda: context)
    assert kernel.finalist.space.problem.operand("c").ld == 63
    kernel(a, b, out=out)
    np.testing.assert_array_equal(out.astype(np.float32), a.astype(np.float32) @ b.astype(np.float32))


PROBLEM = problem(Axpby, {"n": 64})


class Book:
    """Recipes by heart."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.asked: list[tuple[Any, ...]] = []

    def best(self, machine: str, problem: Any, device: str) -> Recipe | None:
        self.asked.append((machine, problem, device))
        return self.recipe if machine == self.recipe.machine else None


@pytest.mark.parametrize("posed", [{"n": 64}, Asked({"n": 64}), PROBLEM], ids=["dims", "asked", "problem"])
def test_a_recipe_that_is_known_is_taken(context: Context, posed: Any) -> None:
    point = {"warps": 2, "vector": 2, "rows": 1, "across": 1}
    book = Book(Recipe("Axpby", point, 1e-6, "measured on NVIDIA H200, driver 13.0, 2026-03-01"))
    kernel = tinygpu.compile("axpby", posed, recipes=book, context=lambda: context)
    assert kernel.point == point
    assert kernel.origin == "measured on NVIDIA H200, driver 13.0, 2026-03-01"
    assert book.asked == [("Axpby", PROBLEM.to_json(), "H200-SXM")]


def test_what_was_asked_wrongly_is_told(context: Context) -> None:
    with pytest.raises(WrongArray) as error:
        tinygpu.compile("axpby", context=lambda: context)
    assert str(error.value) == "axpby needs a problem: dims, as in {'m': 4096, ...}, or arrays"
    with pytest.raises(WrongArray) as error:
        tinygpu.compile("axpby", {"n": 3}, np.zeros(3), context=lambda: context)
    assert str(error.value) == "axpby takes a problem or arrays, not both"
    with pytest.raises(ProblemError):
        tinygpu.compile("axpby", {"q": 3}, context=lambda: context)
    with pytest.raises(NotAdmitted):
        tinygpu.compile("axpby", {"n": 3}, point={"warps": 3}, context=lambda: context)


@pytest.mark.skipif(available().present, reason="this machine has a GPU")
def test_without_a_gpu_one_can_compile_for_one_and_not_call() -> None:
    with pytest.raises(GpuUnavailable) as error:
        tinygpu.compile("axpby", {"n": 64})
    assert str(error.value) == (
        f"no kernel can be run here: {available().reason}; to compile for a GPU that is elsewhere, give device=..."
    )
    kernel = tinygpu.compile("axpby", {"n": 64}, device="a100", point={"warps": 1})
    assert ".visible .entry axpby(" in kernel.ptx
    with pytest.raises(GpuUnavailable) as error:
        kernel(np.zeros(64, np.float32), np.zeros(64, np.float32), a=1, b=1)
    assert str(error.value) == f"no kernel can be run here: {available().reason}"


@pytest.mark.end_to_end
def test_a_kernel_for_another_architecture_is_refused_by_the_gpu() -> None:
    context = open_context(Driver(FakeCuda(name="NVIDIA A100-SXM4-80GB", cc=(8, 0))))
    assert library_device(context.limits.name).name == "A100-SXM4-80GB"
    rng = np.random.default_rng(0)
    a, b = (rng.random((64, 64)).astype(np.float16) for _ in range(2))
    point = {"bm": 64, "bn": 32, "bk": 64, "stages": 2}
    kernel = tinygpu.compile("matmul_hopper", a, b, device="h200", point=point, context=lambda: context)
    assert refusal(WrongArchitecture, kernel, a, b) == (
        "this kernel runs on sm_90a alone, and GPU 0, NVIDIA A100-SXM4-80GB, is sm_80; compile for this GPU"
    )


@pytest.mark.parametrize(
    ("driver_name", "ours"),
    [
        ("NVIDIA H200", "H200-SXM"), ("NVIDIA H100 80GB HBM3", "H100-SXM5"), ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"), ("NVIDIA GeForce RTX 4090", "RTX-4090"), ("Tesla T4", "T4"),
        ("NVIDIA L40S", "L40S"), ("NVIDIA B200", "B200"), ("NVIDIA RTX A6000", "RTX-A6000"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"), ("NVIDIA GH200 480GB", "GH200"),
    ],
)  # fmt: skip
def test_gpus_are_found_by_what_the_driver_calls_them(driver_name: str, ours: str) -> None:
    assert library_device(driver_name).name == ours


def test_a_gpu_without_a_profile_is_told() -> None:
    context = open_context(Driver(FakeCuda(name="NVIDIA Future 1")))
    with pytest.raises(GpuUnavailable) as error:
        tinygpu.compile("axpby", {"n": 64}, context=lambda: context)
    assert str(error.value) == (
        "the library has no profile of NVIDIA Future 1; give device=... (a similar GPU, or a file of your own: see "
        "docs/devices.md); to compile for a GPU that is elsewhere, give device=..."
    )


def test_a_wrong_kernel_is_never_given(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    import tinygpu.api.compile as module
    from tinygpu.ptx.verification.verify import Verification

    def never(*_: Any, **__: Any) -> Verification:
        return Verification("axpby", PROBLEM, ())

    monkeypatch.setattr(module, "verify_kernels", never)
    with pytest.raises(ValueError, match=r"^this candidate is wrong in the emulator: axpby on n=64 .*: WRONG$"):
        tinygpu.compile("axpby", {"n": 64}, point={"warps": 1}, context=lambda: context)
