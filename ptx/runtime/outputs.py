"""New arrays for results, in the library that the inputs come from."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.ptx.runtime.arrays import TYPES, DeviceArray, dense_strides
from tinygpu.ptx.runtime.context import Context
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.runtime.launch import Tensor

_NAMES = {ours: theirs for theirs, ours in TYPES.items()} | {"tf32": "float32"}


def new_array(library: str, context: Context, tensor: Tensor) -> Any:
    """An array for an output: of PyTorch, CuPy or NumPy like the inputs, else a DeviceArray of our own.

    Of elements narrower than a byte it is one of the bytes that they lie in.
    """
    if tensor.element.bits < 8:
        bits = tensor.element.bits
        shape = tuple(n * bits // 8 if step == 1 else n for n, step in zip(tensor.shape, tensor.strides, strict=True))
        strides = tuple(max(step * bits // 8, 1) for step in tensor.strides)
        tensor = replace(tensor, type="u8", shape=shape, strides=strides)
    name = _NAMES[tensor.type]
    if library == "torch":
        torch = importlib.import_module("torch")
        device = torch.device("cuda", context.limits.ordinal)
        return torch.empty_strided(tensor.shape, tensor.strides, dtype=getattr(torch, name), device=device)
    if tensor.strides != dense_strides(tensor.shape):
        raise WrongArray(f"{tensor.name} is not row-major without gaps; give it with out=...")
    if library == "cupy" and name in np.sctypeDict:
        return importlib.import_module("cupy").empty(tensor.shape, dtype=name)
    if library == "numpy":
        return np.empty(tensor.shape, dtype=_numpy_type(name, tensor))
    return DeviceArray(context, tensor.shape, tensor.type)


def _numpy_type(name: str, tensor: Tensor) -> Any:
    if name in np.sctypeDict:
        return np.dtype(name)
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except ImportError:
        raise WrongArray(f"{tensor.name} is {name}, which NumPy has only with the package ml_dtypes") from None
