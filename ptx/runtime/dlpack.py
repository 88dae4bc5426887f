"""DLPack: how array libraries hand arrays to each other. Read from a capsule, and made into one.

Source of the structures and codes: dmlc/dlpack, dlpack.h (DLManagedTensor, DLDeviceType, DLDataTypeCode).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from tinygpu.ptx.runtime.elements import element

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_NAME, _USED = b"dltensor", b"used_dltensor"
# (code, bits) of each element type
_CODES = {
    "s8": (0, 8), "s32": (0, 32), "u8": (1, 8), "u32": (1, 32), "f16": (2, 16), "f32": (2, 32), "f64": (2, 64),
    "bf16": (4, 16), "e4m3": (10, 8), "e5m2": (12, 8),
}  # fmt: skip
_TYPES = {code: name for name, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_valid = ctypes.pythonapi.PyCapsule_IsValid
_valid.restype, _valid.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)
# while a capsule is being destroyed there is no reference to it, only its address
_on_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_dying = _on_address(("PyCapsule_GetPointer", ctypes.pythonapi))
_incref = ctypes.pythonapi.Py_IncRef
_incref.restype, _incref.argtypes = None, (ctypes.py_object,)
_decref = ctypes.pythonapi.Py_DecRef
_decref.restype, _decref.argtypes = None, (ctypes.py_object,)


@dataclass(frozen=True, slots=True)
class Described:
    """What a capsule says.

    address      of the first element
    type         element type; "" for one that no kernel has, which `type_words` then names
    strides      elements between neighbours
    device_type  CPU, CUDA ...
    """

    address: int
    type: str
    type_words: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device_type: int
    device_id: int


def read_capsule(capsule: Any) -> Described:
    """What the array in a DLPack capsule is; the capsule stays as it was, and its array with whoever owns it."""
    tensor = ctypes.cast(_pointer(capsule, _NAME), ctypes.POINTER(_Managed)).contents.tensor
    rank = tensor.ndim
    shape = tuple(tensor.shape[i] for i in range(rank))
    dense = [1] * rank
    for axis in reversed(range(rank - 1)):
        dense[axis] = dense[axis + 1] * shape[axis + 1]
    strides = tuple(tensor.strides[i] for i in range(rank)) if tensor.strides else tuple(dense)
    kind = _TYPES.get((tensor.code, tensor.bits), "") if tensor.lanes == 1 else ""
    words = f"DLPack type {tensor.code} of {tensor.bits} bits x {tensor.lanes}"
    address = (tensor.data or 0) + tensor.byte_offset
    return Described(address, kind, words, shape, strides, tensor.device_type, tensor.device_id)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """What a capsule's consumer needs until it calls the deleter."""

    owner: Any
    managed: _Managed
    shape: Any
    strides: Any


def make_capsule(
    owner: Any, address: int, type_: str, shape: tuple[int, ...], strides: tuple[int, ...], device: tuple[int, int]
) -> Any:
    """A DLPack capsule over memory that `owner` keeps alive.

    strides  elements
    device   (device type, device id)
    """
    code, bits = _CODES["f32" if type_ == "tf32" else element(type_).name]
    rank = len(shape)
    extents, steps = (ctypes.c_int64 * rank)(*shape), (ctypes.c_int64 * rank)(*strides)
    managed = _Managed()
    managed.tensor = _Tensor(address, device[0], device[1], rank, code, bits, 1, extents, steps, 0)
    held = _Held(owner, managed, extents, steps)
    managed.context = id(held)
    managed.deleter = _release
    _incref(held)
    return _new(ctypes.addressof(managed), _NAME, ctypes.cast(_destroy, ctypes.c_void_p))


def _let_go(managed: Any) -> None:
    """Called by the consumer when it is done."""
    _decref(ctypes.cast(managed.contents.context, ctypes.py_object).value)


def _close(capsule: int) -> None:
    """Called when a capsule goes; one that was consumed has another name, and belongs to its consumer."""
    if _valid(capsule, _NAME):
        managed = ctypes.cast(_dying(capsule, _NAME), ctypes.POINTER(_Managed))
        managed.contents.deleter(managed)


# Made once: the library on the other side keeps their addresses.
_release = _Deleter(_let_go)
_destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_close)
