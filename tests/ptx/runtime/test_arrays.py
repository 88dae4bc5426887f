"""Arrays of every library, by stand-ins that have their attributes; DLPack against NumPy's own."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cuda import FakeCuda
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.runtime import dlpack
from tinygpu.ptx.runtime.arrays import DeviceArray, View, dense_strides, reader_of
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.errors import WrongArray


class Owner:
    """What keeps memory alive."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


class Exporter:
    """An array of some library that has DLPack alone."""

    def __init__(self, array: np.ndarray, device: tuple[int, int], type_: str) -> None:
        self.owner, self.device, self.type = Owner(array), device, type_

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **_: Any) -> Any:
        a = self.owner.array
        strides = tuple(s // a.itemsize for s in a.strides)
        return dlpack.make_capsule(self.owner, a.ctypes.data, self.type, a.shape, strides, self.device)


TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "s8": np.int8, "u8": np.uint8, "s32": np.int32}


@given(st.sampled_from(sorted(TYPES)), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.booleans())
def test_numpy_reads_our_capsules(name: str, shape: list[int], transposed: bool) -> None:
    array = np.arange(np.prod(shape)).astype(TYPES[name]).reshape(shape)
    array = array.T if transposed else array
    found = np.from_dlpack(Exporter(array, (dlpack.CPU, 0), name))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_we_read_numpys_capsules(shape: list[int]) -> None:
    array = np.zeros(shape, np.float32)
    found = dlpack.read_capsule(array.__dlpack__())
    assert (found.address, found.type, found.shape) == (array.ctypes.data, "f32", tuple(shape))
    assert found.strides == tuple(s // 4 for s in array.strides)
    assert (found.device_type, found.device_id) == (dlpack.CPU, 0)


@pytest.mark.end_to_end
@pytest.mark.parametrize("consumed", [True, False])
def test_a_capsule_keeps_its_owner_and_lets_go_of_it(consumed: bool) -> None:
    exporter = Exporter(np.arange(4.0, dtype=np.float32), (dlpack.CPU, 0), "f32")
    alive = weakref.ref(exporter.owner)
    if consumed:
        view = np.from_dlpack(exporter)
        del exporter
        gc.collect()
        assert alive() is not None
        assert view.tolist() == [0, 1, 2, 3]
        del view
    else:
        capsule = exporter.__dlpack__()
        del exporter
        gc.collect()
        assert alive() is not None
        del capsule
    gc.collect()
    assert alive() is None


def device_array(shape: tuple[int, ...], type_: str) -> DeviceArray:
    return DeviceArray(open_context(Driver(FakeCuda())), shape, type_)


@pytest.mark.parametrize("type_", ["f32", "bf16", "e4m3", "s8"])
def test_our_own_arrays_are_read_the_same_way_in_three_ways(type_: str) -> None:
    array = device_array((3, 5), type_)
    own = reader_of(array, "a").view(array, "a")
    assert own == View(array.address, type_, (3, 5), (5, 1), 0)

    class Other:
        def __init__(self, of: DeviceArray) -> None:
            self.of = of

        def __dlpack_device__(self) -> Any:
            return self.of.__dlpack_device__()

        def __dlpack__(self, **given: Any) -> Any:
            return self.of.__dlpack__(**given)

    other = Other(array)
    assert reader_of(other, "a").view(other, "a") == own
    if type_ in ("f32", "s8"):
        third = SimpleNamespace(__cuda_array_interface__=array.__cuda_array_interface__)
        assert reader_of(third, "a").view(third, "a") == View(array.address, type_, (3, 5), (5, 1))
    else:
        with pytest.raises(AttributeError, match=rf"^__cuda_array_interface__ has no type {type_}; use from_dlpack$"):
            _ = array.__cuda_array_interface__


def test_our_own_arrays_come_back_as_numpy() -> None:
    array = device_array((2, 3), "f16")
    array.memory.write(np.arange(6, dtype=np.float16))
    assert array.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    narrow = device_array((2,), "bf16")
    narrow.memory.write(np.array([1, 2], ml_dtypes.bfloat16).view(np.uint16))
    assert narrow.numpy().view(ml_dtypes.bfloat16).tolist() == [1, 2]
    assert repr(narrow) == "DeviceArray([2], 'bf16')"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_dense_strides_are_those_of_numpy(shape: list[int]) -> None:
    assert dense_strides(tuple(shape)) == tuple(s // 4 for s in np.zeros(shape, np.float32).strides) or 1 in shape


def stand_in(module: str, **attributes: Any) -> Any:
    return type("Array", (), {"__module__": module, **attributes})()


def test_pytorch_tensors_are_read_by_their_attributes() -> None:
    tensor = stand_in(
        "torch", data_ptr=lambda self: 0x1000, shape=(4, 8), stride=lambda self: (16, 1), dtype="torch.bfloat16",
        is_cuda=True, device=SimpleNamespace(index=1),
    )  # fmt: skip
    reader = reader_of(tensor, "a")
    assert reader.library == "torch"
    assert reader.view(tensor, "a") == View(0x1000, "bf16", (4, 8), (16, 1), 1)
    assert reader.key(tensor) == (0x1000, (4, 8), (16, 1), "torch.bfloat16")


def test_cupy_arrays_are_read_by_their_attributes() -> None:
    array = stand_in(
        "cupy", data=SimpleNamespace(ptr=0x2000), shape=(4, 8), strides=(32, 2), dtype=np.dtype(np.float16),
        device=SimpleNamespace(id=0),
    )  # fmt: skip
    assert reader_of(array, "a").view(array, "a") == View(0x2000, "f16", (4, 8), (16, 1), 0)


def test_jax_arrays_may_be_read_and_not_written() -> None:
    array = np.zeros((2, 2), np.float32)
    exporter = Exporter(array, (dlpack.CUDA, 0), "f32")
    jax = type("ArrayImpl", (), {
        "__module__": "jaxlib._jax",
        "__dlpack__": lambda self, **given: exporter.__dlpack__(**given),
        "__dlpack_device__": lambda self: exporter.__dlpack_device__(),
    })()  # fmt: skip
    view = reader_of(jax, "a").view(jax, "a")
    assert view.read_only
    assert (view.type, view.shape, view.strides) == ("f32", (2, 2), (2, 1))


def refusal(array: Any) -> str:
    with pytest.raises(WrongArray) as error:
        reader_of(array, "a").view(array, "a")
    return str(error.value)


def test_what_is_no_array_on_a_gpu_is_told() -> None:
    assert refusal([1, 2]) == (
        "a is no array: list has neither __dlpack__ nor __cuda_array_interface__; "
        "give an array of PyTorch, CuPy, JAX or NumPy"
    )
    assert refusal(np.zeros(3, np.complex64)) == (
        "a has elements of type complex64, which no kernel takes; known: float64, float32, float16, bfloat16, "
        "float8_e4m3fn, float8_e5m2, int32, uint32, int8, uint8"
    )
    tensor = stand_in("torch", is_cuda=False, device="cpu")
    assert refusal(tensor) == "a is a PyTorch tensor on cpu; move it to the GPU with .cuda()"
    host = Exporter(np.zeros(3, np.float32), (dlpack.CPU, 0), "f32")
    assert refusal(host) == "a is not on a GPU (DLPack device type 1); move it there first"
    odd = SimpleNamespace(
        __cuda_array_interface__={"shape": (2,), "typestr": "<f4", "data": (64, False), "strides": (6,), "version": 3}
    )
    assert refusal(odd) == "a has neighbours (6,) bytes apart, not whole elements of 4"


def test_a_type_that_no_kernel_has_is_named_by_its_code() -> None:
    capsule = np.zeros(3, np.complex64).__dlpack__()
    found = dlpack.read_capsule(capsule)
    assert (found.type, found.type_words) == ("", "DLPack type 5 of 64 bits x 1")
