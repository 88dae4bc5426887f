"""Tensor maps: what the checks refuse is what the encoder refuses, and each refusal is a sentence."""

from dataclasses import replace

import pytest
from fake_cuda import FakeCuda, real
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.errors import CudaError, LaunchRefused
from tinygpu.ptx.runtime.launch import Map
from tinygpu.ptx.runtime.tensor_maps import TYPES, check_map, encode_map

SAME = {
    "e4m3": "u8", "s8": "u8", "tf32": "f32", "e2m1": "16u4_align16b", "e2m3": "16u6_align16b", "e3m2": "16u6_align16b",
}  # fmt: skip
NAMES = {(0, 16): "none", (32, 16): "32B", (64, 16): "64B", (128, 16): "128B", (128, 32): "128B_ATOM_32B"}
PADDED = Map("a", "e2m3", (256, 512), (192,), (128, 64), 128)
GOOD = Map("a", "bf16", (4096, 512), (8192,), (64, 128), 128)


@st.composite
def maps(draw: st.DrawFn) -> Map:
    rank = draw(st.integers(1, 5))
    type_ = draw(st.sampled_from(["f32", "f16", "bf16", "e4m3", "s8", "f64", "tf32", "e2m1", "e2m3", "e3m2"]))
    dims = tuple(draw(st.integers(1, 300) | st.sampled_from([128, 256])) for _ in range(rank))
    strides = tuple(draw(st.sampled_from([16, 32, 8, 128, 4096, 1 << 40])) for _ in range(rank - 1))
    box = tuple(draw(st.sampled_from([1, 8, 16, 32, 64, 128, 256, 257])) for _ in range(rank))
    return Map("a", type_, dims, strides, box, *draw(st.sampled_from(sorted(NAMES))))


@given(maps(), st.sampled_from([0, 8, 16, 64]))
def test_the_checks_refuse_what_the_encoder_refuses(made: Map, offset: int) -> None:
    fake = FakeCuda()
    context = open_context(Driver(fake))
    memory = context.allocate(1 << 16)
    address = memory.address + offset
    seen = {
        "address": address, "dtype": SAME.get(made.type, made.type),
        "dims": made.dims, "strides": made.strides_bytes, "box": made.box,
        "swizzle": NAMES[made.swizzle_bytes, made.atom_bytes],
    }  # fmt: skip
    from tinygpu.ptx.emulator import LaunchError

    try:
        fake._map(seen)
        refused = False
    except LaunchError:
        refused = True
    try:
        check_map(made, address)
    except LaunchRefused:
        assert refused
    else:
        assert not refused
        plain = encode_map(context.driver, made, address)
        assert fake.maps[-1] == seen
        # a driver to which the bindings' own memory is not aligned is handed memory that is, and the same values
        fake.aligned_maps = True
        aligned = encode_map(context.driver, made, address)
        assert fake.maps[-1] == seen
        assert (len(plain), plain[8:]) == (128, aligned[8:])


@pytest.mark.parametrize(
    ("made", "address", "sentence"),
    [
        (GOOD, 0x1008, "its address 0x1008 is not a multiple of 16 bytes"),
        (
            replace(GOOD, strides_bytes=(8200,)),
            0,
            "neighbours are 8,200 bytes apart, and TMA takes multiples of 16 below 2^40",
        ),
        (replace(GOOD, box=(64, 512)), 0, "a box has 512 elements along a dimension, and tensor maps take 1 to 256"),
        (replace(GOOD, box=(4, 8)), 0, "a box is 8 bytes wide, and TMA takes multiples of 16"),
        (replace(GOOD, box=(128, 8)), 0, "a box is 256 bytes wide, more than its swizzle of 128"),
        (replace(GOOD, swizzle_bytes=256), 0, "there is no swizzle of 256 bytes; there are 0, 32, 64, 128"),
        (
            replace(GOOD, dims=(1 << 33, 1)),
            0,
            "a dimension has 8,589,934,592 elements, and tensor maps have 1 to 4,294,967,296",
        ),
        (replace(GOOD, dims=()), 0, "it has 0 dimensions, and tensor maps have 1 to 5"),
        (
            replace(GOOD, swizzle_bytes=64, box=(32, 8), atom_bytes=32),
            0,
            "no swizzle of 64 bytes leaves 32 together; there are those that leave 16",
        ),
        (replace(GOOD, type="u4"), 0, f"its elements are u4, and tensor maps have {', '.join(TYPES)}"),
        (PADDED, 0x1010, "its address 0x1010 is not a multiple of 32 bytes"),
        (
            replace(PADDED, strides_bytes=(208,)),
            0,
            "neighbours are 208 bytes apart, and TMA takes multiples of 32 below 2^40",
        ),
        (
            replace(PADDED, dims=(192, 512)),
            0,
            "its rows have 192 elements, and TMA pads e2m3 of rows of multiples of 128",
        ),
        (replace(PADDED, box=(64, 64)), 0, "a box has 64 elements along a row, and TMA pads e2m3 in boxes of 128"),
        (
            replace(PADDED, swizzle_bytes=64),
            0,
            "it has a swizzle of 64 bytes, and TMA pads e2m3 under none or one of 128",
        ),
    ],
)
def test_a_map_that_cannot_be_is_refused_with_the_reason(made: Map, address: int, sentence: str) -> None:
    with pytest.raises(LaunchRefused) as error:
        check_map(made, address)
    assert str(error.value) == f"TMA cannot move a: {sentence}"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (PADDED, {"dtype": "16u6_align16b", "swizzle": "128B"}),
        (replace(PADDED, type="e3m2", swizzle_bytes=0), {"dtype": "16u6_align16b", "swizzle": "none"}),
        (replace(PADDED, type="e2m1", atom_bytes=32), {"dtype": "16u4_align16b", "swizzle": "128B_ATOM_32B"}),
        (replace(GOOD, type="tf32", box=(32, 8), atom_bytes=32), {"dtype": "f32", "swizzle": "128B_ATOM_32B"}),
    ],
)
def test_padded_elements_and_larger_atoms_are_told_to_the_driver(made: Map, words: dict[str, str]) -> None:
    fake = FakeCuda()
    context = open_context(Driver(fake))
    memory = context.allocate(1 << 24)
    encode_map(context.driver, made, memory.address)
    assert fake.maps[-1].items() >= words.items()


def test_what_the_driver_itself_refuses_for_good_is_told() -> None:
    fake = FakeCuda(aligned_maps=True)
    fake._encode = lambda *asked: (real.CUresult.CUDA_ERROR_NOT_SUPPORTED, None)  # type: ignore[method-assign]
    with pytest.raises(CudaError) as error:
        encode_map(Driver(fake), GOOD, 0)
    assert str(error.value) == "cuTensorMapEncodeTiled returned CUDA_ERROR_NOT_SUPPORTED"


def test_a_driver_that_refuses_for_reasons_of_its_own_is_told() -> None:
    fake = FakeCuda(lost="CUDA_ERROR_ILLEGAL_ADDRESS")
    with pytest.raises(CudaError):
        encode_map(Driver(fake), GOOD, 0)
