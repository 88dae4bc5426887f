"""An instruction that a package offers by itself, without a machine: whether its meaning is what its text does."""

from __future__ import annotations

import numpy as np

from tinygpu.extensions import Extension
from tinygpu.language.instruction import Elementwise, Instruction
from tinygpu.seeds import check_seed
from tinygpu.testing.meanings import meaning_fault

# Draws of its operands.
DRAWS = 4


class CannotBeChecked(ValueError):
    """An instruction that is not checked by itself."""


def check_instruction(one: Extension, *, seed: int = 0) -> str:
    """What is wrong with an element-wise instruction, in a sentence; "" where its meaning is what its text does.

    Operands are values of every size and sign. Raises CannotBeChecked for other families, and for a class that takes
    arguments: a machine that uses them is checked instead.
    """
    check_seed(seed)
    found = one.imported()
    if isinstance(found, type) and issubclass(found, Instruction):
        try:
            found = found()
        except TypeError:
            raise CannotBeChecked(
                f"{one} takes arguments; check a machine that uses it, or offer one that is made"
            ) from None
    if not isinstance(found, Instruction):
        raise one.wrong(found, "an instruction or a class of them")
    if not isinstance(found, Elementwise):
        raise CannotBeChecked(f"{one} moves or combines tiles; check a machine that uses it")
    faults = (meaning_fault(found, np.random.default_rng([seed, draw]), 0.0) for draw in range(DRAWS))
    return next((f"{one}: {fault}" for fault in faults if fault), "")
