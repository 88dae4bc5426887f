"""Floating constants against NumPy: every width as written, in every width of the type that reads it."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.ptx.emulator.source.literals import float_pattern, is_special

FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
WORDS = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def patterns(width: int) -> np.ndarray:
    """Random bits, which are of every exponent; bits around those of narrower numbers; zeros, ends and infinities."""
    rng = np.random.default_rng(width)
    word, real = WORDS[width], FLOATS[width]
    anything = rng.integers(0, 2**width, 300, dtype=np.uint64).astype(word)
    with np.errstate(over="ignore"):
        near = np.concatenate([rng.standard_normal(200), 10.0 ** rng.uniform(-9, 6, 200), 2.0 ** np.arange(-30, 18)])
        ends = [0.0, -0.0, np.inf, -np.inf, 65504, 65519.99, 65520, -65520, 3.4028235e38, 3.4028236e38, -3.5e38, 1e-45]
        around = np.concatenate([near, -near, ends]).astype(real).view(word)
    return np.concatenate([anything, around, around + word(1), around - word(1)])


@pytest.mark.parametrize("target", [16, 32, 64])
@pytest.mark.parametrize("width", [32, 64])
def test_a_constant_is_rounded_to_the_type_that_reads_it(width: int, target: int) -> None:
    given = patterns(width)
    with np.errstate(over="ignore", invalid="ignore"):
        values = given.view(FLOATS[width])
        wanted = values.astype(FLOATS[target])
    found = np.array([float_pattern((width, int(bits)), target) for bits in given], np.uint64).astype(WORDS[target])
    number = ~np.isnan(values)
    assert np.array_equal(found[number], wanted[number].view(WORDS[target]))
    assert np.isnan(found[~number].view(FLOATS[target])).all()


@pytest.mark.parametrize("target", [16, 32, 64])
@pytest.mark.parametrize("width", [32, 64])
def test_a_minus_changes_the_sign_bit_alone(width: int, target: int) -> None:
    for bits in patterns(width)[::7].tolist():
        plain = float_pattern((width, bits), target)
        assert float_pattern((width, bits), target, negative=True) == plain ^ 1 << target - 1


def test_the_bits_of_a_constant_as_wide_as_its_type_are_kept_nan_and_all() -> None:
    for bits in (0x7FC12345, 0xFF800001, 0x7F800001, 0x80000000):
        assert float_pattern((32, bits), 32) == bits


@pytest.mark.parametrize("name", ["%tid.x", "%nctaid.z", "%lanemask_ge", "%envreg31", "%pm7_64", "%clock64"])
def test_special_registers_are_those_of_the_manual(name: str) -> None:
    assert is_special(name)
    assert not is_special(name.removeprefix("%"))


@pytest.mark.parametrize("name", ["%tid.v", "%envreg32", "%pm8", "%pm0_32", "%lanemask_ne", "%r1"])
def test_others_are_not(name: str) -> None:
    assert not is_special(name)
