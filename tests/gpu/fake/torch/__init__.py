"""As much of PyTorch as the call's table uses, on NumPy and the memory of the driver of a rehearsal.

Tensors that a kernel of ours may touch lie in the fake driver's memory; every operation takes its time on its clock.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from rehearsal_cuda import _gpu

from . import cuda as cuda

__version__ = "0 (a stand-in)"
float32, float64, float16, bfloat16, uint8, int8, int32 = (
    np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.uint8, np.int8, np.int32)
)
_OPERATION_S = 5e-5


class Generator:
    def __init__(self, device: str) -> None:
        self.rng = np.random.default_rng()

    def manual_seed(self, seed: int) -> Generator:
        self.rng = np.random.default_rng(seed)
        return self


class Tensor:
    """An array; `address` is that of its first element in the driver's memory, 0 where it has none."""

    def __init__(self, array: Any, address: int = 0) -> None:
        self.array, self.address = np.asarray(array), address

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def T(self) -> Tensor:
        return Tensor(self.array.T, self.address)

    def stride(self, axis: int) -> int:
        return self.array.strides[axis] // self.array.itemsize

    def data_ptr(self) -> int:
        if not self.address:
            raise RuntimeError("this tensor is not in the memory of the device")
        return self.address

    def to(self, kind: Any) -> Tensor:
        return Tensor(self.array.astype(kind))

    def double(self) -> Tensor:
        return self.to(float64)

    def abs(self) -> Tensor:
        return Tensor(np.abs(self.array))

    def clamp_min(self, least: float) -> Tensor:
        return Tensor(np.maximum(self.array, least))

    def sum(self) -> Tensor:
        return Tensor(self.array.sum())

    def max(self) -> Tensor:
        return Tensor(self.array.max())

    def item(self) -> Any:
        return self.array.item()

    def copy_(self, other: Tensor) -> Tensor:
        return self._write(lambda: other.array)

    def fill_(self, value: float) -> Tensor:
        return self._write(lambda: value)

    def relu_(self) -> Tensor:
        return self._write(lambda: np.maximum(self.array, 0))

    def add_(self, other: Tensor, alpha: float = 1.0) -> Tensor:
        return self._write(lambda: self.array.astype(np.float32) + other.array.astype(np.float32) * alpha)

    def _write(self, values: Any) -> Tensor:
        """In the order of the current stream, now or whenever its graph runs."""
        cuda.check()

        def work() -> None:
            self.array[...] = values()
            _gpu.now += _OPERATION_S * max(1 + _gpu.noise * _gpu.rng.standard_normal(), 0.5)

        _gpu._put(cuda.current(), work, work)
        return self

    def __matmul__(self, other: Tensor) -> Tensor:
        return Tensor(self.array @ other.array)

    def __add__(self, other: Any) -> Tensor:
        return Tensor(self.array + _of(other))

    def __sub__(self, other: Any) -> Tensor:
        return Tensor(self.array - _of(other))

    def __mul__(self, other: Any) -> Tensor:
        return Tensor(self.array * _of(other))

    def __truediv__(self, other: Any) -> Tensor:
        return Tensor(self.array / _of(other))

    def __le__(self, other: Any) -> Tensor:
        return Tensor(self.array <= _of(other))

    def __invert__(self) -> Tensor:
        return Tensor(~self.array)


def _of(value: Any) -> Any:
    return value.array if isinstance(value, Tensor) else value


def _allocate(shape: tuple[int, ...], kind: Any) -> Tensor:
    cuda.check()
    count = int(np.prod(shape))
    _, address = _gpu.cuMemAlloc(max(count * kind.itemsize, 1))
    return Tensor(_gpu.allocations[address].bytes.view(kind)[:count].reshape(shape), address)


def full(shape: Any, value: float, device: str, dtype: Any) -> Tensor:
    return _allocate(tuple(shape), dtype).fill_(value)


def zeros(size: int, device: str) -> Tensor:
    return full((size,), 0, device, float32)


def randn(shape: Any, device: str, dtype: Any, generator: Generator) -> Tensor:
    return Tensor(generator.rng.standard_normal(shape).astype(dtype))


def as_strided(tensor: Tensor, shape: Any, strides: Any) -> Tensor:
    size = tensor.array.itemsize
    view = np.lib.stride_tricks.as_strided(tensor.array, tuple(shape), tuple(s * size for s in strides))
    return Tensor(view, tensor.address)


def _f32(x: Tensor) -> Any:
    return x.array.astype(np.float32)


def matmul(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    return out._write(lambda: _f32(a) @ _f32(b))


def mul(x: Tensor, factor: float, out: Tensor) -> Tensor:
    return out._write(lambda: _f32(x) * factor)


def add(x: Tensor, z: Tensor, out: Tensor) -> Tensor:
    return out._write(lambda: _f32(x) + _f32(z))


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _gelu_out(x: Tensor, approximate: str, out: Tensor) -> Tensor:
    return out._write(lambda: _gelu(_f32(x)))


ops = SimpleNamespace(aten=SimpleNamespace(gelu=SimpleNamespace(out=_gelu_out)))
version = SimpleNamespace(cuda="0")
backends = SimpleNamespace(
    cuda=SimpleNamespace(matmul=SimpleNamespace(allow_bf16_reduced_precision_reduction=True))
)
nn = SimpleNamespace(functional=SimpleNamespace(gelu=lambda x, approximate: Tensor(_gelu(x.array))))
