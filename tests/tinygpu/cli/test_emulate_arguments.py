"""Kernel arguments as they are typed: what each way of writing gives, and what is refused."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.api.arguments import DTYPES, ArgumentError, read_arguments
from tinygpu.files import FileError
from tinygpu.ptx.emulator import DeviceBuffer, LaunchError, SparseBuffer, TensorMap
from tinygpu.ptx.emulator.source.parser import parse
from tinygpu.ptx.emulator.source.syntax import Function


def kernel(*parameters: str) -> Function:
    listed = ", ".join(f".param {p}" for p in parameters)
    text = f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k({listed})\n{{\nret;\n}}\n"
    return parse(text).functions[0]


POINTER = kernel(".u64 x")
TWO = kernel(".u64 x", ".u32 n")


def array(spec: str, seed: int = 0) -> Any:
    (value,) = read_arguments(POINTER, [f"x={spec}"], seed).values
    assert isinstance(value, DeviceBuffer)
    return value.array


def refusal(function: Function, words: list[str]) -> str:
    with pytest.raises((ArgumentError, FileError)) as caught:
        read_arguments(function, words)
    return str(caught.value)


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(st.sampled_from(sorted(DTYPES)), shapes, st.integers(0, 99))
def test_every_type_fills_every_shape(name: str, shape: list[int], seed: int) -> None:
    text = f"{name}[{','.join(map(str, shape))}]"
    dtype = np.dtype(DTYPES[name])
    for fill in ("zeros", "ones", "arange", "random", "empty"):
        found = array(f"{fill}:{text}", seed)
        assert (found.dtype, found.shape) == (dtype, tuple(shape))
    # Bytes, because not every type has a zero, and NaN is no number.
    assert array(f"random:{text}", seed).tobytes() == array(f"random:{text}", seed).tobytes()
    assert array(f"zeros:{text}").tobytes() == np.zeros(shape, dtype).tobytes()
    assert array(f"ones:{text}").tobytes() == np.ones(shape, dtype).tobytes()
    assert array(f"arange:{text}").tobytes() == np.arange(int(np.prod(shape))).astype(dtype).tobytes()


@given(st.sampled_from(["f16", "f32", "bf16", "s8", "s64"]), st.integers(-9, 9), st.integers(0, 9))
def test_integers_lie_in_their_range(name: str, low: int, more: int) -> None:
    found = array(f"integers:{name}[64][{low}..{low + more}]").astype(np.float64)
    assert set(found) <= set(range(low, low + more + 1))


def test_random_contents_depend_on_the_seed_and_the_place() -> None:
    two = kernel(".u64 x", ".u64 y")
    first, second = (v.array for v in read_arguments(two, ["random:f32[99]", "random:f32[99]"], 3).values)
    assert (first != second).any()
    assert (first != array("random:f32[99]", 4)).any()
    np.testing.assert_array_equal(first, array("random:f32[99]", 3))


def test_only_empty_counts_as_uninitialised() -> None:
    assert read_arguments(POINTER, ["empty:f32[4]"]).values[0].initialised is False
    assert read_arguments(POINTER, ["zeros:f32[4]"]).values[0].initialised is True


@pytest.mark.parametrize(
    ("parameter", "spec", "value"),
    [
        (".u32 n", "1024", 1024), (".u32 n", "0x10", 16), (".s32 n", "-3", -3), (".f32 n", "0.5", 0.5),
        (".b32 n", "0.5", 0.5), (".u32 n", "1_000", 1000), (".u32 n", "i32:-7", np.int32(-7)),
        (".u32 n", "u32:4294967295", np.uint32(4294967295)), (".f32 n", "f32:1e-3", np.float32(1e-3)),
        (".f32 n", "f32:1", np.float32(1)), (".b16 n", "bf16:1.5", ml_dtypes.bfloat16(1.5)), (".f32 n", "inf", np.inf),
        (".u64 n", "null", 0), (".align 4 .b8 n[4]", "bytes:00ff01", b"\x00\xff\x01"),
    ],
)  # fmt: skip
def test_scalars(parameter: str, spec: str, value: Any) -> None:
    (found,) = read_arguments(kernel(parameter), [f"n={spec}"]).values
    assert found == value
    assert type(found) is type(value)


def test_files(tmp_path: Path) -> None:
    stored = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", stored)
    np.testing.assert_array_equal(array(f"{tmp_path}/x.npy"), stored)
    halves = stored.astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "h.npy", halves)
    np.testing.assert_array_equal(array(f"bf16:{tmp_path}/h.npy"), halves)
    (tmp_path / "bad.npy").write_text("no array")
    none = f"{tmp_path}/none.npy"
    assert refusal(POINTER, [none]) == f"{none} cannot be read: No such file or directory"
    assert refusal(POINTER, [f"{tmp_path}/bad.npy"]).startswith(f"{tmp_path}/bad.npy is no NumPy file: ")
    assert refusal(POINTER, [f"f64:{tmp_path}/x.npy"]) == (f"x: {tmp_path}/x.npy has elements of 4 bytes, f64 has 8")


def test_names_of_parameters_put_arguments_in_place_and_all_others_go_in_order() -> None:
    three = kernel(".u64 x", ".u64 y", ".u32 n")
    found = read_arguments(three, ["n=7", "y=zeros:f32[2]", "any=ones:f32[3]"])
    assert [getattr(v, "array", v) is v for v in found.values] == [False, False, True]
    assert found.values[0].array.shape == (3,)
    assert found.values[1].array.shape == (2,)
    assert found.values[2] == 7
    assert found.array("any") is found.values[0].array
    assert found.array("y") is found.values[1].array


def test_a_pointer_into_another_argument() -> None:
    two = kernel(".u64 x", ".u64 y")
    x, y = read_arguments(two, ["x=pointer:y+8", "y=zeros:f32[4]"]).values
    assert x.array is y.array
    assert x.offset == 8


def test_a_tensor_map_over_another_argument_or_over_its_own_array() -> None:
    function = kernel(".align 64 .b8 m[128]", ".u64 a")
    spec = "m=tensormap:a box=64,16 swizzle=128B oob=nan"
    m, a = read_arguments(function, [spec, "a=random:f16[32,64]"]).values
    assert isinstance(m, TensorMap)
    assert m.buffer is a
    assert bytes(m) == bytes(TensorMap(a, (64, 16), swizzle="128B", oob="nan"))
    alone = read_arguments(kernel(".align 64 .b8 m[128]"), ["a=tensormap:zeros:f16[32,64] box=64,16"])
    assert alone.array("a").shape == (32, 64)


def test_a_sparse_array_has_windows_at_both_ends() -> None:
    (found,) = read_arguments(POINTER, ["sparse:f32[65536,65536] windows=-64..,0..32 fill=ones"]).values
    assert isinstance(found, SparseBuffer)
    assert found.size_bytes == 4 << 32
    assert sorted(found.regions) == [0, (4 << 32) - 256]
    np.testing.assert_array_equal(found.regions[0], np.ones(32, np.float32))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["x=zeros:f32[4]"],
            "k takes 2 arguments: x (.u64: 8 bytes, a pointer or a number), n (.u32: 4 bytes); give n with --arg, as "
            "in --arg n=...",
        ),
        (
            ["n=1"],
            "k takes 2 arguments: x (.u64: 8 bytes, a pointer or a number), n (.u32: 4 bytes); give x with --arg, as "
            "in --arg x=...",
        ),
        (
            ["1", "2", "3"],
            "k takes 2 arguments: x (.u64: 8 bytes, a pointer or a number), n (.u32: 4 bytes); 3 were given",
        ),
        (["x=1", "x=2"], "--arg gives x twice"),
        (["x=", "1"], "--arg takes name=value, as in a=zeros:f32[256], not 'x='"),
        (
            ["x=zeros:f33[4]", "1"],
            "x: there is no type 'f33'; there are f64, f32, tf32, f16, bf16, e4m3, e5m2, ue8m0, s8, s16, s32, s64, u8, "
            "u16, u32, u64",
        ),
        (
            ["x=noise:f32[4]", "1"],
            "x: nothing fills an array with 'noise'; there are zeros, empty, ones, arange, integers, random",
        ),
        (["x=zeros:f32[4,0]", "1"], "x: [4,0] is no shape; shapes are sizes from 1 on, as in [256,256]"),
        (["x=zeros:f32[]", "1"], "x: [] is no shape; shapes are sizes from 1 on, as in [256,256]"),
        (
            ["x=zeros f32[4]", "1"],
            "x: 'zeros f32[4]' is no array; arrays are written random:f16[256,256], with zeros, ones, arange, empty or "
            "integers:f16[256][-3..3] in front",
        ),
        (
            ["x=zeros:f32[4][0..1]", "1"],
            "x: 'zeros:f32[4][0..1]' says a range of numbers where it must not, or none where it must: only integers "
            "take one, as in integers:f16[256][-3..3]",
        ),
        (
            ["x=integers:f32[4]", "1"],
            "x: 'integers:f32[4]' says a range of numbers where it must not, or none where it must: only integers take "
            "one, as in integers:f16[256][-3..3]",
        ),
        (["x=integers:u8[4][-1..3]", "1"], "x: u8 holds no integers from -1 to 3"),
        (["x=integers:f32[4][3..1]", "1"], "x: f32 holds no integers from 3 to 1"),
        (
            ["x=zeros:f64[9999999,9999999,9999999]", "1"],
            "x: 'zeros:f64[9999999,9999999,9999999]' does not fit this machine's memory; a sparse array does, as in "
            "sparse:f64[9999999,9999999,9999999] windows=0..64,-64..",
        ),
        (["null", "n=u8:256"], "n: 256 is no u8, which holds 0 to 255"),
        (["null", "n=s32:0.5"], "n: 0.5 is no s32, which holds -2147483648 to 2147483647"),
        (["null", "n=0.5"], "n (.u32: 4 bytes) takes a whole number, not 0.5"),
        (
            ["null", "n=many"],
            "n: 'many' is no argument; arrays are written random:f16[256,256], scalars f32:0.5 or 1024, files x.npy, "
            "tensor maps tensormap:a box=64,128",
        ),
        (["null", "n=bytes:0g"], "n: '0g' are no bytes; they are written in hexadecimal, as bytes:00ff"),
        (
            ["x=pointer:y", "1"],
            "x: 'pointer:y' is no pointer; pointers are written pointer:a or pointer:a+256, where a is an argument "
            "with an array",
        ),
        (
            ["x=tensormap:y box=4", "1"],
            "x: there is no argument 'y' with an array for a tensor map; there are none",
        ),
        (
            ["x=tensormap:zeros:f32[4] box=4,a", "1"],
            "x: box of a tensor map takes whole numbers, as in box=64, not '4,a'",
        ),
        (
            ["x=sparse:f32[99]", "1"],
            "x: 'sparse:f32[99]' is no sparse array; they are written sparse:f32[2147483648] windows=0..64,-64.. with "
            "the elements that exist",
        ),
        (
            ["x=sparse:f32[99] windows=0..100", "1"],
            "x: '0..100' is no window of 99 elements; windows are written 0..64, or -64.. for the last 64",
        ),
        (["x=sparse:f32[99] windows=0..10,5..20", "1"], "x: the windows 0..10,5..20 overlap"),
        (
            ["x=sparse:f32[99] windows=0..10 fill=arange", "1"],
            "x: windows of a sparse array are filled with zeros, ones or random, not 'arange'",
        ),
        (["x=sparse:f32[99] window=0..10", "1"], "x: 'window=0..10' is no option here; there are windows=, fill="),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(words: list[str], sentence: str) -> None:
    assert refusal(TWO, words) == sentence


def test_only_arrays_can_be_saved() -> None:
    found = read_arguments(TWO, ["x=zeros:f32[4]", "n=1"])
    with pytest.raises(ArgumentError, match=re.escape("no argument called 'n' is an array; there are x")):
        found.array("n")


@given(st.text(max_size=30))
def test_no_text_is_anything_but_an_argument_or_a_refusal(text: str) -> None:
    with suppress(ArgumentError, LaunchError):
        assert len(read_arguments(POINTER, [text]).values) == 1
