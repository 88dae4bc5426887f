"""What is the same for all threads of a launch: its parameters, and special registers such as %ntid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.source.types import TYPES, numpy_type


class LaunchConstants:
    """Constants of one launch as NumPy scalars, each worked out once.

    parameters  bytes of the kernel's parameters
    specials    special registers by name
    """

    def __init__(self, parameters: bytes, specials: Mapping[str, int]) -> None:
        self._parameters = parameters
        self._specials = specials
        self._known: dict[tuple[int | str, int | str, int], Any] = {}

    def parameter(self, offset: int, type_name: str, bits: int) -> Any:
        """An element of the parameters, extended by its sign or by zeros to an unsigned scalar of so many bits."""
        found = self._known.get((offset, type_name, bits))
        if found is None:
            kind = TYPES[type_name]
            value = int.from_bytes(self._parameters[offset : offset + kind.bytes], "little", signed=kind.signed)
            found = np.dtype(f"u{bits // 8}").type(value & ((1 << bits) - 1))
            self._known[offset, type_name, bits] = found
        return found

    def special(self, name: str, type_name: str) -> Any:
        """A special register as a scalar of the type's register view."""
        found = self._known.get((name, type_name, 0))
        if found is None:
            bits = TYPES[type_name].bits
            value = np.array([self._specials[name] & ((1 << bits) - 1)], f"u{bits // 8}")
            found = value.view(numpy_type(type_name))[0]
            self._known[name, type_name, 0] = found
        return found
