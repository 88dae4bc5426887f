"""Kernels as functions: results, what is prepared once, streams, new outputs, and the sentence of every refusal."""

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from hypothesis import given, settings
from hypothesis import strategies as st
from small_kernels import add_launch, add_ptx, counting_launch, counting_ptx

from tinygpu.ptx.runtime.arrays import DeviceArray, View
from tinygpu.ptx.runtime.callable import MOST_PREPARED, CallableKernel, Signature, stream_number
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import Context, open_context
from tinygpu.ptx.runtime.errors import CudaError, WrongArray
from tinygpu.ptx.runtime.launch import Launch

SIGNATURE = Signature("Add", ("x", "z"), ("y",), ("s",))


class Case:
    """y = x + z + s on a GPU of its own."""

    def __init__(self, ptx: str = "", **gpu: Any) -> None:
        self.fake = FakeCuda(**gpu)
        self.context: Context = open_context(Driver(self.fake))
        self.planned = 0

        def launch_for(views: Mapping[str, View]) -> Launch:
            self.planned += 1
            return add_launch(views["x"].shape[0])

        self.kernel = CallableKernel(SIGNATURE, launch_for, lambda: self.context, (ptx or add_ptx()).encode())

    def array(self, values: Any) -> DeviceArray:
        data = np.asarray(values, dtype=np.float32)
        made = DeviceArray(self.context, data.shape, "f32")
        made.memory.write(data)
        return made


@settings(max_examples=20)
@given(st.integers(1, 300), st.floats(-8, 8, width=16), st.booleans())
def test_a_call_computes_on_host_and_device_arrays(n: int, s: float, on_device: bool) -> None:
    case = Case()
    rng = np.random.default_rng(n)
    x, z = rng.random(n, dtype=np.float32), rng.random(n, dtype=np.float32)
    expected = x + z + np.float32(s)
    if on_device:
        y = case.kernel(case.array(x), case.array(z), s=s)
        assert isinstance(y, DeviceArray)
        np.testing.assert_array_equal(y.numpy(), expected)
    else:
        y = case.kernel(x, z, s=s)
        assert isinstance(y, np.ndarray)
        np.testing.assert_array_equal(y, expected)
        out = np.zeros(n, np.float32)
        assert case.kernel(x, z, s=s, out=out) is out
        np.testing.assert_array_equal(out, expected)


def test_a_call_with_known_arrays_prepares_nothing_again() -> None:
    case = Case()
    x, z, y = (case.array(np.ones(100)) for _ in range(3))
    case.kernel(x, z, out=y, s=1)
    planned, before = case.planned, len(case.fake.calls)
    for s in range(5):
        case.kernel(x, z, out=y, s=s)
        assert y.numpy().tolist() == [2 + s] * 100
    assert case.planned == planned
    names = [name for name, _ in case.fake.calls[before:]]
    calls = [n for n in names if n not in ("cuCtxSynchronize", "cuMemcpyDtoH")]
    assert calls == ["cuCtxSetCurrent", "cuLaunchKernelEx"] * 5
    case.kernel(x, y, out=z, s=0)
    assert case.planned == planned + 1
    assert case.fake.count("cuModuleLoadData") == 1


def test_sets_of_arrays_are_forgotten_when_there_are_too_many() -> None:
    case = Case(emulating=False)
    x, z = case.array([1.0]), case.array([1.0])
    outs = [case.array([0.0]) for _ in range(MOST_PREPARED + 10)]
    for y in outs:
        case.kernel(x, z, out=y, s=0)
    planned = case.planned
    case.kernel(x, z, out=outs[-1], s=0)
    assert case.planned == planned
    case.kernel(x, z, out=outs[0], s=0)
    assert case.planned == planned + 1


def test_host_arrays_with_gaps_keep_what_is_between() -> None:
    case = Case()
    storage = np.full((4, 8), -1, np.float32)
    # the launch is one-dimensional; a row of a larger array is such
    y = storage[1, :5]
    case.kernel(np.ones(5, np.float32), np.ones(5, np.float32), out=y, s=0)
    assert storage[1].tolist() == [2, 2, 2, 2, 2, -1, -1, -1]
    assert (storage[[0, 2, 3]] == -1).all()


def test_the_stream_is_the_given_one_or_the_default() -> None:
    case = Case()
    x, z, y = (case.array(np.ones(3)) for _ in range(3))
    case.kernel(x, z, out=y, s=0)
    case.kernel(x, z, out=y, s=0, stream=77)
    case.kernel(x, z, out=y, s=0, stream=SimpleNamespace(cuda_stream=78))
    assert [seen["stream"] for seen in case.fake.launches] == [0, 77, 78]


@pytest.mark.parametrize(
    "stream",
    [5, SimpleNamespace(ptr=5), SimpleNamespace(number=5), SimpleNamespace(__cuda_stream__=lambda: (0, 5))],
)
def test_streams_of_every_library_have_a_number(stream: Any) -> None:
    assert stream_number(stream) == 5


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(WrongArray) as error:
        stream_number("main")
    assert str(error.value) == "a stream is a number or a stream of PyTorch, CuPy or ours, not 'main'"


def test_an_array_that_says_on_which_stream_it_is_made_is_used_there() -> None:
    case = Case()
    z, y = case.array(np.ones(3)), case.array(np.ones(3))
    inner = case.array(np.ones(3))
    x = SimpleNamespace(__cuda_array_interface__={**inner.__cuda_array_interface__, "stream": 9})
    case.kernel(x, z, out=y, s=0)
    assert case.fake.launches[-1]["stream"] == 9


class Tensor:
    """A PyTorch tensor, as far as a call looks at it."""

    __module__ = "torch"

    def __init__(self, array: DeviceArray) -> None:
        self.of = array
        self.shape = array.shape
        self.dtype = "torch.float32"
        self.is_cuda = True
        self.device = SimpleNamespace(index=0)

    def data_ptr(self) -> int:
        return self.of.address

    def stride(self) -> tuple[int, ...]:
        return self.of.strides


def test_pytorch_gives_the_stream_and_the_new_output(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    made: list[Tensor] = []

    def empty_strided(shape: Any, strides: Any, *, dtype: Any, device: Any) -> Tensor:
        assert (dtype, device) == ("f32 of torch", ("cuda", 0))
        made.append(Tensor(DeviceArray(case.context, shape, "f32")))
        assert made[-1].stride() == strides
        return made[-1]

    torch = SimpleNamespace(
        empty_strided=empty_strided,
        float32="f32 of torch",
        device=lambda kind, index: (kind, index),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 40 + index),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    x, z = Tensor(case.array(np.ones(3))), Tensor(case.array(np.ones(3)))
    y = case.kernel(x, z, s=2)
    assert y is made[0]
    assert y.of.numpy().tolist() == [4, 4, 4]
    assert case.fake.launches[-1]["stream"] == 40
    planned = case.planned
    case.kernel(x, z, s=2)
    assert case.planned == planned + 1  # the new output alone


def test_a_fault_of_the_kernel_is_an_error_with_its_name() -> None:
    case = Case(add_ptx("fake: error CUDA_ERROR_MISALIGNED_ADDRESS"))
    with pytest.raises(CudaError) as error:
        case.kernel(np.ones(3, np.float32), np.ones(3, np.float32), s=0)
    assert str(error.value) == (
        "cuLaunchKernelEx returned CUDA_ERROR_MISALIGNED_ADDRESS: "
        "a kernel touched memory at an address that the access does not allow"
    )


def test_calls_that_do_not_fit_are_refused_with_a_sentence() -> None:
    case = Case()
    x, z, y = (case.array(np.ones(3)) for _ in range(3))
    fixed = np.ones(3, np.float32)
    fixed.flags.writeable = False
    both = case.array(np.ones(8))
    part = SimpleNamespace(__cuda_array_interface__={**both.__cuda_array_interface__, "shape": (3,)})
    beside = {**both.__cuda_array_interface__, "shape": (3,), "data": (both.address + 8, False)}
    nowhere = SimpleNamespace(__cuda_array_interface__={**beside, "data": (64, False)})
    elsewhere = Tensor(case.array(np.ones(3)))
    elsewhere.device = SimpleNamespace(index=2)
    calls: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((x,), {"s": 0}, "Add takes 2 arrays (x, z); 1 were given"),
        ((x, z), {}, "Add needs the number s: give s=..."),
        ((x, z), {"s": 0, "t": 1}, "Add has no number t; it takes s"),
        ((x, z), {"s": 0, "out": (y, y)}, "Add gives 1 array (y): give out=... for all of them"),
        ((x, z), {"s": 0, "out": {"q": y}}, "Add gives 1 array (y): give out=... for all of them"),
        ((x, z), {"s": "much", "out": y}, "s is a number of type f32, not 'much'"),
        ((x, "z"), {"s": 0, "out": y}, (
            "z is no array: str has neither __dlpack__ nor __cuda_array_interface__; "
            "give an array of PyTorch, CuPy, JAX or NumPy"
        )),
        ((x, z), {"s": 0, "out": fixed}, "y is read-only, and the kernel writes it"),
        ((x, z), {"s": 0, "out": x}, "y overlaps x in memory; give an array of its own for y"),
        ((part, z), {"s": 0, "out": SimpleNamespace(__cuda_array_interface__=beside)},
         "y overlaps x in memory; give an array of its own for y"),
        ((nowhere, z), {"s": 0, "out": y}, "x is not in GPU memory; move it there first"),
        ((elsewhere, z), {"s": 0, "out": y, "stream": 1}, "x is on GPU 2, and the kernel runs on GPU 0"),
        ((x, z), {"s": 0, "out": y, "stream": "main"},
         "a stream is a number or a stream of PyTorch, CuPy or ours, not 'main'"),
    ]  # fmt: skip
    for arrays, given_, sentence in calls:
        with pytest.raises(WrongArray) as error:
            case.kernel(*arrays, **given_)
        assert str(error.value) == sentence
    assert case.fake.launches == []
    case.kernel(x, z, out=(y,), s=0)
    case.kernel(x, z, out={"y": y}, s=0)
    assert len(case.fake.launches) == 2


def test_a_kernel_that_writes_into_an_input_gives_that_input() -> None:
    case = Case()
    signature = Signature("Scale", ("x", "z", "y"), (), ("s",))
    kernel = CallableKernel(signature, lambda views: add_launch(3), lambda: case.context, add_ptx().encode())
    x, z, y = (case.array(np.ones(3)) for _ in range(3))
    assert kernel(x, z, y, s=1) is None
    assert y.numpy().tolist() == [3, 3, 3]
    with pytest.raises(WrongArray) as error:
        kernel(x, z, y, s=1, out=y)
    assert str(error.value) == "Scale writes into its inputs and takes no out=..."


@pytest.mark.parametrize("each", [False, True])
def test_a_workspace_is_there_as_zeros_for_every_launch(each: bool) -> None:
    """CTAs whose number is not zero when they come do not compute: only a kernel that leaves zeros runs twice."""
    case = Case()
    kernel = CallableKernel(
        SIGNATURE,
        lambda views: counting_launch(views["x"].shape[0], each),
        lambda: case.context,
        counting_ptx(0).encode(),
    )
    for n in (1000, 100, 2000, 1000):
        x = case.array(np.arange(n))
        y = case.array(np.zeros(n))
        for s in range(2):
            kernel(x, x, out=y, s=s)
            np.testing.assert_array_equal(y.numpy(), 2 * np.arange(n, dtype=np.float32) + s)
    spaces = {seen["parameters"][5] for seen in case.fake.launches}
    assert len(spaces) == 2  # one of 64 bytes, and a larger one when it was needed
    kernel(x, x, out=y, s=0, stream=5)
    assert case.fake.launches[-1]["parameters"][5] not in spaces  # what may run beside has one of its own
