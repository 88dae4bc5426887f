"""Argument buffers: what the driver reads through the pointers is what was put in, aligned as PTX declares it."""

import ctypes
import struct
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.runtime.arguments import ArgumentBuffer
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.runtime.launch import Argument, Launch, Map, Tensor

TENSOR = Tensor("t", "f16", (64, 64), (64, 1), 256, "in")
MAP = Map("t", "f16", (64, 64), (128,), (32, 8), 64)
SIZES = {"address": 8, "map": 128}
FORMATS = {"u32": "<I", "s32": "<i", "f32": "<f", "u64": "<Q"}

kinds = st.sampled_from(["address", "map", "u32", "s32", "f32", "u64"])


@settings(max_examples=60)
@given(st.lists(kinds, max_size=12), st.integers(0, 2**32))
def test_every_argument_is_read_back_through_its_pointer(words: list[str], seed: int) -> None:
    fake = FakeCuda()
    context = open_context(Driver(fake))
    memory = context.allocate(8192)
    rng = np.random.default_rng(seed)
    arguments, expected = [], []
    for number, word in enumerate(words):
        if word == "address":
            arguments.append(Argument("address", "t"))
            expected.append(struct.pack("<Q", memory.address))
        elif word == "map":
            arguments.append(Argument("map", f"m{number}", map=0))
            expected.append(None)
        elif word in ("s32", "f32"):
            arguments.append(Argument("scalar", f"s{number}", word))
            value = float(rng.integers(-1000, 1000))
            expected.append(struct.pack(FORMATS[word], int(value) if word == "s32" else value))
        else:
            value = int(rng.integers(0, 2**32))
            arguments.append(Argument("number", f"n{number}", word, value))
            expected.append(struct.pack(FORMATS[word], value))
    maps = (MAP,) if "map" in words else ()
    launch = Launch("k", "sm_90", 1, 32, 1, 0, tuple(arguments), (TENSOR,), maps)
    buffer = ArgumentBuffer(context.driver, launch, {"t": memory.address})
    for number, word in enumerate(words):
        if word in ("s32", "f32"):
            wanted = struct.unpack(FORMATS[word], expected[number] or b"")[0]
            buffer.set_scalar(f"s{number}", wanted)
    pointers = (ctypes.c_uint64 * max(len(words), 1)).from_address(buffer.address)
    for number, word in enumerate(words):
        size = SIZES.get(word) or struct.calcsize(FORMATS[word])
        align = 64 if word == "map" else size
        assert pointers[number] % align == 0
        data = ctypes.string_at(pointers[number], size)
        if word == "map":
            assert int.from_bytes(data[:8], "little") == len(fake.maps)
        else:
            assert data == expected[number]


def one_scalar(word: str) -> tuple[ArgumentBuffer, Any]:
    context = open_context(Driver(FakeCuda()))
    launch = Launch("k", "sm_80", 1, 32, 1, 0, (Argument("scalar", "s", word),), ())
    buffer = ArgumentBuffer(context.driver, launch, {})

    def read() -> Any:
        place = ctypes.c_uint64.from_address(buffer.address).value
        return struct.unpack(FORMATS[word], ctypes.string_at(place, 4))[0]

    return buffer, read


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), np.float32(3), np.float64(3)])
@pytest.mark.parametrize("word", ["u32", "s32", "f32"])
def test_numbers_of_python_and_numpy_are_taken(word: str, value: Any) -> None:
    buffer, read = one_scalar(word)
    buffer.set_scalar("s", value)
    assert read() == 3


@pytest.mark.parametrize(
    ("word", "value", "sentence"),
    [
        ("u32", -1, "s is a number of type u32, not -1"),
        ("u32", 2**32, "s is a number of type u32, not 4294967296"),
        ("s32", 0.5, "s is a number of type s32, not 0.5"),
        ("f32", "half", "s is a number of type f32, not 'half'"),
        ("u32", None, "s is a number of type u32, not None"),
        ("f32", 1e300, "s is a number of type f32, not 1e+300"),
    ],
)
def test_what_a_parameter_does_not_hold_is_refused(word: str, value: Any, sentence: str) -> None:
    buffer, _ = one_scalar(word)
    with pytest.raises(WrongArray) as error:
        buffer.set_scalar("s", value)
    assert str(error.value) == sentence
