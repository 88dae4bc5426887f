"""tcgen05.mma with scale factors, sparse A and zeroed columns: everything in one instruction, against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tcgen05_kernels import (
    CODES,
    Image,
    K,
    Tile,
    check_spelling,
    codes_of,
    descriptor,
    enable,
    in_shared,
    kernel,
    lane_words,
    one_thread,
    read_back,
    store_lanes,
)

from tinygpu.ptx.emulator import EmulationFault, UnsupportedInstruction, emulate

UE4M3 = {0.25: 0x28, 0.5: 0x30, 1.0: 0x38, 1.5: 0x3C, 2.0: 0x40, 3.0: 0x44}


def scale_codes(rng: np.random.Generator, rows: int, kind: str) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Four scale factors for each of some rows: codes and values."""
    if kind == "ue8m0":
        codes = rng.integers(124, 131, (rows, 4)).astype(np.uint8)
        return codes, np.ldexp(1.0, codes.astype(np.int64) - 127)
    values = rng.choice(sorted(UE4M3), (rows, 4))
    return np.vectorize(UE4M3.__getitem__)(values).astype(np.uint8), values


def scale_blocks(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Blocks of 128 rows x 4 scale factors, 512 bytes each, as tcgen05.cp takes them."""
    blocks = -(-codes.shape[0] // 128)
    data = np.zeros(512 * blocks, np.uint8)
    for row in range(codes.shape[0]):
        for j in range(4):
            data[512 * (row // 128) + 16 * (row % 32) + 4 * (row % 128 // 32) + j] = codes[row, j]
    return data


def copies(offset: int, blocks: int, column: int) -> str:
    """tcgen05.cp of scale factor blocks into tensor memory."""
    text = ""
    for block in range(blocks):
        text += descriptor(5, 0x0000400800000000, offset + 512 * block)
        text += f"tcgen05.cp.cta_group::1.32x128b.warpx4 [%r6+{column + 4 * block}], %rd5;\n"
    return text


SCALED = [
    ("mxf8f6f4", "e4m3", "e5m2", "", "ue8m0", 1, 3, 2), ("mxf8f6f4", "e2m3", "e2m1", "scale_vec::1X", "ue8m0", 1, 0, 1),
    ("mxf8f6f4", "e3m2", "e4m3", "block32", "ue8m0", 1, 2, 0), ("mxf4", "e2m1", "e2m1", "block32", "ue8m0", 2, 2, 0),
    ("mxf4", "e2m1", "e2m1", "scale_vec::2X", "ue8m0", 2, 0, 2),
    ("mxf4nvf4", "e2m1", "e2m1", "scale_vec::4X", "ue4m3", 4, 0, 0),
    ("mxf4nvf4", "e2m1", "e2m1", "block16", "ue8m0", 4, 0, 0),
    ("mxf4nvf4", "e2m1", "e2m1", "block32", "ue8m0", 2, 2, 2),
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.sampled(8)
@pytest.mark.parametrize("order", ["late", "random"])
@pytest.mark.parametrize("a_in_tmem", [False, True])
@pytest.mark.parametrize("n", [16, 64, 256])
@pytest.mark.parametrize(("kind", "a_type", "b_type", "block", "scale_type", "count", "ida", "idb"), SCALED)
def test_scale_factors_multiply_their_blocks(
    kind: str, a_type: str, b_type: str, block: str, scale_type: str, count: int, ida: int, idb: int, n: int,
    a_in_tmem: bool, order: Any,
) -> None:  # fmt: skip
    rng = np.random.default_rng(n + count)
    k = K[kind]
    a, b = rng.integers(-3, 4, (128, k)), rng.integers(-3, 4, (n, k))
    a_codes, a_scale = scale_codes(rng, 128, scale_type)
    b_codes, b_scale = scale_codes(rng, n, scale_type)
    image, text, lanes = Image(), "", ""
    sfa, sfb = image.add(scale_blocks(a_codes)), image.add(scale_blocks(b_codes))
    text += copies(sfa, 1, 256) + copies(sfb, -(-n // 128), 264)
    if a_in_tmem:
        words = lane_words(a, kind, a_type)
        lanes = store_lanes(280, image.add(words.view(np.uint8).reshape(-1)), 8)
        first = "[%r6+280]"
    else:
        tile = in_shared(a, kind, a_type, "32B", False)
        text += descriptor(3, tile.descriptor, image.add(tile.image()))
        first = "%rd3"
    tile = in_shared(b, kind, b_type, "64B", False)
    text += descriptor(4, tile.descriptor, image.add(tile.image()))
    word = CODES[kind][a_type] << 7 | CODES[kind][b_type] << 10 | n // 8 << 17 | (scale_type == "ue8m0") << 23
    word |= 1 << 27 | ida << 29 | idb << 4
    name = f"kind::{kind}.block_scale" + (f".{block}" if block else "")
    text += enable(5, False)
    text += f"tcgen05.mma.cta_group::1.{name} [%r6], {first}, %rd4, {word:#x}, [%r6+256], [%r6+264], %p5;\n"
    whole = kernel(lanes + one_thread(text) + read_back(n), image.data.size, 512, version="8.8")
    check_spelling(whole)
    out = np.zeros((128, n), np.float32)
    report = emulate(whole, grid=1, block=128, args=[image.data, out], order=order)
    assert report.advisories == ()
    wanted = np.zeros((128, n))
    for step in range(k):
        j = step // (k // count)
        left = a[:, step] * a_scale[:, ida + j]
        wanted += np.outer(left, b[:, step] * b_scale[:, idb + j])
    assert (out == wanted).all()


SPARSE = [("f16", "bf16"), ("tf32", "tf32"), ("i8", "s8"), ("f8f6f4", "e4m3"), ("f8f6f4", "e2m1")]
PAIRS = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110)


def metadata(indices: NDArray[np.int64], kind: str) -> NDArray[np.uint32]:
    """Indices (128 rows, chunks) as lanes of tensor memory: (128, columns) words."""
    words = np.zeros((128, 1 if kind in ("f16", "tf32") else 2), np.uint32)
    for row in range(128):
        for chunk in range(indices.shape[1]):
            if words.shape[1] == 1:
                lane, bit = row % 8 + 8 * (chunk // 4) + 16 * (row // 16), 16 * (row // 8 % 2) + 4 * (chunk % 4)
                words[lane, 0] |= np.uint32(int(indices[row, chunk]) << bit)
            else:
                words[row, chunk // 8] |= np.uint32(int(indices[row, chunk]) << 4 * (chunk % 8))
    return words


def sparse_case(kind: str, element: str, ws: bool, wrong: int | None = None) -> tuple[str, Image, NDArray[np.int64]]:
    """A kernel with sparse A of 128 rows; `wrong` replaces one index."""
    rng = np.random.default_rng(5)
    n, k = 64, 2 * K[kind]
    width = 2 if kind == "tf32" else 4
    stored = rng.integers(1, 4, (128, k // 2)) * rng.choice([-1, 1], (128, k // 2))
    b = rng.integers(-3, 4, (n, k))
    indices = rng.choice([0b0100, 0b1110] if kind == "tf32" else PAIRS, (128, k // width))
    dense = np.zeros((128, k), np.int64)
    for row in range(128):
        for chunk in range(k // width):
            index = int(indices[row, chunk])
            if kind == "tf32":
                dense[row, 2 * chunk + (index == 0b1110)] = stored[row, chunk]
            else:
                dense[row, 4 * chunk + (index & 3)] = stored[row, 2 * chunk]
                dense[row, 4 * chunk + (index >> 2)] = stored[row, 2 * chunk + 1]
    if wrong is not None:
        indices[77, 1] = wrong
    words = metadata(indices, kind)
    image = Image()
    lanes = store_lanes(256, image.add(words.view(np.uint8).reshape(-1)), words.shape[1])
    text = ""
    tile = in_shared(stored, kind, element, "128B", False)
    text += descriptor(3, tile.descriptor, image.add(tile.image()))
    tile = in_shared(b, kind, element, "128B", False)
    text += descriptor(4, tile.descriptor, image.add(tile.image()))
    code = CODES[kind][element]
    word = 4 | (2 if kind == "i8" else 1) << 4 | code << 7 | code << 10 | n // 8 << 17 | 8 << 24
    text += enable(5, False)
    name = f"tcgen05.mma{'.ws' if ws else ''}.sp.cta_group::1.kind::{kind}"
    text += f"{name} [%r6], %rd3, %rd4, [%r6+256], {word:#x}, %p5;\n"
    return kernel(lanes + one_thread(text) + read_back(n), image.data.size, 512), image, dense @ b.T


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ws", [False, True])
@pytest.mark.parametrize(("kind", "element"), SPARSE)
def test_stored_elements_of_a_sparse_a_meet_the_right_elements_of_b(kind: str, element: str, ws: bool) -> None:
    text, image, wanted = sparse_case(kind, element, ws)
    check_spelling(text)
    out = np.zeros((128, 64), np.int32 if kind == "i8" else np.float32)
    emulate(text, grid=1, block=128, args=[image.data, out])
    assert (out == wanted).all()


def test_metadata_that_names_no_two_places_is_a_fault() -> None:
    text, image, _ = sparse_case("f16", "bf16", False, wrong=0b0101)
    with pytest.raises(EmulationFault) as caught:
        emulate(text, grid=1, block=128, args=[image.data, np.zeros((128, 64), np.float32)])
    assert caught.value.kind == "descriptor"
    assert caught.value.sentence == (
        "the sparsity metadata of row 77 of A holds the index 0b0101, which names no places of stored elements: the "
        "legal ones are 0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110"
    )


@pytest.mark.parametrize("m", [32, 64, 128])
def test_zeroed_columns_of_b_give_zero(m: int) -> None:
    rng = np.random.default_rng(m)
    n = 128
    a, b = rng.integers(1, 4, (m, 16)), rng.integers(1, 4, (n, 16))
    image = Image()
    text = ""
    for register, values in ((3, a), (4, b)):
        tile = Tile(codes_of(values, "f16"), 16, "64B")
        text += descriptor(register, tile.descriptor, image.add(tile.image()))
    # Runs of 3 zeroed and 5 used columns; the second sub-mask starts with zeroed ones, the third is one column further.
    zeros = 1 << 39 | 2 << 40 | 4 << 48 | 1 << 33 | 1 << 16
    word = 1 << 4 | n // 8 << 17 | m // 16 << 24
    text += enable(5, False) + f"mov.b64 %rd6, {zeros:#x};\n"
    text += f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r6], %rd3, %rd4, {word:#x}, %p5, %rd6;\n"
    columns = n // (128 // m)
    whole = kernel(one_thread(text) + read_back(columns), image.data.size, 128)
    check_spelling(whole)
    out = np.zeros((128, columns), np.float32)
    emulate(whole, grid=1, block=128, args=[image.data, out])
    product = a @ b.T
    for lane in range(128):
        part = lane // m
        for column in range(columns):
            phase = (column + (part == 2)) % 8
            zeroed = phase < 3 if part == 1 else phase >= 5
            assert out[lane, column] == (0 if zeroed else product[lane % m, part * columns + column])


def one_product(name: str, word: int, after_b: str = "", tail: str = "") -> str:
    """A kernel around one instruction whose operands are 128 rows of zeros."""
    tile = Tile(np.zeros((128, 16), np.int64), 16, "32B")
    text = descriptor(3, tile.descriptor, 0) + descriptor(4, tile.descriptor, 4096) + enable(5, False)
    text += f"mov.b64 %rd6, {1 << 39 | 5 << 56:#x};\n"
    text += f"{name} [%r6], %rd3, %rd4,{after_b} {word:#x}, %p5{tail};\n"
    return kernel(one_thread(text), 8192, 128)


@pytest.mark.parametrize(
    ("name", "word", "after_b", "tail", "reason"),
    [
        (
            "tcgen05.mma.sp.cta_group::1.kind::f16", 1 << 4 | 4 | 4 << 17 | 4 << 24, " [%r6+64],", "",
            "where the metadata of sparse A lies in tensor memory is not known for M = 64 with .cta_group::1",
        ),
        (
            "tcgen05.mma.ws.cta_group::1.kind::f16", 1 << 4 | 8 << 17 | 8 << 24, "", ", %rd6",
            "column shifts of the zero-column mask (5 here)",
        ),
    ],
)  # fmt: skip
def test_what_the_emulator_does_not_know_it_refuses(name: str, word: int, after_b: str, tail: str, reason: str) -> None:
    text = one_product(name, word, after_b, tail)
    check_spelling(text)
    line = next(n for n, part in enumerate(text.split("\n"), 1) if part.startswith("tcgen05.mma"))
    with pytest.raises(UnsupportedInstruction) as caught:
        emulate(text, grid=1, block=128, args=[np.zeros(8192, np.uint8), np.zeros(1, np.uint32)])
    assert str(caught.value) == f"PTX line {line}: the emulator has no semantics for `{name}`: {reason}"
