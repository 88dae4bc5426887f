"""Arrays of any library as kernels see them: an address, a type, a shape and strides.

PyTorch and CuPy are read by their own attributes, which is quickest; JAX and all others through DLPack or
`__cuda_array_interface__`. NumPy arrays are in host memory: the call copies them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.runtime import dlpack
from tinygpu.ptx.runtime.context import Context
from tinygpu.ptx.runtime.elements import element
from tinygpu.ptx.runtime.errors import WrongArray

# Names of element types in NumPy and ml_dtypes, PyTorch ("torch." in front), CuPy and JAX.
TYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2", "int32": "s32", "uint32": "u32", "int8": "s8", "uint8": "u8",
}  # fmt: skip
_NAMES = {ours: theirs for theirs, ours in TYPES.items()} | {"tf32": "float32"}


@dataclass(frozen=True, slots=True)
class View:
    """One array.

    address     of the first element; in host memory where `host` is set
    type        element type
    strides     elements between neighbours along each axis
    gpu         number of the GPU that holds it; None where its library does not say
    host        the NumPy array, of an array in host memory
    stream      the stream on which its contents become ready, where its library says so
    read_only   whether it may not be written
    """

    address: int
    type: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    gpu: int | None = None
    host: NDArray[Any] | None = None
    stream: int | None = None
    read_only: bool = False


# What stays the same as long as a view does; quicker to have than a view.
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Reader:
    """How arrays of one Python type are read.

    library  "torch", "cupy", "jax", "numpy", "tinygpu" or "" for any other
    key      the key of an array; equal keys have equal views
    view     the view of an array
    """

    library: str
    key: Callable[[Any], Key]
    view: Callable[[Any, str], View]


class DeviceArray:
    """An array in GPU memory of our own, for PyTorch, CuPy, JAX (`from_dlpack`) and NumPy (`numpy()`).

    shape    slowest axis first
    type     element type: "bf16"
    """

    __slots__ = ("memory", "shape", "strides", "type")

    def __init__(self, context: Context, shape: tuple[int, ...], type_: str) -> None:
        kind = element(type_)
        self.shape = shape
        self.type = type_
        self.strides = dense_strides(shape)
        self.memory = context.allocate(int(np.prod(shape)) * kind.bytes, f"an array of {list(shape)} {type_}")

    @property
    def address(self) -> int:
        return self.memory.address

    def numpy(self) -> NDArray[Any]:
        """A copy in host memory; types that NumPy does not have come as the unsigned integers of their bits."""
        self.memory.context.synchronize()
        bits = self.memory.read().view(element(self.type).storage).reshape(self.shape)
        native = {"f64": np.float64, "f32": np.float32, "tf32": np.float32, "f16": np.float16, "s32": np.int32}
        native |= {"u32": np.uint32, "s8": np.int8, "u8": np.uint8}
        return bits.view(native[self.type]) if self.type in native else bits

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.memory.context.limits.ordinal

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        if stream != -1:
            self.memory.context.synchronize()
        return dlpack.make_capsule(
            self.memory, self.address, self.type, self.shape, self.strides, self.__dlpack_device__()
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.type in ("bf16", "e4m3", "e5m2"):
            raise AttributeError(f"__cuda_array_interface__ has no type {self.type}; use from_dlpack")
        kind = np.dtype(_NAMES[self.type])
        return {"shape": self.shape, "typestr": kind.str, "data": (self.address, False), "version": 3, "strides": None}

    def __repr__(self) -> str:
        return f"DeviceArray({list(self.shape)}, {self.type!r})"


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements between neighbours of an array without gaps, the last axis contiguous."""
    out = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        out[axis] = out[axis + 1] * shape[axis + 1]
    return tuple(out)


def reader_of(array: Any, where: str) -> Reader:
    """How arrays of this one's type are read. Raises WrongArray for what is no array."""
    if isinstance(array, np.ndarray):
        return Reader("numpy", _numpy_key, _numpy_view)
    if isinstance(array, DeviceArray):
        return Reader("tinygpu", _own_key, _own_view)
    library = type(array).__module__.partition(".")[0]
    if library == "torch":
        return Reader("torch", _torch_key, _torch_view)
    if library == "cupy":
        return Reader("cupy", _cupy_key, _cupy_view)
    if library in ("jax", "jaxlib"):
        return Reader("jax", _dlpack_key, _jax_view)
    if hasattr(array, "__dlpack__"):
        return Reader("", _dlpack_key, _dlpack_view)
    if hasattr(array, "__cuda_array_interface__"):
        return Reader("", _interface_key, _interface_view)
    raise WrongArray(
        f"{where} is no array: {type(array).__name__} has neither __dlpack__ nor __cuda_array_interface__; "
        "give an array of PyTorch, CuPy, JAX or NumPy"
    )


def _type_name(text: str, where: str) -> str:
    short = text.removeprefix("torch.")
    if short not in TYPES:
        raise WrongArray(f"{where} has elements of type {short}, which no kernel takes; known: {', '.join(TYPES)}")
    return TYPES[short]


def _numpy_key(a: Any) -> Key:
    # host arrays are copied, so that it does not matter where they lie
    return "host", a.shape, a.strides, a.dtype.name, a.flags.writeable


def _numpy_view(a: Any, where: str) -> View:
    strides = _elements(a.strides, a.dtype.itemsize, where)
    return View(a.ctypes.data, _type_name(a.dtype.name, where), a.shape, strides, None, a, None, not a.flags.writeable)


def _own_key(a: Any) -> Key:
    return a.memory.address, a.shape, a.type


def _own_view(a: Any, where: str) -> View:
    return View(a.address, a.type, a.shape, a.strides, a.memory.context.limits.ordinal)


def _torch_key(a: Any) -> Key:
    return a.data_ptr(), a.shape, a.stride(), a.dtype


def _torch_view(a: Any, where: str) -> View:
    if not a.is_cuda:
        raise WrongArray(f"{where} is a PyTorch tensor on {a.device}; move it to the GPU with .cuda()")
    return View(a.data_ptr(), _type_name(str(a.dtype), where), tuple(a.shape), tuple(a.stride()), a.device.index)


def _cupy_key(a: Any) -> Key:
    return a.data.ptr, a.shape, a.strides, a.dtype.char, a.dtype.name


def _cupy_view(a: Any, where: str) -> View:
    strides = _elements(a.strides, a.dtype.itemsize, where)
    return View(a.data.ptr, _type_name(a.dtype.name, where), a.shape, strides, a.device.id)


def _interface_key(a: Any) -> Key:
    found = a.__cuda_array_interface__
    return found["data"], found["shape"], found.get("strides"), found["typestr"], found.get("stream")


def _interface_view(a: Any, where: str) -> View:
    found = a.__cuda_array_interface__
    kind = np.dtype(found["typestr"])
    shape = tuple(found["shape"])
    given = found.get("strides")
    strides = dense_strides(shape) if given is None else _elements(given, kind.itemsize, where)
    address, read_only = found["data"]
    stream = found.get("stream")
    return View(address, _type_name(kind.name, where), shape, strides, None, None, stream, bool(read_only))


def _dlpack_key(a: Any) -> Key:
    described = dlpack.read_capsule(a.__dlpack__(stream=1))  # 1: its contents are ready for the default stream
    return described.address, described.shape, described.strides, described.type, described.device_id


def _dlpack_view(a: Any, where: str) -> View:
    device_type = a.__dlpack_device__()[0]
    if device_type not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        raise WrongArray(f"{where} is not on a GPU (DLPack device type {int(device_type)}); move it there first")
    found = dlpack.read_capsule(a.__dlpack__(stream=1))
    if not found.type:
        raise WrongArray(f"{where} has elements of {found.type_words}, which no kernel takes")
    return View(found.address, found.type, found.shape, found.strides, found.device_id)


def _jax_view(a: Any, where: str) -> View:
    return replace(_dlpack_view(a, where), read_only=True)  # JAX takes it for granted that an array never changes


def _elements(strides_bytes: Any, itemsize: int, where: str) -> tuple[int, ...]:
    if any(s % itemsize for s in strides_bytes):
        raise WrongArray(f"{where} has neighbours {tuple(strides_bytes)} bytes apart, not whole elements of {itemsize}")
    return tuple(s // itemsize for s in strides_bytes)
